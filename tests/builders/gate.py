"""Cards, Pods and Workloads as gate 3 meets them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from api.ledger.modes import CARD_UNITS, SHARE_UNITS, Mode
from api.ledger.node_cards import Card, Partitions
from api.ledger.pod_fit import Cards, Need, room
from api.ledger.workload_fit import PodGroup
from kube.reconciler import Object
from nodefeature.labels import HOSTNAME
from nodefeature.resource_names import Family

MODEL = "nvidia-a10g"
GPU = "nvidia.com/gpu"
HALF = CARD_UNITS // 2
FLAVOR = "gpustack-nvidia-a10g-linux-amd64-8d"


def card(
    name: str,
    units: int = CARD_UNITS,
    mode: Mode | None = None,
    *,
    slots: int = 128,
    key: str = MODEL,
    partitions: Partitions | None = None,
) -> Card:
    """Return a card; what is left of it says its mode unless that is given: slices took the rest."""
    guessed = Mode.NONE if units == CARD_UNITS else Mode.SLICED
    whole = partitions is None
    shown = guessed if mode is None else mode
    return Card(name, key, shown, units, slots=slots if whole else 0, sliceable=whole, partitions=partitions)


def cards(*left: int, mode: Mode | None = None, key: str = MODEL) -> Cards:
    """Return one card for each figure of units left."""
    return tuple(card(f"card-{n}", units, mode, key=key) for n, units in enumerate(left))


def shared_cards(*shares: int) -> Cards:
    """Return one shared card for each figure of shares left."""
    return cards(*(n * SHARE_UNITS for n in shares), mode=Mode.SHARED)


class FleetOf:
    """Nodes with given cards; all are candidates of every group."""

    def __init__(self, nodes: Mapping[str, Cards]) -> None:
        self.nodes = nodes

    def candidates(self, group: PodGroup) -> Collection[str]:
        return sorted(self.nodes)

    def cards(self, node: str) -> Cards:
        return self.nodes.get(node, ())

    def room(self, node: str, need: Need) -> int:
        return room(self.cards(node), need)


def need(family: Family, count: int = 1, *, units: int = 0, profile: str = "", key: str = MODEL) -> Need:
    """Return what one container needs."""
    return Need(family, key.partition("-")[0], key, count, units, profile)


def exclusive(count: int = 1) -> Need:
    """Return whole cards for one container."""
    return need(Family.EXCLUSIVE, count)


def shared(count: int = 1) -> Need:
    """Return shares of distinct cards for one container."""
    return need(Family.SHARED, count)


def sliced(units: int) -> Need:
    """Return a slice for one container."""
    return need(Family.SLICED, units=units)


def partition(profile: str, key: str = MODEL) -> Need:
    """Return a partition for one container."""
    return need(Family.PARTITIONED, profile=profile, key=key)


def pods(*needs: Need, count: int = 1, role: str = "", hosts: Mapping[str, int] | None = None) -> PodGroup:
    """Return equal Pods."""
    return PodGroup(role, FLAVOR, needs, count, tuple(hosts.items()) if hosts is not None else None)


def gate_pod_set(
    limits: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None, *, name: str = "main", count: Any = 1
) -> Object:
    """Return a PodSet; several mappings are several containers."""
    each = [limits] if isinstance(limits, Mapping) else list(limits or ())
    containers = [{"name": f"c{n}", "resources": {"limits": dict(one)}} for n, one in enumerate(each)]
    return {"name": name, "count": count, "template": {"spec": {"containers": containers}}}


def on_hosts(hosts: Mapping[str, int]) -> Object:
    """Return a topology assignment as Kueue writes it."""
    one_each = {
        "domainCount": len(hosts),
        "valuesPerLevel": [{"individual": {"roots": list(hosts)}}],
        "podCounts": {"individual": list(hosts.values())},
    }
    return {"levels": [HOSTNAME], "slices": [one_each]}


def gate_workload(
    name: str = "w",
    *pod_sets: Object,
    flavors: Mapping[str, str] | None = None,
    hosts: Mapping[str, int] | None = None,
    state: str = "Pending",
    conditions: Sequence[str] = ("QuotaReserved",),
    owner: str = "",
    created: str = "2026-01-01T00:00:00Z",
    check: str = "gpustack-node-devices",
    **spec: Any,
) -> Object:
    """Return a Workload with quota in `FLAVOR`; `conditions` are those that are True, `owner` is a Pod's uid."""
    sets = pod_sets or (gate_pod_set({GPU: "1"}),)
    assigned = {"credits.gpustack.ai/nvidia": FLAVOR} if flavors is None else dict(flavors)
    assignments = [
        {"name": s["name"], "count": s["count"], "flavors": assigned}
        | ({"topologyAssignment": on_hosts(hosts)} if hosts is not None else {})
        for s in sets
    ]
    stamp = "2026-01-01T00:00:00Z"
    metadata: dict[str, Any] = {"name": name, "namespace": "default", "creationTimestamp": created}
    if owner:
        metadata["ownerReferences"] = [{"kind": "Pod", "name": name, "uid": owner}]
    return {
        "metadata": metadata,
        "spec": {"active": True, "queueName": "q", "podSets": list(sets), **spec},
        "status": {
            "admission": {"clusterQueue": "q", "podSetAssignments": assignments},
            "admissionChecks": [{"name": check, "state": state, "message": "", "lastTransitionTime": stamp}],
            "conditions": [
                {"type": kind, "status": "True", "reason": kind, "message": "", "lastTransitionTime": stamp}
                for kind in conditions
            ],
        },
    }
