"""What a Workload costs and which flavor can carry it.

For: `workloads`. In: pod templates, transformations, a ClusterQueue's spec and what is reserved in it. Out: integers in
thousandths, assignments.
Kept from Kueue: transformations with `multiplyBy`, fractions of non-CPU resources rounded up for each Pod,
`IgnoreUndeclared` (resources no group covers cost nothing), flavors in the queue's order, one a pod set and
resource group.
Left out: sidecar containers, Pod overhead, Pod-level resources, taints of flavors, required node affinity.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from nodefeature.fields import as_int, as_list, as_map, as_maps, as_str, at
from nodefeature.quantity import QuantityInvalid, parse_quantity

Milli = int


@dataclass(frozen=True, slots=True)
class Transformation:
    """One line of Kueue's `resources.transformations`; every output replaces the input."""

    source: str
    output: str
    factor: int
    multiply_by: str = ""


@dataclass(frozen=True, slots=True)
class PodSetAssignment:
    """A pod set's flavor by resource and what it uses, in thousandths."""

    name: str
    count: int
    flavors: Mapping[str, str]
    usage: Mapping[str, Milli]


def milli(value: object) -> Milli:
    """Read a quantity as thousandths, rounded up; what is no quantity counts as nothing."""
    try:
        return -(-parse_quantity(value if isinstance(value, (str, int)) else "0").nano // 1_000_000)
    except QuantityInvalid:
        return 0


def pod_requests(template: Mapping[str, Any]) -> dict[str, Milli]:
    """Return a Pod's requests: the sum of its containers, at least the largest init container; limits fill gaps."""
    spec = as_map(template.get("spec"))
    total: dict[str, Milli] = {}
    for container in as_maps(spec.get("containers")):
        for name, value in _container_requests(container).items():
            total[name] = total.get(name, 0) + value
    for container in as_maps(spec.get("initContainers")):
        for name, value in _container_requests(container).items():
            total[name] = max(total.get(name, 0), value)
    return total


def _container_requests(container: Mapping[str, Any]) -> dict[str, Milli]:
    merged = {**as_map(at(container, "resources", "limits")), **as_map(at(container, "resources", "requests"))}
    return {name: milli(value) for name, value in merged.items()}


def transform(requests: Mapping[str, Milli], transformations: Mapping[str, Transformation]) -> dict[str, Milli]:
    """Replace inputs by outputs, exactly; then all but CPU is rounded up to whole units.

    A request that lacks the resource its rule multiplies by is not multiplied.
    """
    out: dict[str, Milli] = {}
    for name, value in requests.items():
        rule = transformations.get(name)
        if rule is None:
            out[name] = out.get(name, 0) + value
            continue
        times = requests.get(rule.multiply_by, 1000)
        out[rule.output] = out.get(rule.output, 0) - (-value * times * rule.factor // 1000)
    return {name: value if name == "cpu" else -(-value // 1000) * 1000 for name, value in out.items()}


def assign(
    pod_sets: Iterable[Mapping[str, Any]],
    queue_spec: Mapping[str, Any],
    *,
    reserved: Mapping[tuple[str, str], Milli],
    flavors: Mapping[str, Mapping[str, Any]],
    transformations: Mapping[str, Transformation],
) -> list[PodSetAssignment] | str:
    """Find a flavor for every pod set, or say in one sentence why none fits. `reserved` is by (flavor, resource)."""
    used = dict(reserved)
    assignments = []
    for pod_set in pod_sets:
        count = as_int(pod_set.get("count")) or 1
        template = as_map(pod_set.get("template"))
        cost = {k: v * count for k, v in transform(pod_requests(template), transformations).items()}
        found: dict[str, str] = {}
        usage: dict[str, Milli] = {}
        for group in as_maps(queue_spec.get("resourceGroups")):
            asked = {r: cost[r] for r in as_list(group.get("coveredResources")) if cost.get(r)}
            if not asked:
                continue
            flavor = _first_fit(group, asked, template=template, used=used, flavors=flavors)
            if not flavor:
                lacking = ", ".join(sorted(asked))
                name = as_str(pod_set.get("name"))
                return f"couldn't assign flavors to pod set {name}: insufficient quota for {lacking}"
            for resource, value in asked.items():
                found[resource] = flavor
                usage[resource] = value
                used[flavor, resource] = used.get((flavor, resource), 0) + value
        assignments.append(PodSetAssignment(as_str(pod_set.get("name")), count, found, usage))
    return assignments


def _first_fit(
    group: Mapping[str, Any],
    asked: Mapping[str, Milli],
    *,
    template: Mapping[str, Any],
    used: Mapping[tuple[str, str], Milli],
    flavors: Mapping[str, Mapping[str, Any]],
) -> str:
    for quotas in as_maps(group.get("flavors")):
        name = as_str(quotas.get("name"))
        flavor = flavors.get(name)
        if flavor is None or not _selects(template, flavor):
            continue
        nominal = {as_str(r.get("name")): milli(r.get("nominalQuota")) for r in as_maps(quotas.get("resources"))}
        if all(used.get((name, r), 0) + value <= nominal.get(r, 0) for r, value in asked.items()):
            return name
    return ""


def _selects(template: Mapping[str, Any], flavor: Mapping[str, Any]) -> bool:
    """Only the keys a flavor names can contradict a Pod's node selector, as in Kueue."""
    node_labels = as_map(at(flavor, "spec", "nodeLabels"))
    selector = as_map(at(template, "spec", "nodeSelector"))
    return all(node_labels[key] == value for key, value in selector.items() if key in node_labels)
