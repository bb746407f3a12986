"""Pods, pools and questions as the tables of spec 05 write them, and a world that answers from dicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

from api.settings import DEFAULTS, Settings
from apiserver.webhooks.patches import Operation
from apiserver.webhooks.review import Request
from kube.errors import Unreachable
from kube.reconciler import Object
from nodefeature.fields import labels_of, name_of
from nodefeature.labels import QUEUE_ENTRANCE, QUEUE_NAME, SYSTEM_NAMESPACE
from nodefeature.manufacturers import Manufacturers, build_manufacturers

REGISTRY = build_manufacturers({})
QUEUE = "gpustack-fnv64-199cb01104a7efc8"
GROUP = "nvidia-h100"


class DictWorld:
    """A world of plain objects. `down`: nothing beyond memory can be read."""

    def __init__(
        self,
        *types: Object,
        nodes: Sequence[str] = (),
        queues: Mapping[str, str] | None = None,
        settings: Settings = DEFAULTS,
        cached: bool = True,
        down: bool = False,
        digit_first: bool = True,
    ) -> None:
        self.registry: Manufacturers = REGISTRY
        self.system_namespace = SYSTEM_NAMESPACE
        self.types = types
        self.nodes = nodes
        self.queues = dict(queues or {})
        self.in_force = settings
        self.cached = cached
        self.down = down
        self.digit_first = digit_first
        self.asked: list[str] = []

    def settings(self) -> Settings:
        return self.in_force

    def types_known(self, entrance: str) -> Sequence[Object]:
        return self._behind(entrance) if self.cached else ()

    async def types_behind(self, entrance: str) -> Sequence[Object]:
        self._ask(f"types behind {entrance}")
        return self._behind(entrance)

    async def instance_type(self, name: str) -> Object | None:
        self._ask(f"type {name}")
        return next((found for found in self.types if name_of(found) == name), None)

    async def node_exists(self, name: str) -> bool:
        self._ask(f"node {name}")
        return name in self.nodes

    async def services_may_begin_with_a_digit(self) -> bool:
        self._ask("version")
        return self.digit_first

    async def pool_of(self, namespace: str, local_queue: str) -> Object | None:
        self._ask(f"pool of {namespace}/{local_queue}")
        named = self.queues.get(local_queue, "")
        return next((found for found in self.types if name_of(found) == named), None)

    def _behind(self, entrance: str) -> Sequence[Object]:
        return tuple(found for found in self.types if labels_of(found).get(QUEUE_ENTRANCE) == entrance)

    def _ask(self, what: str) -> None:
        self.asked.append(what)
        if self.down:
            raise Unreachable("the API server cannot be reached")


def pool(
    name: str = "gpustack-nvidia-h100-linux-amd64",
    *,
    memory: str = "80Gi",
    profiles: Mapping[str, int] | None = None,
    manufacturer: str = "nvidia",
    slices: int = 128,
    group: str = GROUP,
    entrance: str = QUEUE,
    unit: tuple[str, str] = ("16", "40Gi"),
    cards: int = 8,
    cores: int = 0,
    storage: str = "100Gi",
) -> Object:
    """Return an InstanceType; without a group one of CPUs."""
    physical = [{"name": n, "count": 7, "memoryMib": m} for n, m in (profiles or {}).items()]
    detail: dict[str, Any] = {
        "manufacturer": manufacturer,
        "memory": memory,
        "slicedDetail": {
            "logical": {"count": slices},
            "physical": {"count": len(physical) and 7, "profiles": physical},
        },
    }
    return {
        "apiVersion": "worker.gpustack.ai/v1alpha1",
        "kind": "InstanceType",
        "metadata": {"name": name, "labels": {QUEUE_ENTRANCE: entrance}},
        "spec": {
            "acceleratable": bool(group),
            **({"acceleratorGroup": group} if group else {}),
            "generalGroup": "generic",
            "os": "linux",
            "arch": "amd64",
            "unitResources": {"cpu": unit[0], "ram": unit[1]},
            "localStorage": storage,
        },
        "status": {
            "phase": "Active",
            "detail": detail if group else {},
            "accelerator": {"onceMaxRequest": "0", "remaining": "0", "capacity": str(cards)},
            "cpu": {"onceMaxRequest": "0", "remaining": "0", "capacity": str(cores)},
        },
    }


POOLS: Mapping[str, tuple[Object, ...]] = {
    "none": (),
    "40Gi": (pool(memory="40960Mi"),),
    "80Gi": (pool(memory="81920Mi", profiles={"1g.10gb": 10240, "2g.20gb": 20480}),),
    "96Gi": (pool(memory="98304Mi", profiles={"4g.48gb": 49152, "7g.96gb": 98304}),),
    "no memory": (pool(memory=""),),
    "no manufacturer": (pool(manufacturer=""),),
    "no profile memory": (pool(profiles={"1g.10gb": 0}),),
    "two types": (pool("a"), pool("b")),
    "unreadable": (),
}


def pod(containers: Sequence[Mapping[str, Any]], *, queue: str = QUEUE, **metadata: Any) -> Object:
    """Return a Pod of a table's containers: `group` is init, side or app, `asks` are its requests and limits."""
    lists: dict[str, list[Any]] = {"initContainers": [], "containers": []}
    for number, container in enumerate(containers):
        asks = dict(container.get("asks", {}))
        built: dict[str, Any] = {"name": f"c{number}", "image": "registry.example/sleep:1"}
        if asks:
            built["resources"] = {"requests": asks, "limits": dict(asks)}
        if container.get("env"):
            built["env"] = container["env"]
        if container.get("group") == "side":
            built["restartPolicy"] = "Always"
        lists["containers" if container.get("group", "app") == "app" else "initContainers"].append(built)
    labels = {"labels": {QUEUE_NAME: queue}} if queue else {}
    spec = {name: listed for name, listed in lists.items() if listed}
    meta = {"name": "p", "namespace": "team-a", **labels, **metadata}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def question(obj: Mapping[str, Any], old: Mapping[str, Any] | None = None, **fields: Any) -> Request:
    """Return the question about a creation, or with `old` about an update."""
    given: dict[str, Any] = {
        "uid": "1",
        "operation": "CREATE" if old is None else "UPDATE",
        "name": name_of(obj),
        "namespace": obj.get("metadata", {}).get("namespace", ""),
        "object": obj,
        "old": old or {},
    }
    return Request(**{**given, **fields})


