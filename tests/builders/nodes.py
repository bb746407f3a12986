"""Builds Nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kube.reconciler import Object
from nodefeature import labels as names
from nodefeature.topology import DEFAULT_PROFILE
from tests.builders.node_labels import card_labels, cpu_annotations, cpu_labels, cpu_pool_labels, platform

MERGED = {names.MANAGED: names.TRUE, names.TOPOLOGY_PROFILE: DEFAULT_PROFILE}


def node(
    name: str,
    *,
    labels: Mapping[str, str | None] | None = None,
    annotations: Mapping[str, str] | None = None,
    os: str = "linux",
    arch: str = "amd64",
    cpu: str = "16",
    capacity: Mapping[str, str] | None = None,
    taints: Sequence[Mapping[str, str]] = (),
    unschedulable: bool = False,
    ready: str = "",
) -> Object:
    """Return a Node as the kubelet registers it; a label of value None is left out."""
    shown = {**platform(os, arch), names.HOSTNAME: name, **(labels or {})}
    spec: dict[str, Any] = {"taints": [dict(taint) for taint in taints]} if taints else {}
    status: dict[str, Any] = {"capacity": {"cpu": cpu, **(capacity or {})}}
    if ready:
        status["conditions"] = [{"type": "Ready", "status": ready}]
    return {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "labels": {key: value for key, value in shown.items() if value is not None},
            "annotations": dict(annotations or {}),
        },
        "spec": spec | ({"unschedulable": True} if unschedulable else {}),
        "status": status,
    }


def amd_labels(family: str = "23", model: str = "1") -> dict[str, str]:
    """Return what NFD says about an AMD CPU."""
    return cpu_labels("AMD", family, model)


def cpu_node(name: str, key: str = "generic", count: int = 4, **fields: Any) -> Object:
    """Return a managed CPU node with all labels merged."""
    labels = {**MERGED, **cpu_pool_labels(key, str(count)), **fields.pop("labels", {})}
    return node(name, labels=labels, cpu=str(count), **fields)


def gpu_node(name: str, key: str = "nvidia-a10g", count: int = 2, *, cpu: int = 4, **fields: Any) -> Object:
    """Return a managed accelerated node with all labels merged; its CPU is `generic` unless labels say otherwise."""
    details = fields.pop("details", {"product": "NVIDIA-A10G", "memory": "24Gi", "cores": "9216", "family": "ampere"})
    labels = {
        **MERGED,
        **cpu_pool_labels("generic", str(cpu)),
        **card_labels(key, str(count), **details),
        **fields.pop("labels", {}),
    }
    return node(name, labels=labels, cpu=str(cpu), **fields)


def epyc_node(name: str, *, cpu: str = "64") -> Object:
    """Return the node of the first worked example: NFD has spoken, we have not."""
    return node(name, labels=amd_labels(), annotations=cpu_annotations(name="AMD EPYC 7571"), cpu=cpu)
