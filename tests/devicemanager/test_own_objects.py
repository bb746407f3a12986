"""Which changes make an agent look at its objects again, and what it is told (decision 0401)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest

from devicemanager.agent import Agent, AgentOptions
from devicemanager.answers import Found
from devicemanager.own_objects import OwnObjects, selections
from devicemanager.publisher.publish import Publisher
from kube.reconciler import Key, Object
from kube.runtime import SharedCaches
from kube.store import Store
from nodefeature.kinds import DEVICES, NODE, NODE_FEATURE, Kind
from nodefeature.labels import SYSTEM_NAMESPACE
from tests.builders.cards import NVIDIA_ONLY, ScriptedDetector, cards, node
from tests.builders.fake_api import FakeApi
from tests.builders.virtual_clock import VirtualClock

KEYS = {watch.kind: watch.keys for watch in OwnObjects.WATCHES}
FEATURE = "gpu-a-gpustack-device-manager"


def named(name: str, **more: Any) -> Object:
    return {"metadata": {"name": name, "uid": "1", **more}}


ROWS: dict[str, tuple[Kind, Object | None, Object | None, list[str]]] = {
    "a node comes": (NODE, None, named("gpu-a"), ["gpu-a"]),
    "a node goes": (NODE, named("gpu-a"), None, ["gpu-a"]),
    "a node is going": (NODE, named("gpu-a"), named("gpu-a", deletionTimestamp="t"), ["gpu-a"]),
    "a namesake": (NODE, named("gpu-a"), named("gpu-a", uid="2"), ["gpu-a"]),
    "a heartbeat": (NODE, named("gpu-a"), named("gpu-a", resourceVersion="9"), []),
    "the NodeFeature": (NODE_FEATURE, named(FEATURE), named(FEATURE), ["gpu-a"]),
    "the NodeFeature is deleted": (NODE_FEATURE, named(FEATURE), None, ["gpu-a"]),
    "the worker's NodeFeature": (NODE_FEATURE, None, named("gpu-a-gpustack-worker"), []),
    "the Devices": (DEVICES, named("gpu-a"), named("gpu-a"), ["gpu-a"]),
    "the Devices are deleted": (DEVICES, named("gpu-a"), None, ["gpu-a"]),
}


@pytest.mark.parametrize("row", ROWS)
def test_who_is_woken(row: str) -> None:
    kind, old, new, want = ROWS[row]
    assert [key.name for key in KEYS[kind](old, new, SharedCaches())] == want


def test_one_node_follows_three_objects_and_a_fleet_what_is_ours() -> None:
    one, fleet = selections("x", "gpu-a"), selections("x")
    assert [one[kind].field_selector for kind in (NODE, NODE_FEATURE, DEVICES)] == [
        "metadata.name=gpu-a",
        f"metadata.name={FEATURE}",
        "metadata.name=gpu-a",
    ]
    assert (fleet[NODE].field_selector, fleet[NODE_FEATURE].namespace) == ("", "x")
    assert fleet[NODE_FEATURE].label_selector


@pytest.fixture
def told() -> Callable[[FakeApi], SharedCaches]:
    """Return what puts an API's present objects into caches."""

    def fill(api: FakeApi) -> SharedCaches:
        caches = SharedCaches()
        for kind in KEYS:
            store = Store(kind)
            caches.declare(store)
            for obj in api.store[kind].values():
                store.put(obj)
        return caches

    return fill


def test_what_is_gone_from_the_cache_is_made_again_without_a_read(told: Callable[[FakeApi], SharedCaches]) -> None:
    api, clock = FakeApi(), VirtualClock()
    api.add(NODE, node())
    publisher = Publisher(api.client(), clock, namespace=SYSTEM_NAMESPACE)
    options = AgentOptions(detection=NVIDIA_ONLY)
    agent = Agent("gpu-a", ScriptedDetector(Found(cards(4))), publisher, clock, options, rng=random.Random(1))

    async def scenario() -> None:
        await agent.step()
        api.remove(DEVICES, "gpu-a")
        read = len(api.reads)
        objects = OwnObjects(told(api), {"gpu-a": agent}, namespace=SYSTEM_NAMESPACE)
        for key in (Key("gpu-a"), Key("a-node-of-nobody")):
            await objects.reconcile(key)
        await agent.step()
        assert api.names(DEVICES) == ["gpu-a"]
        assert len(api.reads) == read
        assert objects.known("a-node-of-nobody") is None

    asyncio.run(scenario())