def patched(obj: Mapping[str, Any], patch: Sequence[Operation]) -> Any:
    """Return an object after a patch, applied by the letter of RFC 6902."""
    out: Any = deepcopy(dict(obj))
    for operation in patch:
        parent = out
        for step in operation.path[:-1]:
            parent = parent[step]
        if operation.op == "remove":
            del parent[operation.path[-1]]
        else:
            parent[operation.path[-1]] = deepcopy(operation.value)
    return out


def _named(**fields: Any) -> tuple[Object, ...]:
    return (pool("pool", **fields),)


INSTANCE_POOLS: Mapping[str, tuple[Object, ...]] = {
    "absent": (),
    "sliceable": _named(unit=("16", "40Gi")),
    "capacity 4": _named(cards=4),
    "capacity 2": _named(cards=2),
    "cpu 48": _named(group="", unit=("1", "2Gi"), cores=48, storage="64Gi"),
    "cpu 0": _named(group="", unit=("1", "2Gi")),
    "unit 2/4Gi": _named(unit=("2", "4Gi")),
    "partitioned": _named(profiles={"2g.20gb": 20480, "3g.40gb": 40960}),
    "all partitioned": _named(profiles={"2g.20gb": 20480, "3g.40gb": 40960}, cards=0, slices=0),
    "ascend": _named(manufacturer="ascend", group="ascend-910b"),
    "not ready": _named(manufacturer=""),
}


def instance(phase: str = "", **spec: Any) -> Any:
    """Return an Instance of type `pool`; keywords replace fields of its spec, None takes one away."""
    whole: dict[str, Any] = {
        "type": "pool",
        "image": "registry.example/app:1",
        "imagePullPolicy": "IfNotPresent",
        "volumeMount": "/workspace",
        "resources": {"cpu": "1", "ram": "1Gi", "localStorage": "1Gi", "accelerator": "1"},
        "volume": {"ephemeral": {"capacity": "1Gi"}},
        **spec,
    }
    return {
        "apiVersion": "worker.gpustack.ai/v1alpha1",
        "kind": "Instance",
        "metadata": {"name": "box", "namespace": "team-a"},
        "spec": {key: value for key, value in whole.items() if value is not None},
        **({"status": {"phase": phase}} if phase else {}),
    }
