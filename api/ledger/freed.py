"""What a change of a node's cards newly makes possible.

For: gate 3, which looks again at those Workloads only that a freed card can help (spec 04 §10).
In: a node's cards before and after. Out: (model, family) pairs.
Promises: pure; whatever may let one more Pod of one family in is named (a Pod of several families may find room in a
change that names nothing); a change that takes only, or that moves a claim between equal cards, names nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from api.ledger.node_cards import Card
from nodefeature.resource_names import Family

Freed = tuple[str, Family]
"""(pool key, family)."""
_Offer = tuple[int, int]
"""(how much or how many, slice slots)."""


def freed(before: Iterable[Card], after: Iterable[Card]) -> set[Freed]:
    """Return the families that have more room than before, by model."""
    old, new = _figures(before), _figures(after)
    return {pair for pair, values in new.items() if _is_more(old.get(pair, {}), values)}


def _figures(cards: Iterable[Card]) -> dict[Freed, dict[str, list[_Offer]]]:
    """Return, of each family, what its cards offer, by profile for partitions."""
    figures: dict[Freed, dict[str, list[_Offer]]] = {}
    for card in cards:
        if card.partitions is not None:
            if card.mode is not None:
                for profile in card.partitions.legal:
                    _note(figures, (card.key, Family.PARTITIONED), profile, (card.partitions.free(profile), 0))
            continue
        _note(figures, (card.key, Family.EXCLUSIVE), "", (int(card.is_free), 0))
        _note(figures, (card.key, Family.SHARED), "", (card.shares, 0))
        _note(figures, (card.key, Family.SLICED), "", (card.slice_units, card.slots))
    return figures


def _note(figures: dict[Freed, dict[str, list[_Offer]]], pair: Freed, kind: str, offer: _Offer) -> None:
    if offer[0]:
        figures.setdefault(pair, {}).setdefault(kind, []).append(offer)


def _is_more(old: dict[str, list[_Offer]], new: dict[str, list[_Offer]]) -> bool:
    """Say whether some offer is matched by none of before, each of which matches one."""
    for kind, offers in new.items():
        # The largest first, each on the one with the fewest slots that do: then a match is found if there is any.
        left = sorted(old.get(kind, ()), key=lambda offer: offer[1])
        for units, slots in sorted(offers, reverse=True):
            match = next((was for was in left if was[0] >= units and was[1] >= slots), None)
            if match is None:
                return True
            left.remove(match)
    return False
