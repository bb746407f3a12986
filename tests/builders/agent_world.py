"""A node with a real device plugin in front of a kubelet stand-in, over Unix sockets; the API server is in memory.

`AgentWorld.start_agent` and `kill_agent` play the life of the agent's process: what is killed leaves only what it had
written. What survives it: the API server, the kubelet, the simulated hardware.
"""

from __future__ import annotations

import asyncio
import copy
import random
import tempfile
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import orjson

from api.ledger.placements import Placement, overlaps
from api.pod_requests import Claim
from devicemanager.kubelet.allocator import Allocator, AllocatorOptions
from devicemanager.kubelet.grant import (
    Grant,
    Injection,
    InjectionRefused,
    Injector,
    Partition,
    PartitionRefused,
    PartitionRequest,
)
from devicemanager.kubelet.plugin_manager import MODES, PluginManager
from devicemanager.kubelet.pod_resources import PodResources
from devicemanager.kubelet.serving import KubeletSocket
from devicemanager.kubelet.visibility import Shower
from devicemanager.ledger.node_ledger import PODS_BY_NODE, NodeLedger
from devicemanager.ledger.publishing import LedgerPublisher
from hack.kubelet.kubelet import Kubelet
from kube.client import Client
from kube.clock import Clock, SystemClock
from kube.connection import Connection
from kube.errors import OperatorError
from kube.reconciler import After, Key, Object
from kube.requests import Request
from kube.store import Store
from nodefeature.fields import as_str, at, name_of, namespace_of, uid_of
from nodefeature.kinds import DEVICES, POD, Kind
from nodefeature.manufacturers import Manufacturers, build_manufacturers
from tests.builders.fake_api import Change, FakeApi, refusal

REGISTRY = build_manufacturers({})
NODE_NAME = "gpu-a"
QUICK = AllocatorOptions(again_s=0.01, again_times=2, give_back_s=0.01, slowest_give_back_s=0.05)


Step = Callable[[str], Awaitable[None]]


class Hardware:
    """Simulated partitions of all cards: placement -> (Pod uid, container, partition id)."""

    def __init__(self) -> None:
        self.live: dict[tuple[str, Placement], tuple[str, str, str]] = {}
        self.serial = 0

    def owner_of(self, request: PartitionRequest) -> Partition | None:
        for (card, placement), (uid, container, name) in self.live.items():
            if card == request.card.get("id") and (uid, container) == (request.pod_uid, request.container):
                return Partition(placement, name, rebound=True)
        return None


class SimulatedPartitions:
    """Binds partitions on `Hardware`; `before`/`after` may fail or kill."""

    def __init__(self, hardware: Hardware, step: Step) -> None:
        self.hardware = hardware
        self._step = step

    async def bind(self, request: PartitionRequest) -> Partition:
        await self._step("before bind")
        own = self.hardware.owner_of(request)
        if own is not None and own.placement == request.placement:
            return own
        card = as_str(request.card.get("id"))
        for (other, placement), (uid, _, _) in list(self.hardware.live.items()):
            if other == card and overlaps(placement, request.placement):
                raise PartitionRefused(f"card {card} has no free placement: {placement} is {uid}'s", full=True)
        self.hardware.serial += 1
        name = f"MIG-{self.hardware.serial}"
        self.hardware.live[card, request.placement] = (request.pod_uid, request.container, name)
        await self._step("after bind")
        return Partition(request.placement, name, created=True)

    async def unbind(self, request: PartitionRequest, partition: Partition) -> None:
        if partition.created:
            self.hardware.live.pop((as_str(request.card.get("id")), partition.placement), None)

    async def live(self, pods: frozenset[str]) -> None:
        for place, (uid, _, _) in list(self.hardware.live.items()):
            if uid not in pods:
                del self.hardware.live[place]


