"""The pure parts of `bench-agent ENGINE=real`: whose card a Pod gets, and what the requests come to."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

import pytest

from hack.bench.fleet import MACHINES
from hack.controlplane.audit import Request
from hack.controlplane.product import AGENT
from tests.bench.fleet_real import ROUNDS, change_rows, first_card
from tests.builders.agent_cards import carved, sliceable
from tests.hack.bench.test_chain_audit import request

LEDGER = "devices.worker.gpustack.ai/status"
STATUS = "instancetypes.worker.gpustack.ai/status"
FLOOR = "floors.bench.gpustack.ai/status"
POOLS = {"n-1": "pool-a", "n-2": "pool-b"}


def change(node: str, begun: float, *, status_s: float = 0.1) -> Iterable[Request]:
    """Return what one Pod's coming leaves in the log."""
    yield request("pods", f"bench-{node}", begun)
    yield replace(request(LEDGER, node, begun + 0.02), user=AGENT.user)
    yield request(FLOOR, "floor", begun + 0.03)
    yield request(STATUS, POOLS[node], begun + 0.04, begun + 0.02 + status_s)


def test_changes_that_are_followed_in_time_hold() -> None:
    kept = [*change("n-1", 0), *change("n-2", 5), *change("n-1", 10, status_s=0.3)]
    rows, holds = change_rows(kept, 3, POOLS)
    assert holds
    assert rows["ledger writes of the agents"] == 3
    assert rows["Pod's record to ledger, p50 ms"] == pytest.approx(20, abs=0.01)
    assert rows["change, status p50 ms"] == pytest.approx(100, abs=0.01)
    assert rows["change, status p99 ms"] == pytest.approx(300, abs=0.01)
    assert rows["change, floor p99 ms"] == pytest.approx(10, abs=0.01)


@pytest.mark.parametrize(
    "kept",
    [
        pytest.param([], id="nothing happened"),
        pytest.param([*change("n-1", 0)], id="one of two changes"),
        pytest.param([*change("n-1", 0), *change("n-2", 5, status_s=1.2)], id="late"),
        pytest.param([*change("n-1", 0), *list(change("n-2", 5))[:3]], id="no status"),
        pytest.param(
            [*change("n-1", 0), *change("n-2", 5), replace(request(LEDGER, "n-2", 6), user=AGENT.user)],
            id="a ledger written twice",
        ),
        pytest.param([replace(r, user="somebody") for r in (*change("n-1", 0), *change("n-2", 5))], id="not by agents"),
    ],
)
def test_anything_else_does_not_hold(kept: list[Request]) -> None:
    rows, holds = change_rows(kept, 2, POOLS)
    assert not holds
    assert rows["Pods' comings and goings"] == 2
    assert kept or math.isnan(rows["change, status p99 ms"])


def test_a_pod_gets_a_card_that_can_be_had_whole() -> None:
    record = first_card({"spec": {"groups": [*carved(), *sliceable(2)]}})
    assert (record.card_id, record.manufacturer, record.allocated) == ("GPU-0", "nvidia", 1_600_000)


def test_there_are_enough_changes_for_a_99th_percentile() -> None:
    assert (ROUNDS - 2) * len(MACHINES) >= 200
