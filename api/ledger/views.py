"""The four views of a pool: what its cards can still give, by family, with what is offered and what is running.

For: the status of InstanceType (spec 02 §4.4; design §8.11).
In: the contributions of the pool's nodes. Out: sums and maxima over them; the fields of the status.
Promises: the fold does not depend on the order of the nodes; no running totals are kept anywhere; quantities become
text only in `status_of`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
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
    "combine",
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
    """Add up the nodes of a pool.

    Thousands of nodes in one step: each figure is one pass of C code; profiles, of which a fleet has few different
    sets, are counted set by set and multiplied afterwards.
    """
    nodes = list(contributions)

    def total(name: str) -> int:
        return sum(map(attrgetter(name), nodes))

    def most(name: str) -> int:
        return max(map(attrgetter(name), nodes), default=0)

    cards, partitions = total("cards"), total("partitions")
    versions = {version for some, _ in _sets(nodes, "runtime_versions") for version in some}
    return FourViews(
        exclusive=View(most("free_cards"), total("free_cards"), cards),
        shared=View(most("share_cards"), total("shares"), cards * SHARES_PER_CARD),
        sliced=View(most("percent_on_one"), total("percent"), total("sliceable_cards") * 100),
        partitioned=View(1 if partitions else 0, partitions, total("partition_ceiling")),
        allocated_profiles=_multiplied(_sets(nodes, "allocated_profiles")),
        remaining_profiles=_multiplied(_sets(nodes, "remaining_profiles")),
        logical_count=total("logical_count"),
        logical_overcommit=most("logical_overcommit") > 0,
        offered_profiles=_offered(_sets(nodes, "offered_profiles")),
        runtime_versions=tuple(f"{major}.{minor}" for major, minor in sorted(versions)),
    )


def combine(parts: Sequence[FourViews]) -> FourViews:
    """Add up folds: of the parts of a pool, in any order, as if all their nodes had been folded at once."""
    allocated, remaining = Counter[str](), Counter[str]()
    offered: dict[str, tuple[int, int]] = {}
    for part in parts:
        allocated.update(dict(part.allocated_profiles))
        remaining.update(dict(part.remaining_profiles))
        for name, count, memory in part.offered_profiles:
            offer(offered, name, count, memory)
    versions = {version for part in parts for version in part.runtime_versions}
    return FourViews(
        exclusive=_total(part.exclusive for part in parts),
        shared=_total(part.shared for part in parts),
        sliced=_total(part.sliced for part in parts),
        partitioned=_total(part.partitioned for part in parts),
        allocated_profiles=sorted_counts(allocated),
        remaining_profiles=sorted_counts(remaining),
        logical_count=sum(part.logical_count for part in parts),
        logical_overcommit=any(part.logical_overcommit for part in parts),
        offered_profiles=tuple((name, *offered[name]) for name in sorted(offered)),
        runtime_versions=tuple(sorted(versions, key=lambda version: tuple(map(int, version.split("."))))),
    )


def _total(views: Iterable[View]) -> View:
    shown = list(views)
    return View(
        max((view.once for view in shown), default=0),
        sum(view.remaining for view in shown),
        sum(view.capacity for view in shown),
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


def _sets(nodes: Sequence[Contribution], name: str) -> list[tuple[Any, int]]:
    """Return the different objects under one field, each with the number of nodes that share it.

    Told apart by identity: equal sets are one object nearly always (`contribution` sees to it), and hashing nested
    tuples of thousands of nodes is what a fold would spend its time on.
    """
    values = list(map(attrgetter(name), nodes))
    times = Counter(map(id, values))
    return [(value, times[key]) for key, value in {id(value): value for value in values}.items()]


def _multiplied(sets: Iterable[tuple[Counts, int]]) -> Counts:
    total: dict[str, int] = {}
    for counts, nodes in sets:
        for name, count in counts:
            total[name] = total.get(name, 0) + count * nodes
    return sorted_counts(total)


def _offered(sets: Iterable[tuple[tuple[Offered, ...], int]]) -> tuple[Offered, ...]:
    total: dict[str, tuple[int, int]] = {}
    for profiles, nodes in sets:
        for name, count, memory in profiles:
            offer(total, name, count * nodes, memory)
    return tuple((name, *total[name]) for name in sorted(total))


def _resource(view: View) -> dict[str, str]:
    return {
        "onceMaxRequest": str(of(view.once)),
        "remaining": str(of(view.remaining)),
        "capacity": str(of(view.capacity)),
    }


def _profiles_field(name: str, counts: Counts) -> dict[str, list[ProfileCount]]:
    return {name: profile_list(dict(counts))} if counts else {}
