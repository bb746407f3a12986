"""What a Pod asks of accelerators, read in one way by everybody.

For: the Pod webhook, gate 3, the device plugin, the ledger (spec 01 §9.3-9.4, spec 04 §10.3, spec 05 §1-§2).
In: raw Pod specs and PodSets, and the registry of manufacturers. Out: claims, and demands made of them.
Trusts: nothing; quantities that do not parse count as absent (the API server refuses them before us).
Promises: a value is read from requests, else from limits; counts are exact integers, rounded up as the API server
does, and clamped to 32 bits only where a demand is made.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from nodefeature.fields import as_int, as_map, as_maps, as_str, at
from nodefeature.manufacturers import Manufacturers
from nodefeature.profiles import profile_of_resource
from nodefeature.quantity import Quantity, QuantityInvalid, parse_quantity
from nodefeature.resource_names import (
    PARTITIONED_UNITS,
    SLICED_CORES_PERCENTAGE,
    SLICED_MEMORY_MIB,
    SLICED_MEMORY_PERCENTAGE,
    SLICED_UNITS,
    Family,
    base_of,
    family_of,
    manufacturer_of_resource,
)

MAX_INT32 = 2**31 - 1
CLAIMED_FAMILIES = (Family.EXCLUSIVE, Family.SHARED, Family.SLICED, Family.PARTITIONED)


class Lifetime(StrEnum):
    """When a container runs; claims of one Pod must share one."""

    INIT = "init"
    RUNNING = "running"
    SIDECAR = "sidecar"


@dataclass(frozen=True, slots=True)
class Container:
    """One container: where it stands, and its quantities (requests win over limits)."""

    name: str
    list_name: str
    """`containers` or `initContainers`."""
    index: int
    lifetime: Lifetime
    quantities: Mapping[str, Quantity]

    @property
    def path(self) -> str:
        """Return where a problem of this container is reported."""
        return f"spec.{self.list_name}[{self.index}].resources.limits"


@dataclass(frozen=True, slots=True)
class Claim:
    """One container's claim on one family of one manufacturer. What is not asked for is None or empty."""

    container: Container
    family: Family
    manufacturer: str
    base: str
    cards: Quantity | None = None
    units: Quantity | None = None
    memory_percentage: Quantity | None = None
    memory_mib: Quantity | None = None
    cores_percentage: Quantity | None = None
    profiles: tuple[tuple[str, Quantity], ...] = ()
    """(public profile name, amount), sorted by name."""


@dataclass(frozen=True, slots=True)
class Demand:
    """Cards that a Workload needs of one family, in the units of one card each."""

    family: Family
    cards: int
    units_per_card: int = 0
    profile: str = ""
    flavor: str = ""
    roles: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FitDemand:
    """What one Pod needs of the node it lands on: units on one card, cards with a free share, free cards."""

    sliced_units: int = 0
    shared_cards: int = 0
    exclusive_cards: int = 0


def containers_of(pod_spec: Mapping[str, Any]) -> Iterator[Container]:
    """Yield the init containers, then the containers, of a Pod's spec."""
    for index, raw in enumerate(as_maps(pod_spec.get("initContainers"))):
        lifetime = Lifetime.SIDECAR if raw.get("restartPolicy") == "Always" else Lifetime.INIT
        yield Container(as_str(raw.get("name")), "initContainers", index, lifetime, _quantities(raw))
    for index, raw in enumerate(as_maps(pod_spec.get("containers"))):
        yield Container(as_str(raw.get("name")), "containers", index, Lifetime.RUNNING, _quantities(raw))


def claims_of(pod_spec: Mapping[str, Any], registry: Manufacturers) -> tuple[Claim, ...]:
    """Return every claim of a Pod, by container, then in the order of families and names."""
    return tuple(claim for container in containers_of(pod_spec) for claim in container_claims(container, registry))


def container_claims(container: Container, registry: Manufacturers) -> tuple[Claim, ...]:
    """Return the claims of one container; several only when the Pod breaks the rules."""
    found: dict[tuple[Family, str], Claim] = {}
    for resource, quantity in sorted(container.quantities.items()):
        family = family_of(registry, resource)
        if family not in CLAIMED_FAMILIES:
            continue
        maker, base = manufacturer_of_resource(registry, resource), base_of(registry, resource)
        claim = found.get((family, maker)) or Claim(container, family, maker, base)
        found[family, maker] = _with(claim, registry, resource, quantity)
    return tuple(found[key] for key in sorted(found, key=lambda key: (CLAIMED_FAMILIES.index(key[0]), key[1])))


