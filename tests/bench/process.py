"""The agent as a process of its own: its memory, and its writes once settled.

For: `make bench-agent`. In: a folder. Out: figures.
The process is `device-manager serve` as in a Pod, on a recorded machine, without any manufacturer's library; before it
a kubelet stand-in, behind it a devcluster. Every write gives its object a new version, so the newest version of all
tells whether anything was written.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

from hack.fleet import FleetNode, Machines, write_machine
from hack.kubelet.follower import NodeKubelets, tell_through
from hack.kubelet.kubelet import Kubelet
from hack.machines import node_of
from kube.client import Client
from kube.connection import Connection
from kube.credentials import find_credentials
from kube.errors import NotFound, Unreachable
from nodefeature.kinds import DEVICES, NAMESPACE, NODE
from tests.bench.figures import Figure

NODE_NAME = "bench-node"
RSS_MIB = 80
SETTLED_S = 20.0
_PATIENCE_S = 120.0
_SHOWN_LINES = 15


async def measure(root: Path) -> list[Figure]:
    """Return the figures of one process."""
    async with process("devcluster", sys.executable, "-m", "hack.devcluster", "--data-dir", str(root / "cluster")):
        client = await connected(root / "cluster" / "kubeconfig")
        try:
            return await _measure(client, root)
        finally:
            await client.connection.close()


async def _measure(client: Client, root: Path) -> list[Figure]:
    node = FleetNode(NODE_NAME, "nvidia-dgx-h100", {})
    await client.create(NAMESPACE, {"metadata": {"name": "gpustack-system"}})
    await client.create(NODE, node_of(NODE_NAME, Machines().of(node)))
    kubelet = Kubelet(root / "k", tell=tell_through(client))
    followed = asyncio.create_task(NodeKubelets(client, {NODE_NAME: kubelet}).run(), name="kubelet")
    machine = write_machine(root, node, Machines())
    command = ("device-manager", "serve", "--node-name", NODE_NAME, "--recorded", str(machine))
    flags = ("--kube-socket", str(kubelet.socket), "--monitor-period", "2s", "--health-port", "0")
    server = urlsplit((await find_credentials(kubeconfig=str(root / "cluster" / "kubeconfig")).current()).server)
    environ = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(server.port), "KUBECONFIG": ""}
    launcher = (sys.executable, "-m", "tests.bench.as_in_a_pod", str(root / "cluster"))
    try:
        async with process("agent", *launcher, *command, *flags, **environ) as agent:
            await until(lambda: len(kubelet.devices.endpoints) >= 4 and all_healthy(kubelet))
            await _settled(client)
            before = await newest_version(client)
            await asyncio.sleep(SETTLED_S)
            written = await newest_version(client) - before
            memory = rss_mib(agent.pid)
    finally:
        followed.cancel()
        await asyncio.gather(followed, return_exceptions=True)
    return [
        Figure("resident memory of device-manager serve", f"{memory:.0f} MiB", f"< {RSS_MIB} MiB", memory < RSS_MIB),
        Figure(f"objects written in {SETTLED_S:.0f} s, settled", str(written), "0", written == 0),
    ]


async def _settled(client: Client) -> None:
    """Return when nothing was written for three seconds."""
    last = -1
    while (now := await newest_version(client)) != last:
        last = now
        await asyncio.sleep(3)


async def newest_version(client: Client) -> int:
    """Return the version of the newest write to any object."""
    return int((await client.list_page(DEVICES)).resource_version)


def all_healthy(kubelet: Kubelet) -> bool:
    """Say whether each plugin has brought a list."""
    return all(endpoint.lists for endpoint in kubelet.devices.endpoints.values())


def rss_mib(pid: int) -> float:
    """Return a process's resident memory."""
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


async def connected(kubeconfig: Path) -> Client:
    """Return a client of a devcluster that is starting."""
    await until(kubeconfig.exists)
    client = Client(Connection(find_credentials(kubeconfig=str(kubeconfig))), deadline_s=_PATIENCE_S)
    async with asyncio.timeout(_PATIENCE_S):
        while True:
            try:
                await client.get(NODE, "nobody")
            except NotFound:
                return client
            except Unreachable:
                await asyncio.sleep(0.1)


async def until(true: Callable[[], bool]) -> None:
    """Return when something has become true."""
    async with asyncio.timeout(_PATIENCE_S):
        while not true():  # noqa: ASYNC110 - watches other people's state
            await asyncio.sleep(0.05)


@asynccontextmanager
async def process(name: str, *argv: str, **environ: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a child until the block ends; the last lines it said are shown when the block fails."""
    with tempfile.TemporaryFile() as log:
        running = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=asyncio.subprocess.STDOUT,
            env={**os.environ, **environ},
        )
        try:
            yield running
            assert running.returncode is None, f"{name} ended with {running.returncode}"
        except BaseException:
            log.seek(0)
            lines = log.read().decode(errors="replace").splitlines()[-_SHOWN_LINES:]
            sys.stderr.write("\n".join([f"last lines of {name}:", *lines, ""]))
            raise
        finally:
            if running.returncode is None:
                running.terminate()
            await running.wait()
