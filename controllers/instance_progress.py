"""How far an Instance is: its conditions Admitted, Scheduled and Ready.

For: the instance controller's status. In: the Instance's Pod, its Workload, the phase derived from the Pod. Out: one
verdict a condition; the list of conditions that the status carries.
Promises: pure; all three conditions always, in the order of the way; what is decided later is False with the reason of
what holds it up; a transition time moves only with the status; each names the generation it was said about.
Trusts: Kueue for what a Workload says, the kubelet for the Pod's status. Neither frees or grants anything here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from api.instance_conditions import ConditionType, Reason
from api.instance_status import is_held_by_kueue
from api.instance_type import Phase
from nodefeature.fields import as_int, as_map, as_maps, as_str, at, labels_of
from nodefeature.labels import QUEUE_NAME

_MAX_MESSAGE = 1024
_IMAGE_REASONS = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "ErrImageNeverPull",
        "ImageInspectError",
        "RegistryUnavailable",
        "SignatureValidationFailed",
    }
)
_REJECTED = "UnexpectedAdmissionError"


@dataclass(frozen=True, slots=True)
class Verdict:
    """One condition's status and why."""

    holds: bool
    reason: Reason
    message: str = ""


@dataclass(frozen=True, slots=True)
class Progress:
    """All three."""

    admitted: Verdict
    scheduled: Verdict
    ready: Verdict


def held_up(reason: Reason, message: str) -> Progress:
    """Return the progress of an Instance without a Pod of its own, or one that is not meant to run."""
    verdict = Verdict(False, reason, message)
    if reason in {Reason.STOPPED, Reason.STOPPING, Reason.DELETING}:
        return Progress(verdict, verdict, verdict)
    return Progress(verdict, _NOT_ADMITTED, _NOT_SCHEDULED)


def progress_of(pod: Mapping[str, Any], workload: Mapping[str, Any] | None, phase: Phase) -> Progress:
    """Return the progress of an Instance that has a Pod; `phase` is what `api.instance_status.pod_phase` says."""
    admitted = _admitted(pod, workload)
    scheduled = _scheduled(pod, admitted)
    return Progress(admitted, scheduled, _ready(pod, scheduled, phase))


def conditions_of(instance: Mapping[str, Any], progress: Progress, now: str) -> list[dict[str, Any]]:
    """Return the conditions to store; `now` is taken where a status changes."""
    stored = {as_str(c.get("type")): c for c in as_maps(at(instance, "status", "conditions"))}
    generation = as_int(at(instance, "metadata", "generation"))
    verdicts = (
        (ConditionType.ADMITTED, progress.admitted),
        (ConditionType.SCHEDULED, progress.scheduled),
        (ConditionType.READY, progress.ready),
    )
    return [_condition(kind, verdict, as_map(stored.get(kind)), generation, now) for kind, verdict in verdicts]


def was_rejected(pod: Mapping[str, Any]) -> bool:
    """Say whether the kubelet of its node refused a Pod at admission."""
    status = as_map(pod.get("status"))
    return status.get("phase") == "Failed" and status.get("reason") == _REJECTED


_NOT_ADMITTED = Verdict(False, Reason.NOT_ADMITTED, "not admitted yet")
_NOT_SCHEDULED = Verdict(False, Reason.NOT_SCHEDULED, "no node yet")


def _condition(
    kind: ConditionType, verdict: Verdict, stored: Mapping[str, Any], generation: int, now: str
) -> dict[str, Any]:
    status = "True" if verdict.holds else "False"
    since = as_str(stored.get("lastTransitionTime")) if stored.get("status") == status else ""
    condition: dict[str, Any] = {
        "type": kind.value,
        "status": status,
        "reason": verdict.reason.value,
        "lastTransitionTime": since or now,
        "observedGeneration": generation,
    }
    if verdict.message:
        condition["message"] = verdict.message[:_MAX_MESSAGE]
    return condition


