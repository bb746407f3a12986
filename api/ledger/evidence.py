"""Which words of a Pod's record count: the step between reading a record and charging it.

For: the agent's ledger, gate 3 (design §7, cases B008, B019).
In: a raw Pod, the inventory of its node, the registry, what was charged before. Out: one `Charge`, and problems.
Trusts: the Pod's own resource requests (the scheduler and Kueue counted them), not its annotation: a record counts
only if its container asked for that family of that manufacturer, and for no more cards or units than it asked for.
Promises: text that cannot be read keeps the last known charge, or at first sight charges every card the Pod's requests
could touch; it never frees a card.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from api.devices import cards_of
from api.ledger.fit import is_partitioned, is_sliceable
from api.ledger.modes import CARD_UNITS, MODE_NAMES, SHARE_UNITS, Mode
from api.ledger.placements import MAX_RUN, Placement
from api.ledger.rebuild import Charge
from api.ledger.transport import ALLOCATED_ANNOTATION, Record, transport_of
from api.pod_requests import Claim, claims_of, whole
from api.problems import Problem, problem
from nodefeature.fields import as_int, as_map, as_str, at, has_ended, name_of, namespace_of
from nodefeature.manufacturers import Manufacturers
from nodefeature.profiles import vendor_profile
from nodefeature.resource_names import Family

MODE_OF_FAMILY = {
    Family.EXCLUSIVE: Mode.EXCLUSIVE,
    Family.SHARED: Mode.SHARED,
    Family.SLICED: Mode.SLICED,
    Family.PARTITIONED: Mode.PARTITIONED,
}
_WHOLE_CARD = (Placement(0, MAX_RUN),)


def charge_of(
    pod: Mapping[str, Any],
    *,
    spec_groups: Sequence[Mapping[str, Any]],
    registry: Manufacturers,
    known: Sequence[Record] | None = None,
) -> tuple[Charge, list[Problem]]:
    """Return what a Pod is charged. `known` is what this very Pod (by uid) was charged when last readable."""
    name = f"{namespace_of(pod)}/{name_of(pod)}"
    terminated = has_ended(pod)
    transport = transport_of(pod)
    claims = claims_of(as_map(at(pod, "spec")), registry)
    problems = [Problem(f"Pod {name} {p.path}", p.value, p.rule) for p in transport.problems]
    if not transport.readable:
        if known is not None:
            return Charge(name, tuple(known), terminated), problems
        return Charge(name, _touchable(claims, spec_groups), terminated, assumed=True), problems
    records, refused = credible(transport.records, claims)
    problems += [Problem(f"Pod {name} {p.path}", p.value, p.rule) for p in refused]
    return Charge(name, records, terminated), problems


def credible(records: Sequence[Record], claims: Sequence[Claim]) -> tuple[tuple[Record, ...], list[Problem]]:
    """Return the records that their containers' claims bear out, and a problem for each other one."""
    asked = {(c.container.name, c.manufacturer, MODE_OF_FAMILY[c.family]): c for c in claims}
    taken: Counter[tuple[str, str, Mode]] = Counter()
    good: list[Record] = []
    problems: list[Problem] = []
    for record in records:
        if record.mode is Mode.VISIBILITY:
            continue
        key = (record.container, record.manufacturer, record.mode)
        claim = asked.get(key)
        taken[key] += 1
        rule = _refusal(record, claim, taken[key])
        if rule:
            path = f"{ALLOCATED_ANNOTATION}[{record.container}]"
            problems.append(problem(path, f"{record.group_id}/{record.card_id}", rule))
        else:
            good.append(record)
    return tuple(good), problems


def _refusal(record: Record, claim: Claim | None, cards: int) -> str:
    if claim is None:
        return f"the container did not ask for {MODE_NAMES[record.mode].lower()} cards of {record.manufacturer}"
    if cards > whole(claim.cards):
        return f"the container asked for {whole(claim.cards)} cards only"
    if claim.units is not None and record.allocated > whole(claim.units):
        return f"{record.allocated} units are more than the {whole(claim.units)} that the container asked for"
    return ""


def _touchable(claims: Sequence[Claim], spec_groups: Sequence[Mapping[str, Any]]) -> tuple[Record, ...]:
    """Return a record for every card that the claims could have been given."""
    return tuple(
        Record(
            container=claim.container.name,
            group_id=as_str(group.get("id")),
            manufacturer=claim.manufacturer,
            card_id=as_str(card.get("id")),
            index=as_int(card.get("index")),
            mode=MODE_OF_FAMILY[claim.family],
            allocated=_units_of(claim),
            profile=vendor_profile(claim.manufacturer, claim.profiles[0][0]) if claim.profiles else "",
            placements=_WHOLE_CARD if claim.profiles else (),
        )
        for claim in claims
        if whole(claim.cards)
        for group in spec_groups
        if group.get("manufacturer") == claim.manufacturer
        for card in cards_of(group)
        if _serves(card, claim.family)
    )


def _serves(card: Mapping[str, Any], family: Family) -> bool:
    if family is Family.PARTITIONED:
        return is_partitioned(card)
    return is_sliceable(card) if family is Family.SLICED else not is_partitioned(card)


def _units_of(claim: Claim) -> int:
    if claim.family is Family.SHARED:
        return SHARE_UNITS
    if claim.family is Family.EXCLUSIVE or not whole(claim.units):
        return CARD_UNITS
    return min(whole(claim.units), CARD_UNITS)
