"""`python -m tests.bench.admission_gate`: gate 3 at 500 waiting Workloads on 1,000 nodes of eight cards.

For: `make bench-admission`. In: counts. Out: one table; 1 when the target or the count of judgements does not hold.
Real: the devcluster as a process behind TLS, the product's client, runtime and reconciler. Kueue's part, quota
reservations, is written by the bench. The floor, in the same run on the same store: a check controller on the same
runtime that says Ready to everybody without looking.
It stands here, not in `hack.bench`: it counts judgements inside the reconciler, which `hack` may not import.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from controllers.node_devices_admission import NodeDevicesAdmission, Verdict, verdict_body
from controllers.selections import selections
from controllers.workload_admission import may_be_judged
from hack.bench.figures import say
from hack.bench.processes import CHECKOUT, Processes
from kube.client import Client
from kube.clock import SystemClock
from kube.reconciler import DONE, Caches, Index, Key, Object, Outcome, Reconciler, Rule, Watch
from kube.runtime import Manager
from nodefeature.fields import as_maps, at, name_of, namespace_of
from nodefeature.kinds import ADMISSION_CHECK, DEVICES, NODE, RESOURCE_FLAVOR, WORKLOAD, Kind
from nodefeature.manufacturers import build_manufacturers
from tests.bench.process import connected
from tests.builders.gate import GPU, gate_pod_set, gate_workload
from tests.builders.gate_world import CHECK, CONTROLLER, gate_devices, taken
from tests.builders.nodes import gpu_node
from tests.builders.queues import admission_check, device_flavor

TARGET_S = 10.0
_AT_ONCE = 32
Asked = list[Object]


@dataclass
class PassThrough:
    """The floor: Ready, whoever asks."""

    NAME: ClassVar[str] = "pass_through"
    WATCHES: ClassVar[tuple[Watch, ...]] = (Watch(WORKLOAD, lambda _, new, __: _self(new)),)
    READS: ClassVar[tuple[Kind, ...]] = ()
    INDEXES: ClassVar[tuple[Index, ...]] = ()
    RBAC: ClassVar[tuple[Rule, ...]] = ()

    client: Client
    caches: Caches

    async def reconcile(self, key: Key) -> Outcome:
        """Apply the verdict once."""
        workload = self.caches[WORKLOAD].get(key)
        if workload is not None and may_be_judged(workload):
            body = verdict_body(workload, [CHECK], Verdict("Ready", ""), "2026-01-01T00:00:00Z")
            if body is not None:
                await self.client.apply(WORKLOAD, body, subresource="status")
        return DONE


@dataclass
class Seen:
    """When a verdict reached the cache."""

    NAME: ClassVar[str] = "seen"
    WATCHES: ClassVar[tuple[Watch, ...]] = (Watch(WORKLOAD, lambda _, new, __: _self(new)),)
    READS: ClassVar[tuple[Kind, ...]] = ()
    INDEXES: ClassVar[tuple[Index, ...]] = ()
    RBAC: ClassVar[tuple[Rule, ...]] = ()

    caches: Caches
    states: dict[str, str] = field(default_factory=dict)
    at: dict[str, float] = field(default_factory=dict)

    async def reconcile(self, key: Key) -> Outcome:
        """Note the first moment of a state."""
        checks = as_maps(at(self.caches[WORKLOAD].get(key), "status", "admissionChecks"))
        state = str(checks[0].get("state")) if checks else "Pending"
        if state != self.states.get(key.name, "Pending"):
            self.states[key.name], self.at[key.name] = state, time.monotonic()
        return DONE


def _self(workload: Object | None) -> Iterable[Key]:
    return (Key(name_of(workload), namespace_of(workload)),) if workload is not None else ()


def workloads(prefix: str, count: int, nodes: int) -> Asked:
    """Return Workloads of every family, half of them on a host that Kueue chose."""
    shapes = (
        {GPU: "1"},
        {GPU: "4"},
        {f"{GPU}.shared": "2"},
        {f"{GPU}.sliced": "1", f"{GPU}.sliced.units": "800000"},
        {GPU: "8"},
    )
    return [
        gate_workload(
            f"{prefix}-{n:04d}",
            gate_pod_set(shapes[n % len(shapes)]),
            hosts={f"gpu-{n * 7 % nodes:04d}": 1} if n % 2 else None,
        )
        for n in range(count)
    ]


class GateBench:
    """One devcluster, two controllers one after the other."""

    def __init__(self, client: Client, nodes: int, count: int) -> None:
        self._client = client
        self._nodes = nodes
        self._count = count
        self._limit = asyncio.Semaphore(_AT_ONCE)
        self.rows: dict[str, str] = {}
        self.holds = True

    async def run(self) -> None:
        """Publish, measure the floor, measure the gate."""
        say(f"publishing {self._nodes} nodes of eight cards")
        await self._client.create(RESOURCE_FLAVOR, device_flavor(count=8))
        await self._client.create(ADMISSION_CHECK, admission_check(CHECK, CONTROLLER))
        await self._each(self._publish(n) for n in range(self._nodes))
        floor = await self._measure("floor", PassThrough)
        gate = await self._measure("gate", self._gate)
        self.rows["gate / floor"] = f"{gate / floor:.2f} x"
        self.holds = self.holds and gate < TARGET_S

    def _gate(self, client: Client, caches: Caches) -> NodeDevicesAdmission:
        return NodeDevicesAdmission(client, caches, manufacturers=build_manufacturers({}), clock=SystemClock())

    async def _publish(self, number: int) -> None:
        """One node in three has free cards: one, four or eight of them."""
        name = f"gpu-{number:04d}"
        await self._client.create(NODE, gpu_node(name, count=8))
        busy = (8, 8, (7, 4, 0)[number // 3 % 3])[number % 3]
        devices = gate_devices(name, *taken(*range(busy)))
        await self._client.create(DEVICES, devices)
        await self._client.patch(DEVICES, name, {"status": devices["status"]}, subresource="status")

    async def _measure(self, name: str, build: Callable[[Client, Caches], Reconciler]) -> float:
        asked = workloads(name, self._count, self._nodes)
        await self._each(self._client.create(WORKLOAD, workload) for workload in asked)
        manager = Manager(self._client, selections=selections())
        seen, judge = Seen(manager.caches), build(self._client, manager.caches)
        manager.add(seen)
        manager.add(judge)
        running = asyncio.create_task(manager.run(), name=name)
        try:
            while not manager.idle:  # noqa: ASYNC110 - the runtime has no event for it
                await asyncio.sleep(0.05)
            say(f"{name}: reserving quota for {self._count} Workloads")
            total = await self._reserve(name, asked, seen)
            if isinstance(judge, NodeDevicesAdmission):
                await self._free_one(judge, seen)
        finally:
            manager.stop()
            await running
        await self._each(self._client.delete(WORKLOAD, name_of(w), "default") for w in asked)
        return total

    async def _reserve(self, name: str, asked: Asked, seen: Seen) -> float:
        cpu, reserved = time.process_time(), dict[str, float]()

        async def one(workload: Object) -> None:
            body = {"status": workload["status"]}
            await self._client.patch(WORKLOAD, name_of(workload), body, "default", subresource="status")
            reserved[name_of(workload)] = time.monotonic()

        await self._each(one(workload) for workload in asked)
        await self._until(lambda: len(seen.at) >= self._count)
        waits = sorted(max(seen.at[w] - reserved[w], 0.0) for w in reserved)
        total = max(seen.at.values()) - max(reserved.values())
        first_to_last = max(seen.at.values()) - min(reserved.values())
        self.rows[f"{name}: all reserved to all decided, s"] = f"{max(total, 0.0):.2f}"
        self.rows[f"{name}: first reserved to all decided, s"] = f"{first_to_last:.2f}"
        self.rows[f"{name}: each from its reservation, p50 / max, s"] = (
            f"{statistics.median(waits):.3f} / {waits[-1]:.3f}"
        )
        self.rows[f"{name}: CPU of bench and controller, s"] = f"{time.process_time() - cpu:.2f}"
        self.rows[f"{name}: verdicts"] = ", ".join(f"{s} {n}" for s, n in sorted(Counter(seen.states.values()).items()))
        return first_to_last

    async def _free_one(self, gate: NodeDevicesAdmission, seen: Seen) -> None:
        """A slice comes back on a full node that one is bound to: it can help slices, of bound ones its own."""
        before = gate.judged
        waiting = [name for name, state in seen.states.items() if state == "Retry"]
        slices = [number for number in (int(name[-4:]) for name in waiting) if number % 5 == 3]
        place = next(self._host(number) for number in slices if number % 2 and self._host(number) % 3 < 2)
        node = f"gpu-{place:04d}"
        free = gate_devices(node, *taken(*range(7)), {**taken(7)[0], "mode": 3, "remaining": 800_000})
        await self._client.patch(DEVICES, node, {"status": free["status"]}, subresource="status")
        await asyncio.sleep(3)
        helped = [number for number in slices if number % 2 == 0 or self._host(number) == place]
        judged = gate.judged - before
        self.rows["one slice freed: waiting, could be helped, judged again"] = (
            f"{len(waiting)}, {len(helped)}, {judged}"
        )
        self.holds = self.holds and judged == len(helped)

    def _host(self, number: int) -> int:
        """Return the node that every second Workload is bound to."""
        return number * 7 % self._nodes

    async def _each(self, work: Iterable[Awaitable[object]]) -> None:
        async def limited(one: Awaitable[object]) -> None:
            async with self._limit:
                await one

        await asyncio.gather(*(limited(one) for one in work))

    async def _until(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 300
        while not holds():
            if time.monotonic() > deadline:
                raise TimeoutError("not all Workloads were decided within 300 s")
            await asyncio.sleep(0.02)


async def measure(folder: Path, nodes: int, count: int) -> GateBench:
    """Run on an empty devcluster."""
    environ = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    with Processes(folder, environ) as processes:
        kubeconfig = folder / "kubeconfig"
        flags = ("--data-dir", str(folder / "store"), "--kubeconfig", str(kubeconfig))
        processes.start("devcluster", "hack.devcluster", *flags)
        client = await connected(kubeconfig)
        try:
            bench = GateBench(client, nodes, count)
            await bench.run()
            return bench
        finally:
            await client.connection.close()


def main() -> int:
    """Read the command line, measure, print; 1 when something does not hold."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.admission_gate", description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--workloads", type=int, default=500)
    asked = parser.parse_args()
    say(f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory(prefix="gpustack-bench-") as name:
        bench = asyncio.run(measure(Path(name), asked.nodes, asked.workloads))
    width = max(map(len, bench.rows))
    for row, value in bench.rows.items():
        print(f"{row.ljust(width)}  {value}")
    print(
        f"{'holds' if bench.holds else 'DOES NOT HOLD'}: decided within {TARGET_S:.0f} s; only the helped judged again"
    )
    return 0 if bench.holds else 1


if __name__ == "__main__":
    sys.exit(main())
