"""Builds what an explanation is made of: an Instance of one pool on its way to its cards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from api.explain.evidence import Evidence
from api.ledger.modes import CARD_UNITS, PERCENT_UNITS
from nodefeature.labels import MANAGED
from nodefeature.manufacturers import build_manufacturers
from tests.builders.ledgers import card, mig_profiles
from tests.builders.queues import cluster_queue, pool_labels

POOL = "gpustack-nvidia-h100-linux-amd64"
KEY = "nvidia-h100"
ENTRANCE = "gpustack-fnv64-0123456789abcdef"
FLAVOR = "gpustack-nvidia-h100-linux-amd64-8d"
CREDITS = "credits.gpustack.ai/nvidia"
CHECK = "gpustack-node-devices"
GATED = [{"name": "kueue.x-k8s.io/admission"}]
REGISTRY = build_manufacturers({})
Obj = dict[str, Any]


def condition(kind: str, status: str, reason: str = "", message: str = "") -> Obj:
    return {"type": kind, "status": status, "reason": reason or kind, "message": message}


def instance(*, phase: str = "", message: str = "", **spec: Any) -> Obj:
    status: Obj = {"phase": phase} if phase else {}
    if message:
        status["phaseMessage"] = message
    resources = spec.pop("resources", {"accelerator": "1"})
    meta = {"name": "a", "namespace": "team", "uid": "instance-uid", **spec.pop("metadata", {})}
    return {"metadata": meta, "spec": {"type": POOL, "resources": resources, **spec}, "status": status}


def pod(resources: Mapping[str, str] | None = None, *, gated: bool = True, node: str = "", **status: Any) -> Obj:
    """Return the Pod: gated, or let go, or bound to a node."""
    wanted = {"cpu": "100m", **({"nvidia.com/gpu": "1"} if resources is None else resources)}
    spec: Obj = {"containers": [{"name": "main", "resources": {"limits": wanted, "requests": wanted}}]}
    if node:
        spec["nodeName"] = node
    elif gated:
        spec["schedulingGates"] = GATED
    meta = {"name": "a", "namespace": "team", "uid": "pod-uid", "labels": {"kueue.x-k8s.io/queue-name": ENTRANCE}}
    return {"metadata": meta, "spec": spec, "status": status}


def allocated(mode: int = 1, card_id: str = "GPU-1") -> dict[str, str]:
    """Return the annotation an agent writes."""
    row = f'{{"id": "{card_id}", "mode": {mode}, "allocated": {CARD_UNITS}}}'
    group = f'{{"id": "h100", "manufacturer": "nvidia", "accelerators": [{row}]}}'
    return {"device.gpustack.ai/accelerator.allocated": f'{{"main": {{"devices": {{"groups": [{group}]}}}}}}'}


def running(annotations: Mapping[str, str] | None = None) -> Obj:
    """Return a Pod that runs on a node."""
    held = ("PodScheduled", "Initialized", "ContainersReady", "Ready")
    made = pod(node="n1", phase="Running", conditions=[condition(kind, "True") for kind in held])
    made["metadata"]["annotations"] = dict(allocated() if annotations is None else annotations)
    return made


def instance_type(*, inactive: bool = False, acceleratable: bool = True, **status: Any) -> Obj:
    views = {"accelerator": {"onceMaxRequest": "4", "remaining": "6", "capacity": "16"}}
    detail = {"manufacturer": "nvidia", "slicedDetail": {"logical": {"count": 128}}}
    spec = {"acceleratable": acceleratable, "inactive": inactive, "acceleratorGroup": KEY if acceleratable else ""}
    shown = {"entrance": ENTRANCE, "phase": "Active", "detail": detail if acceleratable else {}, **views, **status}
    return {"metadata": {"name": POOL}, "spec": spec, "status": shown}


def queue(
    free: int = 6,
    cards: int = 16,
    *,
    policy: str = "None",
    pending: int = 0,
    checks: Sequence[str] = (CHECK,),
    **more: Any,
) -> Obj:
    """Return the pool's queue with one flavor of which `free` cards are not reserved."""
    quota = {"name": CREDITS, "nominalQuota": str(cards * CARD_UNITS)}
    group = {"coveredResources": [CREDITS], "flavors": [{"name": FLAVOR, "resources": [quota]}]}
    taken = {"name": CREDITS, "total": str((cards - free) * CARD_UNITS)}
    status = {
        "conditions": [condition("Active", "True")],
        "pendingWorkloads": pending,
        "flavorsReservation": [{"name": FLAVOR, "resources": [taken]}],
    }
    return cluster_queue(
        POOL, labels=pool_labels(KEY), policy=policy, groups=[group], checks=checks, status=status, **more
    )


