"""The steps of an Instance's life that its Events tell.

For: the instance controller. In: the stored conditions and the new ones. Out: what to tell, in the order of the life.
Promises: pure; only a change of a condition's reason is a step, so a settled Instance tells nothing and a message that
merely counts on is no Event; a step that is skipped between two looks is not invented.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from api.instance_conditions import ConditionType, EventReason, Reason
from kube.events import EventType
from nodefeature.fields import as_maps, as_str, at


@dataclass(frozen=True, slots=True)
class Step:
    """One Event to write."""

    reason: EventReason
    message: str
    event_type: EventType = "Normal"


_TOLD: Mapping[tuple[str, str], tuple[EventReason, EventType]] = {
    (ConditionType.ADMITTED, Reason.INSTANCE_TYPE_NOT_READY): (EventReason.WAITING_FOR_TYPE, "Normal"),
    (ConditionType.ADMITTED, Reason.VOLUME_NOT_READY): (EventReason.WAITING_FOR_VOLUME, "Warning"),
    (ConditionType.ADMITTED, Reason.POD_REFUSED): (EventReason.POD_REFUSED, "Warning"),
    (ConditionType.ADMITTED, Reason.FOREIGN_POD): (EventReason.FOREIGN_POD, "Warning"),
    (ConditionType.ADMITTED, Reason.QUEUED): (EventReason.QUEUED, "Normal"),
    (ConditionType.ADMITTED, Reason.CHECKS_PENDING): (EventReason.CHECKS_PENDING, "Normal"),
    (ConditionType.ADMITTED, Reason.EVICTED): (EventReason.EVICTED, "Warning"),
    (ConditionType.ADMITTED, Reason.ADMITTED): (EventReason.ADMITTED, "Normal"),
    (ConditionType.ADMITTED, Reason.STOPPED): (EventReason.STOPPED, "Normal"),
    (ConditionType.ADMITTED, Reason.STOPPING): (EventReason.STOPPING, "Normal"),
    (ConditionType.SCHEDULED, Reason.UNSCHEDULABLE): (EventReason.UNSCHEDULABLE, "Warning"),
    (ConditionType.SCHEDULED, Reason.SCHEDULING_GATED): (EventReason.UNSCHEDULABLE, "Warning"),
    (ConditionType.SCHEDULED, Reason.SCHEDULED): (EventReason.SCHEDULED, "Normal"),
    (ConditionType.READY, Reason.CONTAINERS_NOT_READY): (EventReason.PULLING, "Normal"),
    (ConditionType.READY, Reason.READY): (EventReason.READY, "Normal"),
    (ConditionType.READY, Reason.IMAGE_NOT_PULLED): (EventReason.NOT_READY, "Warning"),
    (ConditionType.READY, Reason.CRASH_LOOP): (EventReason.NOT_READY, "Warning"),
    (ConditionType.READY, Reason.CONTAINER_ENDED): (EventReason.NOT_READY, "Warning"),
    (ConditionType.READY, Reason.POD_FAILED): (EventReason.NOT_READY, "Warning"),
    (ConditionType.READY, Reason.POD_FINISHED): (EventReason.NOT_READY, "Warning"),
    (ConditionType.READY, Reason.ADMISSION_REJECTED): (EventReason.NOT_READY, "Warning"),
    (ConditionType.READY, Reason.POD_NOT_READY): (EventReason.NOT_READY, "Warning"),
}
WITH_POD = frozenset({Reason.QUEUED, Reason.CHECKS_PENDING, Reason.EVICTED, Reason.ADMITTED})
"""Reasons of Admitted that only an Instance with a Pod has."""
_PULLING = "images are pulled and containers created"


def steps_between(stored: object, conditions: Sequence[Mapping[str, Any]]) -> list[Step]:
    """Return the steps from a stored status to new conditions."""
    before = {as_str(c.get("type")): as_str(c.get("reason")) for c in as_maps(at(stored, "conditions"))}
    steps: list[Step] = []
    if before.get(ConditionType.ADMITTED) not in WITH_POD and _reason_of(conditions) in WITH_POD:
        steps.append(Step(EventReason.CREATED, "created the Pod"))
    for condition in conditions:
        kind, reason = as_str(condition.get("type")), as_str(condition.get("reason"))
        told = _TOLD.get((kind, reason))
        if told is None or before.get(kind) == reason:
            continue
        message = _PULLING if told[0] is EventReason.PULLING else as_str(condition.get("message"))
        steps.append(Step(told[0], message or reason, told[1]))
    return steps


def _reason_of(conditions: Sequence[Mapping[str, Any]]) -> str:
    return next((as_str(c.get("reason")) for c in conditions if c.get("type") == ConditionType.ADMITTED), "")
