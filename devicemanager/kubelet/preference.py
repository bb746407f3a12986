"""Which tokens the kubelet should pick: packing, and the user's wishes (spec 06 §4.2).

For: GetPreferredAllocation of the exclusive, shared and sliced plugins. In: offered and must-include tokens, the
container's claim, the ledger. Out: token texts, each one of the offered; none when there is no good answer.
Promises: pure, a hint only: Allocate checks everything again. At most one token a card; never a card of another mode.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from api.devices import cards_of
from api.ledger.fit import logical_ceiling
from api.ledger.modes import Mode
from api.ledger.rebuild import CardKey, CardUse
from devicemanager.tokens import TokenInvalid, parse_token
from nodefeature.fields import as_int, as_str


@dataclass(frozen=True, slots=True)
class Wish:
    """What is known of the container: units on each card (0: not said) and the cards its Pod prefers."""

    units: int = 0
    ids: tuple[str, ...] = ()
    indexes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class _Card:
    key: CardKey
    index: int
    use: CardUse

    def fits(self, mode: Mode, units: int) -> bool:
        room = self.use.remaining >= units
        return room and (mode is not Mode.SLICED or self.use.slices < logical_ceiling(self.use.card))


def prefer(
    groups: Sequence[Mapping[str, Any]],
    mode: Mode,
    cards: Mapping[CardKey, CardUse],
    *,
    available: Sequence[str],
    must: Sequence[str],
    size: int,
    wish: Wish,
) -> list[str]:
    """Return `size` tokens, or none."""
    offered, required = _firsts(available), _firsts(must)
    preferred = _preferred(groups, wish)
    missing = set(preferred)
    chosen: list[str] = []
    spare: list[str] = []
    for card in _ordered(groups, mode, cards, set(required), wish.units):
        token = required.get(card.key) or offered.get(card.key)
        if not token or card.use.mode not in {Mode.NONE, mode}:
            continue
        if card.key in required:
            chosen.append(token)
        elif not card.fits(mode, wish.units) or (preferred and card.key not in preferred):
            spare.append(token)
            continue
        elif len(chosen) < size:
            chosen.append(token)
        missing.discard(card.key)
        if len(chosen) >= size and not missing:
            break
    lacking = size - len(chosen)
    if 0 < lacking <= len(spare):
        chosen += spare[:lacking]
    return chosen[:size] if len(chosen) >= size > 0 else []


def _firsts(texts: Sequence[str]) -> dict[CardKey, str]:
    """Return the lexicographically first token of each card; what is no token is left out."""
    of_card: dict[str, list[str]] = {}
    for text in texts:  # thousands: only what stands before the number is looked at
        of_card.setdefault(text.rpartition(":")[0], []).append(text)
    found: dict[CardKey, str] = {}
    for group in of_card.values():
        for text in sorted(group):
            try:
                token = parse_token(text)
            except TokenInvalid:
                continue
            found[token.group_id, token.card_id] = text
            break
    return found


def _preferred(groups: Sequence[Mapping[str, Any]], wish: Wish) -> frozenset[CardKey]:
    return frozenset(
        (as_str(group.get("id")), as_str(card.get("id")))
        for group in groups
        for card in cards_of(group)
        if card.get("id") in wish.ids or (not wish.ids and as_int(card.get("index")) in wish.indexes)
    )


def _ordered(
    groups: Sequence[Mapping[str, Any]],
    mode: Mode,
    cards: Mapping[CardKey, CardUse],
    required: set[CardKey],
    units: int,
) -> list[_Card]:
    ordered: list[_Card] = []
    for group in groups:
        keys = [((as_str(group.get("id")), as_str(card.get("id"))), card) for card in cards_of(group)]
        known = [_Card(key, as_int(card.get("index")), cards[key]) for key, card in keys if key in cards]
        if units:
            known.sort(key=lambda card: _rank(card, mode, units))
        ordered += sorted(known, key=lambda card: card.key not in required)
    return ordered


def _rank(card: _Card, mode: Mode, units: int) -> tuple[bool, int]:
    fits = card.fits(mode, units)
    return not fits, card.use.remaining if fits else -card.use.remaining