def _admitted(pod: Mapping[str, Any], workload: Mapping[str, Any] | None) -> Verdict:
    if not is_held_by_kueue(pod):
        return Verdict(True, Reason.ADMITTED, "Kueue admitted the Pod")
    queue = labels_of(pod).get(QUEUE_NAME, "")
    if workload is None:
        return Verdict(False, Reason.QUEUED, f"waiting for Kueue to take the Pod into queue {queue}")
    conditions = {as_str(c.get("type")): c for c in as_maps(at(workload, "status", "conditions"))}
    reserved = conditions.get("QuotaReserved", {})
    evicted = conditions.get("Evicted", {})
    if reserved.get("status") == "True":
        return Verdict(False, Reason.CHECKS_PENDING, _checks(workload))
    said = as_str(reserved.get("message"))
    if evicted.get("status") == "True":
        why = as_str(evicted.get("message")) or as_str(evicted.get("reason"))
        return Verdict(False, Reason.EVICTED, f"admission taken back: {why}")
    return Verdict(False, Reason.QUEUED, said or f"waiting for quota in queue {queue}")


def _checks(workload: Mapping[str, Any]) -> str:
    """Return what the admission checks that are not ready say."""
    waiting = [
        f"{as_str(check.get('name'))}: {as_str(check.get('message')) or as_str(check.get('state')) or 'Pending'}"
        for check in as_maps(at(workload, "status", "admissionChecks"))
        if check.get("state") != "Ready"
    ]
    return "; ".join(waiting) or "quota is reserved; waiting for Kueue to open the Pod"


def _scheduled(pod: Mapping[str, Any], admitted: Verdict) -> Verdict:
    node = as_str(at(pod, "spec", "nodeName"))
    if node:
        return Verdict(True, Reason.SCHEDULED, f"on node {node}")
    if not admitted.holds:
        return _NOT_ADMITTED
    gates = [as_str(gate.get("name")) for gate in as_maps(at(pod, "spec", "schedulingGates"))]
    if gates:
        return Verdict(False, Reason.SCHEDULING_GATED, f"held back by scheduling gate {', '.join(gates)}")
    conditions = as_maps(at(pod, "status", "conditions"))
    said: Mapping[str, Any] = next((c for c in conditions if c.get("type") == "PodScheduled"), {})
    if said.get("status") == "False" and said.get("reason") != "SchedulingGated":
        return Verdict(False, Reason.UNSCHEDULABLE, as_str(said.get("message")) or as_str(said.get("reason")))
    return Verdict(False, Reason.WAITING_FOR_SCHEDULER, "waiting for the scheduler")


def _ready(pod: Mapping[str, Any], scheduled: Verdict, phase: Phase) -> Verdict:
    ended = at(pod, "status", "phase")
    if ended == "Failed":
        return Verdict(False, Reason.ADMISSION_REJECTED if was_rejected(pod) else Reason.POD_FAILED, phase.message)
    if ended == "Succeeded":
        return Verdict(False, Reason.POD_FINISHED, phase.message)
    if phase.phase == "Ready":
        return Verdict(True, Reason.READY, "all containers are ready")
    if not scheduled.holds:
        return _NOT_SCHEDULED
    return Verdict(False, _not_ready_reason(pod, phase), phase.message)


def _not_ready_reason(pod: Mapping[str, Any], phase: Phase) -> Reason:
    states = [
        as_map(status.get("state"))
        for field in ("initContainerStatuses", "containerStatuses")
        for status in as_maps(at(pod, "status", field))
    ]
    waiting = {as_str(at(state, "waiting", "reason")) for state in states}
    if waiting & _IMAGE_REASONS:
        return Reason.IMAGE_NOT_PULLED
    if "CrashLoopBackOff" in waiting:
        return Reason.CRASH_LOOP
    if phase.phase in {"Initializing", "InitializeFailed"}:
        return Reason.INITIALIZING
    if any(as_map(state.get("terminated")) for state in states):
        return Reason.CONTAINER_ENDED
    return Reason.POD_NOT_READY if phase.phase == "NotReady" else Reason.CONTAINERS_NOT_READY
