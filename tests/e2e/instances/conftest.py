"""The whole product beside the control plane: controllers, API server with its webhooks, three machines.

Allocations are recorded by the stand-in agent, under the agents' account (nobody else may): kwok asks no device plugin.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from hack.controlplane.control_plane import REPOSITORY, ControlPlane
from hack.controlplane.manifests import namespace_manifest
from hack.controlplane.replicas import Replicas
from hack.fleet import FleetNode
from nodefeature.kinds import LOCAL_QUEUE, NAMESPACE
from tests.e2e.chain.cluster import Cluster
from tests.e2e.chain.product import Product

TEAM = "team-boxes"
H100 = "gpustack-nvidia-h100-80gb-hbm3-linux-amd64"
A100 = "gpustack-nvidia-a100-sxm4-80gb-linux-amd64"
CPU = "gpustack-generic-linux-amd64"
MACHINES = (
    FleetNode("box-h100", "nvidia-dgx-h100", {}, clear_faults=True),
    FleetNode("box-mig", "nvidia-hgx-a100-80gb-mig-mixed", {}),
    FleetNode("box-cpu", "cpu-intel-8358", {}),
)


@pytest.fixture(scope="package")
def api(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicas]:
    """Return a replica of the API server that serves, its webhooks installed."""
    made = Replicas(control_plane, tmp_path_factory.mktemp("api"))
    try:
        made.start("a")
        made.until_serving(1)
        made.until_available()
        yield made
    finally:
        made.clear()


@pytest.fixture(scope="package")
def boxes(control_plane: ControlPlane, api: Replicas) -> Iterator[Cluster]:
    """Return a cluster with three machines whose pools are open in the team's namespace."""
    product = Product(control_plane, control_plane.layout.root / "product-instances")
    product.install()
    cluster = Cluster(control_plane, product)
    product.start_controllers()
    log = (product.folder / "agent.log").open("ab")
    agent = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "hack.devcluster.standins.agent",
            "--kubeconfig",
            str(product.folder / "agent.kubeconfig"),
        ],
        cwd=REPOSITORY,
        stdout=log,
        stderr=subprocess.STDOUT,
    )
    try:
        cluster.join(*MACHINES)
        for name in (H100, A100, CPU):
            cluster.wait_type(name, timeout_s=180)
        cluster.admin.apply(namespace_manifest(TEAM))
        cluster.settle()
        for name in (H100, A100, CPU):
            entrance = cluster.wait_type(name)["status"]["entrance"]
            cluster.wait(LOCAL_QUEUE, entrance, TEAM, until=lambda obj: obj is not None, what="there")
        yield cluster
    finally:
        cluster.admin.delete(NAMESPACE, TEAM)
        agent.terminate()
        agent.wait(20)
        log.close()
        product.stop_all()
        cluster.leave(*cluster.machines)
