"""`bench-admission`, first part: what a webhook costs at 200 questions a second.

For: `make bench-admission`. In: sizes. Out: one table of p50 and p99 beside the floor of the same run, an empty route
that allows everything over the same TLS server, and the goals of issue 6. Nothing is judged.
Measured: from the moment a question should leave (a late client counts) to its whole answer, on kept connections, with
so many InstanceTypes and nodes in the cluster; the case and the floor take turns of a second, so that both are asked at
the rate and a busy machine hits both.
"""

from __future__ import annotations

import asyncio
import gc
import os
import random
import ssl
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import uvloop

from hack.bench.admission_server import FLOOR
from hack.bench.chain_audit import percentile
from hack.bench.figures import say
from hack.bench.processes import Processes
from hack.controlplane.layout import free_ports
from hack.devcluster.upstream import Answer
from kube.client import Client
from kube.clock import SystemClock
from kube.connection import Connection
from kube.credentials import find_credentials
from kube.errors import Unreachable
from nodefeature.kinds import INSTANCE_TYPE, NODE
from nodefeature.labels import QUEUE_ENTRANCE, QUEUE_NAME
from nodefeature.queue_names import local_queue_name

GPU = "nvidia.com/gpu"
CONNECTIONS = 16
TURN_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much of everything."""

    types: int = 2_000
    nodes: int = 5_000
    rate: float = 200.0
    case_s: float = 20.0


SMALL = Sizes(types=50, nodes=50, rate=50, case_s=0.4)
"""A smoke test."""


@dataclass(slots=True)
class Case:
    """One kind of question."""

    name: str
    path: str
    group: str
    kind: str
    goal_ms: float
    took_ms: list[float] = field(default_factory=list)
    floor_ms: list[float] = field(default_factory=list)


def cases() -> list[Case]:
    """Return what is measured."""
    ours = "worker.gpustack.ai"
    return [
        Case("Pod mutation (slice by MiB)", "/mutate-gpustack-worker-core-v1-pod", "", "Pod", 5),
        Case("Pod validation", "/validate-gpustack-worker-core-v1-pod", "", "Pod", 5),
        Case("Instance mutation", "/mutate-worker-gpustack-ai-v1alpha1-instance", ours, "Instance", 10),
        Case("Instance validation", "/validate-worker-gpustack-ai-v1alpha1-instance", ours, "Instance", 10),
        Case("InstanceType mutation", "/mutate-worker-gpustack-ai-v1alpha1-instancetype", ours, "InstanceType", 10),
        Case("InstanceType validation", "/validate-worker-gpustack-ai-v1alpha1-instancetype", ours, "InstanceType", 10),
    ]


def type_name(number: int) -> str:
    """Return the name of a pool."""
    return f"gpustack-nvidia-card-{number}-linux-amd64"


def instance_type(number: int) -> dict[str, Any]:
    """Return one pool with its published status."""
    view = {"onceMaxRequest": "8", "remaining": "80", "capacity": "80"}
    profiles = [{"name": f"{n}g.{n}0gb", "count": 7, "memoryMib": n * 10240} for n in range(1, 8)]
    sliced = {"logical": {"count": 896}, "physical": {"count": 7, "profiles": profiles}}
    views = ("accelerator", "acceleratorShared", "acceleratorSliced", "acceleratorPartitioned", "cpu")
    name = type_name(number)
    return {
        "apiVersion": "worker.gpustack.ai/v1alpha1",
        "kind": "InstanceType",
        "metadata": {"name": name, "labels": {QUEUE_ENTRANCE: local_queue_name(name)}},
        "spec": {
            "acceleratable": True,
            "acceleratorGroup": f"nvidia-card-{number}",
            "generalGroup": "generic",
            "os": "linux",
            "arch": "amd64",
            "unitResources": {"cpu": "12", "ram": "192Gi"},
            "localStorage": "100Gi",
        },
        "status": {
            "phase": "Active",
            "detail": {"manufacturer": "nvidia", "memory": "81920Mi", "slicedDetail": sliced},
            **dict.fromkeys(views, view),
        },
    }


def question(case: Case, number: int) -> bytes:
    """Return one AdmissionReview, each about another pool."""
    name = type_name(number)
    if case.kind == "Pod":
        asks = {"cpu": "4", "memory": "8Gi", f"{GPU}.sliced": "1", f"{GPU}.sliced.memory-mib": "10240"}
        env = [{"name": f"VARIABLE_{n}", "value": "x" * 40} for n in range(20)]
        main = {"name": "main", "image": "registry.example/app:1", "env": env}
        labels = {QUEUE_NAME: local_queue_name(name)}
        obj: dict[str, Any] = {
            "metadata": {"name": "p", "labels": labels},
            "spec": {
                "containers": [{**main, "resources": {"requests": asks, "limits": asks}}, {"name": "side", "env": env}]
            },
        }
    elif case.kind == "Instance":
        cards = {"accelerator": "1", "acceleratorSlicedMemoryPercentage": 50, "acceleratorSlicedCoresPercentage": 50}
        general = {"cpu": "6", "ram": "96Gi", "localStorage": "15Gi"}
        spec = {
            "type": name,
            "image": "i",
            "resources": {**general, **cards},
            "volume": {"ephemeral": {"capacity": "1Gi"}},
        }
        obj = {"metadata": {"name": "box", "namespace": "default"}, "spec": spec}
    else:
        obj = {key: value for key, value in instance_type(number).items() if key != "status"}
    what = {"group": case.group, "version": "v1", "kind": case.kind}
    request = {"uid": str(number), "kind": what, "operation": "CREATE", "namespace": "default", "object": obj}
    return orjson.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})


class Asker:
    """One kept TLS connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def close(self) -> None:
        """Let the connection go."""
        self._writer.close()
        await self._writer.wait_closed()

    async def ask(self, path: str, body: bytes) -> Mapping[str, Any]:
        """Return the response to a question."""
        head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        self._writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        answer = Answer(self._reader, self._writer)
        await answer.read_head(10)
        text = b"".join([piece async for piece in answer.pieces()])
        if answer.code != 200:
            raise RuntimeError(f"{path} answered {answer.code}: {text[:200].decode()}")
        response: Mapping[str, Any] = orjson.loads(text)["response"]
        return response


