"""Geometry of hardware partitions on one card.

For: the ledger, the choice of a partition, the views (spec 02 §3.6).
In: runs of memory slices `[start, start + length)`. Out: which legal placements are still free.
Promises: counts placements, not how many can be packed together; tolerates any raw input.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from api.devices import ProfileCount
from nodefeature.fields import as_int, as_maps, as_str

MAX_RUN = 4096
"""No card is divided finer than this; a longer run is nonsense and counts as the whole."""


class Placement(NamedTuple):
    """The half-open run `[start, start + length)` of memory slices (or compute units of a logical slice)."""

    start: int
    length: int


def overlaps(a: Placement, b: Placement) -> bool:
    """Say whether two runs share a slice."""
    return a.start < b.start + b.length and b.start < a.start + a.length


def placements_of(raw: object) -> tuple[Placement, ...]:
    """Return the possible runs of a raw list in their order; impossible ones are left out."""
    return tuple(placement for item in as_maps(raw) if (placement := placement_of(item)) is not None)


def placement_of(raw: Mapping[str, Any]) -> Placement | None:
    """Return one run, or None when it starts below 0, is empty or is longer than any card."""
    start = as_int(raw.get("start")) if isinstance(raw.get("start", 0), int) else -1
    length = as_int(raw.get("length"))
    return Placement(start, length) if 0 <= start < MAX_RUN and 0 < length <= MAX_RUN else None


def is_free(placement: Placement, occupied: Iterable[Placement]) -> bool:
    """Say whether a run overlaps none of the occupied ones."""
    return not any(overlaps(placement, run) for run in occupied)


def first_free(legal: Iterable[Placement], occupied: Sequence[Placement]) -> Placement | None:
    """Return the first legal run that overlaps nothing occupied."""
    return next((placement for placement in legal if is_free(placement, occupied)), None)


def remaining_profiles(profiles: Iterable[Mapping[str, Any]], occupied: Sequence[Placement]) -> dict[str, int]:
    """Return, for each profile of a card (raw `physicalSliced.profiles[]`), how many legal placements are free.

    Profiles with none are left out.
    """
    counts: dict[str, int] = {}
    for profile in profiles:
        name = as_str(profile.get("name"))
        free = sum(1 for legal in placements_of(profile.get("placements")) if is_free(legal, occupied))
        if name and free:
            counts[name] = free
    return counts


def profile_list(counts: Mapping[str, int]) -> list[ProfileCount]:
    """Return counts as the API's `[{name, count}]`, in plain string order; a count of 0 is not written."""
    return [{"name": name, "count": counts[name]} if counts[name] else {"name": name} for name in sorted(counts)]
