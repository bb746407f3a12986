"""Instances, and the Pods, Workloads and types around them, as the API server shows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kube.reconciler import Object
from nodefeature.labels import PART_OF, QUEUE_NAME, RESOURCE_TYPE, TYPE_INSTANCES

POOL = "gpustack-nvidia-a10g-linux-amd64"
ENTRANCE = "gpustack-fnv64-7bc37bef52624161"
CPU_POOL = "gpustack-generic-linux-amd64"
BORN = "2026-01-01T00:00:00Z"
GATED = ("kueue.x-k8s.io/admission",)


def instance(name: str = "box", namespace: str = "team-a", *, created: str = BORN, **spec: Any) -> Object:
    """Return an Instance of one exclusive card; keywords replace fields of the spec, None takes one away."""
    whole: dict[str, Any] = {
        "type": POOL,
        "image": "registry.example/app:1",
        "imagePullPolicy": "IfNotPresent",
        "volumeMount": "/workspace",
        "resources": {"cpu": "8", "ram": "40Gi", "localStorage": "15Gi", "accelerator": "1"},
        "volume": {"ephemeral": {"capacity": "10Gi"}},
        **spec,
    }
    return {
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}", "creationTimestamp": created},
        "spec": {key: value for key, value in whole.items() if value is not None},
    }


def pool_type(
    name: str = POOL,
    *,
    manufacturer: str = "nvidia",
    sliceable: bool = True,
    profiles: Sequence[str] = (),
    entrance: str = ENTRANCE,
) -> Object:
    """Return an InstanceType whose status is published; without `manufacturer` one of CPUs."""
    detail: dict[str, Any] = {"manufacturer": manufacturer, "memory": "81920Mi"} if manufacturer else {}
    if manufacturer:
        detail["slicedDetail"] = {
            "logical": {"count": 128 if sliceable else 0},
            "physical": {"count": len(profiles), "profiles": [{"name": p, "memoryMib": 40960} for p in profiles]},
        }
    return {
        "metadata": {"name": name, "uid": f"uid-{name}"},
        "spec": {
            "acceleratable": bool(manufacturer),
            "unitResources": {"cpu": "16" if manufacturer else "1", "ram": "40Gi" if manufacturer else "2Gi"},
            "localStorage": "100Gi",
        },
        "status": {"detail": detail, "entrance": entrance, "phase": "Active"},
    }


def unready_type(name: str = POOL) -> Object:
    """Return an accelerated InstanceType whose detail is not computed yet."""
    return {**pool_type(name), "status": {"entrance": ENTRANCE}}


def queue(name: str = POOL, *, stop_policy: str = "None") -> Object:
    """Return a ClusterQueue of ours."""
    return {
        "metadata": {"name": name, "uid": f"uid-q-{name}", "labels": {RESOURCE_TYPE: "instancetypes"}},
        "spec": {"stopPolicy": stop_policy},
    }


def own_pod(
    of: Mapping[str, Any],
    *,
    uid: str = "uid-pod",
    node: str = "",
    gates: Sequence[str] = (),
    created: str = BORN,
    status: Mapping[str, Any] | None = None,
    annotations: Mapping[str, str] | None = None,
    finalizers: Sequence[str] = (),
    containers: Sequence[Mapping[str, Any]] | None = None,
) -> Object:
    """Return a Pod that an Instance controls."""
    meta = of["metadata"]
    spec: dict[str, Any] = {"containers": [dict(c) for c in containers or ({"name": "main"},)]}
    if gates:
        spec["schedulingGates"] = [{"name": gate} for gate in gates]
    if node:
        spec["nodeName"] = node
    metadata: dict[str, Any] = {
        "name": meta["name"],
        "namespace": meta["namespace"],
        "uid": uid,
        "creationTimestamp": created,
        "labels": {QUEUE_NAME: ENTRANCE, PART_OF: meta["uid"], RESOURCE_TYPE: TYPE_INSTANCES},
        "annotations": dict(annotations or {}),
        "ownerReferences": [
            {
                "apiVersion": "worker.gpustack.ai/v1alpha1",
                "kind": "Instance",
                "name": meta["name"],
                "uid": meta["uid"],
                "controller": True,
            }
        ],
    }
    if finalizers:
        metadata["finalizers"] = list(finalizers)
    return {"metadata": metadata, "spec": spec, "status": dict(status or {"phase": "Pending"})}


def running(node_ip: str = "10.0.0.5", **conditions: str) -> dict[str, Any]:
    """Return the status of a Pod that runs and is ready; `Ready="False"` changes a condition."""
    truths = {"PodScheduled": "True", "Initialized": "True", "ContainersReady": "True", "Ready": "True", **conditions}
    return {
        "phase": "Running",
        "conditions": [{"type": kind, "status": truth} for kind, truth in truths.items()],
        "containerStatuses": [{"name": "main", "ready": True, "state": {"running": {}}}],
        "hostIP": node_ip,
        "hostIPs": [{"ip": node_ip}],
        "podIP": "10.42.1.7",
        "podIPs": [{"ip": "10.42.1.7"}],
    }


def waiting(reason: str = "", message: str = "", *, init: bool = False) -> dict[str, Any]:
    """Return the status of a scheduled Pod whose (init) container waits."""
    state = {"waiting": {"reason": reason, **({"message": message} if message else {})}} if reason else {}
    held, why = ("Initialized", "ContainersNotInitialized") if init else ("Ready", "ContainersNotReady")
    conditions = [{"type": "PodScheduled", "status": "True"}]
    conditions += [{"type": "Initialized", "status": "True"}] if not init else []
    conditions += [{"type": held, "status": "False", "reason": why}]
    field = "initContainerStatuses" if init else "containerStatuses"
    return {"phase": "Pending", "conditions": conditions, field: [{"name": "main", "state": state}]}


def workload_of(pod: Mapping[str, Any], *conditions: Mapping[str, Any], checks: Sequence[Any] = ()) -> Object:
    """Return the Workload that Kueue made of a Pod."""
    meta = pod["metadata"]
    return {
        "metadata": {
            "name": f"pod-{meta['name']}-abcde",
            "namespace": meta["namespace"],
            "ownerReferences": [{"kind": "Pod", "name": meta["name"], "uid": meta["uid"], "controller": True}],
        },
        "spec": {"active": True, "queueName": ENTRANCE},
        "status": {"conditions": [dict(c) for c in conditions], "admissionChecks": list(checks)},
    }
