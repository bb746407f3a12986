"""Allocation modes and the unit ruler of one card.

For: everything that charges, frees or counts a card (spec 02 §3.4, §3.5).
In/Out: integers. A card is 1,600,000 units; every power of two up to 512, 10 and 100 divide it.
Promises: the wire values are persisted and never renumbered; an unknown value has the name `None`.
"""

from __future__ import annotations

from enum import IntEnum

from nodefeature.credits import (
    CREDITS_PER_ACCELERATOR,
    MAX_SLICES,
    SHARED_MAX_OWNERS,
    UNITS_PER_PERCENT,
    UNITS_PER_SHARE,
    memory_mib_to_units,
)
from nodefeature.fields import as_int

CARD_UNITS = CREDITS_PER_ACCELERATOR
SHARES_PER_CARD = SHARED_MAX_OWNERS
SHARE_UNITS = UNITS_PER_SHARE
PERCENT_UNITS = UNITS_PER_PERCENT

__all__ = [
    "CARD_UNITS",
    "MAX_SLICES",
    "MODE_NAMES",
    "PERCENT_UNITS",
    "SHARES_PER_CARD",
    "SHARE_UNITS",
    "Mode",
    "free_units",
    "memory_mib_to_units",
    "mode_name",
    "mode_of",
]


class Mode(IntEnum):
    """How a card, or one container's claim on it, is held."""

    NONE = 0
    EXCLUSIVE = 1
    SHARED = 2
    SLICED = 3
    PARTITIONED = 4
    VISIBILITY = 5
    """Device files for a side container: charges nothing, never stands in a ledger."""


MODE_NAMES = {
    Mode.NONE: "None",
    Mode.EXCLUSIVE: "Exclusive",
    Mode.SHARED: "Shared",
    Mode.SLICED: "Sliced",
    Mode.PARTITIONED: "Partitioned",
    Mode.VISIBILITY: "Visibility",
}
_MODES = {int(mode): mode for mode in Mode}


def mode_of(value: object) -> Mode | None:
    """Return the mode of a wire value; an absent one is `NONE`, anything unknown or of a wrong type is None."""
    if value is None:
        return Mode.NONE
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return _MODES.get(value)


def mode_name(value: object) -> str:
    """Return the name shown to people; unknown values read `None` like the free mode."""
    mode = mode_of(value)
    return MODE_NAMES[mode] if mode is not None else "None"


def free_units(value: object) -> int:
    """Return a ledger row's `remaining` as what can be promised: 0 for nonsense, never more than a card has."""
    return min(max(as_int(value), 0), CARD_UNITS)
