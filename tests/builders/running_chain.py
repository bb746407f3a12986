"""The whole chain as it runs, in one process and on virtual time.

For: component tests. Everything is the product's own or the devcluster's: its API server behind the real client, the
controllers process, the stand-ins of NFD, Kueue, scheduler and kubelet, one agent a node. Only three things are the
test's: the wire between them (`app_transport`), the clock (`virtual_loop`), and what the cards' libraries answer.
In: machines of the recorded form. Out: objects, read straight from the server's store.
Leaves out: TLS, the leader's lease, the host detector; their own tests have them.
"""

from __future__ import annotations

import asyncio
import base64
import inspect
import logging
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache, wraps
from pathlib import Path
from typing import Any

import httpx

from api.crds import crd_manifests
from api.settings import SECRET_NAME
from controllers import build_reconcilers, selections
from controllers.node_feature_rule import install_all
from devicemanager import own_objects
from devicemanager.agent import Agent, AgentOptions
from devicemanager.answers import Answer, Bus
from devicemanager.detection import DetectionOptions
from devicemanager.detectors.recorded import RecordedDetector
from devicemanager.publisher.publish import Publisher
from gpustack_operator.packaged import unit_resource_presets
from hack.devcluster.foreign_crds import foreign_manifests
from hack.devcluster.server import DevCluster
from hack.devcluster.standins.__main__ import build
from hack.devcluster.standins.kueue.state import GATE, QUEUE_LABEL
from hack.devcluster.standins.registrar import RegisteredMachine, register
from hack.devcluster.store import Change, Store
from hack.fleet import Machines
from kube.client import Client
from kube.connection import Connection
from kube.credentials import Credentials, StaticCredentials
from kube.errors import NotFound
from kube.logs import record_fields
from kube.reconciler import Object
from kube.runtime import Manager
from nodefeature.fields import as_maps, at
from nodefeature.kinds import (
    CLUSTER_QUEUE,
    DEVICES,
    INSTANCE_TYPE,
    LOCAL_QUEUE,
    NAMESPACE,
    NODE,
    POD,
    RESOURCE_FLAVOR,
    SECRET,
    Kind,
)
from nodefeature.labels import SYSTEM_NAMESPACE
from nodefeature.manufacturers import build_manufacturers
from nodefeature.queue_names import local_queue_name
from tests.builders.app_transport import Wire, WireTransport
from tests.builders.virtual_loop import LoopClock, run_virtually

TOKEN = "t0ken"
QUIET_S = 20.0
"""Longer than every window and step of the chain: nothing written for so long means that nothing waits."""
WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})


@cache
def profile_tables() -> Mapping[str, Any]:
    """Return the recorded partition profiles."""
    return Machines().profile_tables()


@cache
def manifests() -> tuple[Mapping[str, Any], ...]:
    """Return every CRD of the devcluster."""
    return (*foreign_manifests(), *crd_manifests())


class Lines(logging.Handler):
    """Every warning and error that the product logged, as `message field=value ...`."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[str] = []
        self.errors: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one record; the fields of the task are there only now."""
        fields = "".join(f" {name}={value}" for name, value in record_fields(record).items())
        line = f"{record.getMessage()}{fields}"
        self.said.append(line)
        # What no retry can mend is an error by design, and named as one.
        if record.levelno >= logging.ERROR and record.getMessage() != "reconcile cannot succeed":
            trace = logging.Formatter().formatException(record.exc_info) if record.exc_info else ""
            self.errors.append(f"{line}\n{trace}")


class Cards:
    """What a node's libraries answer: its recorded machine, until the test says otherwise."""

    def __init__(self, machine: Mapping[str, Any]) -> None:
        self.answers: dict[str, Answer] = {}
        self.put(machine)

    def put(self, machine: Mapping[str, Any]) -> None:
        """Let the node have this machine's cards from now on."""
        self._recorded = RecordedDetector(machine, profile_tables())

    async def bus(self) -> Bus:
        """Return the machine's bus."""
        return await self._recorded.bus()

    async def detect(self, manufacturer: str, bus: Bus) -> Answer:
        """Return the test's answer for this manufacturer, else the machine's."""
        return self.answers.get(manufacturer) or await self._recorded.detect(manufacturer, bus)


