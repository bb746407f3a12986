"""Samples, their age, and how they are shown."""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast

import pytest

from api.devices import DeviceGroup
from devicemanager.answers import Failed
from devicemanager.detectors.recorded import RecordedDetector
from devicemanager.monitor import CardSample, Monitor, Snapshot, percent, snapshot_body, table_rows
from devicemanager.usage import CardUsage, Measured, PartitionUsage, ProcessUsage, dump_usage, load_usage
from hack.fleet import RECORDED
from tests.builders.metrics import StillMeter, group
from tests.builders.virtual_clock import VirtualClock


def groups(*listed: dict[str, Any]) -> list[DeviceGroup]:
    """Return groups as the inventory types them."""
    return cast(list[DeviceGroup], list(listed))


def sample(monitor: Monitor, *listed: dict[str, Any]) -> Snapshot:
    """Take one sample."""
    return asyncio.run(monitor.sample(groups(*(listed or (group("GPU-0"),)))))


def test_a_snapshot_is_stale_after_three_periods() -> None:
    clock = VirtualClock()
    monitor = Monitor(StillMeter(CardUsage("GPU-0")), clock, period_s=10)
    sample(monitor)
    asyncio.run(clock.advance(30))
    assert monitor.fresh() is not None
    clock.jump_wall(-86400)
    assert monitor.fresh() is not None
    asyncio.run(clock.advance(1))
    assert monitor.fresh() is None


def test_a_pass_without_an_answer_keeps_the_last_snapshot(caplog: pytest.LogCaptureFixture) -> None:
    meter = StillMeter(CardUsage("GPU-0", cores=5))
    monitor = Monitor(meter, VirtualClock())
    first = sample(monitor)
    meter.answer = Failed("driver gone")
    for _ in range(3):
        made = sample(monitor)
    assert monitor.snapshot is first
    assert made.troubles == {"nvidia": "driver gone"}
    assert len(caplog.records) == 1


def test_only_published_cards_are_shown_by_their_running_index() -> None:
    monitor = Monitor(StillMeter(CardUsage("GPU-b"), CardUsage("GPU-a"), CardUsage("GPU-unknown")), VirtualClock())
    shown = sample(monitor, group("GPU-a", "GPU-b", "GPU-silent"))
    assert [(card.card_id, card.index) for card in shown.cards] == [("GPU-a", 0), ("GPU-b", 1)]


@pytest.mark.parametrize(
    ("measured", "detected", "want"),
    [(None, True, True), (False, True, True), (True, False, True), (False, False, False)],
)
def test_health(measured: bool | None, detected: bool, want: bool) -> None:
    listed = group("GPU-0")
    listed["accelerators"][0]["status"]["unhealthy"] = detected
    (card,) = sample(Monitor(StillMeter(CardUsage("GPU-0", unhealthy=measured)), VirtualClock()), listed).cards
    assert card.unhealthy is want


@pytest.mark.parametrize(
    ("used", "total", "want"), [(1, 3, 33), (2, 2, 100), (0, 5, 0), (None, 5, None), (5, 0, None), (5, None, None)]
)
def test_percent(used: int | None, total: int | None, want: int | None) -> None:
    assert percent(used, total) == want


def test_what_was_not_measured_is_absent() -> None:
    shown = sample(Monitor(StillMeter(CardUsage("GPU-0")), VirtualClock()))
    body = snapshot_body(shown)
    assert body["timestamp"] == "2026-01-01T00:00:00Z"
    assert body["groups"][0]["accelerators"] == [{"id": "GPU-0", "index": 0, "memory": 81920, "unhealthy": False}]
    assert "slices" not in body
    assert table_rows(shown) == [("nvidia", "0", "NVIDIA H100", "GPU-0", "- / 81920 MiB", "-", "-", "-", "healthy")]


def test_b036_a_card_without_memory_shows_none() -> None:
    (card,) = sample(
        Monitor(StillMeter(CardUsage("GPU-0", memory_used_mib=5, cores=3)), VirtualClock()), group("GPU-0", memory=0)
    ).cards
    assert isinstance(card, CardSample)
    assert (card.memory_mib, card.memory_used_mib, card.memory_percent) == (None, None, None)


def test_figures_travel_on_one_line() -> None:
    card = CardUsage(
        "GPU-0",
        10,
        5,
        40,
        -3,
        70,
        True,
        (ProcessUsage(7, 3, 2),),
        "",
        "unsupported",
        (PartitionUsage("MIG-a", 4, 1, None),),
    )
    assert load_usage(dump_usage(Measured((card,)))) == Measured((card,))
    assert load_usage(dump_usage(Failed("no driver"))) == Failed("no driver")


@pytest.mark.parametrize("line", ["", "[]", "{", '{"x": 1}', "null"])
def test_a_line_that_is_no_answer(line: str) -> None:
    assert isinstance(load_usage(line), Failed)


@pytest.mark.parametrize("value", [-1, 2**40, "5", None, True, [], 1e400])
def test_impossible_figures_were_not_measured(value: object) -> None:

    line = json.dumps({"used": [{"uuid": "GPU-0", "memory_used_mib": value, "cores": value, "power_w": value}]})
    assert load_usage(line) == Measured((CardUsage("GPU-0", process_memory="", process_cores=""),))


@pytest.mark.parametrize("machine", ["nvidia-gb10-spark", "nvidia-rtx4090-dead-card", "ascend-a3-16", "thead-ppu-16"])
def test_recorded_cards_are_idle(machine: str) -> None:
    detector = RecordedDetector.load(RECORDED / f"{machine}.yaml")
    maker = detector.cards[0].manufacturer
    answer = asyncio.run(detector.measure(maker))
    assert isinstance(answer, Measured)
    alive = [card for card in detector.cards if card.health != "lost"]
    assert [card.uuid for card in answer.cards] == [card.uuid for card in alive]
    assert {card.memory_used_mib for card in answer.cards} == ({None} if machine == "nvidia-gb10-spark" else {0})
