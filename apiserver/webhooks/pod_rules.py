"""The seven rules of a Pod that claims cards, and the shape of each claim (spec 05 §2).

For: the Pod webhook. In: a raw Pod spec. Out: problems, all of them, in the order of spec 05 §2.
Promises: pure; "exactly 1" compares amounts, never their rounded form; an amount that is no quantity is named, not
ignored; the budgets of compute and memory of a slice are independent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from api.instance_rules import quantity_of
from api.pod_requests import CLAIMED_FAMILIES, Claim, Container, Lifetime, container_claims, containers_of
from api.problems import Fault, Problem, problem
from nodefeature.fields import as_map, as_maps, at
from nodefeature.manufacturers import Manufacturers
from nodefeature.profiles import profile_resource
from nodefeature.quantity import Quantity, of
from nodefeature.resource_names import (
    SLICED_CORES_PERCENTAGE,
    SLICED_MEMORY_MIB,
    SLICED_MEMORY_PERCENTAGE,
    Family,
    family_of,
)

_ONE = of(1)
_SLICING = (Family.SLICED, Family.PARTITIONED)
_SIDECAR = (
    "a restartable init container (a native sidecar) may not request an accelerator; "
    "move the request to an app container"
)
_TWO_GROUPS = (
    "a Pod's accelerator requests must all sit in one container group; spec.initContainers must give up its request, "
    "because its devices are held for the Pod's whole life while the scheduler charges the Pod only once"
)


def request_problems(pod_spec: Mapping[str, Any], registry: Manufacturers) -> list[Problem]:
    """Return what is wrong with the claims of a Pod."""
    problems: list[Problem] = []
    claims: list[Claim] = []
    for container in containers_of(pod_spec):
        found = container_claims(container, registry)
        if found and container.lifetime is Lifetime.SIDECAR:
            problems.append(problem(container.path, None, _SIDECAR, Fault.FORBIDDEN))
        else:
            claims += found
    problems += _pod_problems(claims)
    for claim in claims:
        if claim.family is Family.SLICED:
            problems += _slice_problems(claim)
        elif claim.family is Family.PARTITIONED:
            problems += _partition_problems(claim, registry)
    return problems + _amount_problems(pod_spec, registry)


def _pod_problems(claims: Sequence[Claim]) -> list[Problem]:
    problems: list[Problem] = []
    families = sorted({claim.family.value for claim in claims})
    if len(families) > 1:
        rule = f"a Pod may request only one accelerator family, found [{' '.join(families)}]"
        problems.append(problem("spec", None, rule, Fault.FORBIDDEN))
    if {claim.container.lifetime for claim in claims} == {Lifetime.INIT, Lifetime.RUNNING}:
        problems.append(problem("spec.initContainers", None, _TWO_GROUPS, Fault.FORBIDDEN))
    slicing = {place_of(claim.container) for claim in claims if claim.family in _SLICING}
    if len(slicing) > 1:
        rule = f"at most one container may request a slicing family, found {len(slicing)}"
        problems.append(problem("spec", None, rule, Fault.FORBIDDEN))
    profiles = sorted({name for claim in claims for name, _ in claim.profiles})
    if len(profiles) > 1:
        rule = f"a Pod may request only one partition profile, found [{' '.join(profiles)}]"
        problems.append(problem("spec", None, rule, Fault.FORBIDDEN))
    return problems


def _slice_problems(claim: Claim) -> list[Problem]:
    key = f"{claim.base}.sliced"
    percentage, mib = claim.base + SLICED_MEMORY_PERCENTAGE, claim.base + SLICED_MEMORY_MIB
    problems: list[Problem] = []
    if claim.cards is None:
        problems.append(_at(claim, key, None, f"a sliced request must set {key}", Fault.REQUIRED))
    elif claim.cards != _ONE:
        rule = (
            "a logical slice request is always a single accelerator; "
            "multi-accelerator logical slicing is not supported yet"
        )
        problems.append(_at(claim, key, claim.cards, rule))
    if claim.memory_percentage is None and claim.memory_mib is None:
        rule = f"a {key} request must set {percentage} or {mib}"
        problems.append(_at(claim, percentage, None, rule, Fault.REQUIRED))
    if claim.memory_percentage is not None and claim.memory_mib is not None:
        problems.append(_at(claim, mib, None, f"cannot set both {percentage} and {mib}", Fault.FORBIDDEN))
    problems += _percentage_problems(claim, percentage, claim.memory_percentage)
    if claim.memory_mib is not None and claim.memory_mib.nano <= 0:
        problems.append(_at(claim, mib, claim.memory_mib, "must be greater than zero"))
    return problems + _percentage_problems(claim, claim.base + SLICED_CORES_PERCENTAGE, claim.cores_percentage)


def _percentage_problems(claim: Claim, resource: str, percentage: Quantity | None) -> list[Problem]:
    if percentage is None or of(0) < percentage <= of(100):
        return []
    return [_at(claim, resource, percentage, "must be within (0, 100]")]


def _partition_problems(claim: Claim, registry: Manufacturers) -> list[Problem]:
    key = f"{claim.base}.partitioned"
    problems: list[Problem] = []
    names = [name for name, _ in claim.profiles]
    if claim.cards is None:
        problems.append(_at(claim, key, None, f"a partition request must set {key}", Fault.REQUIRED))
    elif claim.cards != _ONE:
        rule = "a partition request is always a single accelerator; request one Pod per instance"
        problems.append(_at(claim, key, claim.cards, rule))
    if not names:
        rule = f"a {key} request must name a profile, e.g. {key}.<kind>-<profile>"
        problems.append(_at(claim, key, None, rule, Fault.REQUIRED))
    elif len(names) > 1:
        rule = f"a container may request only one partition profile, found [{' '.join(names)}]"
        problems.append(_at(claim, key, None, rule, Fault.FORBIDDEN))
    for name, amount in claim.profiles:
        if amount != _ONE:
            resource = profile_resource(registry, claim.manufacturer, name)
            problems.append(_at(claim, resource, amount, "a partition profile request must be exactly 1 instance"))
    return problems


def _amount_problems(pod_spec: Mapping[str, Any], registry: Manufacturers) -> list[Problem]:
    """Name amounts of cards that are no quantities: the readers of claims take them for absent."""
    return [
        problem(f"spec.{listed}[{index}].resources.{part}[{resource}]", value, "must be a quantity such as 1 or 50")
        for listed in ("initContainers", "containers")
        for index, container in enumerate(as_maps(pod_spec.get(listed)))
        for part in ("limits", "requests")
        for resource, value in as_map(at(container, "resources", part)).items()
        if family_of(registry, resource) in CLAIMED_FAMILIES and quantity_of(value) is None
    ]


def _at(claim: Claim, resource: str, value: object, rule: str, fault: Fault = Fault.INVALID) -> Problem:
    return problem(f"{claim.container.path}[{resource}]", value, rule, fault)


def manufacturers_of(claims: Iterable[Claim]) -> list[str]:
    """Return the manufacturers whose cards are claimed, sorted."""
    return sorted({claim.manufacturer for claim in claims})


def place_of(container: Container) -> tuple[str, int]:
    """Return where a container stands in the Pod's spec."""
    return container.list_name, container.index
