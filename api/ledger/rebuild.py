"""Rebuilding a node's ledger from its inventory and the records of its Pods.

For: the agent (status of Devices) and gate 3 (an uncached look at one node) (spec 02 §3.5, spec 06 §6).
In: `spec.groups` of Devices and one `Charge` a Pod. Out: `status.groups`, what lies on each card, and problems.
Promises: wholesale and idempotent; the order of the Pods decides only who wins a mode conflict; an unreadable record
never frees a card; a card absent from the inventory is ignored and named.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from api.devices import DevicesStatus, LedgerCard, LedgerGroup, cards_of
from api.ledger.modes import CARD_UNITS, MODE_NAMES, Mode
from api.ledger.placements import Placement, profile_list, remaining_profiles
from api.ledger.transport import Record
from api.problems import Problem, problem
from nodefeature.fields import as_int, as_maps, as_str, at

CardKey = tuple[str, str]
"""(group id, card id)."""

SLICES_HELD_BY_POD = frozenset({"metax", "cambricon"})
"""Manufacturers whose slices stay on the card until the Pod object is gone."""


@dataclass(frozen=True, slots=True)
class Charge:
    """What one Pod of the node holds. `pod` is `<namespace>/<name>`."""

    pod: str
    records: tuple[Record, ...]
    terminated: bool = False
    """The Pod's phase is Succeeded or Failed."""
    assumed: bool = False
    """The records are what the Pod may hold, for want of a readable word: charged last, beside nobody else's mode."""


@dataclass(slots=True)
class CardUse:
    """What lies on one card while it is being rebuilt."""

    card: Mapping[str, Any]
    mode: Mode = Mode.NONE
    remaining: int = CARD_UNITS
    slices: int = 0
    """Containers that hold a software slice here."""
    occupied: list[Placement] = field(default_factory=list)
    profiles: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """A node's ledger: for the API (`status`), and card by card."""

    status: DevicesStatus
    cards: Mapping[CardKey, CardUse]
    problems: tuple[Problem, ...]


def rebuild(
    spec_groups: Sequence[Mapping[str, Any]], charges: Iterable[Charge], *, release_terminated: bool = True
) -> Rebuilt:
    """Charge every Pod's records to the inventory's cards, Pods in the given order."""
    cards = {
        (as_str(group.get("id")), as_str(card.get("id"))): CardUse(card)
        for group in spec_groups
        for card in cards_of(group)
    }
    problems: list[Problem] = []
    for charge in sorted(charges, key=lambda charge: charge.assumed):  # stable: the given order otherwise
        _charge_pod(cards, charge, release_terminated=release_terminated, problems=problems)
    status: DevicesStatus = {"groups": [_ledger_group(group, cards) for group in spec_groups]}
    return Rebuilt(status, cards, tuple(problems))


def stays_charged(record: Record, *, terminated: bool, release_terminated: bool = True) -> bool:
    """Say whether a record still holds its card, given that its Pod has reached a terminal phase or not."""
    if not (terminated and release_terminated) or record.mode is Mode.PARTITIONED:
        return True
    return record.mode is Mode.SLICED and record.manufacturer in SLICES_HELD_BY_POD


def _charge_pod(
    cards: Mapping[CardKey, CardUse], charge: Charge, *, release_terminated: bool, problems: list[Problem]
) -> None:
    placed: list[tuple[CardUse, Record]] = []
    for record in charge.records:
        if not stays_charged(record, terminated=charge.terminated, release_terminated=release_terminated):
            continue
        if record.mode is Mode.VISIBILITY:
            continue
        use = cards.get((record.group_id, record.card_id))
        if use is None:
            rule = "is not in the node's inventory; not charged"
            problems.append(problem(f"Pod {charge.pod}", f"{record.group_id}/{record.card_id}", rule))
            continue
        if use.mode not in {Mode.NONE, record.mode}:
            if charge.assumed:
                continue
            problems.append(_conflict(charge.pod, record, use.mode))
            return  # what this Pod was charged so far stays; its placements are not counted
        use.mode = record.mode
        use.remaining = max(use.remaining - record.allocated, 0)
        use.slices += record.mode is Mode.SLICED
        if record.profile and record.placements:
            placed.append((use, record))
    for use, record in placed:
        use.occupied.extend(record.placements)
        use.profiles[record.profile] = use.profiles.get(record.profile, 0) + 1


def _conflict(pod: str, record: Record, held: Mode) -> Problem:
    rule = (
        f"conflicting allocation mode for resource {record.group_id}/{record.card_id}: "
        f"{MODE_NAMES[held]} vs. {MODE_NAMES[record.mode]}"
    )
    return problem(f"Pod {pod}", None, rule)


def _ledger_group(group: Mapping[str, Any], cards: Mapping[CardKey, CardUse]) -> LedgerGroup:
    group_id = as_str(group.get("id"))
    return {
        "id": group_id,
        "manufacturer": as_str(group.get("manufacturer")),
        "accelerators": [_ledger_row(cards[group_id, as_str(card.get("id"))]) for card in cards_of(group)],
    }


def _ledger_row(use: CardUse) -> LedgerCard:
    row: LedgerCard = {"id": as_str(use.card.get("id")), "index": as_int(use.card.get("index")), "mode": int(use.mode)}
    if use.remaining:
        row["remaining"] = use.remaining
    profiles = as_maps(at(use.card, "status", "physicalSliced", "profiles"))
    if profiles:
        if use.profiles:
            row["allocatedProfiles"] = profile_list(use.profiles)
        free = remaining_profiles(profiles, use.occupied)
        if free:
            row["remainingProfiles"] = profile_list(free)
    return row
