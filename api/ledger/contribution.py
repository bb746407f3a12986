"""What one node adds to its pool.

For: the four views (spec 02 §4.4; design §8.11), folded in `api.ledger.views`.
In: one Devices object and the pool's accelerator group. Out: a small frozen value that is kept per node.
Promises: pure in that one object; whatever a ledger says, a card never gives more than it has; never raises.

Each card feeds one family, decided by its capability: unpartitioned cards EX, SH and (sliceable ones) SL, partitioned
cards PT. A card that reports itself unhealthy keeps its place in the capacity and gives nothing (case B039).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar

from api.devices import cards_of, group_key, spec_groups, status_groups
from api.ledger.capability import Offered, overcommits, profile_ceiling, profiles_of
from api.ledger.fit import is_partitioned, ledger_ready, logical_ceiling, physical_ceiling
from api.ledger.modes import CARD_UNITS, PERCENT_UNITS, SHARE_UNITS, Mode, free_units, mode_of
from nodefeature.fields import as_bool, as_int, as_maps, as_str, at
from nodefeature.profiles import public_profile

_T = TypeVar("_T")
Counts = tuple[tuple[str, int], ...]
"""(published profile name, count) in plain string order."""


@dataclass(frozen=True, slots=True)
class Contribution:
    """What one node's cards of one group add to their pool."""

    cards: int = 0
    free_cards: int = 0
    shares: int = 0
    share_cards: int = 0
    sliceable_cards: int = 0
    percent: int = 0
    percent_on_one: int = 0
    partitions: int = 0
    partition_ceiling: int = 0
    allocated_profiles: Counts = ()
    remaining_profiles: Counts = ()
    """Every offered profile, also at 0."""
    logical_count: int = 0
    logical_overcommit: bool = False
    offered_profiles: tuple[Offered, ...] = ()
    """(published name, instances on empty cards, MiB) in plain string order."""
    runtime_versions: tuple[tuple[int, int], ...] = ()


NOTHING = Contribution()


def contribution(devices: Mapping[str, Any], accelerator_group: str) -> Contribution:
    """Return what a node's cards of one group (`<manufacturer>-<id>`) add to their pool."""
    tally = _Tally()
    for group in spec_groups(devices):
        if group_key(group) == accelerator_group:
            tally.add_group(group, _ledger_rows(devices, group))
    return tally.result()


