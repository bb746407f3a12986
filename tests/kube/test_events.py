"""Events: one an object, subject and reason; counted, never stormed; never in the way."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kube.errors import Unreachable, class_of
from kube.events import PAUSE_S, EventRecorder, event_of
from nodefeature.destinations import is_object_name
from nodefeature.kinds import EVENT, INSTANCE
from tests.builders.fake_api import FakeApi
from tests.builders.virtual_clock import VirtualClock


def box(version: str = "1", uid: str = "u") -> Any:
    return {"metadata": {"name": "box", "namespace": "team-a", "uid": uid, "resourceVersion": version}}


class World:
    def __init__(self) -> None:
        self.api = FakeApi()
        self.clock = VirtualClock()
        self.recorder = EventRecorder(self.api.client(), self.clock, INSTANCE)

    def stored(self) -> list[Any]:
        return list(self.api.store[EVENT].values())


def play(story: Callable[[World], Awaitable[None]]) -> World:
    world = World()
    asyncio.run(story(world))  # type: ignore[arg-type]  # stories are coroutine functions
    return world


def test_an_event_is_found_by_describe() -> None:
    async def story(world: World) -> None:
        await world.recorder.record(box(), "Ready", "all containers are ready")

    (event,) = play(story).stored()
    assert event["metadata"]["namespace"] == "team-a"
    assert event["involvedObject"] == {
        "apiVersion": "worker.gpustack.ai/v1alpha1",
        "kind": "Instance",
        "name": "box",
        "namespace": "team-a",
        "uid": "u",
        "resourceVersion": "1",
    }
    assert (event["type"], event["reason"], event["count"]) == ("Normal", "Ready", 1)


def test_the_same_step_told_again_changes_nothing() -> None:
    async def story(world: World) -> None:
        await world.recorder.record(box(), "Ready", "m")
        await world.clock.advance(3600)
        restarted = EventRecorder(world.api.client(), world.clock, INSTANCE)
        await restarted.record(box(), "Ready", "m")

    world = play(story)
    assert len(world.api.writes) == 1


def test_the_same_step_taken_anew_is_counted() -> None:
    async def story(world: World) -> None:
        for version in ("1", "2", "3"):
            await world.recorder.record(box(version), "NotReady", f"try {version}")
            await world.clock.advance(PAUSE_S)

    (event,) = play(story).stored()
    assert (event["count"], event["message"]) == (3, "try 3")
    assert event["firstTimestamp"] != event["lastTimestamp"]


def test_no_storm() -> None:
    async def story(world: World) -> None:
        for version in range(600):
            await world.recorder.record(box(str(version)), "NotReady", "m")
            await world.clock.advance(1)

    world = play(story)
    assert len(world.stored()) == 1
    assert len(world.api.writes) <= 1 + 600 / PAUSE_S


@pytest.mark.parametrize(
    ("other", "subject"),
    [(box(uid="another"), ""), (box(), "pod-2")],
    ids=["another object of the name", "another subject"],
)
def test_told_apart(other: Any, subject: str) -> None:
    async def story(world: World) -> None:
        await world.recorder.record(box(), "Ready", "m")
        await world.recorder.record(other, "Ready", "m", subject=subject)

    assert len(play(story).stored()) == 2


@pytest.mark.parametrize(("code", "reason"), [(403, "Forbidden"), (429, "TooManyRequests"), (500, "InternalError")])
def test_an_event_that_is_lost_holds_nothing_up(code: int, reason: str) -> None:
    async def story(world: World) -> None:
        world.api.faults.append(lambda request: class_of(code, reason)({"message": "no"}, code, reason))
        await world.recorder.record(box(), "Ready", "m")

    assert play(story).stored() == []


def test_an_event_that_nobody_answers_holds_nothing_up() -> None:
    async def story(world: World) -> None:
        world.api.faults.append(lambda request: Unreachable("no answer in time"))
        await world.recorder.record(box(), "Ready", "m")

    assert play(story).stored() == []


@pytest.mark.parametrize("stamp", [None, "yesterday", "2026-01-01T00:00:00", 5])
def test_a_stored_event_may_be_anything(stamp: Any) -> None:
    async def story(world: World) -> None:
        await world.recorder.record(box(), "Ready", "m")
        (key,) = world.api.store[EVENT]
        world.api.edit(EVENT, key.name, {"lastTimestamp": stamp, "count": stamp, "involvedObject": None}, "team-a")
        await world.recorder.record(box("2"), "Ready", "m")

    (event,) = play(story).stored()
    assert event["count"] == (6 if stamp == 5 else 2)


def test_names_are_legal_and_sentences_bounded() -> None:
    event = event_of(
        INSTANCE,
        {"metadata": {"name": "a" * 199 + "-" + "b" * 53}},
        event_type="Normal",
        reason="R",
        message="x" * 5000,
        identity="i",
        stamp="t",
    )
    assert is_object_name(event["metadata"]["name"])
    assert len(event["message"]) == 1024
