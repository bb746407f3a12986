"""`device-manager serve` as a process, between a devcluster and a kubelet stand-in: cards, Pods, ledger, a kill."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hack.kubelet.follower import NodeKubelets, tell_through
from hack.kubelet.kubelet import Kubelet
from kube.client import Client
from kube.connection import Connection
from kube.credentials import find_credentials
from kube.errors import AlreadyExists, OperatorError
from kube.reconciler import Object
from nodefeature.fields import at, name_of
from nodefeature.kinds import DEVICES, NAMESPACE, NODE, POD
from tests.builders.agent_world import claiming, partition, pod

CHECKOUT = Path(__file__).parents[2]
NODE_NAME = "gpu-a"
RECORDED = CHECKOUT / "hack/recorded/nvidia-hgx-a100-80gb-mig-mixed.yaml"

pytestmark = pytest.mark.component


@contextmanager
def process(*words: str) -> Iterator[subprocess.Popen[bytes]]:
    started = subprocess.Popen(
        [sys.executable, "-m", *words], cwd=CHECKOUT, env={**os.environ}, stderr=subprocess.DEVNULL
    )
    try:
        yield started
    finally:
        started.kill()
        started.wait()


def agent(root: Path) -> tuple[str, ...]:
    return (
        "gpustack_operator",
        "device-manager",
        "serve",
        f"--kubeconfig={root / 'kubeconfig'}",
        f"--node-name={NODE_NAME}",
        f"--recorded={RECORDED}",
        f"--kube-socket={root / 'k/device-plugins/kubelet.sock'}",
        "--health-port=0",
    )


async def until(ask: Callable[[], Awaitable[Any]], seconds: float = 30.0) -> Any:
    """Return the first answer that is true; a refusal is no answer yet."""
    async with asyncio.timeout(seconds):
        while True:
            with contextlib.suppress(OperatorError):
                if answer := await ask():
                    return answer
            await asyncio.sleep(0.05)


class Node:
    """What a test asks about the node."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def install(self) -> None:
        for name in ("gpustack-system", "default"):
            with contextlib.suppress(AlreadyExists):
                await self.client.create(NAMESPACE, {"metadata": {"name": name}})
        labels = {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
        await until(lambda: self.client.create(NODE, {"metadata": {"name": NODE_NAME, "labels": labels}}))

    async def rows(self) -> list[Object]:
        devices = await self.client.get(DEVICES, NODE_NAME)
        return [row for group in at(devices, "status", "groups") or [] for row in group.get("accelerators", [])]

    async def held(self) -> dict[int, int]:
        return dict(Counter(row["mode"] for row in await self.rows()))

    async def allocatable(self, resource: str) -> int:
        return int(at(await self.client.get(NODE, NODE_NAME), "status", "allocatable", resource) or 0)

    async def lost(self, resource: str) -> bool:
        return await self.allocatable(resource) == 0

    async def run_pod(self, raw: Object) -> str:
        raw["metadata"].pop("uid")
        raw["metadata"].pop("creationTimestamp")
        name = name_of(raw)
        await self.client.create(POD, raw)
        return str(await until(lambda: self.ended_waiting(name)))

    async def ended_waiting(self, name: str) -> str:
        status = at(await self.client.get(POD, name, "default"), "status") or {}
        phase = str(status.get("phase"))
        return "" if phase == "Pending" else f"{phase} {status.get('message', '')}".strip()

    async def is_held(self, want: dict[int, int]) -> bool:
        return await self.held() == want


async def story(node: Node, root: Path) -> None:
    with process(*agent(root)) as running:
        await until(lambda: node.allocatable("nvidia.com/gpu.sliced"))
        free = {0: len(await node.rows())}
        cards = free[0]
        assert await node.run_pod(pod("slice", claiming(sliced=1, sliced_memory_percentage=20))) == "Running"
        assert await node.run_pod(pod("part", partition("1g.10gb"))) == "Running"
        await until(lambda: node.is_held({0: cards - 2, 3: 1, 4: 1}))
        running.send_signal(signal.SIGKILL)
        running.wait()
    await until(lambda: node.lost("nvidia.com/gpu.sliced"))
    with process(*agent(root)):
        await until(lambda: node.allocatable("nvidia.com/gpu.sliced"))
        await until(lambda: node.is_held({0: cards - 2, 3: 1, 4: 1}))
        assert await node.run_pod(pod("more", claiming(sliced=1, sliced_memory_percentage=30))) == "Running"
        for name in ("slice", "part", "more"):
            await node.client.delete(POD, name, "default", grace_s=0)
        await until(lambda: node.is_held(free))


def test_cards_are_given_recorded_and_freed_across_a_kill() -> None:
    async def run(root: Path) -> None:
        client = Client(Connection(find_credentials(kubeconfig=str(root / "kubeconfig"))))
        node = Node(client)
        kubelet = NodeKubelets(client, {NODE_NAME: Kubelet(root / "k", tell=tell_through(client))})
        tasks = []
        try:
            await node.install()
            tasks.append(asyncio.create_task(kubelet.run()))
            await story(node, root)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await client.close()

    with tempfile.TemporaryDirectory(prefix="node") as folder:
        root = Path(folder)
        with process("hack.devcluster", f"--data-dir={root / 'data'}", f"--kubeconfig={root / 'kubeconfig'}"):
            deadline = time.monotonic() + 20
            while not (root / "kubeconfig").exists() and time.monotonic() < deadline:
                time.sleep(0.05)
            asyncio.run(run(root))
