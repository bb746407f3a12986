"""The four views of a pool: what its cards can still give, by family, with what is offered and what is running.

For: the status of InstanceType (spec 02 §4.4; design §8.11).
In: the contributions of the pool's nodes. Out: sums and maxima over them; the fields of the status.
Promises: the fold does not depend on the order of the nodes; no running totals are kept anywhere; quantities become
text only in `status_of`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from api.devices import ProfileCount, SlicedDetail
from api.ledger.capability import Offered, detail_of
from api.ledger.contribution import NOTHING, Contribution, Counts, contribution, offer, sorted_counts
from api.ledger.modes import SHARES_PER_CARD
from api.ledger.placements import profile_list
from nodefeature.quantity import of

__all__ = [
    "EMPTY_VIEWS",
    "NOTHING",
    "Contribution",
    "Counts",
    "FourViews",
    "View",
    "contribution",
    "fold",
    "sliced_detail",
    "status_of",
]


@dataclass(frozen=True, slots=True)
class View:
    """One family: the largest single request, what is left, what there is."""

    once: int = 0
    remaining: int = 0
    capacity: int = 0


@dataclass(frozen=True, slots=True)
class FourViews:
    """A pool's families, its profiles, its slicing capability and its distinct runtime versions (ascending)."""

    exclusive: View = View()
    shared: View = View()
    sliced: View = View()
    partitioned: View = View()
    allocated_profiles: Counts = ()
    remaining_profiles: Counts = ()
    logical_count: int = 0
    logical_overcommit: bool = False
    offered_profiles: tuple[Offered, ...] = ()
    runtime_versions: tuple[str, ...] = ()


EMPTY_VIEWS = FourViews()


def fold(contributions: Iterable[Contribution]) -> FourViews:
    """Add up the nodes of a pool."""
    cards = free = free_max = shares = share_max = sliceable = percent = percent_max = 0
    partitions = ceiling = logical = 0
    overcommit = False
    allocated: dict[str, int] = {}
    remaining: dict[str, int] = {}
    offered: dict[str, tuple[int, int]] = {}
    versions: set[tuple[int, int]] = set()
    for node in contributions:
        cards += node.cards
        free += node.free_cards
        free_max = max(free_max, node.free_cards)
        shares += node.shares
        share_max = max(share_max, node.share_cards)
        sliceable += node.sliceable_cards
        percent += node.percent
        percent_max = max(percent_max, node.percent_on_one)
        partitions += node.partitions
        ceiling += node.partition_ceiling
        logical += node.logical_count
        overcommit = overcommit or node.logical_overcommit
        versions.update(node.runtime_versions)
        if node.offered_profiles or node.allocated_profiles:
            _add_counts(allocated, node.allocated_profiles)
            _add_counts(remaining, node.remaining_profiles)
            for name, count, memory in node.offered_profiles:
                offer(offered, name, count, memory)
    return FourViews(
        exclusive=View(free_max, free, cards),
        shared=View(share_max, shares, cards * SHARES_PER_CARD),
        sliced=View(percent_max, percent, sliceable * 100),
        partitioned=View(1 if partitions else 0, partitions, ceiling),
        allocated_profiles=sorted_counts(allocated),
        remaining_profiles=sorted_counts(remaining),
        logical_count=logical,
        logical_overcommit=overcommit,
        offered_profiles=tuple((name, *offered[name]) for name in sorted(offered)),
        runtime_versions=tuple(f"{major}.{minor}" for major, minor in sorted(versions)),
    )


def sliced_detail(views: FourViews) -> SlicedDetail:
    """Return a pool's `detail.slicedDetail`; both objects stand there also when empty (spec 02 §2)."""
    ceiling = views.partitioned.capacity
    return detail_of(views.logical_count, views.logical_overcommit, views.offered_profiles, ceiling)


def status_of(views: FourViews) -> dict[str, Any]:
    """Return the views as fields of InstanceType's status: canonical quantities, profiles as lists."""
    return {
        "accelerator": _resource(views.exclusive),
        "acceleratorShared": _resource(views.shared),
        "acceleratorSliced": _resource(views.sliced),
        "acceleratorPartitioned": {
            **_resource(views.partitioned),
            **_profiles_field("allocatedProfiles", views.allocated_profiles),
            **_profiles_field("remainingProfiles", views.remaining_profiles),
        },
    }


def _add_counts(into: dict[str, int], counts: Counts) -> None:
    for name, count in counts:
        into[name] = into.get(name, 0) + count


def _resource(view: View) -> dict[str, str]:
    return {
        "onceMaxRequest": str(of(view.once)),
        "remaining": str(of(view.remaining)),
        "capacity": str(of(view.capacity)),
    }


def _profiles_field(name: str, counts: Counts) -> dict[str, list[ProfileCount]]:
    return {name: profile_list(dict(counts))} if counts else {}
