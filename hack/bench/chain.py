"""`bench-chain`: what the scheduling chain costs at growing fleets, on the devcluster.

For: `make bench-chain`. In: a size. Out: figures by row name.
Measured, each size on an empty store of its own:
  - publishing: Nodes, NFD workers' features, Devices and features of the agents, merged by NFD (not the chain's time);
  - cold: from the start of the controllers to their last write;
  - settled: writes in a quiet minute, and after a restart of the controllers;
  - a single ledger change (a card taken, later freed, on different nodes): latency to the InstanceType's status,
    writes, CPU of the controllers;
  - peak memory of the controllers.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from pathlib import Path
from typing import Any

from hack.bench.figures import Figures, say
from hack.bench.fleet import write_fleet_file
from hack.bench.processes import CHECKOUT, Measured, Processes
from hack.fleet import Machines, write_fleet
from kube.client import Client
from kube.connection import Connection
from kube.credentials import find_credentials
from kube.errors import AlreadyExists, ApiError, NotFound, Unreachable
from kube.requests import ListOptions
from nodefeature.fields import as_maps, as_str, at, labels_of, name_of
from nodefeature.kinds import DEVICES, INSTANCE_TYPE, NAMESPACE, NODE
from nodefeature.labels import MANAGED

QUIET_S = 6.0
CHANGES = 20
SYSTEM_NAMESPACE = "gpustack-system"


class DevclusterBench:
    """One size on one store."""

    def __init__(self, nodes: int, folder: Path) -> None:
        self.figures = Figures(nodes)
        self._nodes = nodes
        self._folder = folder
        self._kubeconfig = folder / "kubeconfig"
        self._processes: Processes
        self._client: Client

    def run(self) -> Figures:
        """Take all measurements."""
        environ = {**os.environ, "PYTHONPATH": str(CHECKOUT), "KUBECONFIG": str(self._kubeconfig)}
        with Processes(self._folder, environ) as self._processes:
            asyncio.run(self._measure())
        return self.figures

    async def _measure(self) -> None:
        devcluster = self._processes.start(
            "devcluster",
            "hack.devcluster",
            "--data-dir",
            str(self._folder / "store"),
            "--kubeconfig",
            str(self._kubeconfig),
        )
        self._client = await self._connect()
        try:
            standins = await self._publish()
            controllers = await self._cold(devcluster, standins)
            await self._settled()
            controllers = await self._restart(controllers)
            await self._ledger_changes(controllers)
        finally:
            await self._client.connection.close()

    async def _connect(self) -> Client:
        while not self._kubeconfig.exists():
            self._processes.check()
            await asyncio.sleep(0.1)  # another process writes it
        client = Client(Connection(find_credentials(kubeconfig=str(self._kubeconfig))))
        while True:
            self._processes.check()
            try:
                await client.create(NAMESPACE, {"metadata": {"name": SYSTEM_NAMESPACE}})
                return client
            except AlreadyExists:
                return client
            except (Unreachable, ApiError):
                await asyncio.sleep(0.1)

    async def _publish(self) -> Measured:
        fleet = self._folder / "fleet.yaml"
        agents_file = self._folder / "agents.jsonl"
        write_fleet(agents_file, write_fleet_file(fleet, self._nodes), Machines())
        say(f"{self._nodes} nodes: publishing")
        started = time.monotonic()
        standins = self._processes.start("standins", "hack.devcluster.standins", "--fleet", str(fleet))
        await self._count(NODE, lambda _: True)
        agents = self._processes.start(
            "agents", "gpustack_operator", "device-manager", "serve", "--fleet", str(agents_file)
        )
        await self._count(DEVICES, lambda obj: bool(as_maps(at(obj, "status", "groups"))))
        last = await self._quiet()
        self.figures.rows["publishing, s"] = last - started
        # Settled agents write nothing; they would only disturb the measurement of the controllers' memory and CPU.
        self._processes.stop(agents)
        return standins

    async def _cold(self, devcluster: Measured, standins: Measured) -> Measured:
        before = {process.name: process.cpu_s() for process in (devcluster, standins)}
        version = await self._version()
        say(f"{self._nodes} nodes: cold start of the controllers")
        started = time.monotonic()
        controllers = self._start_controllers()
        await self._count(NODE, lambda obj: MANAGED in labels_of(obj))
        last = await self._quiet()
        rows = self.figures.rows
        rows["cold to settled, s"] = last - started
        rows["cold, writes"] = float(await self._version() - version)
        rows["cold, CPU s controllers"] = controllers.cpu_s()
        rows["cold, CPU s devcluster"] = devcluster.cpu_s() - before["devcluster"]
        rows["cold, CPU s stand-ins"] = standins.cpu_s() - before["standins"]
        rows["pools"] = float(len(await self._client.list(INSTANCE_TYPE)))
        return controllers

    async def _settled(self) -> None:
        say(f"{self._nodes} nodes: a settled minute")
        version = await self._version()
        await asyncio.sleep(60)
        self.figures.rows["settled minute, writes"] = float(await self._version() - version)

    async def _restart(self, controllers: Measured) -> Measured:
        say(f"{self._nodes} nodes: restart of the controllers")
        self.figures.rows["peak MiB controllers, cold"] = controllers.peak_mib()
        self._processes.stop(controllers)
        version = await self._version()
        controllers = self._start_controllers()
        await asyncio.sleep(QUIET_S)
        await self._idle(controllers)
        self.figures.rows["restart, writes"] = float(await self._version() - version)
        return controllers

    async def _idle(self, process: Measured) -> None:
        """Wait until a process uses next to no CPU."""
        used, before = process.cpu_s(), -1.0
        while used - before > 0.1:
            self._processes.check()
            await asyncio.sleep(3)
            before, used = used, process.cpu_s()

    async def _ledger_changes(self, controllers: Measured) -> None:
        say(f"{self._nodes} nodes: {CHANGES} single ledger changes")
        nodes = [name_of(obj) for obj in (await self._client.list_page(DEVICES, "", ListOptions(limit=CHANGES))).items]
        latencies, cpu, version = [], controllers.cpu_s(), await self._version()
        for node in nodes:
            latencies.append(await self._change_card(node, taken=True))
        for node in nodes:
            latencies.append(await self._change_card(node, taken=False))
        changes = len(latencies)
        rows = self.figures.rows
        rows["change, p50 s to status"] = statistics.median(latencies)
        rows["change, max s to status"] = max(latencies)
        rows["change, CPU ms controllers"] = (controllers.cpu_s() - cpu) * 1000 / changes
        rows["change, writes"] = (await self._version() - version) / changes
        rows["peak MiB controllers"] = controllers.peak_mib()

    async def _change_card(self, node: str, *, taken: bool) -> float:
        """Take or free the first card of a node, and wait until its type's status says so."""
        devices = await self._client.get(DEVICES, node)
        group = at(devices, "status", "groups")[0]
        card = group["accelerators"][0]
        key = f"{group['manufacturer']}-{group['id']}"
        pool = f"gpustack-{key}-linux-{labels_of(devices)['kubernetes.io/arch']}"
        before = await self._remaining(pool)
        card["mode"], card["remaining"] = (1, 0) if taken else (0, 1_600_000)
        started = time.monotonic()
        await self._client.patch(DEVICES, node, {"status": devices["status"]}, subresource="status")
        while await self._remaining(pool) == before:
            self._processes.check()
            if time.monotonic() - started > 60:
                raise TimeoutError(f"{pool}: status did not follow a change of {node} within 60 s")
            await asyncio.sleep(0.02)
        return time.monotonic() - started

    async def _remaining(self, pool: str) -> str:
        return as_str(at(await self._client.get(INSTANCE_TYPE, pool), "status", "accelerator", "remaining"))

    def _start_controllers(self) -> Measured:
        return self._processes.start("controllers", "gpustack_operator", "controllers", "--leader-elect=false")

    async def _version(self) -> int:
        """Return the store's counter: it counts every write of everybody."""
        page = await self._client.list_page(NAMESPACE, "", ListOptions(limit=1))
        return int(page.resource_version)

    async def _quiet(self) -> float:
        """Return the moment of the last write, once nothing was written for QUIET_S."""
        version, last = await self._version(), time.monotonic()
        while time.monotonic() - last < QUIET_S:
            self._processes.check()
            await asyncio.sleep(0.25)
            now = await self._version()
            if now != version:
                version, last = now, time.monotonic()
        return last

    async def _count(self, kind: Any, holds: Any) -> None:
        """Wait until every node's object of `kind` is there and holds."""
        while True:
            self._processes.check()
            try:
                found = sum(1 for obj in await self._client.list(kind) if holds(obj))
            except (NotFound, Unreachable):
                found = 0
            if found >= self._nodes:
                return
            await asyncio.sleep(0.5 + self._nodes / 1000)
