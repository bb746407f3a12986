"""The whole product beside the control plane: controllers, API server with its webhooks, three machines.

Allocations are recorded by the stand-in agent, under the agents' account (nobody else may): kwok asks no device plugin.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hack.controlplane.control_plane import ControlPlane
from hack.controlplane.replicas import Replicas
from hack.fleet import FleetNode
from tests.e2e.chain.cluster import Cluster
from tests.e2e.whole_product import api_server, machines_for

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
    with api_server(control_plane, tmp_path_factory.mktemp("api")) as made:
        yield made


@pytest.fixture(scope="package")
def boxes(control_plane: ControlPlane, api: Replicas) -> Iterator[Cluster]:
    """Return a cluster with three machines whose pools are open in the team's namespace."""
    with machines_for(TEAM, control_plane, nodes=MACHINES, types=(H100, A100, CPU)) as cluster:
        yield cluster
