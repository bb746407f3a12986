"""What cards can do, added up: slices, partition profiles.

For: `acceleratorSlicedDetail` of a device group and `detail.slicedDetail` of a pool (spec 02 §3.3).
In: raw cards of an inventory. Out: the aggregate object; `logical` and `physical` stand there also when empty.
Promises: only a partitioned card offers profiles; counts are summed, a profile's memory never is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from api.devices import Profile, SlicedDetail
from api.ledger.fit import is_partitioned, logical_ceiling, physical_ceiling
from nodefeature.fields import as_bool, as_int, as_maps, as_str, at

Offered = tuple[str, int, int]
"""(profile name, instances on empty cards, MiB of one instance)."""


def group_detail(cards: Iterable[Mapping[str, Any]]) -> SlicedDetail:
    """Return a group's `acceleratorSlicedDetail` over its cards in order, in the driver's spelling (spec 02 §3.3)."""
    logical = 0
    overcommit = False
    offered: dict[str, tuple[int, int]] = {}
    ceiling = 0
    for card in cards:
        count = logical_ceiling(card)
        logical += count
        overcommit = overcommit or (count > 0 and overcommits(card))
        ceiling += physical_ceiling(card)
        for profile in profiles_of(card):
            name, seen = as_str(profile.get("name")), offered.get(as_str(profile.get("name")))
            memory = seen[1] if seen else as_int(profile.get("memoryMib"))
            offered[name] = ((seen[0] if seen else 0) + profile_ceiling(profile), memory)
    return detail_of(logical, overcommit, [(name, n, mib) for name, (n, mib) in offered.items()], ceiling)


def detail_of(logical: int, overcommit: bool, offered: Iterable[Offered], ceiling: int) -> SlicedDetail:
    """Return the aggregate object; what is zero is not written."""
    detail: SlicedDetail = {"logical": {}, "physical": {}}
    if overcommit:
        detail["logical"]["coresPercentageOvercommit"] = True
    if logical:
        detail["logical"]["count"] = logical
    if ceiling:
        detail["physical"]["count"] = ceiling
    profiles = [_offered_profile(*profile) for profile in offered]
    if profiles:
        detail["physical"]["profiles"] = profiles
    return detail


def profiles_of(card: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the named profiles of a partitioned card; a card that is not partitioned offers none."""
    if not is_partitioned(card):
        return []
    return [p for p in as_maps(at(card, "status", "physicalSliced", "profiles")) if as_str(p.get("name"))]


def profile_ceiling(profile: Mapping[str, Any]) -> int:
    """Return how many instances of a profile one empty card takes."""
    return max(as_int(profile.get("count")), 0)


def overcommits(card: Mapping[str, Any]) -> bool:
    """Say whether each slice of the card may claim all of its compute."""
    return as_bool(at(card, "status", "logicalSliced", "coresPercentageOvercommit"))


def _offered_profile(name: str, count: int, memory: int) -> Profile:
    profile: Profile = {"name": name}
    if count:
        profile["count"] = count
    if memory:
        profile["memoryMib"] = memory
    return profile
