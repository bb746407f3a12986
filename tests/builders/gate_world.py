"""Gate 3 on an API in memory: nodes with eight cards, Workloads, Pods, records."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from controllers.node_devices_admission import NodeDevicesAdmission
from kube.client import Client
from kube.reconciler import Caches, Object
from nodefeature.fields import as_maps, at
from nodefeature.kinds import ADMISSION_CHECK, DEVICES, NODE, POD, RESOURCE_FLAVOR, WORKLOAD
from nodefeature.manufacturers import build_manufacturers
from tests.builders.chain import bench
from tests.builders.fake_api import Bench, FakeApi, Write
from tests.builders.gate import GPU
from tests.builders.inventory import devices, group, logical_cards, row
from tests.builders.nodes import gpu_node
from tests.builders.queues import admission_check, device_flavor
from tests.builders.virtual_clock import VirtualClock

CHECK = "gpustack-node-devices"
CONTROLLER = "worker.gpustack.ai/node-devices"
CARDS = 8


def gate_devices(
    name: str, *rows: Mapping[str, Any], cards: int = CARDS, labels: Mapping[str, str] | None = None
) -> Object:
    """Return the Devices of a node; cards without a row given are free."""
    given = {shown["id"]: shown for shown in rows}
    ledger = [given.get(f"card-{n}", row(n)) for n in range(cards)]
    shown = {k: v for k, v in device_flavor()["spec"]["nodeLabels"].items() if not k.endswith(".count")}
    return devices(
        name,
        group("nvidia", "a10g", logical_cards(cards), memory=24_576),
        ledger=[{"id": "a10g", "manufacturer": "nvidia", "accelerators": ledger}],
        labels={**shown, **(labels or {})},
    )


def gate_pod(
    name: str,
    *,
    uid: str,
    node: str = "",
    limits: Mapping[str, Any] | None = None,
    record: str | Sequence[Mapping[str, Any]] | None = None,
    workload: str = "",
    phase: str = "Pending",
    **more: Any,
) -> Object:
    """Return a Pod that was queued; `record` is its annotation's text, or the cards of its one container."""
    annotations: dict[str, str] = {}
    if isinstance(record, str):
        annotations["device.gpustack.ai/accelerator.allocated"] = record
    elif record is not None:
        groups = [{"id": "a10g", "manufacturer": "nvidia", "accelerators": list(record)}]
        annotations["device.gpustack.ai/accelerator.allocated"] = json.dumps({"c0": {"devices": {"groups": groups}}})
    if workload:
        annotations["kueue.x-k8s.io/workload"] = workload
    container = {"name": "c0", "resources": {"limits": dict(limits or {GPU: "1"})}}
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": uid,
            "labels": {"kueue.x-k8s.io/queue-name": "q"},
            "annotations": annotations,
            **more.pop("metadata", {}),
        },
        "spec": {"containers": [container], **({"nodeName": node} if node else {})},
        "status": {"phase": phase, **more},
    }


def whole(number: int) -> dict[str, Any]:
    """Return a record's row, or a ledger's, of a card that is held whole."""
    return {"id": f"card-{number}", "index": number, "mode": 1, "allocated": 1_600_000}


def taken(*numbers: int) -> list[dict[str, Any]]:
    """Return ledger rows of cards that are held whole."""
    return [row(number, remaining=0, mode=1) for number in numbers]


class GateWorld:
    """A cluster with `nodes` of eight A10G cards, the flavor behind them and our check."""

    def __init__(self, *nodes: str, cards: int = CARDS) -> None:
        self.api = FakeApi()
        self.clock = VirtualClock()
        self.cards = cards
        self.api.add(RESOURCE_FLAVOR, device_flavor(count=cards))
        self.api.add(ADMISSION_CHECK, admission_check(CHECK, CONTROLLER))
        for name in nodes:
            self.join(name)
        self.gate: NodeDevicesAdmission
        self.restart()

    def restart(self) -> None:
        """Let another leader begin, with empty memory."""
        self.bench: Bench = bench(self.api, (), clock=self.clock, others=[self._gate])

    def _gate(self, client: Client, caches: Caches) -> NodeDevicesAdmission:
        self.gate = NodeDevicesAdmission(client, caches, manufacturers=build_manufacturers({}), clock=self.clock)
        return self.gate

    def join(self, name: str, **node: Any) -> None:
        """Let a node with free cards join."""
        self.api.add(NODE, gpu_node(name, count=self.cards, **node))
        self.api.add(DEVICES, gate_devices(name, cards=self.cards))

    def publish(self, name: str, *rows: Mapping[str, Any]) -> None:
        """Let a node's agent publish; cards without a row are free."""
        self.api.add(DEVICES, gate_devices(name, *rows, cards=self.cards))

    def ask(self, *workloads: Object) -> None:
        """Let Kueue reserve quota for Workloads."""
        self.api.add(WORKLOAD, *workloads)

    def start(self, *pods: Object) -> None:
        """Let Pods be there."""
        self.api.add(POD, *pods)

    def run(self, seconds: float = 0.0) -> list[Write]:
        """Settle, let time pass; return the writes."""

        async def go() -> list[Write]:
            writes = await self.bench.settle()
            return [*writes, *(await self.bench.advance(seconds) if seconds else ())]

        writes = asyncio.run(go())
        assert self.bench.errors == []
        return writes

    def state(self, name: str = "w") -> str:
        """Return what our check says on a Workload."""
        return str(self.check(name)["state"])

    def message(self, name: str = "w") -> str:
        """Return our check's message on a Workload."""
        return str(self.check(name)["message"])

    def check(self, name: str = "w") -> Mapping[str, Any]:
        """Return our check's element."""
        workload = self.api.get(WORKLOAD, name, "default")
        return next(c for c in as_maps(at(workload, "status", "admissionChecks")) if c.get("name") == CHECK)

    def states(self) -> dict[str, int]:
        """Return how many Workloads are in which state."""
        found: dict[str, int] = {}
        for key in self.api.store[WORKLOAD]:
            state = self.state(key.name)
            found[state] = found.get(state, 0) + 1
        return found

    def edit(self, name: str, change: Callable[[Object], None]) -> None:
        """Change a stored Workload as Kueue does."""
        workload = json.loads(json.dumps(self.api.get(WORKLOAD, name, "default")))
        change(workload)
        self.api.add(WORKLOAD, workload)

    def conditions(self, name: str, **status: bool) -> None:
        """Set conditions of a Workload: `Admitted=True`."""

        def change(workload: Object) -> None:
            others = [c for c in workload["status"]["conditions"] if c["type"] not in status]
            stamp = "2026-01-01T00:00:00Z"
            shown = [
                {"type": kind, "status": str(value), "reason": kind, "message": "", "lastTransitionTime": stamp}
                for kind, value in status.items()
            ]
            workload["status"]["conditions"] = [*others, *shown]

        self.edit(name, change)
