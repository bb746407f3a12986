"""Folding what people write into what is metered: slices and partitions into units of a card.

For: the Pod webhook's mutation (spec 01 §9.3, spec 05 §3; design §8.12).
In: a Pod's spec, the registry, `status.detail` of the fronting InstanceType. Out: the quantities to write into the
containers' requests and limits, what is wrong, or why the answer must wait.
Promises: a client's own units are always overwritten; a claim without a legal shape is left to validation; whole and
shared claims are not folded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from api.devices import Profile
from api.ledger.fit import detail_ready
from api.pod_requests import Claim, Lifetime, claims_of, whole
from api.problems import Problem, problem
from nodefeature.credits import memory_mib_to_units, memory_percentage_to_units
from nodefeature.fields import as_int, as_maps, as_str, at
from nodefeature.manufacturers import Manufacturers
from nodefeature.profiles import public_profile
from nodefeature.quantity import Quantity, of, quantity_or_zero
from nodefeature.resource_names import (
    PARTITIONED_UNITS,
    SLICED_CORES_PERCENTAGE,
    SLICED_MEMORY_MIB,
    SLICED_MEMORY_PERCENTAGE,
    SLICED_UNITS,
    Family,
)


@dataclass(frozen=True, slots=True)
class Write:
    """One quantity to set in both requests and limits of `spec.<list_name>[<index>]`."""

    list_name: str
    index: int
    resource: str
    value: str


@dataclass(frozen=True, slots=True)
class Fold:
    """The answer: writes, or problems (permanent), or a reason to try again later."""

    writes: tuple[Write, ...] = ()
    problems: tuple[Problem, ...] = ()
    retry: str = ""


@dataclass(frozen=True, slots=True)
class _Units:
    """Units of one claim; at most one of the three says something."""

    units: int = 0
    problem: Problem | None = None
    retry: str = ""


def fold_units(pod_spec: Mapping[str, Any], registry: Manufacturers, detail: Mapping[str, Any]) -> Fold:
    """Return what to write for every sliced or partitioned claim."""
    writes: list[Write] = []
    problems: list[Problem] = []
    retry = ""
    for claim in claims_of(pod_spec, registry):
        if claim.container.lifetime is Lifetime.SIDECAR:
            continue
        if claim.family is Family.SLICED:
            answer = _slice_units(claim, detail)
            writes += _cores(claim, registry, detail) if answer == _Units() or answer.units else []
        elif claim.family is Family.PARTITIONED:
            answer = _partition_units(claim, detail)
        else:
            continue
        if answer.problem is not None:
            problems.append(answer.problem)
        retry = retry or answer.retry
        if answer.units:
            suffix = SLICED_UNITS if claim.family is Family.SLICED else PARTITIONED_UNITS
            writes.append(_write(claim, suffix, answer.units))
    if problems or retry:
        return Fold(problems=tuple(problems), retry="" if problems else retry)
    return Fold(tuple(writes))


def needs_detail(claim: Claim) -> bool:
    """Say whether folding a claim takes the pool's detail: a slice by MiB, a partition."""
    if claim.container.lifetime is Lifetime.SIDECAR:
        return False
    if claim.family is Family.SLICED:
        return not whole(claim.memory_percentage) and whole(claim.memory_mib) > 0
    return claim.family is Family.PARTITIONED and len(claim.profiles) == 1


def card_mib(detail: Mapping[str, Any]) -> int:
    """Return the memory of one card of a pool in MiB; 0 when the pool's detail does not say."""
    return max(quantity_or_zero(detail.get("memory")).mib(), 0)


def offered_profile(detail: Mapping[str, Any], profile: str) -> Profile | None:
    """Return a pool's profile by its public name, however the detail spells it."""
    maker = as_str(detail.get("manufacturer"))
    for offered in as_maps(at(detail, "slicedDetail", "physical", "profiles")):
        if public_profile(maker, as_str(offered.get("name"))) == public_profile(maker, profile):
            return {"name": as_str(offered.get("name")), "memoryMib": as_int(offered.get("memoryMib"))}
    return None