@dataclass(frozen=True, slots=True)
class Written:
    """One write request that the server answered."""

    verb: str
    resource: str
    manager: str
    code: int


class RunningChain:
    """Everything that runs. Processes can be stopped, killed and started again at any moment."""

    def __init__(
        self,
        *,
        store_file: Path | str = ":memory:",
        seeds: Mapping[str, str] | None = None,
        nfd_delay_s: float = 0.0,
        detect_mutations: bool = True,
        agent_period_s: float = 15.0,
    ) -> None:
        self.clock = LoopClock()
        self.wire = Wire()
        self.client = self._new_client("test")
        self.cards: dict[str, Cards] = {}
        self.agents: dict[str, Agent] = {}
        self.seeds = seeds
        self.nfd_delay_s = nfd_delay_s
        self._detect_mutations = detect_mutations
        self._agent_period_s = agent_period_s
        self._store_file = store_file
        self._registry = build_manufacturers({})
        self._processes: dict[str, tuple[asyncio.Task[None], Manager | None]] = {}
        self._serving: asyncio.Task[None] | None = None
        self.changes: list[tuple[str, Change]] = []
        self._answered: Counter[tuple[str, str, str, int]] = Counter()
        self._last_change = 0.0
        self._starts = 0
        self.log = Lines()

    # Processes

    @asynccontextmanager
    async def running(self, *machines: Mapping[str, Any], **settings: str) -> AsyncIterator[RunningChain]:
        """Start everything, with these machines; `instance_type_mixed_on_node="false"` sets a setting."""
        logging.getLogger().addHandler(self.log)
        await self.start_server()
        try:
            await self.add_namespace(SYSTEM_NAMESPACE)
            if settings:
                await self.set(**settings)
            await self.join(*machines)
            self.start_standins()
            self.start_controllers()
            yield self
            assert not self.log.errors, "\n".join(self.log.errors)
        finally:
            logging.getLogger().removeHandler(self.log)
            for name in tuple(self._processes):
                await self.kill(name)
            await self.stop_server()
            self.store.close()

    async def start_server(self) -> None:
        """Start the API server over what the store's file holds; namespaces and CRDs stand when it returns."""
        self._starts += 1  # uids are drawn by chance: the same draw again would make two objects one
        self.store = Store(self._store_file)
        self.store.listen(self._heard)
        self.server = DevCluster(
            self.store, token=TOKEN, clock=self.clock, rng=random.Random(self._starts), crds=manifests()
        )
        ready = asyncio.Event()

        async def serve() -> None:
            async with self.server.running():
                self.wire.app = self.server.app
                ready.set()
                await asyncio.Event().wait()

        self._serving = asyncio.create_task(serve(), name="devcluster")
        await asyncio.wait({self._serving, asyncio.create_task(ready.wait())}, return_when=asyncio.FIRST_COMPLETED)
        if self._serving.done():
            self._serving.result()

    async def stop_server(self, *, kill: bool = False) -> None:
        """End the API server: with clean ends of all watches, or by breaking off everything."""
        assert self._serving is not None
        self.wire.app = None
        if kill:
            self.wire.cut()
        self._serving.cancel()
        await asyncio.gather(self._serving, return_exceptions=True)
        await self.wire.idle()
        self._answered += self.server.requests

    async def restart_server(self, *, kill: bool = True, away_s: float = 3.0) -> None:
        """End the API server and start it again on the same file, its history forgotten."""
        await self.stop_server(kill=kill)
        self.store.close()
        await self.run(away_s)
        await self.start_server()

    def start_standins(self) -> None:
        """Start NFD master, Kueue, scheduler and kubelets."""
        client = self._new_client("standins")
        manager = self._manager(client, {})
        build(manager, client, self.clock, nfd_delay_s=self.nfd_delay_s)
        self._start("standins", manager)

    def start_controllers(self) -> None:
        """Start the controllers process as `gpustack-operator controllers` does."""
        client = self._new_client("gpustack-operator")
        manager = self._manager(client, selections())
        for reconciler in build_reconcilers(
            client,
            manager.caches,
            clock=self.clock,
            manufacturers=self._registry,
            presets=unit_resource_presets(),
            seeds=self.seeds,
        ):
            manager.add(reconciler)
        self._start("controllers", manager, install_all(client, self.clock, manufacturers=self._registry))

    async def stop(self, name: str) -> None:
        """End a process as SIGTERM does."""
        task, manager = self._processes.pop(name)
        if manager is not None:
            manager.stop()
        else:
            task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def kill(self, name: str) -> None:
        """End a process at this very moment."""
        task, _ = self._processes.pop(name)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def restart_controllers(self) -> None:
        """Stop the controllers and start them anew; what they kept in memory is lost."""
        await self.stop("controllers")
        self.start_controllers()

    async def join(self, *machines: Mapping[str, Any]) -> None:
        """Let machines join: their kubelets and NFD workers register, their agents start."""
        found = [RegisteredMachine(machine["name"], machine.get("labels", {}), machine) for machine in machines]
        await register(self.client.as_manager("kubelet"), found, namespace=SYSTEM_NAMESPACE)
        for machine in machines:
            self.start_agent(machine["name"], machine)

    def start_agent(self, node: str, machine: Mapping[str, Any]) -> None:
        """Start a node's agent."""
        cards = self.cards[node] = Cards(machine)
        client = self._new_client("gpustack-device-manager")
        options = AgentOptions(
            detection=DetectionOptions(manufacturers=tuple(sorted(self._registry.names)), registry=self._registry),
            period_s=self._agent_period_s,
        )
        publisher = Publisher(client, self.clock, namespace=SYSTEM_NAMESPACE)
        agent = self.agents[node] = Agent(node, cards, publisher, self.clock, options, rng=random.Random(node))
        objects = self._manager(client, own_objects.selections(SYSTEM_NAMESPACE, node))
        objects.add(own_objects.OwnObjects(objects.caches, {node: agent}, namespace=SYSTEM_NAMESPACE))
        self._start(f"agent {node}", objects, agent.run())

    # Time

    async def run(self, seconds: float) -> None:
        """Let virtual time pass."""
        await asyncio.sleep(seconds)
        self._check_processes()

    async def settle(self, *, within_s: float = 600.0) -> float:
        """Let time pass until nothing has been written for `QUIET_S`; return the seconds until the last write."""
        began = self._last_change = self.clock.now()
        while (left_s := self._last_change + QUIET_S - self.clock.now()) > 0:
            await self.run(left_s)
            assert self.clock.now() - began < within_s, f"not settled in {within_s:.0f} s: {self.last_changes()}"
        return self._last_change - began

    # Reading

    def object(self, kind: Kind, name: str, namespace: str = "") -> Object:
        """Return a stored object."""
        entry = self.store.shelf(kind.group_resource).entries.get((namespace, name))
        assert entry is not None, f"no {kind} {name} among {self.names(kind, namespace)}"
        return entry.load()

    def find(self, kind: Kind, name: str, namespace: str = "") -> Object | None:
        """Return a stored object, or None."""
        entry = self.store.shelf(kind.group_resource).entries.get((namespace, name))
        return entry.load() if entry is not None else None

    def objects(self, kind: Kind, namespace: str = "") -> list[Object]:
        """Return all stored objects of a kind."""
        return [entry.load() for entry in self.store.shelf(kind.group_resource).ordered(namespace)]

    def names(self, kind: Kind, namespace: str = "") -> list[str]:
        """Return the sorted names of a kind's objects."""
        return [entry.name for entry in self.store.shelf(kind.group_resource).ordered(namespace)]

    def flavors(self) -> list[str]:
        """Return the names of the flavors."""
        return self.names(RESOURCE_FLAVOR)

    def types(self) -> list[str]:
        """Return the names of the types."""
        return self.names(INSTANCE_TYPE)

    def type(self, name: str) -> Object:
        """Return a type."""
        return self.object(INSTANCE_TYPE, name)

    def queue(self, name: str) -> Object:
        """Return a queue."""
        return self.object(CLUSTER_QUEUE, name)

    def quotas(self, name: str) -> dict[str, str]:
        """Return a queue's quotas by flavor, in their order."""
        groups = as_maps(at(self.queue(name), "spec", "resourceGroups"))
        return {f["name"]: f["resources"][0]["nominalQuota"] for g in groups for f in g["flavors"]}

    def is_going(self, flavor: str) -> bool:
        """Say whether a flavor is gone, or waits only for its queue to let it go."""
        found = self.find(RESOURCE_FLAVOR, flavor)
        return found is None or "deletionTimestamp" in found["metadata"]

    def flavor_capacity(self, name: str) -> int:
        """Return how many cards or cores of all its nodes a flavor counts."""
        labels = self.object(RESOURCE_FLAVOR, name)["metadata"]["labels"]
        return next(int(value) for key, value in labels.items() if key.endswith(".capacity"))

    def detected(self, node: str) -> Object:
        """Return a node's condition about the cards of its first manufacturer."""
        conditions = as_maps(at(self.object(DEVICES, node), "status", "conditions"))
        return dict(next((c for c in conditions if str(c.get("type")).startswith("Detected-")), {}))

    def row(self, name: str) -> tuple[str, str, str, str]:
        """Return a type's printed columns: unit, EX/SH/SL/PT, CPU, phase."""
        status = self.type(name)["status"]
        summary = status["summary"]
        return summary["unit"], summary["accelerator"], summary["cpu"], status["phase"]

    def entrances(self, namespace: str = "default") -> list[str]:
        """Return the names of the LocalQueues of a namespace."""
        return self.names(LOCAL_QUEUE, namespace)

    def condition(self, kind: Kind, name: str, type_: str, namespace: str = "") -> Object:
        """Return one condition of an object; empty when there is none."""
        conditions = as_maps(at(self.object(kind, name, namespace), "status", "conditions"))
        return dict(next((c for c in conditions if c.get("type") == type_), {}))

    def events_about(self, name: str, namespace: str = "default") -> list[str]:
        """Return the messages of Events about an object."""
        events = (entry.load() for entry in self.store.shelf("events").ordered(namespace))
        return [event["message"] for event in events if at(event, "involvedObject", "name") == name]

    def said(self, *words: str) -> list[str]:
        """Return the warnings that hold all these words."""
        return [line for line in self.log.said if all(word in line for word in words)]

    # Writing

    async def edit(self, kind: Kind, name: str, patch: Object, namespace: str = "", *, status: bool = False) -> Object:
        """Merge-patch an object as an administrator."""
        return await self.client.patch(kind, name, patch, namespace, subresource="status" if status else "")

    async def create(self, kind: Kind, obj: Object) -> Object:
        """Create an object as an administrator."""
        return await self.client.create(kind, {"apiVersion": kind.api_version, "kind": kind.kind, **obj})

    async def delete(self, kind: Kind, name: str, namespace: str = "") -> None:
        """Delete an object as an administrator."""
        await self.client.delete(kind, name, namespace)

    def put(self, kind: Kind, obj: Mapping[str, Any]) -> None:
        """Store an object below the server's checks, as an older version or an edit of etcd leaves it."""
        shelf = self.store.shelf(kind.group_resource)
        metadata = dict(obj["metadata"])
        previous = shelf.entries.get((metadata.get("namespace") or "", metadata["name"]))
        metadata.setdefault("uid", f"uid-{kind.plural}-{metadata['name']}")
        body = {**obj, "apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
        self.store.put(shelf, body, previous)

    async def charge(self, node: str, *rows: Mapping[str, Any], group: int = 0) -> None:
        """Write ledger rows as the agent does when Pods come and go; each row names its card by `index`."""
        groups = self.object(DEVICES, node)["status"]["groups"]
        for row in rows:
            cards = groups[group]["accelerators"]
            position = next(n for n, card in enumerate(cards) if card["index"] == row["index"])
            cards[position] = {"id": cards[position]["id"], **row}
        await self.client.as_manager("gpustack-device-manager").patch(
            DEVICES, node, {"status": {"groups": groups}}, subresource="status"
        )

    async def submit(self, name: str, pool: str, requests: Mapping[str, str], *, namespace: str = "default") -> Object:
        """Create a gated Pod in the pool's LocalQueue, as Kueue's webhook leaves it."""
        container = {
            "name": "main",
            "image": "app",
            "resources": {"requests": dict(requests), "limits": dict(requests)},
        }
        metadata = {"name": name, "namespace": namespace, "labels": {QUEUE_LABEL: local_queue_name(pool)}}
        spec = {"containers": [container], "schedulingGates": [{"name": GATE}]}
        return await self.create(POD, {"metadata": metadata, "spec": spec})

    def pod(self, name: str, namespace: str = "default") -> Object:
        """Return a Pod; empty when there is none."""
        return self.find(POD, name, namespace) or {}

    async def add_namespace(self, name: str) -> None:
        """Create a namespace."""
        await self.create(NAMESPACE, {"metadata": {"name": name}})

    async def set(self, **settings: str | None) -> None:
        """Change settings; None takes a key away."""
        data = {
            name.replace("_", "-"): text if text is None else base64.b64encode(text.encode()).decode()
            for name, text in settings.items()
        }
        try:
            await self.edit(SECRET, SECRET_NAME, {"data": data}, SYSTEM_NAMESPACE)
        except NotFound:
            body = {"metadata": {"name": SECRET_NAME, "namespace": SYSTEM_NAMESPACE}, "data": data}
            await self.create(SECRET, body)

    async def label(self, node: str, **labels: str | None) -> None:
        """Label a Node; names are given as a mapping through `**{...}`."""
        await self.edit(NODE, node, {"metadata": {"labels": labels}})

    # What was written

    def written(self) -> Counter[Written]:
        """Return every write request so far, the test's own left out."""
        total = self._answered + self.server.requests
        return Counter(
            {
                Written(verb, resource, client, code): count
                for (verb, resource, client, code), count in total.items()
                if verb in WRITES and client != "test"
            }
        )

    def last_changes(self, count: int = 8) -> list[str]:
        """Return the newest changes of the store, for messages."""
        return [
            f"{change.type} {resource} {'/'.join(change.entry.place)}" for resource, change in self.changes[-count:]
        ]

    def _heard(self, resource: str, change: Change) -> None:
        self.changes.append((resource, change))
        self._last_change = self.clock.now()

    def _check_processes(self) -> None:
        for name, (task, _) in self._processes.items():
            assert not task.done(), f"process {name} ended: {task}"

    def _start(self, name: str, manager: Manager, *works: Any) -> None:
        async def work() -> None:
            async with asyncio.TaskGroup() as group:
                for each in works:
                    group.create_task(each)
                await manager.run()

        self._processes[name] = (asyncio.create_task(work(), name=name), manager)

    def _manager(self, client: Client, selected: Mapping[Kind, Any]) -> Manager:
        return Manager(
            client,
            selections=selected,
            clock=self.clock,
            rng=random.Random(2),
            detect_mutations=self._detect_mutations,
        )

    def _new_client(self, manager: str) -> Client:
        def open_transport(_: Credentials, __: int) -> httpx.AsyncBaseTransport:
            return WireTransport(self.wire)

        source = StaticCredentials(Credentials(server="http://devcluster", token=TOKEN))
        connection = Connection(source, clock=self.clock, rng=random.Random(3), open_transport=open_transport)
        return Client(connection, field_manager=manager)


def scenario(
    *machines: Mapping[str, Any], settings: Mapping[str, str] | None = None, **options: Any
) -> Callable[[Callable[..., Awaitable[None]]], Callable[..., None]]:
    """Make a test of `async def test(chain, ...)`: it begins when everything has been started."""

    def wrap(story: Callable[..., Awaitable[None]]) -> Callable[..., None]:
        @wraps(story)
        def play(**fixtures: Any) -> None:
            async def run() -> None:
                async with RunningChain(**options).running(*machines, **(settings or {})) as chain:
                    await story(chain, **fixtures)

            run_virtually(run())

        # pytest asks for fixtures by signature: all but the chain.
        signature = inspect.signature(story)
        play.__signature__ = signature.replace(parameters=list(signature.parameters.values())[1:])  # type: ignore[attr-defined]  # functions have it at run time
        return play

    return wrap
