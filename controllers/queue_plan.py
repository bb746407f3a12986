"""The quota plan of a pool: which flavors a queue should offer, how much of each, and whether that may be written.

For: node_queue (spec 04 §8). In: our ResourceFlavors, the queue's state, the pool's nodes. Out: `Plan`, `Refusal`.
Promises: pure; the same flavors in any order give the same plan; a plan has one group covering one resource; a
flavor nobody can read is left out and its neighbours stay.
Trusts: labels and notes of flavors that carry our type label; a hand-edited one is set right by node_flavor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from controllers.ownership import is_our_flavor
from controllers.pool_nodes import NodeFacts
from controllers.queue_state import TAS_QUEUE, FlavorQuotas, Group, QueueState, ResourceQuota
from kube.pace import in_steps
from nodefeature.credits import CREDITS_PER_ACCELERATOR
from nodefeature.device_labels import label_count
from nodefeature.fields import annotations_of, as_str, at, is_deleting, labels_of, name_of, str_map
from nodefeature.labels import (
    ACCELERATABLE,
    CPU_ONLY,
    DEVICE_PREFIX,
    GENERAL_PREFIX,
    NOTE_PREFIX,
    TOPOLOGY_PROFILE,
    TRUE,
)
from nodefeature.manufacturers import CREDITS_PREFIX
from nodefeature.pool import matches
from nodefeature.quantity import NANO, canonical, of
from nodefeature.topology import topology_name

CPU = "cpu"
MAX_FLAVORS = 64
"""Kueue's limit for one resource group; a second group may not cover the same resource."""

COUNT = ".count"
CAPACITY = ".capacity"

DUPLICATE_COVERED_RESOURCE = "DuplicateCoveredResource"
UNSUPPORTED_EXISTING_OBJECT = "UnsupportedExistingObject"
TOO_MANY_FLAVORS = "TooManyFlavors"
MISSING_TOPOLOGY = "MissingTopology"
OVERLAPPING_SELECTORS = "OverlappingSelectors"
NON_CONSERVED_QUOTA = "NonConservedQuota"

RECHECK_S = 30.0


@dataclass(frozen=True, slots=True)
class Flavor:
    """What a queue needs to know of one of our ResourceFlavors."""

    name: str
    own_key: str
    """The label key that `.count` and `.capacity` stand beside."""
    count: int
    capacity: int
    manufacturer: str
    acceleratable: bool
    profile: str
    topology: str
    node_labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def resource(self) -> str:
        """Return the resource this flavor's quota counts."""
        return CREDITS_PREFIX + self.manufacturer if self.acceleratable else CPU

    @property
    def quota(self) -> int:
        """Return the nominal quota: credits of all cards, or cores."""
        return self.capacity * CREDITS_PER_ACCELERATOR if self.acceleratable else self.capacity