def visible_cards(container: Container, registry: Manufacturers, manufacturer: str) -> int:
    """Return how many cards of a manufacturer a container is allowed to see without holding them."""
    known = registry.get(manufacturer)
    return whole(container.quantities.get(known.visibility_resource)) if known else 0


def pod_set_demands(
    pod_set: Mapping[str, Any], registry: Manufacturers, *, flavor: str = "", count: int | None = None
) -> tuple[Demand, ...]:
    """Return a PodSet's demands, one a family. `count` is the assignment's; the PodSet's own stands otherwise."""
    pods = count if count is not None else as_int(pod_set.get("count"))
    cards = dict.fromkeys(CLAIMED_FAMILIES, 0)
    units = dict.fromkeys(CLAIMED_FAMILIES, 0)
    profiles: dict[Family, list[str]] = {family: [] for family in CLAIMED_FAMILIES}
    for claim in claims_of(_template(pod_set), registry):
        cards[claim.family] += whole(claim.cards)
        units[claim.family] = max(units[claim.family], whole(claim.units))
        profiles[claim.family] += [name for name, _ in claim.profiles]
    role = as_str(pod_set.get("name"))
    demands = (
        Demand(
            family=family,
            cards=clamp32(cards[family] * pods),
            units_per_card=clamp32(units[family]),
            profile=min(profiles[family], default=""),
            flavor=flavor,
            roles=(role,) if role else (),
        )
        for family in CLAIMED_FAMILIES
    )
    return tuple(demand for demand in demands if demand.cards > 0)


def merge_demands(demands: Iterable[Demand]) -> tuple[Demand, ...]:
    """Merge equal needs of several PodSets: cards add up, roles line up; partitions first, then the largest units."""
    merged: dict[tuple[Family, int, str, str], Demand] = {}
    for demand in demands:
        key = (demand.family, demand.units_per_card, demand.profile, demand.flavor)
        before = merged.get(key)
        merged[key] = (
            demand
            if before is None
            else replace(before, cards=clamp32(before.cards + demand.cards), roles=before.roles + demand.roles)
        )
    return tuple(
        sorted(merged.values(), key=lambda d: (d.family is not Family.PARTITIONED, -d.units_per_card, d.family.value))
    )


def fit_demand(pod_set: Mapping[str, Any], registry: Manufacturers) -> FitDemand:
    """Return what one Pod of a PodSet needs of its node, for the pin by fit labels (spec 01 §9.4, design §8.10)."""
    sliced_cards = units = shared = 0
    exclusive = dict.fromkeys(Lifetime, 0)
    for claim in claims_of(_template(pod_set), registry):
        if claim.family is Family.SLICED:
            sliced_cards += whole(claim.cards)
            units = max(units, whole(claim.units))
        elif claim.family is Family.SHARED:
            shared = max(shared, whole(claim.cards))
        elif claim.family is Family.EXCLUSIVE:
            exclusive[claim.container.lifetime] += whole(claim.cards)
    return FitDemand(clamp32(units) if sliced_cards else 0, clamp32(shared), clamp32(max(exclusive.values())))


def whole(quantity: Quantity | None) -> int:
    """Return an amount rounded up to an integer, never below 0; 0 for none."""
    return max(quantity.ceil(), 0) if quantity is not None else 0


def clamp32(value: int) -> int:
    """Return a count bounded to 0..2147483647."""
    return min(max(value, 0), MAX_INT32)


def _with(claim: Claim, registry: Manufacturers, resource: str, quantity: Quantity) -> Claim:
    suffix = resource.removeprefix(claim.base)
    if suffix in {SLICED_UNITS, PARTITIONED_UNITS}:
        return replace(claim, units=quantity)
    if suffix == SLICED_MEMORY_PERCENTAGE:
        return replace(claim, memory_percentage=quantity)
    if suffix == SLICED_MEMORY_MIB:
        return replace(claim, memory_mib=quantity)
    if suffix == SLICED_CORES_PERCENTAGE:
        return replace(claim, cores_percentage=quantity)
    profile = profile_of_resource(registry, resource)
    if profile:
        return replace(claim, profiles=(*claim.profiles, (profile, quantity)))
    return replace(claim, cards=quantity)


def _template(pod_set: Mapping[str, Any]) -> Mapping[str, Any]:
    return as_map(at(pod_set, "template", "spec"))


def _quantities(container: Mapping[str, Any]) -> dict[str, Quantity]:
    merged = {**as_map(at(container, "resources", "limits")), **as_map(at(container, "resources", "requests"))}
    quantities = {}
    for resource, value in merged.items():
        try:
            quantities[resource] = parse_quantity(value)
        except QuantityInvalid:
            continue
    return quantities
