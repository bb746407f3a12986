"""Inventories for tests of the device plugin."""

from __future__ import annotations

from typing import Any

from tests.builders.ledgers import card, group, mig_profiles

T4 = "tesla-t4"


def sliceable(count: int = 2, slices: int = 4, **changes: Any) -> list[dict[str, Any]]:
    """Return one group of cards `GPU-0` ... that serve whole, shared and sliced."""
    cards = [card(f"GPU-{n}", n, slices=slices, **changes) for n in range(count)]
    return [dict(group(cards, group_id=T4, memory=16384))]


def carved(count: int = 1) -> list[dict[str, Any]]:
    """Return one group of cards `PART-0` ... in partition mode."""
    return [dict(group([card(f"PART-{n}", n, profiles=mig_profiles()) for n in range(count)]))]


def hygon(count: int = 1, slices: int = 4) -> list[dict[str, Any]]:
    """Return one group of Hygon cards `DCU-0` ..."""
    cards = [card(f"DCU-{n}", n, slices=slices) for n in range(count)]
    return [dict(group(cards, group_id="k100-ai", manufacturer="hygon", memory=65536))]
