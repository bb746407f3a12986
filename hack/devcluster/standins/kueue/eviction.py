"""When a Workload loses its quota, and when it may be tried again. Decisions only.

For: `workloads`. In: a Workload, its ClusterQueue, the time. Out: reasons (Kueue's own words), messages, seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from hack.devcluster.standins.kueue.state import condition, condition_is
from nodefeature.fields import as_int, as_maps, as_str, at, is_deleting


def rejected_check(workload: Mapping[str, Any]) -> bool:
    """Say whether some check has said no for good; Kueue then deactivates the Workload."""
    active = at(workload, "spec", "active") is not False
    return active and any(c.get("state") == "Rejected" for c in as_maps(at(workload, "status", "admissionChecks")))


def eviction_reason(workload: Mapping[str, Any], queue: Mapping[str, Any] | None) -> tuple[str, str, int] | None:
    """Return (reason, message, seconds before it may be tried again) when a Workload must be evicted."""
    if at(workload, "spec", "active") is False:
        return "Deactivated", "The workload is deactivated", 0
    retry = [c for c in as_maps(at(workload, "status", "admissionChecks")) if c.get("state") == "Retry"]
    if retry:
        names = ", ".join(as_str(c.get("name")) for c in retry)
        return "AdmissionCheck", f"Evicted due to admission checks that ask for a retry: {names}", _longest_wait(retry)
    drained = as_str(at(queue, "spec", "stopPolicy")) == "HoldAndDrain"
    if drained and condition_is(workload, "Admitted", "True"):
        return "ClusterQueueStopped", "The ClusterQueue is stopped", 0
    return None


def inadmissible_reason(workload: Mapping[str, Any], queue: Mapping[str, Any] | None) -> str:
    """Return why a Workload that holds quota, but is not admitted, must give it back; empty when it may keep it."""
    if condition_is(workload, "Admitted", "True"):
        return ""
    name = as_str(at(workload, "status", "admission", "clusterQueue"))
    if queue is None or is_deleting(queue):
        return f"ClusterQueue {name} is terminating or missing"
    if as_str(at(queue, "spec", "stopPolicy")) in ("Hold", "HoldAndDrain"):
        return f"ClusterQueue {name} is stopped"
    return ""


def requeueing(workload: Mapping[str, Any], queue: Mapping[str, Any] | None, now: datetime) -> str | float:
    """Return the reason an evicted Workload may be tried again for; else how long it waits, 0.0 for no known time.

    The empty string: nothing stands in its way, or nothing ever did.
    """
    requeued = condition(workload, "Requeued")
    if requeued.get("status") != "False":
        return ""
    reason = as_str(requeued.get("reason"))
    if reason == "Deactivated":
        return "Reactivated"
    if reason == "ClusterQueueStopped":
        stopped = as_str(at(queue, "spec", "stopPolicy")) in ("Hold", "HoldAndDrain")
        return 0.0 if queue is None or stopped else "ClusterQueueRestarted"
    return seconds_until_requeue(workload, now) or "BackoffFinished"


def reset_check(check: Mapping[str, Any], stamp: str) -> dict[str, Any]:
    """Return a check's state after an eviction: Pending, with the number of retries it has asked for."""
    if check.get("state") == "Pending":
        return dict(check)
    reset = {
        "name": check.get("name"),
        "state": "Pending",
        "message": f"Reset to Pending after eviction. Previously: {check.get('state')}",
        "lastTransitionTime": stamp,
    }
    if check.get("requeueAfterSeconds") is not None:
        reset["requeueAfterSeconds"] = check["requeueAfterSeconds"]
    if check.get("state") == "Retry":
        reset["retryCount"] = as_int(check.get("retryCount")) + 1
    return reset


def seconds_until_requeue(workload: Mapping[str, Any], now: datetime) -> float:
    """Return how long an evicted Workload still has to wait; 0 when it may be tried."""
    text = as_str(at(workload, "status", "requeueState", "requeueAt"))
    if not text:
        return 0.0
    try:
        due = datetime.fromisoformat(text)
    except ValueError:
        return 0.0
    if due.tzinfo is None:
        return 0.0
    return max((due - now).total_seconds(), 0.0)


def _longest_wait(checks: Iterable[Mapping[str, Any]]) -> int:
    return max((as_int(check.get("requeueAfterSeconds")) for check in checks), default=0)


def is_running(pod: Mapping[str, Any] | None) -> bool:
    """Say whether a Pod is in phase Running."""
    return as_str(at(pod, "status", "phase")) == "Running"