class RecordingInjector:
    """Answers with the granted cards; refuses or kills when told to."""

    def __init__(self, step: Step) -> None:
        self.grants: list[Grant] = []
        self.refuse = ""
        self.crash: Exception | None = None
        self._step = step

    async def inject(self, grant: Grant) -> Injection:
        await self._step("before inject")
        if self.crash is not None:
            raise self.crash
        if self.refuse:
            raise InjectionRefused(self.refuse)
        self.grants.append(grant)
        await self._step("after inject")
        shown = [c.partition.physical_id if c.partition else as_str(c.card.get("id")) for c in grant.cards]
        return Injection(envs={"VISIBLE": ",".join(shown), "POD": uid_of(grant.pod)})

    def window(
        self, claim: Claim, group: Mapping[str, Any], card: Mapping[str, Any], occupied: Sequence[Placement]
    ) -> Placement | None:
        return None


class AgentWorld:
    """One node."""

    def __init__(self, root: Path, groups: Sequence[Mapping[str, Any]], *, rng: random.Random | None = None) -> None:
        self.root = root
        self.rng = rng or random.Random(1)
        self.api = FakeApi()
        self.changes = Changes()
        self.api.changes = cast(Any, self.changes)
        self.api.faults.append(self._uid_precondition)
        self.api.add(DEVICES, {"metadata": {"name": NODE_NAME}, "spec": {"groups": list(groups)}})
        self.kubelet = Kubelet(root / "kubelet", tell=self._tell, rng=self.rng)
        self.hardware = Hardware()
        self.steps: list[str] = []
        self.kill_at = ""
        self.stuck = asyncio.Event()
        self.agent: Agent | None = None
        self.acting: Injector | None = None
        """What injects in agents started from now on; None records."""
        self.clock: Clock = SystemClock()

    async def __aenter__(self) -> AgentWorld:
        await self.kubelet.start()
        await self.start_agent()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.kill_agent()
        await self.kubelet.stop()

    async def start_agent(self, *, registered: bool = True) -> Agent:
        """Start a process of the agent; return when its plugins are registered."""
        self.agent = Agent(self)
        if registered:
            await self.until(lambda: self.agent is not None and self.agent.ready())
        return self.agent

    async def kill_agent(self) -> None:
        """End the agent's process without letting it finish anything."""
        agent, self.agent = self.agent, None
        if agent is not None:
            await agent.kill()

    async def until(self, true: Callable[[], bool], seconds: float = 10.0) -> None:
        """Return when something has become true."""
        async with asyncio.timeout(seconds):
            while not true():  # noqa: ASYNC110 - watches other people's state
                await asyncio.sleep(0.002)

    async def run_pod(self, pod: Object) -> str:
        """Create a Pod and let the kubelet admit it; return its phase."""
        self.api.add(POD, pod)
        stored = self.api.get(POD, name_of(pod), namespace_of(pod))
        assert stored is not None
        return await self.kubelet.admit(stored)

    def delete_pod(self, name: str, namespace: str = "default") -> None:
        """Take a Pod away."""
        pod = self.api.get(POD, name, namespace)
        assert pod is not None
        self.kubelet.remove(uid_of(pod))
        self.api.remove(POD, name, namespace)

    async def step(self, name: str) -> None:
        """Pass a step of an allocation; at the armed one the process stands still until it is killed."""
        self.steps.append(name)
        if self.kill_at == name:
            self.kill_at = ""
            self.stuck.set()
            await asyncio.Event().wait()

    async def settled(self) -> None:
        """Return when everything published is what the Pods say."""
        assert self.agent is not None
        await self.agent.settled()

    def rows(self) -> dict[str, Mapping[str, Any]]:
        """Return the published ledger's rows by card."""
        devices = self.api.get(DEVICES, NODE_NAME) or {}
        return {
            row["id"]: row for group in at(devices, "status", "groups") or [] for row in group.get("accelerators", [])
        }

    def conditions(self) -> dict[str, str]:
        """Return the conditions of the Devices object: type -> status."""
        devices = self.api.get(DEVICES, NODE_NAME) or {}
        return {c["type"]: c["status"] for c in at(devices, "status", "conditions") or []}

    async def _tell(self, pod: Mapping[str, Any], status: dict[str, Any]) -> None:
        if self.api.get(POD, name_of(pod), namespace_of(pod)) is not None:
            self.api.edit(POD, name_of(pod), {"status": status}, namespace_of(pod))

    def _uid_precondition(self, request: Request) -> Exception | None:
        """Refuse, as kube-apiserver does, a patch that names another uid."""
        if not _is_record(request):
            return None
        wanted = at(orjson.loads(request.content or b"{}"), "metadata", "uid")
        parts = request.path.split("/")
        stored = self.api.get(POD, parts[-1], parts[-3])
        if stored is not None and wanted and wanted != uid_of(stored):
            return refusal(409, "Conflict", "Precondition failed: UID in precondition differs")
        return None


