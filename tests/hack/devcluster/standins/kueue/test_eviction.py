"""When a Workload loses its quota and when it is tried again; reasons are Kueue's."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from hack.devcluster.standins.kueue.eviction import (
    eviction_reason,
    inadmissible_reason,
    rejected_check,
    requeueing,
    reset_check,
    seconds_until_requeue,
)
from kube.reconciler import Object
from tests.builders.queues import cluster_queue
from tests.builders.rows import case_yaml
from tests.builders.standins import workload

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def given(*true: str, checks: tuple[str, ...] = (), active: bool = True, **status: Any) -> Object:
    conditions = [{"type": kind, "status": "True"} for kind in true]
    states = [{"name": f"c{n}", "state": state, "requeueAfterSeconds": 10 * n} for n, state in enumerate(checks)]
    body = {"conditions": conditions, "admissionChecks": states, "admission": {"clusterQueue": "q"}, **status}
    return workload(active=active, status=body)


HOLD, DRAIN, OPEN = (cluster_queue("q", policy=policy) for policy in ("Hold", "HoldAndDrain", "None"))
GOING = cluster_queue("q", deleting=True)
ADMITTED = ("QuotaReserved", "Admitted")
B006 = case_yaml("B006-workload-evicting")[0]

EVICTED: dict[str, tuple[Object, Object | None, tuple[str, int] | None]] = {
    "open queue, admitted": (given(*ADMITTED), OPEN, None),
    "Hold keeps what is admitted": (given(*ADMITTED), HOLD, None),
    "HoldAndDrain evicts what is admitted": (given(*ADMITTED), DRAIN, ("ClusterQueueStopped", 0)),
    "HoldAndDrain does not evict what only holds quota": (given("QuotaReserved"), DRAIN, None),
    "a missing queue evicts nothing": (given(*ADMITTED), None, None),
    "deactivated": (given(*ADMITTED, active=False), OPEN, ("Deactivated", 0)),
    "deactivated before drained": (given(*ADMITTED, active=False), DRAIN, ("Deactivated", 0)),
    "Retry": (given("QuotaReserved", checks=("Ready", "Retry")), OPEN, ("AdmissionCheck", 10)),
    "Retry of two: the longer wait": (given(checks=("Ready", "Retry", "Retry")), OPEN, ("AdmissionCheck", 20)),
    "Pending": (given("QuotaReserved", checks=("Pending",)), OPEN, None),
}


@pytest.mark.parametrize("row", EVICTED.values(), ids=EVICTED.keys())
def test_eviction_reason(row: tuple[Object, Object | None, tuple[str, int] | None]) -> None:
    who, queue, want = row
    why = eviction_reason(who, queue)
    assert (None if why is None else (why[0], why[2])) == want


LOST: dict[str, tuple[Object, Object | None, str]] = {
    "open queue": (given("QuotaReserved"), OPEN, ""),
    "Hold": (given("QuotaReserved"), HOLD, "ClusterQueue q is stopped"),
    "HoldAndDrain": (given("QuotaReserved"), DRAIN, "ClusterQueue q is stopped"),
    "missing": (given("QuotaReserved"), None, "ClusterQueue q is terminating or missing"),
    "terminating": (given("QuotaReserved"), GOING, "ClusterQueue q is terminating or missing"),
    "admitted": (given(*ADMITTED), None, ""),
}


@pytest.mark.parametrize("row", LOST.values(), ids=LOST.keys())
def test_inadmissible_reason(row: tuple[Object, Object | None, str]) -> None:
    who, queue, want = row
    assert inadmissible_reason(who, queue) == want


def requeued(reason: str, status: str = "False", at: str | None = None) -> Object:
    conditions = [{"type": "Requeued", "status": status, "reason": reason}]
    return workload(status={"conditions": conditions, "requeueState": {"requeueAt": at}})


REQUEUED: dict[str, tuple[Object, Object | None, str | float]] = {
    "never evicted": (workload(), OPEN, ""),
    "requeued already": (requeued("BackoffFinished", "True"), OPEN, ""),
    "Retry, still waiting": (requeued("AdmissionCheck", at="2026-01-01T12:00:30Z"), OPEN, 30.0),
    "Retry, time is over": (requeued("AdmissionCheck", at="2026-01-01T11:59:30Z"), OPEN, "BackoffFinished"),
    "Retry without a time": (requeued("AdmissionCheck"), OPEN, "BackoffFinished"),
    "deactivated, active again": (requeued("Deactivated"), OPEN, "Reactivated"),
    "the queue is still stopped": (requeued("ClusterQueueStopped"), HOLD, 0.0),
    "the queue is gone": (requeued("ClusterQueueStopped"), None, 0.0),
    "the queue is open again": (requeued("ClusterQueueStopped"), OPEN, "ClusterQueueRestarted"),
}


@pytest.mark.parametrize("row", REQUEUED.values(), ids=REQUEUED.keys())
def test_requeueing(row: tuple[Object, Object | None, str | float]) -> None:
    who, queue, want = row
    assert requeueing(who, queue, NOW) == want


@pytest.mark.parametrize("text", ["", "soon", "2026-01-01T13:00:00"])
def test_a_time_that_is_none_waits_for_nothing(text: str) -> None:
    assert seconds_until_requeue({"status": {"requeueState": {"requeueAt": text}}}, NOW) == 0.0


RESET: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "Pending stays": ({"name": "c", "state": "Pending", "message": "m"}, {"message": "m"}),
    "Ready": ({"name": "c", "state": "Ready"}, {"message": "Reset to Pending after eviction. Previously: Ready"}),
    "Retry is counted": (
        {"name": "c", "state": "Retry", "requeueAfterSeconds": 30, "retryCount": 2},
        {"message": "Reset to Pending after eviction. Previously: Retry", "requeueAfterSeconds": 30, "retryCount": 3},
    ),
}


@pytest.mark.parametrize("row", RESET.values(), ids=RESET.keys())
def test_reset_check(row: tuple[dict[str, Any], dict[str, Any]]) -> None:
    check, want = row
    reset = {k: v for k, v in reset_check(check, "now").items() if k != "lastTransitionTime"}
    assert reset == {"name": "c", "state": "Pending", **want}


def test_rejected() -> None:
    assert rejected_check(given(checks=("Rejected",)))
    assert not rejected_check(given(checks=("Retry",)))
    assert not rejected_check(given(checks=("Rejected",), active=False)), "said once"


def test_b006_between_the_two_writes_nothing_more_is_decided() -> None:
    assert eviction_reason(B006, OPEN) is None
    assert inadmissible_reason({**B006, "status": None}, OPEN) == ""
