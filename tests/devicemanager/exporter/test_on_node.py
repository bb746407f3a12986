"""The exporter over an agent's caches."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from devicemanager.exporter.exporter import Identity
from devicemanager.exporter.on_node import node_exporter
from devicemanager.usage import CardUsage
from kube.client import Client
from kube.reconciler import Caches, Key, Object
from nodefeature.kinds import DEVICES, POD
from tests.builders.metrics import StillMeter, group, instance_pod, manager_pod, scrape, summary, values
from tests.builders.virtual_clock import VirtualClock


class Listed:
    """A cache with given objects."""

    def __init__(self, *objects: Object) -> None:
        self.objects = objects

    def get(self, key: Key) -> Object | None:
        return next((obj for obj in self.objects if obj["metadata"]["name"] == key.name), None)

    def list(self) -> list[Object]:
        return list(self.objects)


class Kubelet:
    async def get_path(self, _path: str, _query: object = ()) -> dict[str, Any]:
        return summary("pod-uid-a")


def test_only_the_managers_own_manufacturers_are_measured() -> None:
    devices = {"metadata": {"name": "gpu-a"}, "spec": {"groups": [group("GPU-0"), group("AMD-0", manufacturer="amd")]}}
    held = [{"id": "GPU-0", "index": 0, "mode": 1, "allocated": 1_600_000}]
    foreign = manager_pod("other", "amd", namespace="elsewhere")
    pods = Listed(instance_pod("a", allocated=held), manager_pod("me"), foreign)
    exporter = node_exporter(
        cast(Client, Kubelet()),
        VirtualClock(),
        Identity("gpu-a", "me", "gpustack-system"),
        StillMeter(CardUsage("GPU-0", cores=7), CardUsage("AMD-0", cores=9)),
        cast(Caches, {DEVICES: Listed(devices), POD: pods}),
        manufacturers=("nvidia",),
        period_s=15,
    )
    asyncio.run(exporter.run_round())
    series = scrape(exporter.collector)
    assert values(series, "gpustack_instance_accelerator_cores_utilization_percent", "id") == {"GPU-0": 7}
    assert values(series, "gpustack_instance_cpu_used_millicores", "instance_name") == {"a": 500}
    body = exporter.snapshot_text()
    assert body is not None
    assert [maker["manufacturer"] for maker in body["groups"]] == ["nvidia"]
