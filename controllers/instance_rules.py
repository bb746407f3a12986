"""When an Instance is stopped, waits, or gets a new Pod (spec 05 §9, steps 5-7).

For: the instance controller. In: an Instance and what it stands on. Out: a reason or a pause. Promises: pure.
The reason to stop is the queue's stop policy or the type's end, never the type's phase: both held states read
Inactive, and a fast drain skips Draining.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from api.instance_conditions import ConditionType
from api.ledger.fit import detail_ready
from controllers.instance_events import WITH_POD
from controllers.instance_pod import entrance_of
from controllers.instance_resources import is_accelerated
from controllers.instance_watches import is_draining
from nodefeature.fields import as_map, as_maps, as_str, at, is_deleting, name_of

YOUNG_S = 300.0
"""Up to this age of the Instance a Pod that its kubelet refused is built anew."""
_SHORTEST_PAUSE_S = 2.0
_PLAIN_PHASES = ("", "Starting", "Pending")


def stop_reason(
    instance: Mapping[str, Any], instance_type: Mapping[str, Any] | None, queue: Mapping[str, Any] | None
) -> str:
    """Return why an Instance must be stopped; empty when it need not. `Hold` and a missing queue are no reasons."""
    asked = as_str(at(instance, "spec", "type"))
    if instance_type is None:
        return f'InstanceType "{asked}" does not exist'
    if is_deleting(instance_type):
        return f'InstanceType "{asked}" is being deleted'
    return f'InstanceType "{asked}" is draining' if is_draining(queue) else ""


def type_lacks(instance_type: Mapping[str, Any]) -> str:
    """Return what a type has not published yet and a Pod needs; empty when nothing is missing."""
    name = name_of(instance_type)
    if is_accelerated(instance_type) and not detail_ready(as_map(at(instance_type, "status", "detail"))):
        return f'InstanceType "{name}" does not know its accelerators yet'
    return "" if entrance_of(instance_type) else f'InstanceType "{name}" has no entrance yet'


def rebuild_pause_s(instance: Mapping[str, Any], pod: Mapping[str, Any]) -> float | None:
    """Return how long to wait before a refused Pod is built anew; None when it is left as the visible error.

    The pause is the age of the Instance at the Pod's creation, so that it grows with each attempt.
    """
    born, made = _created(instance), _created(pod)
    if born is None or made is None:
        return None
    gap_s = max((made - born).total_seconds(), 0.0)
    return max(gap_s, _SHORTEST_PAUSE_S) if gap_s < YOUNG_S else None


def tells_of_a_pod(instance: Mapping[str, Any]) -> bool:
    """Say whether the stored status speaks of a Pod, or of none for good, and must be reset before a new one."""
    status = as_map(instance.get("status"))
    if as_str(status.get("phase")) not in _PLAIN_PHASES or "nodeName" in status:
        return True
    return any(
        condition.get("type") == ConditionType.ADMITTED and condition.get("reason") in WITH_POD
        for condition in as_maps(status.get("conditions"))
    )


def _created(obj: Mapping[str, Any]) -> datetime | None:
    try:
        moment = datetime.fromisoformat(as_str(at(obj, "metadata", "creationTimestamp")))
    except ValueError:
        return None
    return moment if moment.tzinfo else None
