"""Cases B007, B017 and B055 as often as they ask for."""

from __future__ import annotations

import asyncio
import copy
import random
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
import uvloop
import yaml

from api.ledger.modes import CARD_UNITS
from nodefeature.fields import name_of, uid_of
from nodefeature.kinds import POD
from tests.bench.far_kubelet import far_kubelet
from tests.bench.random_process import measure_successions
from tests.builders.agent_cards import T4, sliceable
from tests.builders.agent_world import AgentWorld, claiming, play, pod
from tests.devicemanager.kubelet.test_allocate import CASES, record_of

SLICED = "nvidia.com/gpu.sliced"
PLUGINS = 5
UNITS = {"small": 160_000, "large": 960_000}
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(autouse=True)
def processes_live() -> None:
    """Need no control plane."""


def test_b007_two_hundred_repetitions_in_random_order() -> None:
    small, large = yaml.safe_load_all((CASES / "B007-two-slices.yaml").read_text())
    refused = 0

    def held(world: AgentWorld, raw: dict[str, Any], phase: str) -> int:
        name, uid = name_of(raw), uid_of(raw)
        if phase == "Failed":
            assert "ask for different things" in world.kubelet.reasons[uid]
            assert record_of(world, name) == {}
            return 1
        [row] = record_of(world, name)["main"]["devices"]["groups"][0]["accelerators"]
        assert row["allocated"] == UNITS[name]
        assert world.kubelet.devices.answers[uid, "main", SLICED].envs["POD"] == uid
        return 0

    async def story(world: AgentWorld) -> None:
        nonlocal refused
        rng = random.Random(7)
        for _ in range(200):
            pods = [copy.deepcopy(raw) for raw in (small, large)]
            rng.shuffle(pods)
            pods[1]["metadata"]["creationTimestamp"] = "2026-01-01T00:06:00Z"  # six minutes later
            if together := rng.random() < 0.5:
                for raw in pods:
                    world.api.add(POD, raw)
                    world.kubelet.pods[uid_of(raw)] = raw
                phases = [await world.kubelet.admit(raw) for raw in pods]
            else:
                phases = [await world.run_pod(raw) for raw in pods]
            failed = sum(held(world, raw, phase) for raw, phase in zip(pods, phases, strict=True))
            assert together or not failed
            refused += failed
            for raw in pods:
                world.delete_pod(name_of(raw))
            await world.settled()

    play(sliceable(1, slices=8), story)
    assert refused, "two unequal Pods that wait together cannot be told apart"


def test_b017_fifty_successors_and_a_kill() -> None:
    async def story(world: AgentWorld) -> None:
        endpoints = world.kubelet.devices.endpoints
        for round_ in range(50):
            old = world.agent
            assert old is not None
            await world.start_agent(registered=False)
            await world.until(lambda: world.agent is not None and world.agent.ready(), seconds=30)
            await old.kill()
            assert (world.kubelet.devices.folder / "nvidia.exclusive.sock").exists()
            tokens = endpoints["nvidia.com/gpu"].healthy | endpoints["nvidia.com/gpu"].unhealthy
            assert tokens == {f"{T4}:GPU-0:0000", f"{T4}:GPU-1:0000"}
            if round_ % 10 == 0:
                assert await world.run_pod(pod(f"p{round_}", claiming(exclusive=1), age=round_)) == "Running"
                world.delete_pod(f"p{round_}")

    play(sliceable(2), story)


def test_b017_a_process_that_is_killed_beside_its_successor() -> None:
    with tempfile.TemporaryDirectory(prefix="k") as root:
        gaps = asyncio.run(measure_successions(Path(root), 5))
    assert all(gap < 5 for gap in gaps), gaps


@pytest.mark.parametrize("cards", [8, 64, 128])
def test_b055_two_hundred_allocations_on_end(cards: int) -> None:
    async def story(root: Path) -> None:
        async with far_kubelet(root / "kubelet") as kubelet:
            world = AgentWorld(root, sliceable(cards, slices=128))
            await world.start_agent(registered=False)
            await kubelet.served(PLUGINS)
            visible = await kubelet.endpoint("device.gpustack.ai/nvidia.visibility")
            assert visible["healthy"], visible["fault"]
            before = (await kubelet.endpoint(SLICED))["lists"]
            began, busy = time.monotonic(), time.process_time()
            for number in range(200):
                raw = pod(f"p{number}", claiming(sliced=1, sliced_units=8_000), age=number)
                world.api.add(POD, raw)
                status = await kubelet.admit(raw)
                assert status["phase"] == "Running", status
                world.api.edit(POD, name_of(raw), {"status": status}, "default")
            await world.settled()
            took, busy = time.monotonic() - began, time.process_time() - busy
            after = await kubelet.endpoint(SLICED)
            # A list at most each 20 ms, however many allocations lie between two.
            assert after["lists"] - before <= took / 0.02 + 2
            assert not after["fault"]
            assert busy < 200 * 0.1, "of the agent alone: the kubelet is another process"
            left = sum(row.get("remaining", 0) for row in world.rows().values())
            assert left == cards * CARD_UNITS - 200 * 8_000
            await world.kill_agent()

    with tempfile.TemporaryDirectory(prefix="k") as root:
        uvloop.run(story(Path(root)))
