"""Which steps of a life are told, and once only."""

from __future__ import annotations

from typing import Any

import pytest

from api.instance_conditions import ConditionType, EventReason, Reason
from controllers.instance_events import Step, steps_between


def conditions(admitted: str, scheduled: str, ready: str, message: str = "m") -> list[dict[str, Any]]:
    kinds = zip(ConditionType, (admitted, scheduled, ready), strict=True)
    return [{"type": kind.value, "reason": reason, "message": message} for kind, reason in kinds]


QUEUED = conditions(Reason.QUEUED, Reason.NOT_ADMITTED, Reason.NOT_SCHEDULED)
ROWS = {
    "nothing stored": (None, QUEUED, ["PodCreated", "Queued"]),
    "a new Pod after a stop": (conditions("Stopped", "Stopped", "Stopped"), QUEUED, ["PodCreated", "Queued"]),
    "a new Pod": (conditions("PodNotCreated", "NotAdmitted", "NotScheduled"), QUEUED, ["PodCreated", "Queued"]),
    "settled": (QUEUED, QUEUED, []),
    "only the message moved": (QUEUED, conditions("Queued", "NotAdmitted", "NotScheduled", "other"), []),
    "three steps at once": (QUEUED, conditions("Admitted", "Scheduled", "Ready"), ["Admitted", "Scheduled", "Ready"]),
    "stopped is told once": (
        conditions("Admitted", "Scheduled", "Ready"),
        conditions("Stopped", "Stopped", "Stopped"),
        ["Stopped"],
    ),
    "deleting is nobody's news": (QUEUED, conditions("Deleting", "Deleting", "Deleting"), []),
    "pulling": (
        conditions("Admitted", "WaitingForScheduler", "NotScheduled"),
        conditions("Admitted", "Scheduled", "ContainersNotReady"),
        ["Scheduled", "Pulling"],
    ),
}


@pytest.mark.parametrize("row", ROWS)
def test_steps(row: str) -> None:
    stored, now, want = ROWS[row]
    assert [step.reason.value for step in steps_between({"conditions": stored}, now)] == want


@pytest.mark.parametrize(
    "reason",
    [Reason.IMAGE_NOT_PULLED, Reason.CRASH_LOOP, Reason.CONTAINER_ENDED, Reason.POD_FAILED, Reason.POD_NOT_READY],
)
def test_what_is_wrong_is_a_warning_in_its_own_words(reason: Reason) -> None:
    now = conditions("Admitted", "Scheduled", reason, "pull denied")
    before = {"conditions": conditions("Admitted", "Scheduled", "Ready")}
    assert steps_between(before, now) == [Step(EventReason.NOT_READY, "pull denied", "Warning")]


@pytest.mark.parametrize("stored", [None, {}, [], {"conditions": "x"}, {"conditions": [None, {"type": 5}]}])
def test_stored_statuses_may_be_anything(stored: Any) -> None:
    assert [step.reason for step in steps_between(stored, QUEUED)] == [EventReason.CREATED, EventReason.QUEUED]
