"""`python -m tests.bench.fleet_real [--nodes N]`: how soon a ledger's change stands in its InstanceType.

For: `make bench-agent ENGINE=real`. In: a number of nodes. Out: a table; 1 when a promise does not hold.
Real: the control plane of `bench-chain ENGINE=real` and its way of publishing a fleet; the controllers as a process;
the agents of all nodes, with their ledgers, in one process (`tests.bench.fleet_ledgers`). The bench plays the plugins:
it creates a Pod on a node and writes its record, later deletes it. All times are the API server's own, by its audit
log: Pod's record -> `Devices.status` by the agents -> `InstanceType.status` by the controllers.
It stands here, not in `hack.bench`: it runs agents without their command, which `hack` may not import.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

from api.devices import cards_of, spec_groups
from api.ledger.fit import is_partitioned
from api.ledger.modes import CARD_UNITS, Mode
from api.ledger.transport import ALLOCATED_ANNOTATION, Record, dump
from hack.bench.chain_audit import latencies, percentile
from hack.bench.chain_floor import FLOOR, FLOOR_NAME
from hack.bench.chain_real import ROUND_S, RealBench, latency_rows
from hack.bench.figures import as_table, say
from hack.bench.fleet import MACHINES
from hack.bench.processes import Measured
from hack.controlplane.audit import Request
from hack.controlplane.errors import ControlPlaneError
from hack.controlplane.product import AGENT
from hack.fleet import Machines, write_fleet
from kube.reconciler import Object
from nodefeature.fields import as_int, as_str, labels_of, uid_of
from nodefeature.kinds import DEVICES, INSTANCE_TYPE, POD
from nodefeature.labels import ARCH
from tests.bench.fleet_ledgers import FOLLOWING
from tests.builders.agent_world import claiming

TARGET_S = 1.0
ROUNDS = 32
"""Of each pool: in even rounds a Pod comes, in odd ones it goes; the first two warm up and are not counted."""
_WARM = 2
_LEDGER = f"{DEVICES.group_resource}/status"
_STATUS = f"{INSTANCE_TYPE.group_resource}/status"
_FLOOR = f"{FLOOR.group_resource}/status"
_NAMESPACE = "default"
_PREFIX = "bench-"


class FleetBench(RealBench):
    """One fleet whose agents follow their Pods."""

    def __init__(self, nodes: int, folder: Path) -> None:
        super().__init__(nodes, folder)
        self.holds = True

    async def _steps(self, operator: Path, agents: Path) -> None:
        await self._publish(agents)
        controllers = await self._cold(operator)
        ledgers = await self._follow(agents)
        await self._settled()
        await self._record(controllers, ledgers)

    async def _follow(self, kubeconfig: Path) -> Measured:
        """Start the agents of all nodes; return when they have said what they have to say."""
        say(f"{len(self._fleet)} nodes: their agents in one process")
        file = self._folder / "all-agents.jsonl"
        write_fleet(file, self._fleet, Machines())
        began = time.time()
        flags = ("--kubeconfig", str(kubeconfig), "--fleet", str(file))
        ledgers = self._processes.start("ledgers", "tests.bench.fleet_ledgers", *flags)
        await self._until(lambda: FOLLOWING in (self._folder / "ledgers.log").read_text())
        last = await self._quiet(self._counted)
        self.figures.rows["agents of all nodes to their last write, s"] = max(last - began, 0.0)
        return ledgers

    async def _settled(self) -> None:
        await super()._settled()
        self._writes.read()
        silent = self._writes.counts[AGENT.user]
        await asyncio.sleep(ROUND_S)
        self._writes.read()
        written = self._writes.counts[AGENT.user] - silent
        self.figures.rows["settled, writes of the agents"] = float(written)
        self.holds = self.holds and not written

    async def _record(self, controllers: Measured, ledgers: Measured) -> None:
        kubeconfig = str(self._control_plane.kubeconfig)
        self._processes.start("floor", "hack.bench.chain_floor", "--kubeconfig", kubeconfig)
        await self._until(lambda: "watching" in (self._folder / "floor.log").read_text())
        say(f"{len(self._fleet)} nodes: {ROUNDS * len(MACHINES)} Pods' comings and goings")
        for number in range(_WARM):
            await self._round(number)
        await asyncio.sleep(ROUND_S)
        self._writes.read(_is_of_a_change)
        self._writes.kept()
        cpu = controllers.cpu_s(), ledgers.cpu_s()
        for number in range(_WARM, ROUNDS):
            await self._round(number)
        await asyncio.sleep(ROUND_S)
        self._writes.read(_is_of_a_change)
        changes = (ROUNDS - _WARM) * len(MACHINES)
        rows, holds = change_rows(self._writes.kept(), changes, self._pools)
        self.figures.rows |= rows
        self.holds = self.holds and holds
        self.figures.rows["change, CPU ms controllers"] = (controllers.cpu_s() - cpu[0]) * 1000 / changes
        self.figures.rows["change, CPU ms agents"] = (ledgers.cpu_s() - cpu[1]) * 1000 / changes
        self.figures.rows["peak MiB controllers"] = controllers.peak_mib()
        self.figures.rows["peak MiB agents of all nodes"] = ledgers.peak_mib()

    async def _round(self, number: int) -> None:
        """Let a Pod come to, or go from, one node of every pool, evenly spread over a round."""
        for machine in MACHINES:
            began = time.monotonic()
            members = [node.name for node in self._fleet if node.machine == machine]
            node = members[number // 2 % len(members)]
            await (self._come(node) if number % 2 == 0 else self._go(node))
            self._check()
            await asyncio.sleep(max(0.0, ROUND_S / len(MACHINES) - (time.monotonic() - began)))

    async def _come(self, node: str) -> None:
        devices = await self._client.get(DEVICES, node)
        record = first_card(devices)
        self._pools[node] = f"gpustack-{record.manufacturer}-{record.group_id}-linux-{labels_of(devices)[ARCH]}"
        body = {
            "nodeName": node,
            "containers": [claiming("main", record.manufacturer, exclusive=1)],
            "terminationGracePeriodSeconds": 0,
        }
        name = f"{_PREFIX}{node}"
        pod = await self._client.create(POD, {"metadata": {"name": name, "namespace": _NAMESPACE}, "spec": body})
        token = f"{record.group_id}:{record.card_id}:0000"
        annotations = {ALLOCATED_ANNOTATION: dump([record], {"main": (token,)})}
        patch = {"metadata": {"uid": uid_of(pod), "annotations": annotations}}
        await self._client.patch(POD, name, patch, _NAMESPACE)

    async def _go(self, node: str) -> None:
        await self._client.delete(POD, f"{_PREFIX}{node}", _NAMESPACE, grace_s=0)


def first_card(devices: Object) -> Record:
    """Return the record of a container that holds a node's first card that can be had whole; all cards are free."""
    group, card = next((g, c) for g in spec_groups(devices) for c in cards_of(g) if not is_partitioned(c))
    return Record(
        container="main",
        group_id=as_str(group.get("id")),
        manufacturer=as_str(group.get("manufacturer")),
        card_id=as_str(card.get("id")),
        index=as_int(card.get("index")),
        mode=Mode.EXCLUSIVE,
        allocated=CARD_UNITS,
    )


