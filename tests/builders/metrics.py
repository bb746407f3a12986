"""Builds Instances' Pods, meters and scrapes."""

from __future__ import annotations

import json
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from devicemanager.answers import Failed
from devicemanager.usage import CardUsage, Measured

Series = dict[str, dict[tuple[tuple[str, str], ...], float]]


class StillMeter:
    """Answers the same until it is told otherwise; counts how often it was asked."""

    def __init__(self, *cards: CardUsage, manufacturer: str = "nvidia") -> None:
        self.answer: Measured | Failed = Measured(cards)
        self.asked = 0
        self._manufacturer = manufacturer

    async def measure(self, manufacturer: str) -> Measured | Failed:
        self.asked += 1
        return self.answer if manufacturer == self._manufacturer else Measured(())


def group(*cards: str, memory: int = 81920, manufacturer: str = "nvidia", **fields: Any) -> dict[str, Any]:
    """Return a device group."""
    listed = [{"id": card, "index": index, "status": {"unhealthy": False}} for index, card in enumerate(cards)]
    body = {"id": "h100", "manufacturer": manufacturer, "name": "NVIDIA H100", "memory": memory, "accelerators": listed}
    return body | fields


def instance_pod(
    name: str,
    uid: str = "",
    /,
    *,
    allocated: list[dict[str, Any]] | None = None,
    limits: dict[str, str] | None = None,
    **metadata: Any,
) -> dict[str, Any]:
    """Return the Pod of Instance `default/<name>`, by default with 2 CPU, 4 GiB and 10 GiB."""
    uid = uid or f"uid-{name}"
    owner = {
        "apiVersion": "worker.gpustack.ai/v1alpha1",
        "kind": "Instance",
        "name": name,
        "uid": uid,
        "controller": True,
    }
    annotations = {}
    if allocated is not None:
        groups = [{"id": "h100", "manufacturer": "nvidia", "accelerators": allocated}]
        annotations["device.gpustack.ai/accelerator.allocated"] = json.dumps({"main": {"devices": {"groups": groups}}})
    return {
        "metadata": {
            "name": f"{name}-pod",
            "namespace": "default",
            "uid": f"pod-{uid}",
            "labels": {"app.kubernetes.io/part-of": uid},
            "ownerReferences": [owner],
            "annotations": annotations,
            "creationTimestamp": "2026-01-01T00:00:00Z",
        }
        | metadata,
        "spec": {
            "containers": [
                {
                    "name": "main",
                    "resources": {
                        "limits": {"cpu": "2", "memory": "4Gi", "ephemeral-storage": "10Gi"} | (limits or {})
                    },
                }
            ]
        },
    }


def manager_pod(name: str, manufacturer: str = "nvidia", /, *, ready: bool = True, **metadata: Any) -> dict[str, Any]:
    """Return a device manager's Pod."""
    labels = {"app.kubernetes.io/component": "device-manager"}
    if manufacturer:
        labels["gpustack.ai/manufacturer"] = manufacturer
    return {
        "metadata": {"name": name, "namespace": "gpustack-system", "labels": labels} | metadata,
        "status": {"conditions": [{"type": "Ready", "status": "True" if ready else "False"}]},
    }


def summary(*uids: str) -> dict[str, Any]:
    """Return the kubelet's summary in which each Pod uses 500m, 1 GiB and 3 GiB."""
    return {
        "pods": [
            {
                "podRef": {"uid": uid},
                "cpu": {"usageNanoCores": 500_000_000},
                "memory": {"workingSetBytes": 2**30},
                "ephemeral-storage": {"usedBytes": 3 * 2**30},
            }
            for uid in uids
        ]
    }


def scrape(collector: Collector) -> Series:
    """Return what a scrape shows: family -> labels -> value."""
    registry = CollectorRegistry()
    registry.register(collector)
    text = generate_latest(registry).decode()
    return {
        family.name: {tuple(sorted(sample.labels.items())): sample.value for sample in family.samples}
        for family in text_string_to_metric_families(text)
    }


def values(series: Series, family: str, label: str) -> dict[str, float]:
    """Return a family's values by one label."""
    return {dict(labels)[label]: value for labels, value in series.get(family, {}).items()}