@dataclass(frozen=True, slots=True)
class Plan:
    """What a queue should offer; without quotas nothing, and then no group at all."""

    resource: str = ""
    quotas: tuple[tuple[str, int], ...] = ()
    """(flavor, nominal quota), smallest nodes first."""

    @property
    def flavors(self) -> frozenset[str]:
        """Return the names of the flavors."""
        return frozenset(flavor for flavor, _ in self.quotas)

    @property
    def groups(self) -> tuple[Group, ...]:
        """Return the plan in the form that a queue's state has."""
        if not self.quotas:
            return ()
        flavors = (FlavorQuotas(flavor, (ResourceQuota(self.resource, quota * NANO),)) for flavor, quota in self.quotas)
        return (Group((self.resource,), tuple(flavors)),)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a plan may not be written. `recheck_s`: no event announces the cure, so look again."""

    reason: str
    message: str
    recheck_s: float = 0.0


def pool_flavors(flavors: Iterable[Mapping[str, Any]], selector: Mapping[str, str]) -> list[Mapping[str, Any]]:
    """Return the live flavors of ours that a pool selects."""
    return [f for f in flavors if is_our_flavor(f) and not is_deleting(f) and matches(selector, labels_of(f))]


def read_flavor(flavor: Mapping[str, Any]) -> Flavor | None:
    """Return what a queue needs of a ResourceFlavor; None when no key of its own carries a capacity."""
    labels, notes = labels_of(flavor), annotations_of(flavor)
    acceleratable = labels.get(ACCELERATABLE) == TRUE
    prefix = DEVICE_PREFIX if acceleratable else GENERAL_PREFIX
    owned = (key for key in sorted(labels) if key.startswith(prefix) and labels[key] == TRUE)
    own_key = next((key for key in owned if key + CAPACITY in labels), "")
    if not own_key:
        return None
    manufacturer = notes.get(NOTE_PREFIX + "manufacturer") or own_key.removeprefix(prefix).partition("-")[0]
    return Flavor(
        name=name_of(flavor),
        own_key=own_key,
        count=label_count(labels, own_key + COUNT),
        capacity=label_count(labels, own_key + CAPACITY),
        manufacturer=manufacturer,
        acceleratable=acceleratable,
        profile=labels.get(TOPOLOGY_PROFILE, ""),
        topology=as_str(at(flavor, "spec", "topologyName")),
        node_labels=str_map(at(flavor, "spec", "nodeLabels")),
    )


def sort_flavors(flavors: Iterable[Flavor]) -> list[Flavor]:
    """Return the flavors that offer something, smallest nodes first, so that small requests keep large nodes free."""
    return sorted((f for f in flavors if f.capacity > 0), key=lambda flavor: (flavor.count, flavor.name))


def build_plan(flavors: Sequence[Flavor]) -> Plan:
    """Return the plan of sorted flavors; the first one names the resource, as all share a pool."""
    if not flavors:
        return Plan()
    return Plan(flavors[0].resource, tuple((flavor.name, flavor.quota) for flavor in flavors))


def raw_groups(plan: Plan) -> list[dict[str, Any]]:
    """Return a plan as `spec.resourceGroups`, quantities in the API server's spelling."""
    if not plan.quotas:
        return []
    flavors = [
        {"name": flavor, "resources": [{"name": plan.resource, "nominalQuota": canonical(of(quota))}]}
        for flavor, quota in plan.quotas
    ]
    return [{"coveredResources": [plan.resource], "flavors": flavors}]


async def refuse_plan(
    state: QueueState,
    flavors: Sequence[Flavor],
    topologies: Iterable[str],
    nodes: Sequence[NodeFacts],
    *,
    in_transit: bool = False,
) -> Refusal | None:
    """Return the first reason against writing the plan of `flavors` (spec 04 §8, in this order), or None.

    `in_transit`: a flavor of the pool is being deleted, so nodes without one wait for the next and are no reason.
    """
    refusal = (
        _duplicate_resource(state)
        or _unsupported_queue(state, flavors)
        or _too_many(flavors)
        or _missing_topology(flavors, frozenset(topologies))
    )
    if refusal is not None:
        return refusal
    census = _Census(flavors)
    async for part in in_steps(nodes):
        for node in part:
            census.count(node)
    return census.refusal(in_transit=in_transit)


def _duplicate_resource(state: QueueState) -> Refusal | None:
    seen: set[str] = set()
    for group in state.groups:
        for resource in group.covered:
            if resource in seen:
                return Refusal(
                    DUPLICATE_COVERED_RESOURCE,
                    f"resource {resource} is covered by two resource groups; remove one of them from the queue",
                )
            seen.add(resource)
    return None


def _unsupported_queue(state: QueueState, flavors: Sequence[Flavor]) -> Refusal | None:
    foreign = state.flavors - {flavor.name for flavor in flavors}
    # Groups made of nothing but today's flavors are this operator's work: the annotation was lost by hand.
    if not state.groups or not foreign or state.annotation(TAS_QUEUE) == TRUE:
        return None
    return Refusal(
        UNSUPPORTED_EXISTING_OBJECT,
        f"the queue offers {_some(foreign)} without annotation {TAS_QUEUE}=true, so this operator did not plan it; "
        "delete the queue to have it planned anew",
    )


