"""What gate 3 reads from a Workload.

For: `node_devices_admission`, `card_book` (spec 04 §10.2-10.3; design §8.10, case B006).
In: raw Workloads. Out: whether it may be judged, whether it holds cards, its Pods in groups.
Promises: pure; never raises on null or wrong-typed fields; a Workload in the middle of an eviction is never judged.
Trusts: Kueue writes the status; `spec` is a copy of what a tenant asked for, and is only ever a demand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from api.ledger.pod_fit import pod_needs
from api.ledger.workload_fit import PodGroup
from nodefeature.device_labels import device_keys
from nodefeature.fields import as_int, as_list, as_map, as_maps, as_str, at, has_condition, is_deleting, str_map
from nodefeature.labels import HOSTNAME
from nodefeature.manufacturers import Manufacturers

MAX_HOSTS = 100_000
"""Kueue's own limit on the domains of one slice."""

FlavorOf = Callable[[str], Mapping[str, Any] | None]


@dataclass(frozen=True, slots=True)
class Demands:
    """A Workload's accelerated Pods, and the roles whose place is not known."""

    groups: tuple[PodGroup, ...] = ()
    unassigned: tuple[str, ...] = ()
    vanished: tuple[tuple[str, str], ...] = ()
    """(flavor, role)."""
    unresolved: tuple[tuple[str, str], ...] = ()
    """(flavor, role)."""


def holds_quota(workload: object) -> bool:
    """Say whether quota is reserved for a Workload that has not finished."""
    return has_condition(workload, "QuotaReserved") and not has_condition(workload, "Finished")


def may_be_judged(workload: object) -> bool:
    """Say whether a verdict may be written now (spec 04 §10.2, steps 1 and 2)."""
    return (
        holds_quota(workload)
        and not is_deleting(workload)
        and not has_condition(workload, "Evicted")
        and not has_condition(workload, "Admitted")
        and at(workload, "spec", "active") is not False
    )


def check_states(workload: object, names: Iterable[str]) -> list[Mapping[str, Any]]:
    """Return the states of the named checks on a Workload."""
    wanted = frozenset(names)
    return [s for s in as_maps(at(workload, "status", "admissionChecks")) if as_str(s.get("name")) in wanted]


def is_promised_cards(workload: object, names: Iterable[str]) -> bool:
    """Say whether a Workload's Pods hold cards or may take them at any moment: it is admitted, or we said Ready.

    An admitted Workload that is being evicted still counts: its Pods run until the reservation goes. One that was only
    Ready when its eviction began never started a Pod; its checks are Pending again.
    """
    if not holds_quota(workload):
        return False
    states = check_states(workload, names)
    said_ready = bool(states) and all(state.get("state") == "Ready" for state in states)
    return has_condition(workload, "Admitted") or said_ready


def demands_of(
    workload: object, flavor_of: FlavorOf, registry: Manufacturers, node_of: Callable[[str], str]
) -> Demands:
    """Return what a Workload's Pods need. `node_of` turns a hostname label's value into a node's name."""
    assigned = {as_str(a.get("name")): a for a in as_maps(at(workload, "status", "admission", "podSetAssignments"))}
    pod_sets = as_maps(at(workload, "spec", "podSets"))
    groups: list[PodGroup] = []
    lost: dict[str, list[Any]] = {"unassigned": [], "vanished": [], "unresolved": []}
    for pod_set in pod_sets:
        name = as_str(pod_set.get("name"))
        role = name if len(pod_sets) > 1 else ""
        assignment = as_map(assigned.get(name))
        count = pod_count(pod_set, assignment)
        spec = as_map(at(pod_set, "template", "spec"))
        if count <= 0 or not pod_needs(spec, registry, key=""):
            continue
        flavor = assigned_flavor(assignment, registry)
        found = flavor_of(flavor) if flavor else None
        key = flavor_key(found) if found is not None else ""
        if not flavor:
            lost["unassigned"].append(role)
        elif found is None:
            lost["vanished"].append((flavor, role))
        elif not key:
            lost["unresolved"].append((flavor, role))
        else:
            needs = pod_needs(spec, registry, key=key)
            hosts = hosts_of(assignment, node_of) or ()
            # An assignment that does not name a host for every Pod says nothing.
            named = hosts if sum(pods for _, pods in hosts) >= count else None
            groups.append(PodGroup(role, flavor, needs, count, named, constraints_of(spec), spec))
    return Demands(tuple(groups), **{kind: tuple(found) for kind, found in lost.items()})


def pod_count(pod_set: Mapping[str, Any], assignment: Mapping[str, Any]) -> int:
    """Return how many Pods of a PodSet were admitted; partial admission takes fewer than were asked for."""
    count = assignment.get("count")
    return as_int(count) if count is not None else as_int(pod_set.get("count"))


def assigned_flavor(assignment: Mapping[str, Any], registry: Manufacturers) -> str:
    """Return the one flavor that was assigned for credits; empty for none or several."""
    found = [
        as_str(flavor)
        for resource, flavor in as_map(assignment.get("flavors")).items()
        if registry.is_credits(resource)
    ]
    return found[0] if len(found) == 1 else ""


def flavor_key(flavor: object) -> str:
    """Return the one accelerator key that a flavor's node labels pin; empty for none or several."""
    keys = device_keys(str_map(at(flavor, "spec", "nodeLabels")))
    return keys[0] if len(keys) == 1 else ""


def constraints_of(pod_spec: Mapping[str, Any]) -> str:
    """Return the node selector and the tolerations of a Pod as one text."""
    return repr((sorted(str_map(pod_spec.get("nodeSelector")).items()), as_maps(pod_spec.get("tolerations"))))


def hosts_of(assignment: Mapping[str, Any], node_of: Callable[[str], str]) -> tuple[tuple[str, int], ...] | None:
    """Return (node, Pods) of a topology assignment whose lowest level is the hostname; None for any other."""
    topology = as_map(assignment.get("topologyAssignment"))
    levels = as_list(topology.get("levels"))
    if not levels or levels[-1] != HOSTNAME:
        return None
    counts: dict[str, int] = {}
    for part in as_maps(topology.get("slices")):
        for host, pods in _slice_hosts(part):
            counts[node_of(host)] = counts.get(node_of(host), 0) + pods
    return tuple(sorted(counts.items()))


def _slice_hosts(part: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    domains = min(max(as_int(part.get("domainCount")), 0), MAX_HOSTS)
    values = as_maps(part.get("valuesPerLevel"))
    lowest, pods = (values[-1] if values else {}), as_map(part.get("podCounts"))
    each, counts = as_int(pods.get("universal")), as_list(pods.get("individual"))
    named = as_map(lowest.get("individual"))
    prefix, suffix, roots = as_str(named.get("prefix")), as_str(named.get("suffix")), as_list(named.get("roots"))
    for position in range(domains):
        if position < len(roots):
            host = f"{prefix}{as_str(roots[position])}{suffix}"
        else:
            host = as_str(lowest.get("universal"))
        count = as_int(counts[position]) if position < len(counts) else each
        if host and count > 0:
            yield host, count
