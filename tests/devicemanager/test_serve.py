"""Commands' side: one pass as YAML, readiness, fleets from a file."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest
import yaml

from devicemanager.agent import AgentOptions
from devicemanager.answers import Failed, Found
from devicemanager.detection import DetectionOptions
from devicemanager.detectors.host import HostDetector
from devicemanager.detectors.recorded import RecordedDetector
from devicemanager.manufacturers.registry import MANUFACTURERS
from devicemanager.serve import detect_once, groups_as_yaml, open_detector, serve_fleet, serve_node
from hack.fleet import RECORDED, Machines, repeat_machines, write_fleet
from kube.clock import SystemClock
from kube.tasks import Health
from nodefeature.kinds import DEVICES, NODE
from nodefeature.manufacturers import build_manufacturers
from tests.builders.cards import NVIDIA_ONLY, ScriptedDetector, cards, node
from tests.builders.fake_api import FakeApi
from tests.builders.virtual_clock import VirtualClock

REGISTRY = build_manufacturers({})
ALL = DetectionOptions(manufacturers=MANUFACTURERS)


def test_detect_prints_the_groups_of_devices() -> None:
    async def once() -> str:
        async with open_detector(
            SystemClock(), REGISTRY, recorded=str(RECORDED / "nvidia-rtx5090-desktop.yaml")
        ) as opened:
            assert isinstance(opened, RecordedDetector)
            return groups_as_yaml(await detect_once(opened, ALL))

    text = asyncio.run(once())
    assert text.startswith("-   id: geforce-rtx-5090\n    manufacturer: nvidia\n")
    assert "&" not in text
    assert [group["memory"] for group in yaml.safe_load(text)] == [32607, 24564]


def test_detect_names_and_skips_a_manufacturer_that_fails(caplog: pytest.LogCaptureFixture) -> None:
    told = ScriptedDetector({"nvidia": Found(cards(1)), "amd": Failed("SIGSEGV")})
    detection = asyncio.run(detect_once(told, ALL))
    assert list(detection.groups) == ["nvidia"]
    (record,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert record.__dict__["reason"] == "amd could not be measured: SIGSEGV"


def test_no_recording_means_this_host() -> None:
    async def opened() -> None:
        async with open_detector(SystemClock(), REGISTRY, root=Path("/does/not/exist")) as detector:
            assert isinstance(detector, HostDetector)
            assert (await detect_once(detector, ALL)).groups == {}

    asyncio.run(opened())


def test_ready_says_why_not() -> None:
    api, clock, health = FakeApi(), VirtualClock(), Health()
    api.add(NODE, node())
    options = AgentOptions(detection=NVIDIA_ONLY)
    told = ScriptedDetector(Failed("driver/library version mismatch"), Found(cards(1)))

    async def scenario() -> None:
        work = serve_node(api.client(), clock, "gpu-a", told, options, namespace="x", health=health)
        task = asyncio.ensure_future(work)
        await clock.advance(0)
        (fault,) = health.ready_faults()
        assert fault == "cards: nvidia could not be measured: driver/library version mismatch"
        await clock.advance(15)
        assert health.ready_faults() == []
        task.cancel()

    asyncio.run(scenario())


def test_a_fleet_from_a_file(tmp_path: Path) -> None:
    api, clock, health = FakeApi(), VirtualClock(), Health()
    nodes = repeat_machines(["nvidia-t4-cloud-vm", "hygon-k100ai", "cpu-intel-8358"], 6)
    write_fleet(tmp_path / "fleet.jsonl", nodes, Machines())
    api.add(NODE, *(node(each.name, f"uid-{each.name}") for each in nodes))
    options = AgentOptions(detection=ALL)

    async def scenario() -> None:
        work = serve_fleet(api.client(), clock, tmp_path / "fleet.jsonl", options, namespace="x", health=health)
        task = asyncio.ensure_future(work)
        await clock.advance(0)
        await clock.advance(15)
        task.cancel()

    asyncio.run(scenario())
    assert health.ready_faults() == []
    assert api.names(DEVICES) == ["node-1", "node-2", "node-4", "node-5"]