async def measure(case: Case, port: int, sizes: Sizes) -> None:
    """Ask at the rate, the floor and the case in turns."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    free: asyncio.Queue[Asker] = asyncio.Queue()
    for _ in range(CONNECTIONS):
        free.put_nowait(Asker(*await asyncio.open_connection("127.0.0.1", port, ssl=context)))
    rng = random.Random(1)
    bodies = [question(case, rng.randrange(sizes.types)) for _ in range(500)]
    begun = time.monotonic() + 0.2  # the loop's own clock counts whole milliseconds

    async def one(due: float, path: str, body: bytes, took: list[float]) -> None:
        asker = await free.get()
        response = await asker.ask(path, body)
        if response["allowed"] is not True:
            raise RuntimeError(f"{path} refused: {response.get('status')}")
        took.append((time.monotonic() - due) * 1000)
        free.put_nowait(asker)

    async with asyncio.TaskGroup() as group:
        for number, (path, took) in enumerate(_turns(case, sizes)):
            due = begun + number / sizes.rate
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            group.create_task(one(due, path, bodies[number % len(bodies)], took))
    while not free.empty():
        await free.get_nowait().close()


def _turns(case: Case, sizes: Sizes) -> Iterator[tuple[str, list[float]]]:
    turn = max(1, int(min(TURN_S, sizes.case_s) * sizes.rate))
    for number in range(2 * int(sizes.case_s * sizes.rate)):
        yield (case.path, case.took_ms) if number // turn % 2 else (FLOOR, case.floor_ms)


async def fill(sizes: Sizes) -> None:
    """Put types and nodes into the cluster."""
    clock = SystemClock()
    client = Client(Connection(find_credentials(), clock=clock, rng=random.Random(1)), field_manager="bench")
    while True:
        try:
            await client.list(NODE)
            break
        except Unreachable:
            await clock.sleep(0.2)
    numbers = iter(range(max(sizes.types, sizes.nodes)))

    async def some() -> None:
        for number in numbers:
            if number < sizes.types:
                made = instance_type(number)
                stored = await client.create(INSTANCE_TYPE, made)
                await client.update(INSTANCE_TYPE, {**stored, "status": made["status"]}, subresource="status")
            if number < sizes.nodes:
                node = {"metadata": {"name": f"node-{number}"}, "status": {"capacity": {GPU: "8"}}}
                await client.create(NODE, node)

    await asyncio.gather(*(some() for _ in range(CONNECTIONS)))
    await client.connection.close()


def bench_webhooks(sizes: Sizes) -> list[Case]:
    """Measure every case and print the table."""
    with tempfile.TemporaryDirectory(prefix="gpustack-bench-") as name:
        folder = Path(name)
        os.environ["KUBECONFIG"] = str(folder / "kubeconfig")
        port = next(iter(free_ports(random.Random())))
        with Processes(folder, os.environ) as processes:
            flags = ("--data-dir", str(folder), "--kubeconfig", str(folder / "kubeconfig"), "--port", "0")
            processes.start("devcluster", "hack.devcluster", *flags)
            measured = uvloop.run(_run(processes, folder, port, sizes))
    print(as_table(measured, sizes), flush=True)
    return measured


async def _run(processes: Processes, folder: Path, port: int, sizes: Sizes) -> list[Case]:
    await _until(processes, (folder / "kubeconfig").exists)
    say(f"fill: {sizes.types} InstanceTypes, {sizes.nodes} nodes")
    await fill(sizes)
    processes.start("server", "hack.bench.admission_server", str(port))
    log = folder / "server.log"
    await _until(processes, lambda: log.exists() and "ready" in log.read_text())
    measured = cases()
    gc.collect()
    gc.freeze()  # what filling has left is no part of a question
    for case in measured:
        say(case.name)
        await measure(case, port, sizes)
        processes.check()
    return measured


async def _until(processes: Processes, holds: Any) -> None:
    while not holds():
        processes.check()
        await asyncio.sleep(0.1)


def as_table(measured: list[Case], sizes: Sizes) -> str:
    """Return the figures side by side."""
    head = f"{sizes.rate:.0f}/s, the floor in turns, {sizes.types} InstanceTypes, {sizes.nodes} nodes"
    lines = [head, f"{'':28}{'p50':>10}{'p99':>10}{'floor p50':>12}{'floor p99':>12}{'p50 ratio':>11}{'goal p99':>10}"]
    for case in measured:
        p50, p99 = percentile(case.took_ms, 0.5), percentile(case.took_ms, 0.99)
        floor50, floor99 = percentile(case.floor_ms, 0.5), percentile(case.floor_ms, 0.99)
        cells = f"{p50:>7.2f} ms{p99:>7.2f} ms{floor50:>9.2f} ms{floor99:>9.2f} ms{p50 / floor50:>11.2f}"
        lines.append(f"{case.name:28}{cells}{case.goal_ms:>7.0f} ms")
    return "\n".join(lines)
