"""Gate 3, the card check: does one node have the cards?

For: `verdicts`. In: evidence. Out: a verdict with the nearest miss.
Promises: pure; the check's own words stand first, the ledgers' figures beside them; a demand that no node of the pool
could meet even when it were empty is a refusal, although the check itself only ever asks for another try.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from api.explain.asking import demands, described, unit_of
from api.explain.evidence import NO_NUMBERS, Evidence, Gate, Numbers, Object, State, Verdict, in_units, quoted, words
from api.explain.pinning import ELSEWHERE, pinned, remedy, stranger
from api.explain.room import accelerator_key, rooms
from api.instance_status import is_held_by_kueue
from api.pod_requests import Demand
from nodefeature.fields import as_maps, as_str, at, condition_of, has_condition, labels_of, name_of
from nodefeature.kinds import CLUSTER_QUEUE, DEVICES, WORKLOAD
from nodefeature.labels import QUEUE_NAME
from nodefeature.quantity import quantity_or_zero
from nodefeature.queue_names import NODE_DEVICES_CHECK
from nodefeature.resource_names import Family


@dataclass(frozen=True, slots=True)
class Fit:
    """The demand that decides, its figures, and the most that one empty node of the pool has.

    With `pin` the figures are those of that node alone: no other counts for an Instance that insists on it.
    """

    demand: Demand | None = None
    numbers: Numbers = NO_NUMBERS
    ceiling: int | None = None
    pin: str = ""

    @property
    def misses(self) -> bool:
        """Say whether no node has room, as far as the ledgers say."""
        return self.numbers.largest is not None and (self.numbers.asked or 0) > self.numbers.largest


def judge(evidence: Evidence) -> Verdict:
    """Return the card check's verdict."""
    fit = best_fit(evidence)
    if evidence.pod is None:
        return _verdict(State.WAITING, "", fit, reached=False)
    if not labels_of(evidence.pod).get(QUEUE_NAME):
        return _verdict(State.PASSED, "No queue, no card check: the node's device plugin decides alone", fit)
    workload = evidence.workload
    if workload is None and not evidence.unread_reason(WORKLOAD) and not is_held_by_kueue(evidence.pod):
        return _verdict(State.PASSED, "Kueue does not hold the Pod back", _calm(fit))
    put_out = has_condition(workload, "Evicted") or has_condition(workload, "Requeued", "False")
    if put_out:
        return _put_out(evidence, fit)
    if has_condition(workload, "Admitted"):
        said = words(_own_check(workload))
        return _verdict(State.PASSED, said or "The Workload is admitted", _calm(fit))
    if not has_condition(workload, "QuotaReserved"):
        return _verdict(State.WAITING, "", fit, reached=False)
    return _of_checks(evidence, fit)


def best_fit(evidence: Evidence) -> Fit:
    """Return the first demand that no node can meet, else the first of all."""
    fits = [_fit(evidence, demand) for demand in demands(evidence)]
    return next((fit for fit in fits if fit.misses), fits[0] if fits else Fit())


def _verdict(state: State, reason: str, fit: Fit, advice: str = "", *, reached: bool = True) -> Verdict:
    return Verdict(
        gate=Gate.CARD_CHECK, state=state, reason=reason, advice=advice, numbers=fit.numbers, reached=reached
    )


def _calm(fit: Fit) -> Fit:
    """Keep what was asked alone: what is free now is no matter to who has passed."""
    return replace(fit, numbers=replace(fit.numbers, free=None, largest=None, largest_at="", at_least=False))


def _own_check(workload: object) -> Mapping[str, Any]:
    checks = as_maps(at(workload, "status", "admissionChecks"))
    return next((check for check in checks if check.get("name") == NODE_DEVICES_CHECK), {})


def _of_checks(evidence: Evidence, fit: Fit) -> Verdict:
    """Judge a Workload that holds quota and waits for its checks."""
    checks = as_maps(at(evidence.workload, "status", "admissionChecks"))
    own, state = _own_check(evidence.workload), as_str(_own_check(evidence.workload).get("state"))
    if state in ("Retry", "Rejected"):
        return _missed(evidence, fit, words(own), rejected=state == "Rejected")
    foreign = [check for check in checks if check is not own and check.get("state") != "Ready"]
    if foreign:
        name, held = as_str(foreign[0].get("name")), as_str(foreign[0].get("state")) or "Pending"
        said = words(foreign[0])
        refused = State.REFUSED if held == "Rejected" else State.WAITING
        reason = f"AdmissionCheck {name}, which is not ours, says {held}" + (f": {said}" if said else "")
        return _verdict(refused, reason, fit, f"Whoever runs AdmissionCheck {name} must answer")
    if own and state != "Ready":
        return _verdict(State.WAITING, "The cards are not judged yet", fit, "The controllers must run")
    if own:
        return _verdict(State.PASSED, words(own) or "A node has the cards", _calm(fit))
    asked = "No card is asked for" if fit.demand is None else "No card check stands before this pool"
    return _verdict(State.PASSED, asked, _calm(fit))


