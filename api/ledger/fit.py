"""What a card can serve, and which cards a partition request takes.

For: the device plugin, gate 3, the views (spec 02 §3.6, §3.7).
In: raw card inventories and candidates. Out: predicates and choices.
Promises: a card is decided by its capability, never by its ledger row; one that reports both capabilities is
partitioned only; a choice is made whole or not at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from api.ledger.modes import MAX_SLICES
from api.ledger.placements import Placement, first_free
from nodefeature.fields import as_int, as_list, at


@dataclass(frozen=True, slots=True)
class Candidate:
    """One card asked for a partition: the legal placements of the wanted profile and what is occupied on it."""

    id: str
    legal: tuple[Placement, ...]
    occupied: tuple[Placement, ...]


@dataclass(frozen=True, slots=True)
class Chosen:
    """One partition's card and run."""

    id: str
    placement: Placement


def physical_ceiling(card: Mapping[str, Any]) -> int:
    """Return the largest number of hardware partitions of a card (raw `accelerators[]` item); 0 when it has none."""
    return min(max(as_int(at(card, "status", "physicalSliced", "count")), 0), MAX_SLICES)


def logical_ceiling(card: Mapping[str, Any]) -> int:
    """Return the largest number of software slices that a card reports."""
    return min(max(as_int(at(card, "status", "logicalSliced", "count")), 0), MAX_SLICES)


def is_partitioned(card: Mapping[str, Any]) -> bool:
    """Say whether the card serves hardware partitions, and so nothing else."""
    return physical_ceiling(card) > 0


def is_sliceable(card: Mapping[str, Any]) -> bool:
    """Say whether the card serves software slices."""
    return logical_ceiling(card) > 0 and not is_partitioned(card)


def is_whole_capable(card: Mapping[str, Any]) -> bool:
    """Say whether the card can be held exclusively or shared; true also for one that reports no capability."""
    return not is_partitioned(card)


def pool_sliceable(detail: Mapping[str, Any]) -> bool:
    """Say whether an InstanceType's `status.detail` offers software slices."""
    return as_int(at(detail, "slicedDetail", "logical", "count")) > 0


def pool_partitionable(detail: Mapping[str, Any]) -> bool:
    """Say whether an InstanceType's `status.detail` offers hardware partitions."""
    return as_int(at(detail, "slicedDetail", "physical", "count")) > 0


def detail_ready(detail: Mapping[str, Any]) -> bool:
    """Say whether an InstanceType's `status.detail` has been computed."""
    return bool(detail.get("manufacturer"))


def ledger_ready(row: Mapping[str, Any] | None) -> bool:
    """Say whether a partitioned card's ledger row can be read; if not, readers fall back to the card's ceiling."""
    return row is not None and bool(as_list(row.get("allocatedProfiles")) or as_list(row.get("remainingProfiles")))


def choose_partitions(candidates: Sequence[Candidate], count: int) -> tuple[Chosen, ...] | None:
    """Place `count` partitions, at most one a card, each on the fullest card that still has room.

    Ties go to the first in order. Returns None when not all can be placed, an empty tuple for a count of 0 or less.
    """
    chosen: list[Chosen] = []
    unused = list(candidates)
    for _ in range(count):
        best = _fullest_with_room(unused)
        if best is None:
            return None
        unused.remove(best[0])
        chosen.append(Chosen(best[0].id, best[1]))
    return tuple(chosen)


def _fullest_with_room(candidates: Sequence[Candidate]) -> tuple[Candidate, Placement] | None:
    best: tuple[Candidate, Placement] | None = None
    fullest = -1
    for candidate in candidates:
        used = sum(run.length for run in candidate.occupied)
        if used <= fullest:
            continue
        placement = first_free(candidate.legal, candidate.occupied)
        if placement is not None:
            best, fullest = (candidate, placement), used
    return best
