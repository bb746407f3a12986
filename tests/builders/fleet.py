"""Machines as the chain first meets them, and the whole chain on an API in memory.

For: tests that run every reconciler together. A machine is a Node with what the kubelet and NFD say, and, with cards,
the NodeFeature and the Devices object that its agent publishes. Nothing of ours is there yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from controllers import RECONCILERS
from controllers.queue_checks import NODE_DEVICES_CONTROLLER
from kube.reconciler import Object
from nodefeature.fields import as_maps, at
from nodefeature.kinds import (
    ADMISSION_CHECK,
    CLUSTER_QUEUE,
    DEVICES,
    INSTANCE_TYPE,
    NAMESPACE,
    NODE,
    NODE_FEATURE,
    RESOURCE_FLAVOR,
)
from nodefeature.labels import DEVICE_PREFIX
from nodefeature.queue_names import NODE_DEVICES_CHECK
from tests.builders import instance_types
from tests.builders.chain import bench, ours, set_settings
from tests.builders.fake_api import FakeApi, Write
from tests.builders.instance_types import Card
from tests.builders.node_features import NfdMaster, card_feature
from tests.builders.node_labels import cpu_annotations, cpu_labels, platform
from tests.builders.nodes import node
from tests.builders.queues import admission_check, namespace
from tests.builders.tiny_kueue import TinyKueue


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine; without `cards` a CPU one."""

    name: str
    cores: int
    vendor: str = ""
    cpu: str = ""
    group: str = ""
    cards: Sequence[Card] = ()
    product: str = ""
    memory: str = ""
    family: str = ""
    card_cores: str = "0"
    arch: str = "amd64"
    runtime: str = ""

    def objects(self) -> dict[Any, list[Object]]:
        """Return the objects that exist before we have done anything."""
        identity = cpu_labels(self.vendor, "23", "1") if self.vendor else {}
        annotations = cpu_annotations(name=self.cpu) if self.cpu else {}
        found: dict[Any, list[Object]] = {
            NODE: [node(self.name, labels=identity, annotations=annotations, arch=self.arch, cpu=str(self.cores))]
        }
        if self.cards:
            details = {"product": self.product, "memory": self.memory, "family": self.family, "cores": self.card_cores}
            found[NODE_FEATURE] = [card_feature(self.name, self.group, len(self.cards), **details)]
            found[DEVICES] = [self.devices(self.cards)]
        return found

    def devices(self, cards: Sequence[Card]) -> Object:
        """Return the agent's Devices object: labels without counts, inventory and ledger."""
        maker = DEVICE_PREFIX + self.group.partition("-")[0]
        return instance_types.devices(
            self.name,
            cards,
            group=self.group,
            managed=False,
            labels={**platform("linux", self.arch), maker: "true"},
            arch=self.arch,
            runtime=self.runtime,
        )


class Chain:
    """All reconcilers of ours, an NFD master and a tiny Kueue, on an API in memory and in virtual time."""

    def __init__(
        self, *machines: Machine, seeds: dict[str, str] | None = None, aware: str = "", **settings: str
    ) -> None:
        self.api = FakeApi()
        self.set(aware=aware, **settings)
        self.api.add(NAMESPACE, namespace("default"), namespace("kube-system"))
        self.api.add(ADMISSION_CHECK, admission_check(NODE_DEVICES_CHECK, NODE_DEVICES_CONTROLLER))
        for machine in machines:
            self.join(machine)
        self.seeds = seeds
        self.restart()

    def restart(self) -> None:
        """Start all processes anew; what they kept in memory is lost."""
        every = [r.NAME for r in RECONCILERS]
        self.bench = bench(self.api, every, seeds=self.seeds, others=(NfdMaster, TinyKueue))
        nfd, kueue = self.bench.reconcilers[-2:]
        assert isinstance(nfd, NfdMaster)
        assert isinstance(kueue, TinyKueue)
        self.nfd, self.kueue = nfd, kueue

    def join(self, machine: Machine) -> None:
        """Let a machine join the cluster."""
        for kind, objects in machine.objects().items():
            self.api.add(kind, *objects)

    def set(self, *, aware: str = "", **settings: str) -> None:
        """Replace the settings; `aware` stands for `instance-type-aware-cpu-manufacturer`."""
        values = {**settings, **({"instance_type_aware_cpu_manufacturer": aware} if aware else {})}
        if values:
            set_settings(self.api, **values)

    def run(self, seconds: float = 30.0) -> list[Write]:
        """Settle, let time pass; return the writes of ours."""

        async def go() -> list[Write]:
            writes = await self.bench.settle()
            writes += await self.bench.advance(seconds)
            return [*ours(writes), *(w for w in writes if w.verb == "delete")]

        return asyncio.run(go())

    def flavors(self) -> list[str]:
        """Return the names of the flavors."""
        return self.api.names(RESOURCE_FLAVOR)

    def types(self) -> list[str]:
        """Return the names of the types."""
        return self.api.names(INSTANCE_TYPE)

    def type(self, name: str) -> Object:
        """Return a type."""
        found = self.api.get(INSTANCE_TYPE, name)
        assert found is not None, f"no type {name} among {self.types()}"
        return found

    def queue(self, name: str) -> Object:
        """Return a queue."""
        found = self.api.get(CLUSTER_QUEUE, name)
        assert found is not None
        return found

    def quotas(self, name: str) -> dict[str, str]:
        """Return a queue's quotas by flavor, in their order."""
        groups = as_maps(at(self.queue(name), "spec", "resourceGroups"))
        return {f["name"]: f["resources"][0]["nominalQuota"] for g in groups for f in g["flavors"]}

    def row(self, name: str) -> tuple[str, str, str, str]:
        """Return a type's printed columns: unit, EX/SH/SL/PT, CPU, phase."""
        status = self.type(name)["status"]
        summary = status["summary"]
        return summary["unit"], summary["accelerator"], summary["cpu"], status["phase"]

    def view(self, name: str, field: str) -> tuple[str, str, str]:
        """Return one view: once, remaining, capacity."""
        view = self.type(name)["status"][field]
        return view["onceMaxRequest"], view["remaining"], view["capacity"]
