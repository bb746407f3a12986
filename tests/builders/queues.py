"""Kueue's objects as the chain meets them, and the nodes behind flavors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kube.reconciler import Object
from nodefeature.labels import (
    ACCELERATABLE,
    ARCH,
    DEVICE_PREFIX,
    GENERAL_PREFIX,
    HOSTNAME,
    MANAGED,
    NOTE_PREFIX,
    OS,
    RESOURCE_TYPE,
    TOPOLOGY_PROFILE,
    TYPE_INSTANCE_TYPES,
    TYPE_NODES,
)
from nodefeature.topology import DEFAULT_PROFILE, topology_name

PLATFORM = {OS: "linux", ARCH: "amd64"}


def pool_labels(key: str = "", *, acceleratable: bool = True, general: str = "", arch: str = "amd64") -> dict[str, str]:
    """Return the schedule labels of a pool; `key` is the accelerator group."""
    labels = {ACCELERATABLE: str(acceleratable).lower(), OS: "linux", ARCH: arch}
    if key:
        labels[DEVICE_PREFIX + key] = "true"
    if general:
        labels[GENERAL_PREFIX + general] = "true"
    return labels


def cluster_queue(
    name: str = "pool",
    *,
    labels: Mapping[str, str] | None = None,
    policy: str | None = "None",
    groups: Sequence[Mapping[str, Any]] | None = None,
    annotations: Mapping[str, str] | None = None,
    checks: Sequence[str] = (),
    status: Mapping[str, Any] | None = None,
    generation: int = 1,
    deleting: bool = False,
) -> Object:
    """Return a ClusterQueue of ours."""
    metadata: dict[str, Any] = {
        "name": name,
        "generation": generation,
        "labels": {**(pool_labels("nvidia-a10g") if labels is None else labels), RESOURCE_TYPE: TYPE_INSTANCE_TYPES},
        "annotations": dict(annotations or {}),
    }
    if deleting:
        metadata |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["kueue.x-k8s.io/resource-in-use"]}
    spec: dict[str, Any] = {"namespaceSelector": {}}
    if policy is not None:
        spec["stopPolicy"] = policy
    if groups is not None:
        spec["resourceGroups"] = list(groups)
    if checks:
        spec["admissionChecksStrategy"] = {"admissionChecks": [{"name": check} for check in checks]}
    return {"metadata": metadata, "spec": spec, "status": dict(status or {})}


def group(resource: str, quotas: Mapping[str, str | int]) -> dict[str, Any]:
    """Return a resource group over one resource: flavor name -> nominal quota."""
    flavors = [{"name": f, "resources": [{"name": resource, "nominalQuota": q}]} for f, q in quotas.items()]
    return {"coveredResources": [resource], "flavors": flavors}


def usage(resource: str, totals: Mapping[str, str | int]) -> list[dict[str, Any]]:
    """Return `flavorsReservation` or `flavorsUsage`."""
    return [{"name": f, "resources": [{"name": resource, "total": t, "borrowed": "0"}]} for f, t in totals.items()]


def active(status: str = "True", reason: str = "Ready", *, generation: int = 1, message: str = "") -> dict[str, Any]:
    """Return Kueue's Active condition."""
    return {
        "type": "Active",
        "status": status,
        "reason": reason,
        "message": message,
        "observedGeneration": generation,
    }


def stopped(generation: int = 1) -> dict[str, Any]:
    """Return the Active condition of a queue that Kueue has stopped."""
    return active("False", "Stopped", generation=generation, message="Can't admit new workloads: is stopped.")


def device_flavor(
    key: str = "nvidia-a10g",
    count: int = 1,
    nodes: int = 1,
    *,
    general: str = "",
    arch: str = "amd64",
    profile: str = DEFAULT_PROFILE,
    notes: Mapping[str, str] | None = None,
) -> Object:
    """Return the ResourceFlavor of a device model with `count` cards a node."""
    own = DEVICE_PREFIX + key
    head = f"{general}--{key}" if general else key
    own_notes = {"acceleratable": "true", "acceleratorGroup": key, "manufacturer": key.partition("-")[0]}
    return _flavor(
        f"gpustack-{head}-linux-{arch}-{count}d",
        own,
        count,
        nodes,
        acceleratable=True,
        arch=arch,
        profile=profile,
        extra={GENERAL_PREFIX + general: "true"} if general else {},
        notes={**own_notes, **(notes or {})},
    )


def cpu_flavor(
    key: str = "amd-epyc-7763",
    count: int = 8,
    nodes: int = 1,
    *,
    arch: str = "amd64",
    profile: str = DEFAULT_PROFILE,
    notes: Mapping[str, str] | None = None,
) -> Object:
    """Return the ResourceFlavor of a CPU model with `count` cores a node."""
    own_notes = {"acceleratable": "false", "generalGroup": key, "manufacturer": key.partition("-")[0]}
    return _flavor(
        f"gpustack-{key}-linux-{arch}-{count}c",
        GENERAL_PREFIX + key,
        count,
        nodes,
        acceleratable=False,
        arch=arch,
        profile=profile,
        extra={},
        notes={**own_notes, **(notes or {})},
    )


def _flavor(
    name: str,
    own: str,
    count: int,
    nodes: int,
    *,
    acceleratable: bool,
    arch: str,
    profile: str,
    extra: Mapping[str, str],
    notes: Mapping[str, str],
) -> Object:
    labels = {
        RESOURCE_TYPE: TYPE_NODES,
        ACCELERATABLE: str(acceleratable).lower(),
        OS: "linux",
        ARCH: arch,
        own: "true",
        f"{own}.count": str(count),
        f"{own}.capacity": str(count * nodes),
        TOPOLOGY_PROFILE: profile,
        **extra,
    }
    node_labels = {
        MANAGED: "true",
        OS: "linux",
        ARCH: arch,
        own: "true",
        f"{own}.count": str(count),
        TOPOLOGY_PROFILE: profile,
        **extra,
    }
    return {
        "metadata": {"name": name, "labels": labels, "annotations": {NOTE_PREFIX + k: v for k, v in notes.items()}},
        "spec": {"nodeLabels": node_labels, "topologyName": topology_name(profile), "tolerations": []},
    }


def flavor_nodes(flavor: Object, number: int = 1, *, prefix: str = "") -> list[Object]:
    """Return nodes that a flavor selects."""
    names = [f"{prefix or flavor['metadata']['name']}-n{i}" for i in range(number)]
    return [
        {
            "metadata": {"name": name, "labels": {**flavor["spec"]["nodeLabels"], HOSTNAME: name}},
            "spec": {},
            "status": {},
        }
        for name in names
    ]


def topology(profile: str = DEFAULT_PROFILE) -> Object:
    """Return the Topology of a profile."""
    return {"metadata": {"name": topology_name(profile)}, "spec": {"levels": [{"nodeLabel": HOSTNAME}]}}


def admission_check(name: str, controller: str, *, is_active: bool = True) -> Object:
    """Return an AdmissionCheck."""
    status = {"conditions": [{"type": "Active", "status": "True"}]} if is_active else {}
    return {"metadata": {"name": name}, "spec": {"controllerName": controller}, "status": status}


def namespace(name: str, *, deleting: bool = False) -> Object:
    """Return a Namespace."""
    metadata: dict[str, Any] = {"name": name}
    if deleting:
        metadata |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["example.com/stuck"]}
    return {"metadata": metadata, "status": {"phase": "Terminating" if deleting else "Active"}}