def change_rows(kept: Iterable[Request], changes: int, pools: Mapping[str, str]) -> tuple[Mapping[str, float], bool]:
    """Return what the requests of so many changes came to, and whether it is as promised; `pools` by node."""
    by_resource: defaultdict[str, list[Request]] = defaultdict(list)
    for request in kept:
        by_resource[request.resource].append(request)
    records = [request for request in by_resource[POD.group_resource] if request.verb in {"patch", "delete"}]
    causes = [request for request in by_resource[_LEDGER] if request.user == AGENT.user]
    ledger = latencies(records, causes, same=lambda record: record.name.removeprefix(_PREFIX))
    status = latencies(causes, by_resource[_STATUS], same=lambda cause: pools[cause.name])
    floor = latencies(causes, by_resource[_FLOOR], same=lambda _: FLOOR_NAME)
    rows = {"Pods' comings and goings": float(changes), "ledger writes of the agents": float(len(causes))}
    for share in (0.5, 0.99):
        rows[f"Pod's record to ledger, p{share * 100:.0f} ms"] = percentile(ledger, share) * 1000
    rows |= latency_rows(len(causes), status=status, floor=floor)
    answered = len(causes) == len(ledger) == len(status) == changes
    return rows, answered and percentile(status, 0.99) < TARGET_S


def _is_of_a_change(request: Request) -> bool:
    of_ours = request.resource == POD.group_resource and request.name.startswith(_PREFIX)
    return of_ours or request.resource in (_LEDGER, _STATUS, _FLOOR)


def main() -> int:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.fleet_real", description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    asked = parser.parse_args()
    say(f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}")
    try:
        with tempfile.TemporaryDirectory(prefix="gpustack-bench-") as name:
            bench = FleetBench(asked.nodes, Path(name))
            print(as_table([bench.run()]), flush=True)
    except ControlPlaneError as error:
        print(f"bench: {error}", file=sys.stderr)
        return error.exit_code
    word = "holds" if bench.holds else "DOES NOT HOLD"
    print(f"{word}: ledger to status p99 below {TARGET_S:.0f} s; one ledger write a change, none settled")
    return 0 if bench.holds else 1


if __name__ == "__main__":
    sys.exit(main())
