"""Gate 2, the quota: has Kueue reserved what the Pod asks for, and if not, what is missing?

For: `verdicts`. In: evidence. Out: a verdict with what is asked, what is free, and the place in the queue.
Promises: pure; what Kueue itself says is repeated only where our own figures do not tell why; of other tenants'
Workloads an answer holds a number, never a name.
"""

from __future__ import annotations

from dataclasses import replace

from api.explain.asking import quota_asked
from api.explain.evidence import Evidence, Gate, Numbers, State, Verdict, quoted, words
from api.explain.queueing import place_in_queue
from api.explain.quota_figures import Figures, amount, figures_of
from api.instance_status import is_held_by_kueue
from api.instance_type import HOLD, HOLD_AND_DRAIN
from nodefeature.fields import annotations_of, as_str, at, condition_of, has_condition, is_deleting, labels_of, name_of
from nodefeature.kinds import CLUSTER_QUEUE, LOCAL_QUEUE, WORKLOAD
from nodefeature.labels import EMPTY_PLAN_HOLD, QUEUE_NAME

_HELD = (HOLD, HOLD_AND_DRAIN)
_EVICTED_BY_CHECK = "AdmissionCheck"


def judge(evidence: Evidence) -> Verdict:
    """Return the quota's verdict."""
    return (
        _unqueued(evidence)
        or _reserved(evidence)
        or _lost(evidence)
        or _unreadable(evidence)
        or _closed(evidence)
        or _backing_off(evidence)
        or _short(evidence)
    )


def _verdict(
    state: State, reason: str, advice: str = "", *, numbers: Numbers | None = None, because: Gate | None = None
) -> Verdict:
    shown = numbers if numbers is not None else Numbers()
    return Verdict(gate=Gate.QUOTA, state=state, reason=reason, advice=advice, numbers=shown, because=because)


def _unqueued(evidence: Evidence) -> Verdict | None:
    if evidence.pod is None:
        figures = figures_of(quota_asked(evidence), evidence.cluster_queue)
        return replace(_verdict(State.WAITING, "", numbers=figures.numbers()), reached=False)
    if labels_of(evidence.pod).get(QUEUE_NAME) or is_held_by_kueue(evidence.pod):
        return None
    return _verdict(State.PASSED, "The Pod names no queue: Kueue is not asked for quota")


def _reserved(evidence: Evidence) -> Verdict | None:
    workload = evidence.workload
    if has_condition(workload, "Evicted"):
        return None
    asked = quota_asked(evidence)
    if has_condition(workload, "QuotaReserved"):
        queue = as_str(at(workload, "status", "admission", "clusterQueue")) or name_of(evidence.cluster_queue)
        figures = figures_of(asked, evidence.cluster_queue)
        reason = f"{amount(figures.resource, figures.asked)} reserved in ClusterQueue {queue}"
        return _verdict(State.PASSED, reason, numbers=replace(figures.numbers(), free=None, largest=None))
    if workload is None and not is_held_by_kueue(evidence.pod):
        return _verdict(State.PASSED, "Kueue does not hold the Pod back")
    return None


def _lost(evidence: Evidence) -> Verdict | None:
    """Judge a Workload that was put out, or that Kueue no longer tries."""
    workload = evidence.workload
    evicted = condition_of(workload, "Evicted")
    if at(workload, "spec", "active") is False:
        said = words(evicted)
        advice = f"Mend that, then set spec.active of Workload {name_of(workload)} to true, or stop and start anew"
        return _verdict(State.REFUSED, "The Workload is deactivated" + (f": {said}" if said else ""), advice)
    if evicted.get("status") != "True":
        return None
    if evicted.get("reason") == _EVICTED_BY_CHECK:
        return _given_back(evidence)
    if evicted.get("reason") == "Preempted":  # Kueue's own words name another tenant's Workload
        reason = "The quota went to a Workload of higher priority"
        return _verdict(State.WAITING, reason, "It is tried again when quota is free", numbers=place_in_queue(evidence))
    closed = _closed(evidence)
    return closed or _verdict(State.WAITING, f"The quota was taken back: {words(evicted)}", "It is tried again")


def _given_back(evidence: Evidence) -> Verdict:
    reason = "The quota was given back, since the card check found no node" + _again(evidence)
    return _verdict(
        State.WAITING, reason, "What the card check asks for", numbers=place_in_queue(evidence), because=Gate.CARD_CHECK
    )


def _again(evidence: Evidence) -> str:
    due = quoted(as_str(at(evidence.workload, "status", "requeueState", "requeueAt")))
    return f"; Kueue tries again at {due}" if due else ""


def _unreadable(evidence: Evidence) -> Verdict | None:
    unread = evidence.unread_reason(WORKLOAD)
    return _verdict(State.UNKNOWN, unread) if unread else None


