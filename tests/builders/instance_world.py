"""A world of one Instance, its pool and the controller, on an API in memory."""

from __future__ import annotations

import asyncio
from typing import Any

from kube.reconciler import Key, Object
from nodefeature.kinds import CLUSTER_QUEUE, EVENT, INSTANCE, INSTANCE_TYPE, NODE, POD, SERVICE
from tests.builders.chain import bench
from tests.builders.fake_api import Bench, FakeApi
from tests.builders.instances import instance, pool_type, queue, running

NS = "team-a"
KEY = Key("box", NS)
HELD = ("test/held",)
"""A finalizer: the Pod stays while it is being deleted, as under a kubelet that ends its containers."""
NODE_1 = {
    "metadata": {"name": "node-1", "labels": {"kubernetes.io/hostname": "node-1.internal"}},
    "status": {
        "addresses": [
            {"type": "InternalIP", "address": "10.0.0.5"},
            {"type": "ExternalIP", "address": "198.51.100.7"},
            {"type": "Hostname", "address": "node-1"},
        ]
    },
}


class World:
    """One Instance, its pool, and the controller."""

    def __init__(self, *objects: tuple[Any, Object], pool: Object | None = None, with_pool: bool = True) -> None:
        self.api = FakeApi()
        if with_pool:
            self.api.add(INSTANCE_TYPE, pool or pool_type())
            self.api.add(CLUSTER_QUEUE, queue())
        self.api.add(NODE, NODE_1)
        for kind, obj in objects:
            self.api.add(kind, obj)
        self.bench: Bench = bench(self.api, ("instance",))

    def run(self, seconds: float = 0.0) -> list[str]:
        """Settle, let time pass; return our writes, Events aside."""

        async def go() -> list[Any]:
            writes = await self.bench.settle()
            return writes + (await self.bench.advance(seconds) if seconds else [])

        writes = asyncio.run(go())
        assert self.bench.errors == [], self.bench.errors
        return [f"{w.verb} {w.kind.kind}" for w in writes if w.kind != EVENT]

    @property
    def instance(self) -> Any:
        return self.api.get(INSTANCE, "box", NS)

    @property
    def status(self) -> Any:
        return self.instance.get("status", {})

    @property
    def pod(self) -> Any:
        return self.api.get(POD, "box", NS)

    @property
    def service(self) -> Any:
        return self.api.get(SERVICE, "box", NS)

    def condition(self, kind: str) -> Any:
        return next(c for c in self.status["conditions"] if c["type"] == kind)

    def reasons(self) -> list[str]:
        return [f"{c['type']}={c['status']} {c['reason']}" for c in self.status["conditions"]]

    def events(self) -> list[str]:
        return [event["reason"] for event in self.api.store[EVENT].values()]

    def due(self) -> float | None:
        """Return in how many seconds the Instance is looked at again."""
        moment = self.bench.due.get((0, KEY))
        return None if moment is None else moment - self.bench.clock.now()

    def play(self, **fields: Any) -> None:
        """Let scheduler, kubelet or Kueue write on the Pod."""
        self.api.edit(POD, "box", fields, NS)

    def publish_ports(self) -> None:
        """Give the Service its node ports, as kube-apiserver does."""
        ports = [{**p, "nodePort": 30000 + p["port"] % 1000} for p in self.service["spec"]["ports"]]
        self.api.edit(SERVICE, "box", {"spec": {"ports": ports}}, NS)


def running_world(*objects: tuple[Any, Object], annotations: Any = None, **spec: Any) -> World:
    """Return a world in which the Instance's Pod runs and is ready."""
    of = instance(**spec)
    world = World((INSTANCE, of), *objects)
    world.run()
    world.play(
        metadata={"annotations": annotations or {}},
        spec={"schedulingGates": None, "nodeName": "node-1"},
        status=running(),
    )
    world.run()
    return world


def statused(obj: Object, phase: str, **more: Any) -> Object:
    return {**obj, "status": {"phase": phase, **more}}
