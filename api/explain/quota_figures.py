"""What a ClusterQueue has, of what was asked, and what is left of it.

For: `quota`. In: amounts asked by resource, a ClusterQueue. Out: figures of the one resource that decides.
Promises: pure, exact integers in thousandths; credits are shown as cards (1,600,000 are one card), CPU as cores;
a queue that covers nothing of what is asked costs nothing, as Kueue is set to (`IgnoreUndeclared`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from api.explain.evidence import Numbers, Object
from nodefeature.credits import CREDITS_PER_ACCELERATOR
from nodefeature.fields import as_list, as_maps, as_str, at
from nodefeature.manufacturers import CREDITS_PREFIX
from nodefeature.quantity import quantity_or_zero


@dataclass(frozen=True, slots=True)
class Figures:
    """Amounts of one resource in thousandths. `ceiling` and `best` are those of the best flavor."""

    resource: str = ""
    asked: int = 0
    free: int = 0
    best: int = 0
    best_flavor: str = ""
    ceiling: int = 0
    flavors: int = 0

    @property
    def known(self) -> bool:
        """Say whether the queue has any flavor for the resource."""
        return self.flavors > 0

    @property
    def missing(self) -> int:
        """Return how much is missing."""
        return self.asked - self.best

    def numbers(self) -> Numbers:
        """Return the figures as people read them: credits, or thousandths of cores."""
        if not self.resource:
            return Numbers()
        scale, unit = (1000, "credits") if self.resource.startswith(CREDITS_PREFIX) else (1, "millicores")
        if not self.known:
            return Numbers(unit=unit, asked=self.asked // scale)
        return Numbers(
            unit=unit,
            asked=self.asked // scale,
            free=self.free // scale,
            largest=self.best // scale,
            largest_at=self.best_flavor,
        )


def figures_of(asked: Mapping[str, int], queue: Object | None) -> Figures:
    """Return the figures of the covered resource of which most is missing; of the first asked one without a queue."""
    covered = [
        resource
        for group in as_maps(at(queue, "spec", "resourceGroups"))
        for resource in as_list(group.get("coveredResources"))
        if isinstance(resource, str)
    ]
    found = [_figures(resource, asked[resource], queue) for resource in covered if asked.get(resource)]
    if found:
        return max(found, key=lambda figures: figures.missing)
    credits = sorted(resource for resource in asked if resource.startswith(CREDITS_PREFIX))
    first = (credits or sorted(asked) or [""])[0]
    return Figures(first, asked.get(first, 0))


def _figures(resource: str, asked: int, queue: Object | None) -> Figures:
    taken = _taken(resource, queue)
    free = best = ceiling = flavors = 0
    best_flavor = ""
    for group in as_maps(at(queue, "spec", "resourceGroups")):
        for flavor in as_maps(group.get("flavors")):
            name = as_str(flavor.get("name"))
            for quota in as_maps(flavor.get("resources")):
                if quota.get("name") != resource:
                    continue
                nominal = max(quantity_or_zero(quota.get("nominalQuota")).ceil_milli(), 0)
                left = max(nominal - taken.get(name, 0), 0)
                free, ceiling, flavors = free + left, max(ceiling, nominal), flavors + 1
                if left > best or not best_flavor:
                    best, best_flavor = left, name
    return Figures(resource, asked, free, best, best_flavor, ceiling, flavors)


def _taken(resource: str, queue: Object | None) -> dict[str, int]:
    return {
        as_str(flavor.get("name")): max(quantity_or_zero(row.get("total")).ceil_milli(), 0)
        for flavor in as_maps(at(queue, "status", "flavorsReservation"))
        for row in as_maps(flavor.get("resources"))
        if row.get("name") == resource
    }


def amount(resource: str, milli: int) -> str:
    """Return an amount in words: `0.5 cards`, `8 cores`, at most two places, rounded up so that nothing reads 0."""
    if not resource:
        return "nothing"
    if resource.startswith(CREDITS_PREFIX):
        return _decimal(milli, CREDITS_PER_ACCELERATOR * 1000, "card")
    return _decimal(milli, 1000, "core")


def _decimal(value: int, one: int, noun: str) -> str:
    hundredths = -(-value * 100 // one)
    whole, rest = divmod(hundredths, 100)
    text = f"{whole}.{rest:02}".rstrip("0").rstrip(".") if rest else str(whole)
    return f"{text} {noun}" if text == "1" else f"{text} {noun}s"
