"""A node's life by chance with its agent as a process: killed with SIGKILL under allocations and between them.

For: the slow suite, `make bench-agent`. In: a folder, a seed. Out: figures; AssertionError when a promise is broken.
The agent is `device-manager serve` on a recorded machine of whole and partitioned cards, the API server a devcluster,
the kubelet a stand-in of this process, which is restarted too. Promises are those of `random_node`.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from hack.fleet import FleetNode, Machines, write_machine
from hack.kubelet.follower import NodeKubelets, open_kubelets, socket_template
from hack.kubelet.kubelet import Kubelet
from hack.machines import node_of
from kube.client import Client
from kube.errors import AlreadyExists
from kube.reconciler import Object
from nodefeature.fields import as_maps, as_str, at, uid_of
from nodefeature.kinds import DEVICES, NAMESPACE, NODE, POD
from tests.bench.process import connected, process, until
from tests.bench.random_node import assert_sound, held_rows, refusal_word
from tests.builders.agent_world import claiming, partition

NODE_NAME = "bench-node"
MACHINE = "nvidia-hgx-a100-80gb-mig-mixed"
PROFILES = ("1g.10gb", "2g.20gb", "3g.40gb", "7g.80gb")
_KILLED = ("UNAVAILABLE", "CANCELLED", "endpoint nvidia.com/gpu", "GetPreferredAllocation failed")
"""What a kubelet says of a plugin whose process is gone."""
_MOST_PODS = 12
_SETTLED_S = 30.0


class RandomProcess:
    """One run."""

    def __init__(self, client: Client, kubelet: Kubelet, root: Path, rng: random.Random) -> None:
        self.figures: Counter[str] = Counter()
        self._client = client
        self._kubelet = kubelet
        self._root = root
        self._rng = rng
        self._alive: list[str] = []
        self._agent: asyncio.subprocess.Process | None = None

    async def run(self, allocations: int) -> Counter[str]:
        """Live until so many allocations were asked for, then empty the node; return the figures."""
        await self.start_agent()
        try:
            while self.figures["asked"] < allocations:
                await self._step()
                await self._sound()
            for name in list(self._alive):
                await self._delete(name)
            await self._sound()
            rows = await self._rows()
            assert {row["mode"] for row in rows.values()} == {0}, rows
            assert self._kubelet.devices.given == {}
        finally:
            await self.kill_agent()
        return self.figures

    async def _step(self) -> None:
        roll = self._rng.random()
        if roll < 0.6 and len(self._alive) < _MOST_PODS:
            await self._create()
        elif roll < 0.9 and self._alive:
            await self._delete(self._rng.choice(self._alive))
        elif roll < 0.95:
            self.figures["kubelet restarts"] += 1
            await self._kubelet.restart()
            await self.served()
        else:
            self.figures["SIGKILL between allocations"] += 1
            await self.kill_agent()
            await self.start_agent()

    async def _create(self) -> None:
        self.figures["asked"] += 1
        name = f"p{self.figures['asked']}"
        spec = {"nodeName": NODE_NAME, "containers": [self._container()]}
        body = {"metadata": {"name": name, "namespace": "default"}, "spec": spec}
        self._alive.append(name)
        await self._client.create(POD, body)
        if self._rng.random() < 0.1:
            await asyncio.sleep(self._rng.uniform(0, 0.1))
            self.figures["SIGKILL under an allocation"] += 1
            await self.kill_agent()
            await self.start_agent()
        async with asyncio.timeout(_SETTLED_S):
            while (phase := await self._phase(name)) in {"", "Pending"}:  # noqa: ASYNC110 - another process writes it
                await asyncio.sleep(0.02)
        self.figures[phase] += 1
        if phase == "Failed":
            reason = self._kubelet.reasons[uid_of(await self._client.get(POD, name, "default"))]
            word = refusal_word(reason) or next((word for word in _KILLED if word in reason), "")
            assert word, reason
            self.figures[f"refused: {word}"] += 1

    def _container(self) -> Object:
        roll = self._rng.random()
        if roll < 0.2:
            return claiming(exclusive=1)
        if roll < 0.4:
            return claiming(shared=1)
        if roll < 0.7:
            units = self._rng.choice((160_000, 400_000, 533_333, 800_000))
            return claiming(sliced=1, sliced_units=units, sliced_memory_percentage=max(units // 16_000, 1))
        return partition(self._rng.choice(PROFILES))

    async def _phase(self, name: str) -> str:
        return as_str(at(await self._client.get(POD, name, "default"), "status", "phase"))

    async def _delete(self, name: str) -> None:
        self.figures["deleted"] += 1
        self._alive.remove(name)
        uid = uid_of(await self._client.get(POD, name, "default"))
        await self._client.delete(POD, name, "default", grace_s=0)
        await until(lambda: uid not in self._kubelet.pods)

    async def _rows(self) -> dict[str, Any]:
        devices = await self._client.get(DEVICES, NODE_NAME)
        groups = as_maps(at(devices, "status", "groups"))
        return {row["id"]: row for group in groups for row in as_maps(group.get("accelerators"))}

    async def _sound(self) -> None:
        """Return once the published ledger is what the Pods say; what never becomes so is shown."""
        deadline = asyncio.get_running_loop().time() + _SETTLED_S
        while True:
            try:
                assert_sound(held_rows(await self._client.list(POD, "default")), await self._rows())
                return
            except AssertionError:
                if asyncio.get_running_loop().time() > deadline:
                    raise
            await asyncio.sleep(0.02)

    async def start_agent(self) -> None:
        """Start a process of the agent; return when it is served."""
        command = ("device-manager", "serve", "--node-name", NODE_NAME, "--recorded", str(self._root / "machine.yaml"))
        sockets = socket_template(self._root / "k").replace("{node}", NODE_NAME)
        flags = ("--kube-socket", sockets, "--kubeconfig", str(self._root / "cluster" / "kubeconfig"))
        self._agent = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "gpustack_operator", *command, *flags, "--health-port", "0"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        await self.served()

    async def served(self) -> None:
        """Return when all plugins have brought a list."""
        endpoints = self._kubelet.devices.endpoints
        await until(lambda: len(endpoints) >= 5 and all(e.client and e.lists for e in endpoints.values()))

    async def kill_agent(self) -> None:
        """Kill the process."""
        if self._agent is not None and self._agent.returncode is None:
            self._agent.send_signal(signal.SIGKILL)
            await self._agent.wait()


async def measure_kills(root: Path, allocations: int, seed: int) -> Counter[str]:
    """Run on a devcluster of its own below `root`; return the figures."""
    async with _node(root) as (client, kubelet):
        return await RandomProcess(client, kubelet, root, random.Random(seed)).run(allocations)


async def measure_successions(root: Path, rounds: int) -> list[float]:
    """Let an agent's process take over from one that is then killed; return the seconds until all tokens are back."""
    gaps = []
    async with _node(root) as (client, kubelet):
        endpoints = kubelet.devices.endpoints
        old = RandomProcess(client, kubelet, root, random.Random(1))
        await old.start_agent()
        tokens = {name: e.healthy | e.unhealthy for name, e in endpoints.items()}
        for _ in range(rounds):
            new = RandomProcess(client, kubelet, root, random.Random(1))
            registrations = kubelet.devices.registrations
            await new.start_agent()
            await until(lambda known=registrations: kubelet.devices.registrations >= known + 5)  # type: ignore[misc]  # a bound value
            await old.kill_agent()
            began = time.monotonic()
            await new.served()
            await until(lambda: {name: e.healthy | e.unhealthy for name, e in endpoints.items()} == tokens)
            gaps.append(time.monotonic() - began)
            old = new
        await old.kill_agent()
    return gaps


@asynccontextmanager
async def _node(root: Path) -> AsyncIterator[tuple[Client, Kubelet]]:
    async with process("devcluster", sys.executable, "-m", "hack.devcluster", "--data-dir", str(root / "cluster")):
        client = await connected(root / "cluster" / "kubeconfig")
        node = FleetNode(NODE_NAME, MACHINE, {})
        write_machine(root, node, Machines()).rename(root / "machine.yaml")
        for name in ("gpustack-system", "default"):
            with contextlib.suppress(AlreadyExists):
                await client.create(NAMESPACE, {"metadata": {"name": name}})
        await client.create(NODE, node_of(NODE_NAME, Machines().of(node)))
        kubelets = open_kubelets(client, root / "k", [NODE_NAME])
        followed = asyncio.create_task(NodeKubelets(client, kubelets).run(), name="kubelet")
        try:
            yield client, kubelets[NODE_NAME]
        finally:
            followed.cancel()
            await asyncio.gather(followed, return_exceptions=True)
            await client.connection.close()
