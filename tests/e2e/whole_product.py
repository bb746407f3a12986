"""The whole product beside a control plane: API server with its webhooks, controllers, machines, recorded allocations.

For: fixtures of folders beside `chain`. In: a control plane. Out: blocks during which they run.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from hack.controlplane.control_plane import REPOSITORY, ControlPlane
from hack.controlplane.manifests import namespace_manifest
from hack.controlplane.replicas import Replicas
from hack.fleet import FleetNode
from nodefeature.kinds import LOCAL_QUEUE, NAMESPACE
from tests.e2e.chain.cluster import Cluster
from tests.e2e.chain.product import Product


@contextmanager
def api_server(control_plane: ControlPlane, folder: Path) -> Iterator[Replicas]:
    """Run a replica of the API server that serves, its webhooks installed."""
    made = Replicas(control_plane, folder)
    try:
        made.start("a")
        made.until_serving(1)
        made.until_available()
        yield made
    finally:
        made.clear()


@contextmanager
def recorded_allocations(product: Product) -> Iterator[None]:
    """Let the agents' stand-in record who holds which card, under the agents' account: kwok asks no device plugin."""
    command = (sys.executable, "-m", "hack.devcluster.standins.agent")
    with (product.folder / "recorder.log").open("ab") as log:
        recorder = subprocess.Popen(
            [*command, "--kubeconfig", str(product.folder / "agent.kubeconfig")],
            cwd=REPOSITORY,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        yield
        assert recorder.poll() is None, f"the recorder ended with {recorder.returncode}"
    finally:
        recorder.terminate()
        recorder.wait(20)


@contextmanager
def machines_for(
    team: str,
    control_plane: ControlPlane,
    *,
    nodes: Sequence[FleetNode],
    types: Collection[str],
    flags: Sequence[str] = (),
) -> Iterator[Cluster]:
    """Run the controllers (with `flags`), machines whose pools are open in the team's namespace, recorded allocations.

    All of it is taken away after.
    """
    product = Product(control_plane, control_plane.layout.root / f"product-{team}")
    product.install()
    cluster = Cluster(control_plane, product)
    product.start_controllers("controllers", *flags)
    try:
        with recorded_allocations(product):
            cluster.join(*nodes)
            for name in types:
                cluster.wait_type(name, timeout_s=180)
            cluster.admin.apply(namespace_manifest(team))
            cluster.settle()
            for name in types:
                entrance = cluster.wait_type(name)["status"]["entrance"]
                cluster.wait(LOCAL_QUEUE, entrance, team, until=lambda obj: obj is not None, what="there")
            yield cluster
    finally:
        cluster.admin.delete(NAMESPACE, team)
        product.stop_all()
        cluster.leave(*cluster.machines)