def _too_many(flavors: Sequence[Flavor]) -> Refusal | None:
    if len(flavors) <= MAX_FLAVORS:
        return None
    return Refusal(
        TOO_MANY_FLAVORS,
        f"the pool has {len(flavors)} flavors, Kueue takes {MAX_FLAVORS} in one resource group; "
        "bring the nodes to fewer different sizes or leave some unmanaged",
    )


def _missing_topology(flavors: Sequence[Flavor], topologies: frozenset[str]) -> Refusal | None:
    for flavor in flavors:
        if not flavor.profile:
            fault = f"has no label {TOPOLOGY_PROFILE}"
        elif flavor.node_labels.get(TOPOLOGY_PROFILE) != flavor.profile:
            fault = f"selects another topology profile than its label {flavor.profile}"
        elif flavor.topology != topology_name(flavor.profile):
            fault = f"names Topology {flavor.topology!r}, not {topology_name(flavor.profile)}"
        elif flavor.topology not in topologies:
            fault = f"names Topology {flavor.topology}, which does not exist"
        else:
            continue
        return Refusal(MISSING_TOPOLOGY, f"flavor {flavor.name} {fault}", RECHECK_S)
    return None


class _Census:
    """Checks that every node of the pool is in exactly one flavor, and every flavor counts its nodes."""

    def __init__(self, flavors: Sequence[Flavor]) -> None:
        self._flavors = flavors
        self._by_count: dict[tuple[str, str], list[Flavor]] = {}
        for flavor in flavors:
            # The count's key among the node labels: an older agent may spell it otherwise than the flavor's own.
            for key in flavor.node_labels:
                if key.endswith(COUNT):
                    self._by_count.setdefault((key, flavor.node_labels[key]), []).append(flavor)
        self._count_keys = sorted({key for key, _ in self._by_count})
        self._cpu_only = any(CPU_ONLY in flavor.node_labels for flavor in flavors)
        self._selected = dict.fromkeys((flavor.name for flavor in flavors), 0)
        self._overlap: tuple[str, str, str] | None = None
        self._orphan = ""

    def count(self, node: NodeFacts) -> None:
        candidates = (f for key in self._count_keys for f in self._by_count.get((key, node.labels.get(key, "")), ()))
        matching = [f.name for f in candidates if f.node_labels.items() <= node.labels.items()]
        for name in matching:
            self._selected[name] += 1
        if len(matching) > 1 and self._overlap is None:
            self._overlap = (node.name, matching[0], matching[1])
        # With mixing off the CPU pool is for nodes without accelerators alone.
        if not matching and not (self._cpu_only and node.labels.get(ACCELERATABLE) == TRUE) and not self._orphan:
            self._orphan = node.name

    def refusal(self, *, in_transit: bool) -> Refusal | None:
        if self._overlap is not None:
            node, one, other = self._overlap
            return Refusal(OVERLAPPING_SELECTORS, f"node {node} is selected by flavors {one} and {other}")
        return _wrong_total(self._flavors, self._selected) or _orphaned("" if in_transit else self._orphan)


def _wrong_total(flavors: Sequence[Flavor], selected: Mapping[str, int]) -> Refusal | None:
    for flavor in flavors:
        if flavor.capacity != selected[flavor.name] * flavor.count:
            return Refusal(
                NON_CONSERVED_QUOTA,
                f"flavor {flavor.name} has capacity {flavor.capacity}, "
                f"but selects {selected[flavor.name]} nodes of {flavor.count}",
                RECHECK_S,
            )
    return None


def _orphaned(node: str) -> Refusal | None:
    if not node:
        return None
    return Refusal(NON_CONSERVED_QUOTA, f"node {node} belongs to the pool and no flavor selects it", RECHECK_S)


def _some(names: Iterable[str]) -> str:
    listed = sorted(names)
    return ", ".join(listed[:3]) + (f" and {len(listed) - 3} more" if len(listed) > 3 else "")
