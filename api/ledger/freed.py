"""What a change of a node's cards newly makes possible.

For: gate 3, which looks again at those Workloads only that a freed card can help (spec 04 §10).
In: a node's cards before and after. Out: (model, family) pairs.
Promises: pure; whatever may let one more Pod of a family in is named; a change that takes only, or that moves a claim
between equal cards, names nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from api.ledger.node_cards import Card
from nodefeature.resource_names import Family

Freed = tuple[str, Family]
"""(pool key, family)."""


def freed(before: Iterable[Card], after: Iterable[Card]) -> set[Freed]:
    """Return the families that have more room than before, by model."""
    old, new = _figures(before), _figures(after)
    return {pair for pair, values in new.items() if _is_more(old.get(pair, {}), values)}


def _figures(cards: Iterable[Card]) -> dict[Freed, dict[str, list[int]]]:
    """Return, of each family, what its cards offer, by profile for partitions."""
    figures: dict[Freed, dict[str, list[int]]] = {}
    for card in cards:
        if card.partitions is not None:
            if card.mode is not None:
                for profile in card.partitions.legal:
                    _note(figures, (card.key, Family.PARTITIONED), profile, card.partitions.free(profile))
            continue
        _note(figures, (card.key, Family.EXCLUSIVE), "", int(card.is_free))
        _note(figures, (card.key, Family.SHARED), "", card.shares)
        _note(figures, (card.key, Family.SLICED), "", card.slice_units)
    return figures


def _note(figures: dict[Freed, dict[str, list[int]]], pair: Freed, kind: str, offer: int) -> None:
    if offer:
        figures.setdefault(pair, {}).setdefault(kind, []).append(offer)


def _is_more(old: dict[str, list[int]], new: dict[str, list[int]]) -> bool:
    for kind, offers in new.items():
        before = sorted(old.get(kind, ()), reverse=True)
        if len(offers) > len(before):
            return True
        if any(now > was for now, was in zip(sorted(offers, reverse=True), before, strict=False)):
            return True
    return False
