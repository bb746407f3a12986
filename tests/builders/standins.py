"""The devcluster's stand-ins on an API in memory, and the objects they play with."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from hack.devcluster.standins.kubelet import KubeletNode, KubeletPods
from hack.devcluster.standins.kueue.pods import PodIntegration, workload_name
from hack.devcluster.standins.kueue.queues import ClusterQueueStatus, ResourceFlavorFinalizer
from hack.devcluster.standins.kueue.state import GATE, QUEUE_LABEL
from hack.devcluster.standins.kueue.transformations import transformations_of
from hack.devcluster.standins.kueue.workloads import WorkloadLife
from hack.devcluster.standins.nfd_master import NFDMaster
from hack.devcluster.standins.scheduler import Scheduler
from kube.reconciler import Object, Reconciler
from nodefeature.fields import as_maps, at
from nodefeature.kinds import CLUSTER_QUEUE, LOCAL_QUEUE, POD, RESOURCE_FLAVOR, WORKLOAD, Kind
from tests.builders.chain import manufacturers
from tests.builders.fake_api import Bench, FakeApi, FakeCaches, Write
from tests.builders.queues import cluster_queue, group
from tests.builders.virtual_clock import VirtualClock

CREDITS = "credits.gpustack.ai/nvidia"
CARD = "nvidia.com/gpu"
TYPES: tuple[type[Reconciler], ...] = (
    NFDMaster,
    ClusterQueueStatus,
    ResourceFlavorFinalizer,
    WorkloadLife,
    PodIntegration,
    Scheduler,
    KubeletNode,
    KubeletPods,
)
KUEUE = ("standin-kueue-clusterqueue", "standin-kueue-resourceflavor", "standin-kueue-workload", "standin-kueue-pod")


class Stage:
    """Some stand-ins, a cluster, virtual time."""

    def __init__(self, *names: str) -> None:
        """Play the named stand-ins; all of them when none is named."""
        assert set(names) <= {each.NAME for each in TYPES}, names
        self.api, self.clock = FakeApi(), VirtualClock()
        caches, client = FakeCaches(self.api, {}, TYPES), self.api.client()
        registry = manufacturers()
        every: list[Reconciler] = [
            NFDMaster(client.as_manager("nfd-master"), caches, self.clock),
            ClusterQueueStatus(client.as_manager("kueue"), caches, self.clock),
            ResourceFlavorFinalizer(client.as_manager("kueue"), caches),
            WorkloadLife(client.as_manager("kueue"), caches, self.clock, transformations=transformations_of(registry)),
            PodIntegration(client.as_manager("kueue"), caches, self.clock),
            Scheduler(client.as_manager("kube-scheduler"), caches, self.clock),
            KubeletNode(client.as_manager("kubelet"), caches, manufacturers=registry),
            KubeletPods(client.as_manager("kubelet"), caches, self.clock),
        ]
        self.bench = Bench(self.api, [r for r in every if not names or r.NAME in names], caches, self.clock)

    def run(self, seconds: float = 1.0) -> list[Write]:
        """Settle, let time pass; return the writes."""

        async def go() -> list[Write]:
            return [*await self.bench.settle(), *await self.bench.advance(seconds)]

        writes = asyncio.run(go())
        assert self.bench.errors == []
        return writes

    def condition(self, kind: Kind, name: str, of: str, namespace: str = "") -> tuple[str, str]:
        """Return status and reason of a condition; empty texts when there is none."""
        conditions = as_maps(at(self.api.get(kind, name, namespace), "status", "conditions"))
        found = next((c for c in conditions if c.get("type") == of), {})
        return str(found.get("status", "")), str(found.get("reason", ""))

    def workload(self, name: str) -> Object:
        """Return the Workload of a Pod in namespace default, or the Workload of that name."""
        for candidate in (workload_name(name), name):
            found = self.api.get(WORKLOAD, candidate, "default")
            if found is not None:
                return found
        raise AssertionError(f"no Workload for {name}")

    def state(self, name: str) -> str:
        """Return the conditions of a Workload that are true, joined."""
        conditions = as_maps(at(self.workload(name), "status", "conditions"))
        return " ".join(sorted(str(c["type"]) for c in conditions if c.get("status") == "True"))

    def queue(
        self,
        name: str = "pool",
        *,
        quotas: Mapping[str, str] | None = None,
        policy: str = "None",
        checks: Sequence[str] = (),
        resource: str = CREDITS,
    ) -> None:
        """Put a ClusterQueue, its flavors and a LocalQueue of the same name in namespace default there."""
        quotas = {"pool-4d": "6400k"} if quotas is None else quotas
        self.api.add(RESOURCE_FLAVOR, *(flavor(f) for f in quotas))
        self.api.add(CLUSTER_QUEUE, cluster_queue(name, policy=policy, groups=[group(resource, quotas)], checks=checks))
        local = {"metadata": {"name": name, "namespace": "default"}, "spec": {"clusterQueue": name}}
        self.api.add(LOCAL_QUEUE, local)

    def run_pod(self, name: str) -> None:
        """Let a Pod be running."""
        self.api.edit(POD, name, {"status": {"phase": "Running"}}, "default")


def flavor(name: str, *, labels: Mapping[str, str] | None = None, topology: str = "") -> Object:
    """Return a ResourceFlavor."""
    spec: dict[str, Any] = {"nodeLabels": dict(labels or {}), "tolerations": [{"operator": "Exists"}]}
    return {"metadata": {"name": name}, "spec": {**spec, **({"topologyName": topology} if topology else {})}}


def pod(
    name: str = "p",
    *,
    limits: Mapping[str, object] | None = None,
    queue: str = "",
    phase: str = "Pending",
    **spec: Any,
) -> Object:
    """Return a Pod in namespace default; with a queue it carries Kueue's gate."""
    metadata: dict[str, Any] = {"name": name, "namespace": "default"}
    container = {"name": "main", "image": "example/app:1", "resources": {"limits": dict(limits or {})}}
    body: dict[str, Any] = {"containers": [container], **spec}
    if queue:
        metadata["labels"] = {QUEUE_LABEL: queue}
        body.setdefault("schedulingGates", [{"name": GATE}])
    return {"metadata": metadata, "spec": body, "status": {"phase": phase}}


def workload(
    name: str = "w",
    *,
    limits: Mapping[str, object] | None = None,
    queue: str = "pool",
    priority: int = 0,
    created: str = "2026-01-01T00:00:00Z",
    active: bool = True,
    status: Mapping[str, Any] | None = None,
) -> Object:
    """Return a Workload in namespace default that no Pod owns."""
    template = {"spec": pod(limits={CARD: "1"} if limits is None else limits)["spec"]}
    return {
        "metadata": {"name": name, "namespace": "default", "creationTimestamp": created},
        "spec": {
            "active": active,
            "queueName": queue,
            "priority": priority,
            "podSets": [{"name": "main", "count": 1, "template": template}],
        },
        "status": dict(status or {}),
    }