def default_cores_percentage(claim: Claim, registry: Manufacturers, card_memory_mib: int) -> int:
    """Return the compute share of a slice that names none.

    100 where the manufacturer overcommits compute; elsewhere the memory's share rounded up, else a second slice could
    never join the card.
    """
    known = registry.get(claim.manufacturer)
    if known is None or known.overcommits_cores or not (claim.memory_percentage or claim.memory_mib):
        return 100
    percent = whole(claim.memory_percentage)
    if not percent and card_memory_mib:
        percent = -(-whole(claim.memory_mib) * 100 // card_memory_mib)
    return min(max(percent, 1), 100)


def _slice_units(claim: Claim, detail: Mapping[str, Any]) -> _Units:
    percent, mib = whole(claim.memory_percentage), whole(claim.memory_mib)
    if percent:
        if percent > 100:
            return _Units(problem=_at(claim, SLICED_MEMORY_PERCENTAGE, percent, "must be within (0, 100]"))
        return _Units(memory_percentage_to_units(percent))
    if not mib:
        return _Units()
    memory = card_mib(detail)
    if not memory:
        return _memory_unknown(detail)
    if mib > memory:
        rule = f"must not be above the {memory} MiB of one accelerator"
        return _Units(problem=_at(claim, SLICED_MEMORY_MIB, mib, rule))
    units = memory_mib_to_units(mib, memory)
    if not units:
        return _Units(problem=_at(claim, SLICED_MEMORY_MIB, mib, f"is too small a part of {memory} MiB to be metered"))
    return _Units(units)


def _partition_units(claim: Claim, detail: Mapping[str, Any]) -> _Units:
    if len(claim.profiles) != 1:
        return _Units()
    if not detail_ready(detail):
        return _Units(retry="the InstanceType's detail is not computed yet")
    name = claim.profiles[0][0]
    offered = offered_profile(detail, name)
    if offered is None:
        maker = as_str(detail.get("manufacturer"))
        names = [
            public_profile(maker, as_str(p.get("name")))
            for p in as_maps(at(detail, "slicedDetail", "physical", "profiles"))
        ]
        rule = f"profile is not offered; offered: {', '.join(sorted(names)) or 'none'}"
        return _Units(problem=problem(f"{claim.container.path}[{claim.base}.partitioned]", name, rule))
    memory, card = offered["memoryMib"], card_mib(detail)
    if memory <= 0:
        return _Units(retry=f"the memory of partition profile {name} is not known yet")
    if not card:
        return _memory_unknown(detail)
    units = memory_mib_to_units(memory, card)
    if not units:
        return _Units(problem=_at(claim, ".partitioned", name, f"profile is too small a part of {card} MiB"))
    return _Units(units)


def _memory_unknown(detail: Mapping[str, Any]) -> _Units:
    said = as_str(detail.get("memory"))
    if not said:
        return _Units(retry="the memory of the InstanceType's accelerators is not known yet")
    return _Units(problem=problem("InstanceType status.detail.memory", said, "must be a positive quantity"))


def _cores(claim: Claim, registry: Manufacturers, detail: Mapping[str, Any]) -> list[Write]:
    if claim.cores_percentage is not None:
        return []
    return [_write(claim, SLICED_CORES_PERCENTAGE, default_cores_percentage(claim, registry, card_mib(detail)))]


def _write(claim: Claim, suffix: str, value: int) -> Write:
    amount: Quantity = of(value)
    return Write(claim.container.list_name, claim.container.index, claim.base + suffix, str(amount))


def _at(claim: Claim, suffix: str, value: object, rule: str) -> Problem:
    return problem(f"{claim.container.path}[{claim.base}{suffix}]", value, rule)