def _closed(evidence: Evidence) -> Verdict | None:
    """Judge the way to the quota: the namespace's entrance, and the queue behind it."""
    entrance = quoted(labels_of(evidence.pod).get(QUEUE_NAME, ""))
    local, queue = evidence.local_queue, evidence.cluster_queue
    unread = evidence.unread_reason(LOCAL_QUEUE)
    if local is None and not unread:
        reason = f"The namespace has no LocalQueue {entrance}"
        advice = "The controllers make one for each InstanceType; a Pod's queue label must name one of them"
        return _verdict(State.WAITING, reason, advice)
    if at(local, "spec", "stopPolicy") in _HELD:
        return _verdict(
            State.WAITING,
            f"LocalQueue {entrance} is held",
            "Set its spec.stopPolicy to None",
            numbers=place_in_queue(evidence),
        )
    if evidence.unread_reason(CLUSTER_QUEUE):
        return None
    name = quoted(as_str(at(local, "spec", "clusterQueue")))
    if queue is None or is_deleting(queue):
        gone = "being deleted" if queue is not None else "not there"
        return _verdict(State.WAITING, f"ClusterQueue {name} is {gone}", f"InstanceType {name} must exist and be ready")
    if at(queue, "spec", "stopPolicy") in _HELD:
        return _held(evidence)
    active = condition_of(queue, "Active")
    if active.get("status") == "False":
        reason = f"ClusterQueue {name_of(queue)} is not active: {words(active)}"
        return _verdict(State.WAITING, reason, "What is said there must change", numbers=place_in_queue(evidence))
    return None


def _held(evidence: Evidence) -> Verdict:
    queue = evidence.cluster_queue
    name, policy = name_of(queue), as_str(at(queue, "spec", "stopPolicy"))
    if EMPTY_PLAN_HOLD in annotations_of(queue):
        reason, advice = f"The pool {name} has no node", "A node with its hardware joins, or is managed again"
    elif at(evidence.instance_type, "spec", "inactive") is True:
        reason = f"InstanceType {name} is inactive"
        advice = f"Set spec.inactive of InstanceType {name} to false"
    elif policy == HOLD_AND_DRAIN:
        reason, advice = f"The pool {name} is draining", "It opens again when its nodes are back or its plan is changed"
    else:
        reason, advice = f"ClusterQueue {name} is held", f"Set spec.stopPolicy of ClusterQueue {name} to None"
    return _verdict(State.WAITING, reason, advice, numbers=place_in_queue(evidence))


def _backing_off(evidence: Evidence) -> Verdict | None:
    if evidence.workload is None:
        return _verdict(State.WAITING, "Kueue has made no Workload for the Pod yet", "Kueue must run")
    requeued = condition_of(evidence.workload, "Requeued")
    if requeued.get("status") != "False":
        return None
    if requeued.get("reason") == _EVICTED_BY_CHECK:
        return _given_back(evidence)
    reason = "Kueue does not try it at the moment" + _again(evidence)
    return _verdict(State.WAITING, reason, "Nothing to do: it is tried again", numbers=place_in_queue(evidence))


def _short(evidence: Evidence) -> Verdict:
    """Compare what is asked with what is free."""
    queue = name_of(evidence.cluster_queue) or "its queue"
    figures = figures_of(quota_asked(evidence), evidence.cluster_queue)
    place = place_in_queue(evidence)
    numbers = _numbers(place, figures)
    asked = amount(figures.resource, figures.asked)
    unread = evidence.unread_reason(CLUSTER_QUEUE)
    if unread:
        return _verdict(State.UNKNOWN, unread, numbers=numbers)
    if figures.asked > figures.ceiling and figures.known:
        most = amount(figures.resource, figures.ceiling)
        reason = f"{asked} asked, and no flavor of ClusterQueue {queue} has more than {most}, taken or free"
        return _verdict(State.REFUSED, reason, f"Ask for at most {most}, or add nodes to the pool", numbers=numbers)
    ahead = f"; {_ahead(place)}" if place.ahead else ""
    if figures.known and figures.asked > figures.best:
        more = amount(figures.resource, figures.asked - figures.best)
        free = amount(figures.resource, figures.free)
        reason = f"{asked} asked, {free} free in ClusterQueue {queue}" + (
            f", at most {amount(figures.resource, figures.best)} in one flavor" if figures.flavors > 1 else ""
        )
        advice = f"{more} more must become free" + (" in one flavor" if figures.flavors > 1 else "")
        return _verdict(State.WAITING, reason + ahead, f"{advice}: stop or delete what holds it", numbers=numbers)
    said = words(condition_of(evidence.workload, "QuotaReserved"))
    reason = "Enough is free, and its turn has not come yet" + (f" ({said})" if said else "")
    return _verdict(State.WAITING, reason + ahead, "Nothing to do: Kueue tries it in its turn", numbers=numbers)


def _ahead(place: Numbers) -> str:
    more = "at least " if place.at_least else ""
    return f"{more}{place.ahead} of {place.pending} waiting Workloads come first"


def _numbers(place: Numbers, figures: Figures) -> Numbers:
    return replace(figures.numbers(), ahead=place.ahead, pending=place.pending, at_least=place.at_least)