@dataclass(slots=True)
class _Tally:
    """A contribution under construction."""

    cards: int = 0
    free_cards: int = 0
    shares: int = 0
    share_cards: int = 0
    sliceable_cards: int = 0
    percent: int = 0
    percent_on_one: int = 0
    partitions: int = 0
    partition_ceiling: int = 0
    logical_count: int = 0
    logical_overcommit: bool = False
    seen: set[str] = field(default_factory=set)
    allocated: dict[str, int] = field(default_factory=dict)
    remaining: dict[str, int] = field(default_factory=dict)
    offered: dict[str, tuple[int, int]] = field(default_factory=dict)
    versions: set[tuple[int, int]] = field(default_factory=set)

    def add_group(self, group: Mapping[str, Any], rows: Mapping[str, Mapping[str, Any]]) -> None:
        manufacturer = as_str(group.get("manufacturer"))
        version = runtime_version(as_str(group.get("runtimeVersion")))
        if version is not None:
            self.versions.add(version)
        for card in cards_of(group):
            card_id = as_str(card.get("id"))
            if card_id in self.seen:
                continue
            self.seen.add(card_id)
            self._add_capability(card, manufacturer)
            row = rows.get(card_id)
            if is_partitioned(card):
                self._add_partitioned(card, row, manufacturer)
            elif row is not None:
                self._add_whole(card, row)

    def _add_capability(self, card: Mapping[str, Any], manufacturer: str) -> None:
        logical = logical_ceiling(card)
        self.logical_count += logical
        self.logical_overcommit = self.logical_overcommit or (logical > 0 and overcommits(card))
        for profile in profiles_of(card):
            name = public_profile(manufacturer, as_str(profile.get("name")))
            offer(self.offered, name, profile_ceiling(profile), max(as_int(profile.get("memoryMib")), 0))

    def _add_whole(self, card: Mapping[str, Any], row: Mapping[str, Any]) -> None:
        self.cards += 1
        sliceable = logical_ceiling(card) > 0
        self.sliceable_cards += sliceable
        mode = mode_of(row.get("mode"))
        units = 0 if mode is None or _unhealthy(card) else free_units(row.get("remaining"))
        free = units == CARD_UNITS
        self.free_cards += free
        if free or mode is Mode.SHARED:
            shares = units // SHARE_UNITS
            self.shares += shares
            self.share_cards += shares > 0
        if sliceable and (free or mode is Mode.SLICED):
            percent = units // PERCENT_UNITS
            self.percent += percent
            self.percent_on_one = max(self.percent_on_one, percent)

    def _add_partitioned(self, card: Mapping[str, Any], row: Mapping[str, Any] | None, manufacturer: str) -> None:
        ceiling = physical_ceiling(card)
        self.partition_ceiling += ceiling
        ready = ledger_ready(row)
        free = _counts(row, "remainingProfiles") if ready and row is not None else None
        most = 0 if ready else ceiling
        for profile in profiles_of(card):
            name, limit = as_str(profile.get("name")), profile_ceiling(profile)
            left = limit if free is None else min(free.get(name, 0), limit)
            most = max(most, left) if ready else most
            published = public_profile(manufacturer, name)
            self.remaining[published] = self.remaining.get(published, 0) + (0 if _unhealthy(card) else left)
        self.partitions += 0 if _unhealthy(card) else min(most, ceiling)
        if ready and row is not None:
            for name, count in _counts(row, "allocatedProfiles").items():
                published = public_profile(manufacturer, name)
                self.allocated[published] = self.allocated.get(published, 0) + min(count, ceiling)

    def result(self) -> Contribution:
        return Contribution(
            cards=self.cards,
            free_cards=self.free_cards,
            shares=self.shares,
            share_cards=self.share_cards,
            sliceable_cards=self.sliceable_cards,
            percent=self.percent,
            percent_on_one=self.percent_on_one,
            partitions=self.partitions,
            partition_ceiling=self.partition_ceiling,
            allocated_profiles=_one_object(sorted_counts(self.allocated)),
            remaining_profiles=_one_object(sorted_counts(self.remaining)),
            logical_count=self.logical_count,
            logical_overcommit=self.logical_overcommit,
            offered_profiles=_one_object(tuple((name, *self.offered[name]) for name in sorted(self.offered))),
            runtime_versions=_one_object(tuple(sorted(self.versions))),
        )


@lru_cache(maxsize=4096)
def _one_object(value: _T) -> _T:
    """Return one object for all equal values: a fleet's nodes have few different profile sets."""
    return value


def runtime_version(text: str) -> tuple[int, int] | None:
    """Return (major, minor) of a runtime version, a missing minor as 0; None for text that is no such number."""
    major, _, minor = text.partition(".")
    parts = (major, minor or "0")
    if not all(part.isascii() and part.isdecimal() and len(part) < 10 for part in parts) or text.endswith("."):
        return None
    return int(parts[0]), int(parts[1])


def _ledger_rows(devices: Mapping[str, Any], group: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return a group's ledger rows by card id; of two rows for one card the first counts."""
    rows: dict[str, Mapping[str, Any]] = {}
    for held in status_groups(devices):
        if held.get("id") == group.get("id") and held.get("manufacturer") == group.get("manufacturer"):
            for row in cards_of(held):
                rows.setdefault(as_str(row.get("id")), row)
    return rows


def _unhealthy(card: Mapping[str, Any]) -> bool:
    return as_bool(at(card, "status", "unhealthy"))


def _counts(row: Mapping[str, Any], key: str) -> dict[str, int]:
    counts: dict[str, int] = {}
    for item in as_maps(row.get(key)):
        name, count = as_str(item.get("name")), as_int(item.get("count"))
        if name and count > 0:
            counts[name] = counts.get(name, 0) + count
    return counts


def offer(offered: dict[str, tuple[int, int]], name: str, count: int, memory: int) -> None:
    """Add a profile's count; of differing memories the largest stands, so that the order of nodes does not matter."""
    before = offered.get(name, (0, 0))
    offered[name] = (before[0] + count, max(before[1], memory))


def sorted_counts(counts: Mapping[str, int]) -> Counts:
    """Return counts in plain string order."""
    return tuple((name, counts[name]) for name in sorted(counts))
