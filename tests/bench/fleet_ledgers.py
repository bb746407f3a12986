"""`python -m tests.bench.fleet_ledgers --kubeconfig FILE --fleet FILE`: a fleet's agents with their ledgers.

For: `tests.bench.fleet_real`. In: a fleet's machines. Out: inventories and ledgers of every node, from one process.
It is `device-manager serve --fleet` without the sockets of five plugins a node; who holds which card is read from the
Pods' records, as ever. Says `ledgers follow` once every node is published and its Pods are cached.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from pathlib import Path

import uvloop

from devicemanager.agent import AgentOptions
from devicemanager.detection import DetectionOptions
from devicemanager.fleet import NODE_WORD
from devicemanager.kubelet.serving import KubeletSocket
from devicemanager.node import PluginOptions
from devicemanager.serve import serve_fleet
from hack.controlplane.manifests import SYSTEM_NAMESPACE
from kube.client import Client
from kube.clock import SystemClock
from kube.connection import Connection
from kube.credentials import find_credentials
from kube.tasks import Health
from nodefeature.manufacturers import build_manufacturers

FOLLOWING = "ledgers follow"


async def run(kubeconfig: Path, fleet: Path, folder: Path) -> None:
    """Detect, publish and keep ledgers until killed."""
    connection = Connection(find_credentials(kubeconfig=str(kubeconfig)))
    client, clock = Client(connection, field_manager="gpustack-device-manager"), SystemClock()
    registry, health = build_manufacturers({}), Health()
    options = AgentOptions(detection=DetectionOptions(manufacturers=registry.names, registry=registry))
    socket = KubeletSocket(folder / NODE_WORD / "device-plugins" / "kubelet.sock")
    plugins = PluginOptions(registry=registry, manufacturers=(), socket=socket, identify_by_kubelet=False)
    serving = serve_fleet(client, clock, fleet, options, namespace=SYSTEM_NAMESPACE, plugins=plugins, health=health)
    async with asyncio.TaskGroup() as group:
        group.create_task(serving, name="fleet")
        await asyncio.sleep(1)  # its checks are there
        while health.ready_faults():  # noqa: ASYNC110 - other people's state
            await asyncio.sleep(0.5)
        print(FOLLOWING, flush=True)


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.fleet_ledgers", description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--fleet", type=Path, required=True)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ledgers") as folder:
        uvloop.run(run(asked.kubeconfig, asked.fleet, Path(folder)))


if __name__ == "__main__":
    main()