class Changes:
    """What an API server tells its watchers: each follower gets every change once."""

    def __init__(self) -> None:
        self._followers: list[deque[Change]] = []

    def append(self, change: Change) -> None:
        for follower in self._followers:
            follower.append(change)

    def follow(self) -> deque[Change]:
        self._followers.append(deque())
        return self._followers[-1]

    def leave(self, follower: deque[Change]) -> None:
        self._followers = [other for other in self._followers if other is not follower]


class StoredCaches:
    """The runtime's caches of Pods and Devices, fed by hand; they lag as caches do."""

    def __init__(self, api: FakeApi) -> None:
        self._stores = {kind: Store(kind) for kind in (POD, DEVICES)}
        self._stores[POD].add_index(PODS_BY_NODE)
        for kind, store in self._stores.items():
            for obj in api.store[kind].values():
                store.put(store.prepare(copy.deepcopy(obj)))

    def __getitem__(self, kind: Kind) -> Store:
        return self._stores[kind]

    def take(self, change: Change) -> None:
        """Apply one change."""
        store = self._stores.get(change.kind)
        if store is None:
            return
        if change.new is not None:
            store.put(store.prepare(copy.deepcopy(change.new)))
        elif change.old is not None:
            store.remove(Key(name_of(change.old), namespace_of(change.old)), uid_of(change.old))


def _is_record(request: Request) -> bool:
    return request.method == "PATCH" and "/pods/" in request.path


class _Wire:
    """The way to the API server, on which a process may die."""

    def __init__(self, world: AgentWorld) -> None:
        self._world = world

    async def call(self, request: Request, *, deadline_s: float) -> bytes:
        if _is_record(request):
            await self._world.step("before record")
        answer = self._world.api.answer(request)
        if _is_record(request):
            await self._world.step("after record")
        return answer


Story = Callable[[AgentWorld], Awaitable[None]]


def play(groups: Sequence[Mapping[str, Any]], story: Story) -> None:
    """Let a story happen in a world of its own; its folder's name is short, as names of sockets must be."""

    async def run() -> None:
        with tempfile.TemporaryDirectory(prefix="kubelet") as root:
            async with AgentWorld(Path(root), groups) as world:
                await story(world)

    asyncio.run(run())


