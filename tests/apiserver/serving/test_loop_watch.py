"""How long the loop was held."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from apiserver.serving.loop_watch import LoopWatch

ROWS = {
    "in time": (-0.001, 0.002, 0.0),
    "hardly late": (0.0005, 0.002, 0.0),
    "held by our own work": (0.03, 0.031, 0.03),
    "the machine ran somebody else": (0.5, 0.004, 0.004),
}


@pytest.mark.parametrize("row", ROWS)
def test_what_counts_as_held(row: str) -> None:
    late_s, used_s, want_s = ROWS[row]
    registry = CollectorRegistry()
    watch = LoopWatch(registry)
    watch.note(late_s=late_s, used_s=used_s)
    assert registry.get_sample_value("apiserver_loop_held_seconds_sum") == pytest.approx(want_s)


def test_the_longest_is_told_once() -> None:
    registry = CollectorRegistry()
    watch = LoopWatch(registry)
    for held_s in (0.01, 0.04, 0.02):
        watch.note(late_s=held_s, used_s=held_s)
    told = [registry.get_sample_value("apiserver_loop_held_longest_seconds") for _ in range(2)]
    assert told == [0.04, 0.0]
