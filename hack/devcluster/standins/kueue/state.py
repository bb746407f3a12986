"""Reading and writing of Kueue's conditions, shared by the stand-in's reconcilers."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from kube.reconciler import Caches, Key
from nodefeature.fields import as_int, as_maps, as_str, at, namespace_of
from nodefeature.kinds import LOCAL_QUEUE

CONTROLLER_FINALIZER = "kueue.x-k8s.io/resource-in-use"
GATE = "kueue.x-k8s.io/admission"
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"


def condition(obj: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """Return one condition; empty when there is none."""
    return next((c for c in as_maps(at(obj, "status", "conditions")) if c.get("type") == kind), {})


def condition_is(obj: Mapping[str, Any], kind: str, status: str) -> bool:
    """Say whether a condition has that status."""
    return condition(obj, kind).get("status") == status


def with_condition(
    obj: Mapping[str, Any], kind: str, *, status: str, reason: str, message: str, now: datetime
) -> list[dict[str, Any]]:
    """Return all conditions with one set; the transition time moves only when the status does."""
    was = condition(obj, kind)
    stamp = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    new = {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "observedGeneration": as_int(at(obj, "metadata", "generation")),
        "lastTransitionTime": was.get("lastTransitionTime", stamp) if was.get("status") == status else stamp,
    }
    shown = [dict(c) for c in as_maps(at(obj, "status", "conditions"))]
    if was:
        return [new if c.get("type") == kind else c for c in shown]
    return [*shown, new]


def reserving(workload: Mapping[str, Any]) -> bool:
    """Say whether a Workload holds quota."""
    return condition_is(workload, "QuotaReserved", "True") and not condition_is(workload, "Finished", "True")


def queue_of_workload(workload: Mapping[str, Any], caches: Caches) -> str:
    """Return the ClusterQueue behind a Workload: where it holds quota, else where its LocalQueue points."""
    held = as_str(at(workload, "status", "admission", "clusterQueue"))
    if held:
        return held
    local = caches[LOCAL_QUEUE].get(Key(as_str(at(workload, "spec", "queueName")), namespace_of(workload)))
    return as_str(at(local, "spec", "clusterQueue"))
