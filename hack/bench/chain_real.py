"""`bench-chain ENGINE=real`: what the chain costs on the real control plane, at growing fleets.

For: `make bench-chain ENGINE=real`. In: sizes. Out: figures by row name, a column a size.
Measured, each size on a control plane of its own (etcd, kube-apiserver, kube-controller-manager, kube-scheduler, Kueue,
NFD master, kwok), by the server's audit log:
  - publishing: Nodes, NFD workers' features, Devices and features of the agents, merged by NFD; of each machine one
    node by agents, NFD and kubelet, the others as copies of it (not the chain's time);
  - cold: from the start of the controllers, all of that being there, to the chain's last write, NFD's and the kubelets'
    answers included; CPU of each process meanwhile;
  - settled: writes in a quiet minute;
  - a ledger write to its InstanceType's status write, beside a floor: a bare watch that patches one object's status.
Promises: figures are not taken before every card is counted by its type; a lease renewal is no write.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from hack.bench.chain_audit import Writes, latencies, percentile
from hack.bench.chain_cluster import install, publish_copies, read_published, register, start
from hack.bench.chain_floor import FLOOR
from hack.bench.figures import Figures, say
from hack.bench.fleet import MACHINES, write_fleet_file
from hack.bench.processes import CHECKOUT, Measured, Processes, cpu_seconds
from hack.controlplane.audit import Request
from hack.controlplane.control_plane import ControlPlane
from hack.controlplane.manifests import KUEUE_ACCOUNT, NFD_ACCOUNT
from hack.controlplane.product import AGENT, OPERATOR, Account
from hack.fleet import Machines, write_fleet
from kube.client import Client
from kube.connection import Connection
from kube.credentials import find_credentials
from nodefeature.credits import CREDITS_PER_ACCELERATOR
from nodefeature.fields import as_maps, as_str, at, labels_of
from nodefeature.kinds import CLUSTER_QUEUE, DEVICES, INSTANCE_TYPE, NODE
from nodefeature.labels import ARCH, DEVICE_PREFIX, MANAGED
from nodefeature.manufacturers import CREDITS_PREFIX
from nodefeature.quantity import parse_quantity

CARDS = 8
QUIET_S = 10.0
SETTLED_S = 60.0
SPOKEN_S = 30.0
ROUNDS = 13
"""Changes of each pool's ledgers; the first round warms up and is not counted."""
ROUND_S = 5.0
"""A pool's changes lie further apart than any window of instance_type, so that each has its own status write."""
US = (OPERATOR.user,)
CHAIN = (
    OPERATOR.user,
    AGENT.user,
    Account(name=NFD_ACCOUNT).user,
    Account(name=KUEUE_ACCOUNT).user,
    "controlplane-kubelet",
)
BYSTANDERS = ("nfd-master", "kubelet")
_LEDGER = f"{DEVICES.group_resource}/status"
_STATUS = f"{INSTANCE_TYPE.group_resource}/status"
_FLOOR = f"{FLOOR.group_resource}/status"
_PATIENCE_S = 2400.0


