"""Whether one Pod's cards are found on one node, and what is left of the node then.

For: gate 3 (spec 04 §10.3, §10.5; design §8.10).
In: a Pod's spec, a node's cards. Out: the node's cards after the Pod, or None; figures for the nearest miss.
Promises: pure; a Pod is placed whole or not at all; a card never serves two modes; shares of one container lie on
distinct cards; a slice takes its units and one slot; partitions take placements.

Packing is greedy. `spread=False` keeps free cards whole (the fullest card that still fits comes first); `spread=True`
takes the emptiest first, which for shares finds every packing there is. A Pod whose containers differ in size may be
refused although some other packing exists: rule 6 of the Pod webhook allows one slice or partition a Pod, so only Pods
that passed no webhook come near this limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from api.ledger.modes import CARD_UNITS, SHARE_UNITS, Mode
from api.ledger.node_cards import Card
from api.pod_requests import Claim, claims_of, clamp32, whole
from nodefeature.keys import manufacturer_of
from nodefeature.manufacturers import Manufacturers
from nodefeature.profiles import vendor_profile
from nodefeature.resource_names import Family

Cards = tuple[Card, ...]


@dataclass(frozen=True, slots=True)
class Need:
    """What one container needs of the node its Pod lives on."""

    family: Family
    manufacturer: str
    key: str
    """The pool key of the model; empty: any of the manufacturer's."""
    cards: int
    units: int = 0
    """Of each card; for slices."""
    profile: str = ""
    """In public spelling; for partitions."""

    @property
    def weight(self) -> int:
        """Return what of each card is taken; partitions weigh more than all else."""
        per_card = {Family.EXCLUSIVE: CARD_UNITS, Family.SHARED: SHARE_UNITS, Family.SLICED: self.units}
        return per_card.get(self.family, CARD_UNITS + 1)

    def covers(self, card: Card) -> bool:
        """Say whether the card is of the model that is asked for."""
        return card.key == self.key if self.key else manufacturer_of(card.key) == self.manufacturer


def pod_needs(pod_spec: Mapping[str, Any], registry: Manufacturers, *, key: str) -> tuple[Need, ...]:
    """Return the needs of a Pod, the heaviest first. `key` is the model its flavor pins."""
    return needs_of(claims_of(pod_spec, registry), key=key)


def needs_of(claims: Iterable[Claim], *, key: str) -> tuple[Need, ...]:
    """Return the needs of claims, the heaviest first; a claim on another manufacturer's cards names no model."""
    needs = [
        Need(
            family=claim.family,
            manufacturer=claim.manufacturer,
            key=key if manufacturer_of(key) == claim.manufacturer else "",
            cards=clamp32(whole(claim.cards)),
            units=clamp32(whole(claim.units)) if claim.family is Family.SLICED else 0,
            profile=min((name for name, _ in claim.profiles), default=""),
        )
        for claim in claims
        if whole(claim.cards) > 0
    ]
    return tuple(sorted(needs, key=lambda need: (-need.weight, -need.cards, need.family.value, need.profile)))


def place(cards: Cards, needs: Iterable[Need], *, spread: bool = False) -> Cards | None:
    """Return the node's cards after a Pod with these needs; None when it finds no place."""
    left: Cards | None = cards
    for need in needs:
        left = _placed(left, need, spread=spread) if left is not None else None
    return left


def room(cards: Cards, need: Need) -> int:
    """Return how many cards (of partitions: instances) could serve a need now."""
    if need.family is Family.PARTITIONED:
        return sum(_instances(card, need) for card in cards)
    return sum(1 for card in cards if need.covers(card) and _left_after(card, need) is not None)


def largest_slice(cards: Cards, need: Need) -> int:
    """Return the units of the largest slice that some card could take."""
    return max((card.slice_units for card in cards if need.covers(card)), default=0)


def _placed(cards: Cards, need: Need, *, spread: bool) -> Cards | None:
    if need.family is Family.PARTITIONED:
        return _with_partitions(cards, need)
    fitting = [
        (_order(card, spread=spread), position, after)
        for position, card in enumerate(cards)
        if need.covers(card) and (after := _left_after(card, need)) is not None
    ]
    if len(fitting) < need.cards:
        return None
    chosen = {position: after for _, position, after in sorted(fitting, key=lambda fit: fit[:2])[: need.cards]}
    return tuple(chosen.get(position, card) for position, card in enumerate(cards))


def _order(card: Card, *, spread: bool) -> int:
    return -card.units if spread else card.units


def _left_after(card: Card, need: Need) -> Card | None:
    """Return what is left of a card that gives one piece of a need."""
    if need.family is Family.EXCLUSIVE:
        return replace(card, mode=Mode.EXCLUSIVE, units=0) if card.is_free else None
    if need.family is Family.SHARED:
        return replace(card, mode=Mode.SHARED, units=card.units - SHARE_UNITS) if card.shares else None
    if not card.slice_units or card.slice_units < need.units:
        return None
    return replace(card, mode=Mode.SLICED, units=card.units - need.units, slots=card.slots - 1)


def _with_partitions(cards: Cards, need: Need) -> Cards | None:
    """Place instances one by one, each on the fullest card that has room, as the agent does."""
    left = list(cards)
    for _ in range(need.cards):
        fitting = [(free, position) for position, card in enumerate(left) if (free := _instances(card, need))]
        if not fitting:
            return None
        _, position = min(fitting)
        card = left[position]
        taken = card.partitions.taken(_vendor(card, need)) if card.partitions is not None else None
        left[position] = replace(card, mode=Mode.PARTITIONED, partitions=taken)
    return tuple(left)


def _instances(card: Card, need: Need) -> int:
    if card.partitions is None or card.mode not in (Mode.NONE, Mode.PARTITIONED) or not need.covers(card):
        return 0
    return card.partitions.free(_vendor(card, need))


def _vendor(card: Card, need: Need) -> str:
    return vendor_profile(manufacturer_of(card.key), need.profile)
