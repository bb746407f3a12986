"""The product beside the control plane, and the fleet of thirty machines.

The scenarios of one module share what its fixtures made, and leave it as they found it.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hack.controlplane.control_plane import ControlPlane
from hack.controlplane.manifests import namespace_manifest
from hack.fleet import load_fleet
from nodefeature.kinds import INSTANCE_TYPE, LOCAL_QUEUE, NAMESPACE
from tests.e2e.chain.cluster import LONG_QUIET_S, Cluster
from tests.e2e.chain.differences import differences
from tests.e2e.chain.fleet import FLEET, MOVING, POOLS
from tests.e2e.chain.product import Product
from tests.e2e.chain.workloads import TEAM


@pytest.fixture(scope="package")
def cluster(control_plane: ControlPlane) -> Iterator[Cluster]:
    """Return a cluster with the product installed and running, and no machine in it."""
    product = Product(control_plane, control_plane.layout.root / "product")
    product.install()
    cluster = Cluster(control_plane, product)
    product.start_controllers()
    yield cluster
    product.stop_all()
    cluster.leave(*cluster.machines)
    product.uninstall()
    assert not cluster.refused()


@pytest.fixture(autouse=True)
def ours_live(cluster: Cluster) -> Iterator[None]:
    """Fail the test during which a process of ours ended."""
    yield
    cluster.product.check()


@pytest.fixture(scope="package")
def fleet(cluster: Cluster) -> Iterator[Cluster]:
    """Return the cluster with the fleet in it, settled."""
    nodes = load_fleet(FLEET)
    cluster.join(*(node for node in nodes if node.name not in MOVING))
    for node in nodes:
        if node.name in MOVING:  # their agents come and go without the others'
            cluster.join(node)
    for name, (unit, accelerator) in POOLS.items():
        cluster.wait_type(name, unit=unit, accelerator=accelerator, timeout_s=180)
    cluster.settle(quiet_s=LONG_QUIET_S)
    yield cluster
    cluster.clear()


@pytest.fixture(scope="package")
def team(fleet: Cluster) -> Iterator[str]:
    """A namespace made after the pools: it gets an entrance to each."""
    fleet.admin.apply(namespace_manifest(TEAM))
    for pool in fleet.admin.list(INSTANCE_TYPE):
        fleet.wait(LOCAL_QUEUE, pool["status"]["entrance"], TEAM, until=bool, what="there")
    yield TEAM
    fleet.admin.delete(NAMESPACE, TEAM)
    fleet.wait_gone(NAMESPACE, TEAM)


@pytest.fixture
def restored(fleet: Cluster, team: str) -> Iterator[Cluster]:
    """Return the settled fleet, and hold the test to leaving it as it was."""
    before = fleet.meaning()
    yield fleet
    fleet.settle()
    after = fleet.meaning()
    assert (changed := differences(before, after)) == [], "\n".join(changed)
