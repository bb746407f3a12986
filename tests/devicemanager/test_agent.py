"""The loop: when it publishes, how it waits, what it says (spec 06 §2.4; cases B015, B039, B056)."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from devicemanager.agent import Agent, AgentOptions, FleetAgent, NodeNameMissing
from devicemanager.answers import Answer, Bus, Empty, Failed, Found
from devicemanager.publisher.publish import Known, Publisher
from kube.errors import Unreachable
from nodefeature.fields import at
from nodefeature.kinds import DEVICES, NODE, NODE_FEATURE
from tests.builders.cards import NVIDIA_ONLY, ScriptedDetector, cards, node
from tests.builders.fake_api import FakeApi, refusal
from tests.builders.rows import case_json
from tests.builders.virtual_clock import VirtualClock

OPTIONS = AgentOptions(detection=NVIDIA_ONLY)
FOUR = Found(cards(4))


def cluster() -> FakeApi:
    api = FakeApi()
    api.add(NODE, node())
    return api


def agent_of(
    api: FakeApi, clock: VirtualClock, *answers: Answer, options: AgentOptions = OPTIONS, name: str = "gpu-a"
) -> Agent:
    publisher = Publisher(api.client(), clock, namespace="gpustack-system")
    return Agent(name, ScriptedDetector(*answers), publisher, clock, options, rng=random.Random(1))


async def running(
    clock: VirtualClock, run: Callable[[], Awaitable[None]], *waits: float, between: Callable[[], Any] = lambda: None
) -> None:
    task = asyncio.ensure_future(run())
    await clock.advance(0)
    for wait in waits:
        await clock.advance(wait)
        between()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def card_count(api: FakeApi) -> int:
    groups = at(api.get(DEVICES, "gpu-a"), "spec", "groups") or []
    return sum(len(group["accelerators"]) for group in groups)


def test_b056_an_agent_without_a_node_name_does_not_start() -> None:
    with pytest.raises(NodeNameMissing, match="environment variable KUBERNETES_NODE_NAME is not set"):
        agent_of(FakeApi(), VirtualClock(), FOUR, name="")


def test_b015_all_passes_without_a_restart() -> None:
    api, clock, counts = cluster(), VirtualClock(), []
    lost = Found(tuple(card for card in cards(4) if card.uuid != "GPU-2"))
    told: dict[str, Answer] = {"error": Failed("driver/library version mismatch"), "empty": Empty("none")}
    passes: list[Answer] = [
        told.get(p["result"]) or (FOUR if p["count"] == 4 else lost) for p in case_json("B015-detect-passes")["passes"]
    ]
    agent = agent_of(api, clock, *passes)
    counts.append((card_count(api), bool(agent.unready)))

    def note() -> None:
        counts.append((card_count(api), bool(agent.unready)))

    asyncio.run(running(clock, agent.run, *[15.0] * 5, between=note))
    assert [count for count, _ in counts] == [0, 4, 4, 3, 0, 4]
    assert at(api.get(DEVICES, "gpu-a"), "status", "groups")[0]["accelerators"][2]["id"] == "GPU-2"


def test_b015_nothing_is_published_until_somebody_answers() -> None:
    api, clock = cluster(), VirtualClock()
    agent = agent_of(api, clock, Failed("driver/library version mismatch"))
    asyncio.run(running(clock, agent.run, 15, 15))
    assert api.writes == []
    assert "driver/library version mismatch" in agent.unready


def test_b039_health_flips_back_without_a_restart() -> None:
    api, clock, seen = cluster(), VirtualClock(), []
    bad = Found(tuple(replace(c, ecc_uncorrected=1) if c.uuid == "GPU-3" else c for c in cards(4)))

    def note() -> None:
        card = at(api.get(DEVICES, "gpu-a"), "spec", "groups")[0]["accelerators"][3]
        seen.append(card["status"]["unhealthy"])

    async def scenario() -> None:
        agent = agent_of(api, clock, FOUR, bad, bad, bad, FOUR)
        await agent.step()
        held = {"id": "GPU-3", "index": 3, "mode": 1}
        status = at(api.get(DEVICES, "gpu-a"), "status")
        status["groups"][0]["accelerators"][3] = held
        api.edit(DEVICES, "gpu-a", {"status": status})
        for _ in range(4):
            await agent.step()
            note()
        assert at(api.get(DEVICES, "gpu-a"), "status", "groups")[0]["accelerators"][3] == held

    asyncio.run(scenario())
    assert seen == [True, True, True, False]


def test_a_settled_agent_writes_nothing_and_reads_little() -> None:
    api, clock = cluster(), VirtualClock()
    agent = agent_of(api, clock, FOUR)

    async def scenario() -> None:
        await running(clock, agent.run, *[15.0] * 40)

    asyncio.run(scenario())
    assert agent.writes == 3
    assert len(api.writes) == 3
    assert len(api.reads) <= 4 * 4


def test_touched_objects_are_compared_at_the_next_pass_without_reading_them_again() -> None:
    api, clock = cluster(), VirtualClock()
    agent = agent_of(api, clock, FOUR)

    def cached() -> Known:
        stored = api.get(NODE_FEATURE, "gpu-a-gpustack-device-manager", "gpustack-system")
        return Known(api.get(NODE, "gpu-a") or {}, stored, api.get(DEVICES, "gpu-a"))

    async def scenario() -> None:
        await agent.step()
        read = len(api.reads)
        agent.look_again(cached)
        await running(clock, agent.run, 15)
        assert (len(api.reads), agent.writes) == (read, 3), "nothing differs"
        api.remove(DEVICES, "gpu-a")
        agent.look_again(cached)
        await running(clock, agent.run, 15)
        assert len(api.reads) == read

    asyncio.run(scenario())
    assert card_count(api) == 4


def test_a_settled_agent_asks_nothing_for_hours() -> None:
    api, clock = cluster(), VirtualClock()
    agent = agent_of(api, clock, FOUR)

    async def scenario() -> None:
        await agent.step()
        read = len(api.reads)
        await running(clock, agent.run, *[15.0] * 720)
        assert len(api.reads) == read

    asyncio.run(scenario())
    assert agent.writes == 3


def test_an_outage_of_an_hour_ends_in_one_publish() -> None:
    api, clock = cluster(), VirtualClock()
    agent = agent_of(api, clock, FOUR, FOUR, FOUR, Found(cards(3)))
    tries = []

    def down(request: Any) -> Exception:
        tries.append(request)
        return Unreachable("connection refused")

    async def scenario() -> None:
        api.faults.append(down)
        task = asyncio.ensure_future(agent.run())
        for _ in range(240):
            await clock.advance(15)
        assert api.writes == []
        assert "connection refused" in agent.unready
        api.faults.clear()
        for _ in range(10):
            await clock.advance(15)
        task.cancel()

    asyncio.run(scenario())
    assert len(api.writes) == 3
    assert card_count(api) == 3
    assert len(tries) < 50  # the pauses grow: about one try in two minutes
    assert agent.unready == ""


def test_a_node_that_appears_late_is_published_then() -> None:
    api, clock = FakeApi(), VirtualClock()
    agent = agent_of(api, clock, FOUR)

    async def scenario() -> None:
        await agent.step()
        assert "not found" in agent.unready
        api.add(NODE, node())
        await running(clock, agent.run, 15)

    asyncio.run(scenario())
    assert card_count(api) == 4


def test_a_node_that_is_going_is_waited_for() -> None:
    api, clock = FakeApi(), VirtualClock()
    api.add(NODE, node(deletionTimestamp="2026-01-01T00:00:00Z"))
    agent = agent_of(api, clock, FOUR)
    asyncio.run(agent.step())
    assert agent.unready == "skip deleted node gpu-a"
    assert api.writes == []


def test_no_fast_failed_publishes_an_empty_result() -> None:
    for flag, kinds in ((False, []), (True, [NODE_FEATURE, DEVICES])):
        api = cluster()
        agent = agent_of(api, VirtualClock(), Empty("none"), options=replace(OPTIONS, no_fast_failed=flag))
        asyncio.run(agent.step())
        assert [write.kind for write in api.writes] == kinds


def test_a_defect_in_one_pass_does_not_end_the_loop(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(ScriptedDetector):
        async def bus(self) -> Bus:
            raise RuntimeError("defect")

    api, clock = cluster(), VirtualClock()
    publisher = Publisher(api.client(), clock, namespace="gpustack-system")
    agent = Agent("gpu-a", Broken(FOUR), publisher, clock, OPTIONS, rng=random.Random(1))
    asyncio.run(running(clock, agent.run, 15))
    assert [record.message for record in caplog.records if record.exc_info] == ["detection pass failed"] * 2
    assert "see the log" in agent.unready


def test_changes_and_troubles_are_said_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    api, clock = cluster(), VirtualClock()
    api.faults.append(lambda r: refusal(403, "Forbidden", "no") if r.method == "POST" else None)
    agent = agent_of(
        api, clock, FOUR, Failed("x"), Failed("x"), Found((*cards(1), replace(cards(1)[0], uuid="GPU-XX")))
    )

    async def scenario() -> None:
        for _ in range(6):
            await agent.step()
            await clock.advance(200)

    asyncio.run(scenario())
    told = [record.message for record in caplog.records if record.name.startswith("devicemanager")]
    assert told == [
        "cards detected",
        "cards not published",
        "cards not measured",
        "cards detected",
        "card left out or repaired",
    ]


def test_a_fleet_publishes_every_node_and_then_nothing() -> None:
    api, clock = FakeApi(), VirtualClock()
    names = [f"n{i}" for i in range(20)]
    api.add(NODE, *(node(name, f"uid-{name}") for name in names))
    detectors = {name: ScriptedDetector(Found(cards(2))) for name in names}
    fleet = FleetAgent(api.client(), clock, detectors, OPTIONS, namespace="gpustack-system", rng=random.Random(1))
    assert len(fleet.waiting) == 20

    asyncio.run(running(clock, fleet.run, 15, 15, 15))
    assert fleet.waiting == []
    assert api.names(DEVICES) == sorted(names)
    assert fleet.writes == len(api.writes) == 60
    assert len(api.reads) == 3  # three lists

    again = FleetAgent(api.client(), clock, detectors, OPTIONS, namespace="gpustack-system", rng=random.Random(1))
    asyncio.run(running(clock, again.run, 15))
    assert again.writes == 0


def test_a_fleet_without_an_api_server_waits() -> None:
    api, clock = cluster(), VirtualClock()
    api.faults.append(lambda _r: Unreachable("connection refused"))
    fleet = FleetAgent(api.client(), clock, {"gpu-a": ScriptedDetector(FOUR)}, OPTIONS, namespace="x")
    asyncio.run(running(clock, fleet.run, 15))
    assert fleet.waiting == ["gpu-a"]