def local_queue(**spec: Any) -> Obj:
    return {"metadata": {"name": ENTRANCE, "namespace": "team"}, "spec": {"clusterQueue": POOL, **spec}}


def workload(
    *conditions: Obj,
    checks: Sequence[Obj] = (),
    name: str = "pod-a",
    created: str = "2026-01-01T00:00:00Z",
    **more: Any,
) -> Obj:
    """Return the Pod's Workload."""
    owner = {"kind": "Pod", "name": "a", "uid": "pod-uid"}
    meta = {
        "name": name,
        "namespace": more.pop("namespace", "team"),
        "uid": f"uid of {name}",
        "creationTimestamp": created,
        "ownerReferences": [owner],
    }
    status: Obj = {"conditions": list(conditions), **more.pop("status", {})}
    if checks:
        status["admissionChecks"] = list(checks)
    return {"metadata": meta, "spec": {"active": True, "queueName": ENTRANCE, **more}, "status": status}


def waiting(name: str, created: str = "2026-01-01T00:00:00Z", priority: int = 0, namespace: str = "other") -> Obj:
    """Return somebody else's Workload of the same queue."""
    return workload(name=name, created=created, priority=priority, namespace=namespace)


def reserved(*, admitted: bool = False, checks: Sequence[Obj] = (), **more: Any) -> Obj:
    """Return a Workload that holds quota."""
    kept = [condition("QuotaReserved", "True"), *([condition("Admitted", "True")] if admitted else [])]
    usage = {"name": "main", "flavors": {CREDITS: FLAVOR}, "resourceUsage": {CREDITS: str(CARD_UNITS)}}
    admission = {"clusterQueue": POOL, "podSetAssignments": [usage]}
    return workload(*kept, checks=checks, status={"admission": admission}, **more)


def check(state: str, message: str = "", name: str = CHECK) -> Obj:
    return {"name": name, "state": state, "message": message}


def flavor() -> Obj:
    return {"metadata": {"name": FLAVOR}, "spec": {"nodeLabels": pool_labels(KEY) | {MANAGED: "true"}}}


def ledger(node: str, *remaining: int, mode: int = 0, partitions: int | None = None) -> Obj:
    """Return the Devices of a node: one card for each figure, `remaining` percent of it left."""
    made = mig_profiles(10) if partitions is not None else None
    cards = [card(f"GPU-{node}-{n}", n, slices=0 if made else 128, profiles=made) for n in range(len(remaining))]
    rows = []
    for n, percent in enumerate(remaining):
        row: Obj = {
            "id": f"GPU-{node}-{n}",
            "index": n,
            "mode": mode if percent < 100 else 0,
            "remaining": percent * PERCENT_UNITS,
        }
        if partitions is not None:
            row |= {"mode": 4, "remainingProfiles": [{"name": "3g.40gb", "count": partitions}]}
        rows.append(row)
    group = {"id": "h100", "manufacturer": "nvidia"}
    return {
        "metadata": {"name": node, "labels": pool_labels(KEY) | {MANAGED: "true"}},
        "spec": {"groups": [{**group, "name": "H100", "memory": 81920, "accelerators": cards}]},
        "status": {"groups": [{**group, "accelerators": rows}]},
    }


def node(name: str = "n1", *, ready: str = "True", labels: Mapping[str, str] | None = None, **spec: Any) -> Obj:
    """Return a node; of the pool unless its labels say otherwise."""
    held = pool_node_labels() if labels is None else dict(labels)
    meta = {"name": name, "labels": held}
    return {"metadata": meta, "spec": spec, "status": {"conditions": [condition("Ready", ready)]}}


def pool_node_labels() -> dict[str, str]:
    """Return the labels of a node of the pool."""
    counted = {f"acceleratable.feature.gpustack.ai/{KEY}.count": "8"}
    return pool_labels(KEY) | {MANAGED: "true"} | counted


def evidence(**changes: Any) -> Evidence:
    """Return evidence about an Instance whose Pod waits for quota in an open queue."""
    usual: Obj = {
        "instance": instance(phase="Pending"),
        "pod": pod(),
        "instance_type": instance_type(),
        "cluster_queue": queue(),
        "local_queue": local_queue(),
        "workload": workload(condition("QuotaReserved", "False", "Pending", "waiting")),
        "devices": [ledger("gpu-01", 100, 100, 0, 0, mode=1), ledger("gpu-02", 100, 100, 100, 100, mode=1)],
    }
    return Evidence(registry=REGISTRY, **{**usual, **changes})
