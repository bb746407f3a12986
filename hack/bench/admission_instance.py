"""`python -m hack.bench.admission_instance`: how soon an Instance is Ready on an idle real control plane.

For: `make bench-admission`. In: built tools (`make controlplane`). Out: seconds from creation to Ready, beside a plain
Pod of the same shape that nothing queues, in the same run: what is between them is webhooks, Kueue, the card check and
the controller.
Promises: the product runs as in a cluster: its accounts, its API server with the webhooks, its controllers; cards are
recorded by the stand-in agent under the agents' account, because kwok asks no device plugin.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hack.bench.chain_audit import percentile
from hack.bench.chain_cluster import install, registered
from hack.bench.figures import say
from hack.bench.processes import CHECKOUT, Processes
from hack.controlplane.admin import Admin, Object
from hack.controlplane.control_plane import ControlPlane
from hack.controlplane.errors import ControlPlaneError
from hack.controlplane.manifests import SYSTEM_NAMESPACE, namespace_manifest
from hack.controlplane.replicas import Replicas
from hack.fleet import FleetNode, Machines, write_fleet
from hack.machines import nfd_feature_of, node_of
from nodefeature.fields import as_maps, at
from nodefeature.kinds import INSTANCE, INSTANCE_TYPE, LOCAL_QUEUE, POD, Kind

ROUNDS = 20
GOAL_S = 2.0
_NODE = FleetNode("bench-h100", "nvidia-dgx-h100", {}, clear_faults=True)
_POOL = "gpustack-nvidia-h100-80gb-hbm3-linux-amd64"
_TEAM = "bench-boxes"
_PATIENCE_S = 180.0


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m hack.bench.admission_instance", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="Instances, one after the other")
    rounds = parser.parse_args(argv).rounds
    with tempfile.TemporaryDirectory(prefix="gpustack-bench-") as name:
        try:
            measure(Path(name), rounds)
        except ControlPlaneError as error:
            print(f"bench: {error}", file=sys.stderr)
            return error.exit_code
    return 0


def measure(folder: Path, rounds: int) -> None:
    """Take all measurements on a control plane of its own."""
    say("starting the control plane")
    environ = {**os.environ, "PYTHONPATH": str(CHECKOUT), "KUBECONFIG": ""}
    with ControlPlane(folder / "state") as control_plane:
        operator, agents = install(control_plane, folder)
        replica = Replicas(control_plane, folder)
        try:
            with Processes(folder, environ) as processes:
                replica.start()
                replica.until_serving(1)
                replica.until_available()
                _start(control_plane, processes, folder, operator=operator, agents=agents)
                _print(_times(control_plane.admin, rounds), rounds)
                processes.check()
        finally:
            replica.clear()


def _start(control_plane: ControlPlane, processes: Processes, folder: Path, *, operator: Path, agents: Path) -> None:
    """Start the product around one node of eight cards, and wait until its pool is open in the team's namespace."""
    admin, machines = control_plane.admin, Machines()
    machine = machines.of(_NODE)
    admin.create(registered(node_of(_NODE.name, machine, _NODE.labels)))
    admin.apply(nfd_feature_of(_NODE.name, machine, SYSTEM_NAMESPACE))
    fleet = folder / "agents.jsonl"
    write_fleet(fleet, [_NODE], machines)
    processes.start("controllers", "gpustack_operator", "controllers", "--kubeconfig", str(operator))
    flags = ("device-manager", "serve", "--kubeconfig", str(agents), "--fleet", str(fleet))
    processes.start("agents", "gpustack_operator", *flags)
    processes.start("allocations", "hack.devcluster.standins.agent", "--kubeconfig", str(agents))
    admin.apply(namespace_manifest(_TEAM))
    pool = admin.wait(INSTANCE_TYPE, _POOL, until=_is_open, timeout_s=_PATIENCE_S, what="open")
    entrance = str(at(pool, "status", "entrance"))
    admin.wait(LOCAL_QUEUE, entrance, _TEAM, until=lambda obj: obj is not None, timeout_s=_PATIENCE_S, what="there")
    time.sleep(5)  # the chain settles; what it still writes is not this bench's


def _is_open(pool: Object | None) -> bool:
    status = at(pool, "status")
    return at(status, "phase") == "Active" and bool(at(status, "entrance")) and bool(at(status, "detail", "memory"))


def _times(admin: Admin, rounds: int) -> dict[str, list[float]]:
    """Return the seconds of Instances and of plain Pods, taken in turns."""
    times: dict[str, list[float]] = {"Instance": [], "plain Pod": []}
    for number in range(rounds):
        for name, kind, body, ready in (
            ("Instance", INSTANCE, _instance(f"box-{number}"), _instance_ready),
            ("plain Pod", POD, _pod(f"plain-{number}"), _pod_ready),
        ):
            times[name].append(_one(admin, kind, body, ready))
    return times


def _one(admin: Admin, kind: Kind, body: Object, ready: Callable[[Object | None], bool]) -> float:
    name = body["metadata"]["name"]
    began = time.monotonic()
    admin.create(body)
    admin.wait(kind, name, _TEAM, until=ready, timeout_s=60, what="Ready")
    took = time.monotonic() - began
    admin.delete(kind, name, _TEAM)
    admin.wait(kind, name, _TEAM, until=lambda obj: obj is None, timeout_s=60, what="gone")
    return took


def _instance(name: str) -> dict[str, Any]:
    return {
        "apiVersion": INSTANCE.api_version,
        "kind": INSTANCE.kind,
        "metadata": {"name": name, "namespace": _TEAM},
        "spec": {
            "type": _POOL,
            "image": "registry.example/app:1",
            "resources": {"accelerator": "1"},
            "volume": {"ephemeral": {"capacity": "1Gi"}},
            "ports": [{"port": 22}],
        },
    }


def _pod(name: str) -> dict[str, Any]:
    container = {"name": "main", "image": "registry.example/app:1"}
    return {
        "apiVersion": POD.api_version,
        "kind": POD.kind,
        "metadata": {"name": name, "namespace": _TEAM},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 0},
    }


def _instance_ready(obj: Object | None) -> bool:
    return bool(at(obj, "status", "phase") == "Ready")


def _pod_ready(obj: Object | None) -> bool:
    conditions = as_maps(at(obj, "status", "conditions"))
    return any((c.get("type"), c.get("status")) == ("Ready", "True") for c in conditions)


def _print(times: dict[str, list[float]], rounds: int) -> None:
    print(f"Ready after creation, {rounds} in turn, {os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}")
    print(f"{'':<12}{'best':>8}{'median':>8}{'p90':>8}{'worst':>8}   seconds")
    for name, taken in times.items():
        cells = (min(taken), statistics.median(taken), percentile(taken, 0.9), max(taken))
        print(f"{name:<12}" + "".join(f"{cell:>8.2f}" for cell in cells))
    middle = statistics.median(times["Instance"])
    print(f"median {middle / statistics.median(times['plain Pod']):.1f} x a plain Pod's; the goal is {GOAL_S:.0f} s")


if __name__ == "__main__":
    sys.exit(main())
