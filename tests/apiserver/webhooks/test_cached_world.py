"""The promises of cached_world, before anything was followed: every answer comes from a live read."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from apiserver.webhooks.cached_world import FORGET_S, CachedWorld
from kube.errors import OperatorError
from nodefeature.fields import name_of
from nodefeature.kinds import CLUSTER_QUEUE, INSTANCE_TYPE, LOCAL_QUEUE, NODE
from nodefeature.labels import RESOURCE_TYPE, TYPE_INSTANCE_TYPES
from tests.builders.admission import QUEUE, REGISTRY, pool
from tests.builders.fake_api import FakeApi, refusal
from tests.builders.virtual_clock import VirtualClock


class World:
    """A world that follows nothing yet, and the cluster behind it."""

    def __init__(self) -> None:
        self.api = FakeApi()
        self.clock = VirtualClock()
        self.world = CachedWorld(self.api.client(), REGISTRY, clock=self.clock, rng=random.Random(1))

    def behind(self, entrance: str) -> list[str]:
        return [name_of(found) for found in asyncio.run(self.world.types_behind(entrance))]

    def pool_of(self, queue: str = QUEUE) -> str:
        return name_of(asyncio.run(self.world.pool_of("team-a", queue)))


def test_an_entrance_that_nobody_is_behind_is_not_looked_for_again_within_a_second() -> None:
    world = World()
    assert world.behind(QUEUE) == world.behind(QUEUE) == []
    assert len(world.api.reads) == 1
    world.api.add(INSTANCE_TYPE, pool("a"), pool("b"), pool("other", entrance="gpustack-fnv64-0"))
    asyncio.run(world.clock.advance(FORGET_S))
    assert world.behind(QUEUE) == ["a", "b"]
    assert len(world.api.reads) == 2


@pytest.mark.parametrize("entrance", [f"={QUEUE}", f"{QUEUE},x", "a b", "x in (y)", "x" * 64])
def test_what_is_no_label_s_value_fronts_nothing_and_asks_nobody(entrance: str) -> None:
    world = World()
    world.api.add(INSTANCE_TYPE, pool())
    assert world.behind(entrance) == []
    assert world.api.reads == []


def test_single_objects_are_read_one_by_one() -> None:
    world = World()
    world.api.add(NODE, {"metadata": {"name": "n"}})
    world.api.add(INSTANCE_TYPE, pool("a"))
    assert [asyncio.run(world.world.node_exists(name)) for name in ("n", "m")] == [True, False]
    assert [name_of(asyncio.run(world.world.instance_type(name))) for name in ("a", "m")] == ["a", ""]
    assert len(world.api.reads) == 4


@pytest.mark.parametrize("name", ["a/b", "..", "a b/"])
def test_what_no_object_can_be_called_is_not_there(name: str) -> None:
    world = World()
    assert asyncio.run(world.world.node_exists(name)) is False
    assert asyncio.run(world.world.instance_type(name)) is None


@pytest.mark.parametrize(("minor", "want"), [("35", False), ("35+", False), ("36", True), ("37+", True), ("", True)])
def test_services_begin_with_a_digit_since_1_36(minor: str, want: bool) -> None:
    world = World()
    world.api.minor = minor
    assert asyncio.run(world.world.services_may_begin_with_a_digit()) is want


def test_a_hidden_version_is_taken_for_a_new_one() -> None:
    world = World()
    world.api.faults.append(lambda _: refusal(403, "Forbidden", "no"))
    assert asyncio.run(world.world.services_may_begin_with_a_digit()) is True
    world.api.faults[:] = [lambda _: refusal(500, "InternalError", "etcd is away")]
    with pytest.raises(OperatorError):
        asyncio.run(world.world.services_may_begin_with_a_digit())


LINKS: dict[str, tuple[Any, str]] = {
    "marked": ({RESOURCE_TYPE: TYPE_INSTANCE_TYPES}, "a"),
    "a queue of somebody else": ({}, ""),
    "null labels": (None, ""),
}


@pytest.mark.parametrize("name", LINKS)
def test_a_local_queue_leads_to_a_pool_by_marked_queues_alone(name: str) -> None:
    labels, want = LINKS[name]
    world = World()
    world.api.add(INSTANCE_TYPE, pool("a"))
    world.api.add(CLUSTER_QUEUE, {"metadata": {"name": "a", "labels": labels}})
    world.api.add(LOCAL_QUEUE, {"metadata": {"name": QUEUE, "namespace": "team-a"}, "spec": {"clusterQueue": "a"}})
    assert world.pool_of() == want
    assert world.pool_of("gone") == ""


def test_what_cannot_be_read_is_an_error_and_not_absence() -> None:
    world = World()
    world.api.faults.append(lambda _: refusal(500, "InternalError", "etcd is away"))
    for question in (world.behind, world.pool_of):
        with pytest.raises(OperatorError):
            question(QUEUE)
    world.api.faults.clear()
    world.api.add(INSTANCE_TYPE, pool("a"))
    assert world.behind(QUEUE) == ["a"]


def test_nothing_is_judged_before_types_and_settings_are_read() -> None:
    assert World().world.fault() == "not read yet: instancetypes, secrets"