class Agent:
    """One process of the agent: everything it knows by itself goes with it."""

    def __init__(self, world: AgentWorld) -> None:
        self.world = world
        clock = world.clock
        self._changes = world.changes.follow()
        self.caches = StoredCaches(world.api)
        client = Client(cast(Connection, _Wire(world)), field_manager="gpustack-device-manager")
        self.kubelet = PodResources(world.kubelet.pod_resources_socket)
        self.ledger = NodeLedger(NODE_NAME, self.caches, REGISTRY, clock)
        self.injector = RecordingInjector(world.step)
        self.partitions = SimulatedPartitions(world.hardware, world.step)
        self.allocator = Allocator(
            self.ledger,
            client,
            clock,
            kubelet=self.kubelet,
            injector=world.acting or self.injector,
            partitions=self.partitions,
            options=QUICK,
        )
        shower = Shower(self.ledger, clock, kubelet=self.kubelet, injector=self.injector, again_s=0.01, again_times=2)
        self.publisher = LedgerPublisher(
            client,
            self.caches,
            clock,
            ledgers={NODE_NAME: self.ledger},
            kubelets={NODE_NAME: self.kubelet},
            live_pods=self._live,
        )
        self.plugins = PluginManager(
            self.ledger,
            self.allocator,
            shower,
            clock,
            socket=KubeletSocket(world.kubelet.socket, tick_s=0.05),
            manufacturers=REGISTRY.names,
            modes=MODES,
        )
        self._again: float | None = 0.0
        self._busy = False
        self.tasks = [
            asyncio.create_task(self.plugins.run(), name="plugins"),
            asyncio.create_task(self._publish(), name="publisher"),
        ]

    def ready(self) -> bool:
        """Say whether all plugins are registered and have sent their tokens."""
        servings = self.plugins.servings.values()
        endpoints = self.world.kubelet.devices.endpoints
        return bool(servings) and all(
            s.registered and (e := endpoints.get(s.plugin.resource.name)) is not None and e.lists > 0 for s in servings
        )

    async def kill(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.allocator.close()
        self.world.changes.leave(self._changes)

    async def settled(self) -> None:
        """Return when the publisher has nothing left to do, also nothing later."""
        async with asyncio.timeout(10):
            while self._busy or self._pending() or self._again is not None:  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.002)

    def _pending(self) -> bool:
        return bool(self._changes)

    async def _publish(self) -> None:
        """Play the runtime: reconcile after every change, and again when asked to."""
        loop = asyncio.get_running_loop()
        while True:
            due = self._again is not None and loop.time() >= self._again
            if self._pending() or due:
                while self._changes:
                    self.caches.take(self._changes.popleft())
                self._busy = True
                try:
                    outcome = await self.publisher.reconcile(Key(NODE_NAME))
                    self._again = loop.time() + outcome.seconds if isinstance(outcome, After) else None
                except OperatorError:
                    self._again = loop.time()
                self._busy = False
            await asyncio.sleep(0.001)

    async def _live(self, _node: str, pods: frozenset[str]) -> None:
        await self.partitions.live(pods)


def container(name: str = "main", **limits: object) -> Object:
    """Return a container; `limits` by family of NVIDIA cards, `_` for `.` and `-` as in `sliced_units`."""
    return {"name": name, "image": "registry.example/app:1", "resources": {"limits": limits, "requests": limits}}


def pod(
    name: str,
    *containers: Object,
    uid: str = "",
    age: int = 0,
    annotations: Mapping[str, str] | None = None,
    init: Sequence[Object] = (),
    **spec: object,
) -> Object:
    """Return a Pod bound to the node; a larger `age` is younger."""
    meta: dict[str, Any] = {
        "name": name,
        "namespace": "default",
        "uid": uid or f"uid-{name}",
        "creationTimestamp": f"2026-01-01T{age // 3600:02d}:{age // 60 % 60:02d}:{age % 60:02d}Z",
    }
    if annotations:
        meta["annotations"] = dict(annotations)
    body: dict[str, Any] = {"nodeName": NODE_NAME, "containers": list(containers), **spec}
    if init:
        body["initContainers"] = list(init)
    return {"metadata": meta, "spec": body, "status": {"phase": "Pending"}}


def limits_of(manufacturers: Manufacturers, manufacturer: str, **amounts: object) -> dict[str, object]:
    """Return limits such as `exclusive=1`, `sliced=1, sliced_units=320000` for a manufacturer."""
    base = manufacturers.base(manufacturer)
    named = {"exclusive": base, "visibility": f"device.gpustack.ai/{manufacturer}.visibility"}
    return {
        named.get(key) or f"{base}.{key.replace('_', '.', 1).replace('_', '-')}": str(value)
        for key, value in amounts.items()
    }


def claiming(name: str = "main", manufacturer: str = "nvidia", **amounts: object) -> Object:
    """Return a container that claims cards of a manufacturer."""
    return container(name, **limits_of(REGISTRY, manufacturer, **amounts))


def partition(profile: str, name: str = "main") -> Object:
    """Return a container that claims one NVIDIA partition."""
    return container(name, **{"nvidia.com/gpu.partitioned": "1", f"nvidia.com/gpu.partitioned.mig-{profile}": "1"})