class RealBench:
    """One size on one control plane."""

    def __init__(self, nodes: int, folder: Path) -> None:
        self.figures = Figures(nodes)
        self._folder = folder
        self._fleet = write_fleet_file(folder / "fleet.yaml", nodes)
        self._control_plane: ControlPlane
        self._processes: Processes
        self._client: Client
        self._writes: Writes
        self._pools: dict[str, str] = {}

    def run(self) -> Figures:
        """Take all measurements."""
        nodes = len(self._fleet)
        say(f"{nodes} nodes: starting the control plane")
        self._control_plane = start(self._folder / "state")
        environ = {**os.environ, "PYTHONPATH": str(CHECKOUT), "KUBECONFIG": ""}
        try:
            operator, agents = install(self._control_plane, self._folder)
            self._writes = Writes(self._control_plane.audit_log)
            with Processes(self._folder, environ) as self._processes:
                asyncio.run(self._measure(operator, agents))
        finally:
            self._control_plane.stop()
        return self.figures

    async def _measure(self, operator: Path, agents: Path) -> None:
        kubeconfig = str(self._control_plane.kubeconfig)
        self._client = Client(Connection(find_credentials(kubeconfig=kubeconfig)), field_manager="bench")
        try:
            await self._steps(operator, agents)
        finally:
            await self._client.close()
        self.figures.rows["load average at the end"] = os.getloadavg()[0]

    async def _steps(self, operator: Path, agents: Path) -> None:
        """Measure one thing after the other; given are the kubeconfigs of the two processes."""
        await self._publish(agents)
        controllers = await self._cold(operator)
        await self._settled()
        await self._ledger_changes(controllers)

    async def _publish(self, kubeconfig: Path) -> None:
        """Let one node of each machine come as nodes come, and the others as copies of what it became."""
        self.figures.rows["load average at the start"] = os.getloadavg()[0]
        first = {node.machine: node for node in reversed(self._fleet)}
        say(f"{len(self._fleet)} nodes: publishing {len(first)} by their agents")
        began, machines, file = time.time(), Machines(), self._folder / "agents.jsonl"
        write_fleet(file, first.values(), machines)
        await register(self._client, first.values(), machines)
        flags = ("device-manager", "serve", "--kubeconfig", str(kubeconfig), "--fleet", str(file))
        agents = self._processes.start("agents", "gpustack_operator", *flags)
        await self._quiet(lambda: self._merged(len(first)))
        self._processes.stop(agents)
        say(f"{len(self._fleet)} nodes: publishing the copies")
        # Meanwhile a kubelet would see a Node without its Devices, and NFD master merge what is merged.
        for bystander in BYSTANDERS:
            self._control_plane.stop_process(bystander)
        originals = {machine: await read_published(self._client, node.name) for machine, node in first.items()}
        copies = [node for node in self._fleet if node is not first[node.machine]]
        await publish_copies(self._client, originals, copies)
        for bystander in BYSTANDERS:
            self._control_plane.start_process(bystander)
        last = await self._quiet(lambda: self._merged(len(self._fleet)))
        self.figures.rows["publishing, s"] = last - began

    async def _merged(self, count: int) -> bool:
        """Say whether so many nodes have a ledger and a label of their agent."""
        ledgers = sum(1 for obj in await self._client.list(DEVICES) if as_maps(at(obj, "status", "groups")))
        nodes = await self._client.list(NODE)
        labelled = sum(1 for node in nodes if any(key.startswith(DEVICE_PREFIX) for key in labels_of(node)))
        return ledgers == labelled == count

    async def _cold(self, kubeconfig: Path) -> Measured:
        say(f"{len(self._fleet)} nodes: cold start of the controllers")
        self._writes.read()
        counted, cpu, began = self._writes.counts.copy(), self._cpu(), time.time()
        flags = ("controllers", "--kubeconfig", str(kubeconfig))
        controllers = self._processes.start("controllers", "gpustack_operator", *flags)
        last = await self._quiet(self._counted)
        rows, written = self.figures.rows, self._writes.counts - counted
        rows["cold to settled, s"] = last - began
        rows["cold, our last write, s"] = self._writes.last_of(US) - began
        rows["cold, our writes"] = float(sum(written[user] for user in US))
        rows["cold, writes of NFD and kubelets"] = float(sum(written[user] for user in CHAIN if user not in US))
        rows["cold, CPU s controllers"] = controllers.cpu_s()
        for name, spent in self._cpu().items():
            rows[f"cold, CPU s {name}"] = spent - cpu[name]
        rows["peak MiB controllers, cold"] = controllers.peak_mib()
        return controllers

    async def _counted(self) -> bool:
        """Say whether every node is managed and every card stands in the quota of its pool's queue."""
        if any(MANAGED not in labels_of(node) for node in await self._client.list(NODE)):
            return False
        offered = sum([accelerator_quota(queue) for queue in await self._client.list(CLUSTER_QUEUE)])
        return offered == CREDITS_PER_ACCELERATOR * CARDS * len(self._fleet)

    async def _settled(self) -> None:
        say(f"{len(self._fleet)} nodes: a settled minute")
        self._writes.read()
        counted = self._writes.counts.copy()
        await asyncio.sleep(SETTLED_S)
        self._writes.read()
        written = self._writes.counts - counted
        self.figures.rows["settled minute, our writes"] = float(sum(written[user] for user in US))
        self.figures.rows["settled minute, writes of others"] = float(sum(n for u, n in written.items() if u not in US))

    async def _ledger_changes(self, controllers: Measured) -> None:
        kubeconfig = str(self._control_plane.kubeconfig)
        self._processes.start("floor", "hack.bench.chain_floor", "--kubeconfig", kubeconfig)
        await self._until(lambda: "watching" in (self._folder / "floor.log").read_text())
        say(f"{len(self._fleet)} nodes: {ROUNDS * len(MACHINES)} ledger changes")
        await self._change_ledgers(0)
        await asyncio.sleep(ROUND_S)
        self._writes.read(_is_of_a_change)
        self._writes.kept()
        cpu = controllers.cpu_s()
        for number in range(1, ROUNDS + 1):
            await self._change_ledgers(number)
        await asyncio.sleep(ROUND_S)
        self._writes.read(_is_of_a_change)
        kept = self._writes.kept()
        causes = [request for request in kept if request.resource == _LEDGER]
        status = latencies(causes, _of(kept, _STATUS), same=lambda cause: self._pools[cause.name])
        floor = latencies(causes, _of(kept, _FLOOR), same=lambda _: "floor")
        self.figures.rows |= latency_rows(len(causes), status=status, floor=floor)
        self.figures.rows["change, CPU ms controllers"] = (controllers.cpu_s() - cpu) * 1000 / len(causes)
        self.figures.rows["peak MiB controllers"] = controllers.peak_mib()

    async def _change_ledgers(self, number: int) -> None:
        """Take a card of one node of every pool in even rounds, and free it in odd ones, evenly spread over a round."""
        for machine in MACHINES:
            began = time.monotonic()
            members = [node.name for node in self._fleet if node.machine == machine]
            await self._change_card(members[number // 2 % len(members)], taken=number % 2 == 0)
            self._processes.check()
            await asyncio.sleep(max(0.0, ROUND_S / len(MACHINES) - (time.monotonic() - began)))

    async def _change_card(self, node: str, *, taken: bool) -> None:
        devices = await self._client.get(DEVICES, node)
        group = at(devices, "status", "groups")[0]
        card = group["accelerators"][0]
        self._pools[node] = f"gpustack-{group['manufacturer']}-{group['id']}-linux-{labels_of(devices)[ARCH]}"
        card["mode"], card["remaining"] = (1, 0) if taken else (0, 1_600_000)
        await self._client.patch(DEVICES, node, {"status": devices["status"]}, subresource="status")

    def _cpu(self) -> dict[str, float]:
        return {name: cpu_seconds(running.pid) for name, running in self._control_plane.running.items()}

    async def _quiet(self, done: Callable[[], Awaitable[bool]]) -> float:
        """Return the moment of the chain's last write, once it has been silent for QUIET_S and `done` says so."""
        began = asked = spoken = time.monotonic()
        while (now := time.monotonic()) - began < _PATIENCE_S:
            self._check()
            self._writes.read()
            last = self._writes.last_of(CHAIN)
            # A question lists thousands of objects: it is not put again at once.
            if time.time() - last >= QUIET_S and now - asked >= QUIET_S:
                if await done():
                    return last
                asked = time.monotonic()
            if now - spoken >= SPOKEN_S:
                spoken = now
                counts = (f"{user.rpartition(':')[2]} {self._writes.counts[user]:,}" for user in CHAIN)
                say(f"  writes so far: {', '.join(counts)}")
            await asyncio.sleep(1.0)
        raise TimeoutError(f"the chain of {len(self._fleet)} nodes did not settle in {_PATIENCE_S:.0f} s")

    async def _until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            self._check()
            await asyncio.sleep(0.2)

    def _check(self) -> None:
        self._control_plane.check()
        self._processes.check()


def latency_rows(changes: int, *, status: list[float], floor: list[float]) -> Mapping[str, float]:
    """Return the rows of the ledger changes, and the ratios to the floor."""
    rows = {"changes": float(changes), "changes followed by a status write": float(len(status))}
    for share in (0.5, 0.99):
        name, own, least = f"p{share * 100:.0f}", percentile(status, share), percentile(floor, share)
        rows[f"change, floor {name} ms"] = least * 1000
        rows[f"change, status {name} ms"] = own * 1000
        rows[f"change, {name} / floor"] = own / least
    return rows


def accelerator_quota(queue: object) -> int:
    """Return the credits of all manufacturers that a ClusterQueue offers."""
    resources = (
        resource
        for group in as_maps(at(queue, "spec", "resourceGroups"))
        for flavor in as_maps(group.get("flavors"))
        for resource in as_maps(flavor.get("resources"))
    )
    return sum(
        parse_quantity(resource.get("nominalQuota")).floor()
        for resource in resources
        if as_str(resource.get("name")).startswith(CREDITS_PREFIX)
    )


def _is_of_a_change(request: Request) -> bool:
    return request.resource in (_LEDGER, _STATUS, _FLOOR)


def _of(requests: list[Request], resource: str) -> list[Request]:
    return [request for request in requests if request.resource == resource]
