"""Whether a pool can ever serve what an Instance asks for.

For: the Instance webhook (spec 05 §7.3, spec 02 §6.3).
In: `spec.resources` of the Instance, its InstanceType, the registry. Out: problems, or a reason to try again later.
Promises: compares with what the pool has, never with what is free: a busy pool admits, and the Instance queues.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from api.instance_rules import asks_slice, quantity_of, resource_problems
from api.ledger.fit import detail_ready, pool_partitionable, pool_sliceable
from api.problems import Fault, Problem, problem, require
from nodefeature.fields import as_bool, as_int, as_map, as_maps, as_str, at, name_of
from nodefeature.manufacturers import Manufacturers
from nodefeature.profiles import profile_resource, public_profile
from nodefeature.quantity import ZERO, Quantity, quantity_or_zero

_PATH = "spec.resources"
_MEMORY_PERCENTAGE = f"{_PATH}.acceleratorSlicedMemoryPercentage"
_PROFILE = f"{_PATH}.acceleratorPartitionedProfile"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Problems (permanent), or a reason to try again later."""

    problems: tuple[Problem, ...] = ()
    retry: str = ""


def pool_verdict(resources: Mapping[str, Any], instance_type: Mapping[str, Any], registry: Manufacturers) -> Verdict:
    """Judge an Instance's resources against its pool."""
    name = name_of(instance_type)
    detail = as_map(at(instance_type, "status", "detail"))
    accelerated = as_bool(at(instance_type, "spec", "acceleratable"))
    profile = as_str(resources.get("acceleratorPartitionedProfile"))
    if accelerated and (profile or asks_slice(resources)) and not detail_ready(detail):
        return Verdict(retry=f"instance type {name} is not ready yet; retry")
    problems = resource_problems(resources)
    if not accelerated:
        problems += _card_less_problems(resources, profile)
    elif profile:
        problems += _partition_problems(profile, name, detail, registry)
    elif asks_slice(resources):
        problems += _slice_problems(resources, name, detail)
    else:
        problems += _whole_problems(resources, instance_type)
    problems += _general_problems(resources, instance_type, accelerated=accelerated)
    if profile or asks_slice(resources):
        asked = resources.get("accelerator")
        kind = "partitioned" if profile else "sliced"
        rule = f"accelerator request must be exactly 1 for a {kind} request"
        problems += require(not accelerated or asked is not None, f"{_PATH}.accelerator", 0, rule)
    return Verdict(tuple(problems))


def _card_less_problems(resources: Mapping[str, Any], profile: str) -> list[Problem]:
    rule = "must not be specified for non-acceleratable instance type"
    problems: list[Problem] = []
    asked = quantity_of(resources.get("accelerator"))
    if asked:
        problems.append(problem(f"{_PATH}.accelerator", resources.get("accelerator"), f"accelerator request {rule}"))
    if asks_slice(resources):
        percent = resources.get("acceleratorSlicedMemoryPercentage")
        problems.append(problem(_MEMORY_PERCENTAGE, percent, f"slice percentage {rule}"))
    if profile:
        problems.append(problem(_PROFILE, profile, f"partition profile {rule}"))
    return problems


def _partition_problems(profile: str, name: str, detail: Mapping[str, Any], registry: Manufacturers) -> list[Problem]:
    maker = as_str(detail.get("manufacturer"))
    if not registry.partition_kind(maker):
        return [problem(_PROFILE, profile, f"manufacturer {maker} does not support hardware partitioning")]
    if not pool_partitionable(detail):
        rule = f"instance type {name} does not offer hardware partitioning"
        return [problem(_PROFILE, profile, rule, Fault.FORBIDDEN)]
    profiles = as_maps(at(detail, "slicedDetail", "physical", "profiles"))
    offered = sorted(public_profile(maker, as_str(item.get("name"))) for item in profiles)
    if public_profile(maker, profile) not in offered:
        rule = f"instance type {name} does not offer this partition profile; offered: [{' '.join(offered)}]"
        return [problem(_PROFILE, profile, rule)]
    legal = bool(profile_resource(registry, maker, profile))
    return require(legal, _PROFILE, profile, "partition profile name does not yield a valid resource name")


def _slice_problems(resources: Mapping[str, Any], name: str, detail: Mapping[str, Any]) -> list[Problem]:
    problems: list[Problem] = []
    if not pool_sliceable(detail):
        rule = f"instance type {name} does not offer logical slicing"
        if pool_partitionable(detail):
            rule += f"; ask for a hardware partition with {_PROFILE}"
        asked = resources.get("acceleratorSlicedMemoryPercentage")
        problems.append(problem(_MEMORY_PERCENTAGE, asked, rule, Fault.FORBIDDEN))
    for share in ("Memory", "Cores"):
        percent = as_int(resources.get(f"acceleratorSliced{share}Percentage"))
        path = f"{_PATH}.acceleratorSliced{share}Percentage"
        problems += require(0 <= percent <= 100, path, percent, "must be between 0 and 100")
    return problems


def _whole_problems(resources: Mapping[str, Any], instance_type: Mapping[str, Any]) -> list[Problem]:
    asked = quantity_of(resources.get("accelerator"))
    if asked is None:
        return []
    path, raw = f"{_PATH}.accelerator", resources.get("accelerator")
    if not asked.is_whole:
        return [problem(path, raw, "accelerator request must be a whole number of cards")]
    capacity = quantity_or_zero(at(instance_type, "status", "accelerator", "capacity"))
    rule = f"exceeds the maximum accelerator request {capacity} of instance type {name_of(instance_type)}"
    return require(asked <= capacity, path, raw, rule)


def _general_problems(
    resources: Mapping[str, Any], instance_type: Mapping[str, Any], *, accelerated: bool
) -> list[Problem]:
    name = name_of(instance_type)
    cpu = quantity_of(resources.get("cpu")) or ZERO
    cards = quantity_of(resources.get("accelerator")) or ZERO
    units = max((cards if accelerated else cpu).ceil(), 1)
    unit = as_map(at(instance_type, "spec", "unitResources"))
    problems: list[Problem] = []
    if accelerated:
        problems += _above(resources, "cpu", "CPU", quantity_or_zero(unit.get("cpu")) * units, name)
    else:
        capacity = quantity_or_zero(at(instance_type, "status", "cpu", "capacity"))
        if cpu.nano > 0 and not capacity:
            rule = f"instance type {name} has no CPU capacity: no managed node currently backs it"
            problems.append(problem(f"{_PATH}.cpu", resources.get("cpu"), rule))
        else:
            problems += _above(resources, "cpu", "CPU request", capacity, name)
    problems += _above(resources, "ram", "RAM", quantity_or_zero(unit.get("ram")) * units, name)
    storage = quantity_or_zero(at(instance_type, "spec", "localStorage"))
    if storage:
        asked = quantity_of(resources.get("localStorage"))
        rule = f"exceeds the local storage {storage} of instance type {name}"
        fine = asked is None or asked <= storage
        problems += require(fine, f"{_PATH}.localStorage", resources.get("localStorage"), rule)
    return problems


def _above(resources: Mapping[str, Any], field: str, word: str, most: Quantity, name: str) -> list[Problem]:
    asked = quantity_of(resources.get(field))
    rule = f"exceeds the maximum {word} {most} of instance type {name}"
    return require(asked is None or asked <= most, f"{_PATH}.{field}", resources.get(field), rule)
