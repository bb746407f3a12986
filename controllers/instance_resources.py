"""What the containers of an Instance's Pod ask for (spec 05 §8.2).

For: `instance_pod`. In: `spec.resources` of an Instance, its InstanceType, the registry. Out: limits and requests.
Promises: pure; cards are asked for by `main` alone, the SSH container only sees them; figures that are none, zero or
negative are left out, so a limit is never "unlimited" by accident; requests of cards equal their limits.
Trusts: nothing; what the pool cannot serve is refused by the webhook, and queues or fails visibly without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from api.ledger.fit import pool_sliceable
from api.overcommit import bytes_request, cpu_request
from nodefeature.fields import as_bool, as_int, as_map, as_str, at
from nodefeature.manufacturers import Manufacturers
from nodefeature.profiles import profile_resource
from nodefeature.quantity import Quantity, QuantityInvalid, parse_quantity
from nodefeature.resource_names import (
    SLICED_CORES_PERCENTAGE,
    SLICED_MEMORY_PERCENTAGE,
    Family,
    counting_resource,
    resource_of,
)

_GENERAL = {"cpu": "cpu", "ram": "memory", "localStorage": "ephemeral-storage"}
"""Field of the Instance -> resource of the Pod."""


@dataclass(frozen=True, slots=True)
class Requirements:
    """A container's `resources`; both maps may be empty."""

    limits: Mapping[str, str]
    requests: Mapping[str, str]

    def manifest(self) -> dict[str, dict[str, str]]:
        """Return them as they stand in a container."""
        return {"limits": dict(self.limits), "requests": dict(self.requests)}


def main_requirements(
    resources: Mapping[str, Any], instance_type: Mapping[str, Any], registry: Manufacturers, *, overcommit: bool
) -> Requirements:
    """Return what `main` asks for: general resources, and cards."""
    limits, requests = general_resources(resources, accelerated=is_accelerated(instance_type), overcommit=overcommit)
    cards = card_resources(resources, instance_type, registry)
    return Requirements({**limits, **cards}, {**requests, **cards})


def visibility_requirements(
    resources: Mapping[str, Any], instance_type: Mapping[str, Any], registry: Manufacturers
) -> Requirements:
    """Return what lets a container see `main`'s cards without holding them."""
    cards = cards_asked(resources, instance_type)
    name = resource_of(registry, manufacturer_of(instance_type), Family.VISIBILITY) if cards else ""
    seen = {name: str(cards)} if name else {}
    return Requirements(seen, seen)


def general_resources(
    resources: Mapping[str, Any], *, accelerated: bool, overcommit: bool
) -> tuple[dict[str, str], dict[str, str]]:
    """Return limits and requests of CPU, memory and storage."""
    limits: dict[str, str] = {}
    requests: dict[str, str] = {}
    for field, resource in _GENERAL.items():
        limit = positive(resources.get(field))
        if limit is None:
            continue
        limits[resource] = str(limit)
        if not overcommit:
            requests[resource] = str(limit)
        elif resource == "cpu":
            requests[resource] = str(cpu_request(limit, accelerated=accelerated))
        else:
            requests[resource] = str(bytes_request(limit))
    return limits, requests


def card_resources(
    resources: Mapping[str, Any], instance_type: Mapping[str, Any], registry: Manufacturers
) -> dict[str, str]:
    """Return the keys that claim cards; units are the Pod webhook's to fold."""
    cards = cards_asked(resources, instance_type)
    maker = manufacturer_of(instance_type)
    if not cards or not registry.knows(maker):
        return {}
    profile = as_str(resources.get("acceleratorPartitionedProfile"))
    partition = profile_resource(registry, maker, profile) if profile else ""
    if partition:
        return {resource_of(registry, maker, Family.PARTITIONED): "1", partition: "1"}
    memory = as_int(resources.get("acceleratorSlicedMemoryPercentage"))
    if memory > 0 and pool_sliceable(as_map(at(instance_type, "status", "detail"))):
        return _slice(resources, maker, registry, cards=cards, memory=memory)
    return {resource_of(registry, maker, Family.EXCLUSIVE): str(cards)}


def cards_asked(resources: Mapping[str, Any], instance_type: Mapping[str, Any]) -> Quantity | None:
    """Return the number of cards asked for; None for none, and on a pool without cards."""
    return positive(resources.get("accelerator")) if is_accelerated(instance_type) else None


def is_accelerated(instance_type: Mapping[str, Any]) -> bool:
    """Say whether a pool has cards."""
    return as_bool(at(instance_type, "spec", "acceleratable"))


def manufacturer_of(instance_type: Mapping[str, Any]) -> str:
    """Return the manufacturer of a pool's cards; empty until the pool's detail is known."""
    return as_str(at(instance_type, "status", "detail", "manufacturer"))


def positive(value: object) -> Quantity | None:
    """Return a quantity above zero, or None."""
    try:
        quantity = parse_quantity(value)
    except QuantityInvalid:
        return None
    return quantity if quantity.nano > 0 else None


def _slice(
    resources: Mapping[str, Any], maker: str, registry: Manufacturers, *, cards: Quantity, memory: int
) -> dict[str, str]:
    asked = {
        resource_of(registry, maker, Family.SLICED): str(cards),
        counting_resource(registry, maker, SLICED_MEMORY_PERCENTAGE): str(memory),
    }
    cores = as_int(resources.get("acceleratorSlicedCoresPercentage"))
    if cores > 0:
        asked[counting_resource(registry, maker, SLICED_CORES_PERCENTAGE)] = str(cores)
    return asked
