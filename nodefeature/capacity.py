"""Node capacity keys: the counters our webhooks and Kueue weigh slices and partitions by (spec 01 §10).

For: `node_capacity`.
In: a Node's labels and capacity, the cards of its Devices record. Out: the keys wanted, and the patch to get there.
Promises:
  - a family's keys come and go together, and only behind a bare pool that the plugin advertises;
  - a family somebody still holds is kept whole through a pool that reads 0 for a while (design §8.4, case B013);
  - only keys of ours are touched: bare pools, `.shared` and foreign names never are;
  - equal amounts in another spelling (`3200k`, `3200000`) give no patch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from nodefeature.credits import CREDITS_PER_ACCELERATOR
from nodefeature.device_labels import device_models
from nodefeature.manufacturers import Manufacturer, Manufacturers
from nodefeature.profiles import profile_resource
from nodefeature.quantity import canonical, memory_label_mib, of, quantity_or_zero, same_quantity
from nodefeature.resource_names import (
    PARTITIONED_UNITS,
    SLICED_CORES_PERCENTAGE,
    SLICED_COUNTING_SUFFIXES,
    SLICED_MEMORY_MIB,
    SLICED_MEMORY_PERCENTAGE,
    SLICED_UNITS,
    Family,
    family_of,
    is_profile_resource,
    manufacturer_of_resource,
)


@dataclass(frozen=True, slots=True)
class Card:
    """One accelerator of the Devices record: its model's key and what it can be cut into.

    `profiles` is None unless the card is in a hardware partitioning mode; it counts allocated plus remaining
    instances by the driver's spelling (a static ceiling where the ledger says nothing), 0 for no room.
    """

    key: str
    slices: int = 0
    overcommits_cores: bool = False
    profiles: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True)
class CapacityPlan:
    """The keys a node should have, those that stay as they are, and a sentence for each unusable profile."""

    wanted: Mapping[str, int]
    kept: frozenset[str] = frozenset()
    problems: tuple[str, ...] = ()


@dataclass(slots=True)
class _Sums:
    sliced_cards: int = 0
    cores_percentage: int = 0
    memory_mib: int = 0
    partitioned_cards: int = 0
    profiles: dict[str, int] = field(default_factory=dict)


def plan_capacity(
    registry: Manufacturers,
    *,
    labels: Mapping[str, str],
    capacity: Mapping[str, object],
    cards: Iterable[Card],
    held: Iterable[str] = (),
) -> CapacityPlan:
    """Return the capacity keys of a node; give no `cards` for one that is not managed.

    `capacity` is `status.capacity`; `held` are resource names that Pods on the node hold, or that are too young to be
    taken away: their family stays while the node has any of its keys. Without cards (no record, or not managed) all
    keys but the held ones go.
    """
    sums = _sums(labels, cards)
    held_families = {(manufacturer_of_resource(registry, name), family_of(registry, name)) for name in held}
    present = {
        name: (manufacturer_of_resource(registry, name), family_of(registry, name))
        for name in capacity
        if is_owned(registry, name)
    }
    kept_families = held_families.intersection(present.values())
    wanted: dict[str, int] = {}
    problems: list[str] = []
    for name, amounts in sorted(sums.items()):
        known = registry.get(name)
        if known is None:
            continue
        if amounts.sliced_cards and (
            _has_pool(capacity, known.base + ".sliced") or (name, Family.SLICED) in kept_families
        ):
            wanted |= _sliced(known, amounts)
        if amounts.partitioned_cards and known.partition_kind:
            keys, bad = _partitioned(registry, known, amounts)
            problems += bad
            if _has_pool(capacity, known.base + ".partitioned") or (name, Family.PARTITIONED) in kept_families:
                wanted |= keys
    kept = frozenset(name for name, family in present.items() if family in kept_families and name not in wanted)
    return CapacityPlan(wanted, kept, tuple(problems))


def capacity_patch(
    registry: Manufacturers, *, capacity: Mapping[str, object], plan: CapacityPlan
) -> dict[str, str | None]:
    """Return the merge patch for `status.capacity`: values that differ, null for owned keys nobody wants.

    An empty patch means that nothing is to be written.
    """
    patch: dict[str, str | None] = {
        name: canonical(of(amount))
        for name, amount in sorted(plan.wanted.items())
        if not same_quantity(capacity.get(name), amount)
    }
    for name in sorted(capacity):
        if name not in plan.wanted and name not in plan.kept and is_owned(registry, name):
            patch[name] = None
    return patch


def is_owned(registry: Manufacturers, resource: str) -> bool:
    """Say whether a capacity key is ours: a counting suffix behind a known base, or a per-profile key."""
    for suffix in (*SLICED_COUNTING_SUFFIXES, PARTITIONED_UNITS):
        if resource.endswith(suffix):
            return resource.removesuffix(suffix) in registry.by_base
    return is_profile_resource(registry, resource)


def _has_pool(capacity: Mapping[str, object], pool: str) -> bool:
    return quantity_or_zero(capacity.get(pool)).nano > 0


def _sums(labels: Mapping[str, str], cards: Iterable[Card]) -> dict[str, _Sums]:
    models = {model.key: model for model in device_models(labels)}
    sums: dict[str, _Sums] = {}
    for card in cards:
        model = models.get(card.key)
        if model is None:
            continue
        amounts = sums.setdefault(model.manufacturer, _Sums())
        if card.profiles is not None:
            amounts.partitioned_cards += 1
            for profile, instances in card.profiles.items():
                amounts.profiles[profile] = amounts.profiles.get(profile, 0) + max(instances, 0)
        elif card.slices > 0:
            amounts.sliced_cards += 1
            amounts.cores_percentage += 100 * (card.slices if card.overcommits_cores else 1)
            amounts.memory_mib += memory_label_mib(model.memory)
    return sums


def _sliced(known: Manufacturer, amounts: _Sums) -> dict[str, int]:
    return {
        known.base + SLICED_UNITS: amounts.sliced_cards * CREDITS_PER_ACCELERATOR,
        known.base + SLICED_CORES_PERCENTAGE: amounts.cores_percentage,
        known.base + SLICED_MEMORY_PERCENTAGE: amounts.sliced_cards * 100,
        known.base + SLICED_MEMORY_MIB: amounts.memory_mib,
    }


def _partitioned(registry: Manufacturers, known: Manufacturer, amounts: _Sums) -> tuple[dict[str, int], list[str]]:
    keys = {known.base + PARTITIONED_UNITS: amounts.partitioned_cards * CREDITS_PER_ACCELERATOR}
    problems: list[str] = []
    for profile, instances in sorted(amounts.profiles.items()):
        name = profile_resource(registry, known.name, profile)
        if name:
            keys[name] = keys.get(name, 0) + instances
        else:
            problems.append(f"profile {profile!r} of {known.name} cannot be a resource name and is not advertised")
    return keys, problems
