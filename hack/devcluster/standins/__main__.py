"""The stand-ins' process: NFD master, Kueue, scheduler and the kubelets of a fleet, over one kubeconfig.

`python -m hack.devcluster.standins --kubeconfig FILE [--fleet FILE] [--machine NODE=FILE ...] [--nfd-delay SECONDS]
[--kubelet-root FOLDER]`

With `--kubelet-root` the fleet's machines with cards get a kubelet that speaks the device plugin protocol; it listens
on `FOLDER/<node>/device-plugins/kubelet.sock`, where the node's agent must register. A `--machine` never does: it may
be the one this runs on, whose own cards no stand-in hands out.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

import uvloop
import yaml

from hack.devcluster.standins.kubelet import KubeletNode, KubeletPods
from hack.devcluster.standins.kueue.pods import PodIntegration
from hack.devcluster.standins.kueue.queues import ClusterQueueStatus, ResourceFlavorFinalizer
from hack.devcluster.standins.kueue.transformations import transformations_of
from hack.devcluster.standins.kueue.workloads import WorkloadLife
from hack.devcluster.standins.nfd_master import NFDMaster
from hack.devcluster.standins.node_ports import NodePorts
from hack.devcluster.standins.registrar import RegisteredMachine, register
from hack.devcluster.standins.scheduler import Scheduler
from hack.fleet import Machines, load_fleet
from hack.kubelet.follower import NodeKubelets, open_kubelets
from kube.client import Client
from kube.clock import Clock, SystemClock
from kube.connection import Connection
from kube.credentials import find_credentials
from kube.logs import set_up
from kube.runtime import Manager
from nodefeature.fields import as_maps
from nodefeature.manufacturers import build_manufacturers

log = logging.getLogger(__name__)


def machines_of(fleets: Iterable[Path], singles: Iterable[str]) -> Iterable[RegisteredMachine]:
    """Read fleets and `NODE=FILE` pairs, one machine at a time."""
    copies = Machines()
    for path in fleets:
        for node in load_fleet(path):
            yield RegisteredMachine(node.name, node.labels, copies.of(node))
    for single in singles:
        name, _, path_text = single.partition("=")
        with Path(path_text).open("rb") as stream:
            yield RegisteredMachine(name, {}, yaml.load(stream, Loader=yaml.CSafeLoader))


def build(
    manager: Manager, client: Client, clock: Clock, *, nfd_delay_s: float, speaking: Collection[str] = ()
) -> None:
    """Give the manager every stand-in; nodes that are `speaking` have kubelets of their own."""
    registry = build_manufacturers(os.environ)
    caches = manager.caches
    manager.add(NFDMaster(client.as_manager("nfd-master"), caches, clock, delay_s=nfd_delay_s), workers=8)
    kueue = client.as_manager("kueue-admission")
    manager.add(ClusterQueueStatus(kueue, caches, clock))
    manager.add(ResourceFlavorFinalizer(kueue, caches))
    # One at a time, as in Kueue: two Workloads must not be promised the same quota.
    manager.add(WorkloadLife(kueue, caches, clock, transformations=transformations_of(registry)), workers=1)
    manager.add(PodIntegration(kueue, caches, clock))
    manager.add(Scheduler(client.as_manager("kube-scheduler"), caches, clock), workers=1)
    manager.add(NodePorts(client.as_manager("kube-apiserver"), caches), workers=1)
    kubelet = client.as_manager("kubelet")
    manager.add(KubeletNode(kubelet, caches, manufacturers=registry, left_out=speaking), workers=8)
    manager.add(KubeletPods(kubelet, caches, clock, left_out=speaking))


async def run(arguments: argparse.Namespace) -> None:
    """Register the machines, then play until told to stop."""
    connection = Connection(find_credentials(kubeconfig=arguments.kubeconfig))
    client = Client(connection)
    manager = Manager(client)
    speaking = speaking_nodes(arguments) if arguments.kubelet_root else []
    build(manager, client, SystemClock(), nfd_delay_s=arguments.nfd_delay, speaking=frozenset(speaking))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, manager.stop)
    kubelet = client.as_manager("kubelet")
    machines = machines_of(arguments.fleet, arguments.machine)
    count = await register(kubelet, machines, namespace=arguments.namespace)
    log.info("machines registered", extra={"machines": count})
    kubelets = NodeKubelets(kubelet, open_kubelets(kubelet, arguments.kubelet_root, speaking)) if speaking else None
    try:
        async with asyncio.TaskGroup() as group:
            spoken = group.create_task(kubelets.run(), name="kubelets") if kubelets else None
            await manager.run()
            if spoken:
                spoken.cancel()
    finally:
        await connection.close()


def speaking_nodes(arguments: argparse.Namespace) -> list[str]:
    """Return the nodes that have cards for a device plugin to offer."""
    machines = machines_of(arguments.fleet, ())
    return [machine.name for machine in machines if as_maps(machine.machine.get("accelerators"))]


def main(argv: Sequence[str] | None = None) -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m hack.devcluster.standins", description=__doc__)
    parser.add_argument("--kubeconfig", default="", help="kubeconfig of the devcluster")
    parser.add_argument("--namespace", default="gpustack-system", help="namespace of the NFD workers' NodeFeatures")
    parser.add_argument("--fleet", type=Path, action="append", default=[], help="fleet file to register")
    parser.add_argument("--machine", action="append", default=[], metavar="NODE=FILE", help="one more machine")
    parser.add_argument("--nfd-delay", type=float, default=0.0, help="seconds NFD master waits before each merge")
    parser.add_argument(
        "--kubelet-root", type=Path, help="folder of kubelets that speak the device plugin protocol, one a machine"
    )
    set_up(level="INFO", style="text")
    uvloop.run(run(parser.parse_args(argv)))


if __name__ == "__main__":
    main()