def _put_out(evidence: Evidence, fit: Fit) -> Verdict:
    """Judge a Workload that gave its quota back: because of the check, or for another reason."""
    workload = evidence.workload
    evicted, requeued = condition_of(workload, "Evicted"), condition_of(workload, "Requeued")
    held = evicted if evicted.get("status") == "True" else requeued
    if held.get("reason") != "AdmissionCheck":
        return _verdict(State.WAITING, "", fit, reached=False)
    own = _own_check(workload)
    said = words(own) if own.get("state") in ("Retry", "Rejected") else ""
    return _missed(evidence, fit, said, rejected=own.get("state") == "Rejected")


def _missed(evidence: Evidence, fit: Fit, said: str, *, rejected: bool) -> Verdict:
    """Say what is missing: the check's words, the nearest miss, and what would let it pass."""
    nearest = _nearest(fit)
    reason = said or nearest or "No node has the cards"
    if rejected:
        return _verdict(State.REFUSED, reason, fit, "Create it anew when that has changed")
    if stranger(evidence):  # the scheduler's gate says so; the figures are those of other nodes
        return _verdict(State.WAITING, reason, fit, remedy(evidence))
    if fit.misses and fit.ceiling is not None and (fit.numbers.asked or 0) > fit.ceiling and not fit.numbers.at_least:
        return _beyond(reason, fit)
    unread = evidence.unread_reason(DEVICES, CLUSTER_QUEUE)
    if not fit.misses:
        return _verdict(State.WAITING, reason, fit, unread or "Nothing to do: it is judged again")
    more = in_units((fit.numbers.asked or 0) - (fit.numbers.largest or 0), fit.numbers.unit)
    if fit.pin:
        return _verdict(State.WAITING, reason, fit, f"{more} more must become free on node {fit.pin}; or {ELSEWHERE}")
    where = f"; {fit.numbers.largest_at} is nearest" if fit.numbers.largest_at else ""
    return _verdict(State.WAITING, reason, fit, f"{more} more on one node{where}")


def _beyond(reason: str, fit: Fit) -> Verdict:
    """Say that not even an empty node would do."""
    nobody = "that node has no" if fit.pin else "no node of the pool has"
    instead = f"; or {ELSEWHERE}" if fit.pin else ", or add nodes that have more"
    text = f"{reason}; {nobody} more than {fit.ceiling}"
    return _verdict(State.REFUSED, text, fit, f"Ask for at most {fit.ceiling}{instead}")


def _nearest(fit: Fit) -> str:
    if fit.demand is None or not fit.misses:
        return ""
    if fit.pin:
        there = f"on node {fit.pin}, which spec.nodeName names; it has {fit.numbers.largest}"
        return f"{described(fit.demand)} must be {there}"
    best = f"best node {fit.numbers.largest_at} has" if fit.numbers.largest_at else "the best node has"
    return f"{described(fit.demand)} must be on one node; {best} {fit.numbers.largest}"


def _fit(evidence: Evidence, demand: Demand) -> Fit:
    unit = unit_of(demand)
    key = as_str(at(evidence.instance_type, "spec", "acceleratorGroup")) or accelerator_key(evidence.flavors)
    pin, of_pin = quoted(pinned(evidence)), _of_pin(evidence)
    found = rooms(of_pin or evidence.devices, demand, key, evidence.flavors) if key else []
    partial = DEVICES.plural in evidence.partial and not of_pin
    if not found and (partial or evidence.unread_reason(DEVICES) or not evidence.devices):
        return Fit(demand, _from_views(evidence, demand, unit))
    best = found[0] if found else None
    numbers = Numbers(
        unit=unit,
        asked=demand.cards,
        free=sum(room.free for room in found),
        largest=best.free if best else 0,
        largest_at=best.node if best and best.free else "",
        at_least=partial,
    )
    return Fit(demand, numbers, max((room.capacity for room in found), default=0), pin if of_pin else "")


def _of_pin(evidence: Evidence) -> list[Object]:
    """Return the one ledger that counts for an Instance pinned to a node of its pool; none when it was not read."""
    pin = pinned(evidence)
    return [each for each in evidence.devices if pin and name_of(each) == pin]


def _from_views(evidence: Evidence, demand: Demand, unit: str) -> Numbers:
    """Return what the InstanceType's views tell of a demand, when no ledger could be read."""
    asked = Numbers(unit=unit, asked=demand.cards)
    view = at(evidence.instance_type, "status", "accelerator")
    if demand.family is not Family.EXCLUSIVE or view is None:
        return asked
    free, largest = (quantity_or_zero(at(view, field)).floor() for field in ("remaining", "onceMaxRequest"))
    return replace(asked, free=max(free, 0), largest=max(largest, 0))
