"""One node whose agent and kubelet are ours on a real control plane: a Pod gets its card, the pool's views move."""

from __future__ import annotations

import asyncio
import json
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hack.controlplane.admin import Object
from hack.controlplane.components import KUBELET_LABEL
from hack.controlplane.control_plane import ControlPlane
from hack.fleet import FleetNode
from hack.kubelet.follower import NodeKubelets, open_kubelets, socket_template
from kube.client import Client
from kube.connection import Connection
from kube.credentials import find_credentials
from nodefeature.fields import annotations_of, as_maps, as_str, at
from nodefeature.kinds import DEVICES, INSTANCE_TYPE, NODE, POD
from tests.builders.agent_world import claiming
from tests.e2e.chain.cluster import Cluster
from tests.e2e.chain.product import Product

NODE_NAME = "agent-h100"
POOL = "gpustack-nvidia-h100-80gb-hbm3-linux-amd64"
VIEWS = ("accelerator", "acceleratorShared", "acceleratorSliced", "acceleratorPartitioned")
pytestmark = pytest.mark.timeout(900)


@contextmanager
def kubelets(control_plane: ControlPlane, root: Path) -> Iterator[None]:
    """Run the node's kubelet stand-in on a loop of its own."""
    loop, started = asyncio.new_event_loop(), threading.Event()

    async def run() -> None:
        client = Client(Connection(find_credentials(kubeconfig=str(control_plane.kubeconfig))))
        started.set()
        try:
            await NodeKubelets(client, open_kubelets(client, root, [NODE_NAME])).run()
        finally:
            await client.close()

    task = loop.create_task(run())
    thread = threading.Thread(target=lambda: loop.run_until_complete(asyncio.wait({task})), name="kubelet")
    thread.start()
    started.wait(30)
    try:
        yield
    finally:
        loop.call_soon_threadsafe(task.cancel)
        thread.join(30)
        loop.close()


@pytest.fixture
def cluster(control_plane: ControlPlane) -> Iterator[Cluster]:
    """Return a cluster with the product in it, and one node whose kubelet speaks to the agent's plugins."""
    product = Product(control_plane, control_plane.layout.root / "agent-product")
    product.install()
    cluster = Cluster(control_plane, product)
    product.start_controllers()
    agents = f"agents-{NODE_NAME}"
    with tempfile.TemporaryDirectory(prefix="k") as folder, kubelets(control_plane, Path(folder)):
        cluster.join(FleetNode(NODE_NAME, "nvidia-dgx-h100", {}, clear_faults=True))
        cluster.wait(NODE, NODE_NAME, until=_is_ready, what="Ready")
        # From now on kwok leaves it alone, and its Pods.
        cluster.admin.patch(NODE, NODE_NAME, {"metadata": {"labels": {KUBELET_LABEL: "dead"}}})
        product.stop(agents)
        sockets = socket_template(Path(folder))
        product.start_agents(product.folder / f"{agents}.jsonl", agents, "--kube-socket", sockets)
        yield cluster
    product.stop_all()
    cluster.leave(NODE_NAME)
    product.uninstall()


def test_a_pod_gets_its_cards_and_the_views_move(cluster: Cluster) -> None:
    cluster.wait(NODE, NODE_NAME, until=lambda obj: _allocatable(obj) == "8", what="8 cards advertised", timeout_s=180)
    cluster.wait_type(POOL, timeout_s=180)
    before = _views(cluster.wait(INSTANCE_TYPE, POOL, until=lambda o: _views(o)["accelerator"] == 8, what="8 free"))
    meta = {"name": "two", "namespace": "default"}
    body = {"nodeName": NODE_NAME, "containers": [claiming(exclusive=2)], "terminationGracePeriodSeconds": 0}
    cluster.admin.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": body})
    pod = cluster.wait(POD, "two", "default", until=lambda o: at(o, "status", "phase") == "Running", what="Running")
    record = json.loads(annotations_of(pod)["device.gpustack.ai/accelerator.allocated"])
    held = {card["id"] for group in record["main"]["devices"]["groups"] for card in group["accelerators"]}
    cluster.wait(DEVICES, NODE_NAME, until=lambda o: _exclusive(o) == held, what=f"{held} held")
    cluster.wait(INSTANCE_TYPE, POOL, until=lambda o: _views(o)["accelerator"] == 6, what="6 free", timeout_s=10)
    cluster.admin.delete(POD, "two", "default")
    cluster.wait_gone(POD, "two", "default")
    cluster.wait(INSTANCE_TYPE, POOL, until=lambda o: _views(o) == before, what="all free")


def _is_ready(node: Object | None) -> bool:
    return any(
        c.get("type") == "Ready" and c.get("status") == "True" for c in as_maps(at(node, "status", "conditions"))
    )


def _allocatable(node: Object | None) -> str:
    return as_str(at(node, "status", "allocatable", "nvidia.com/gpu"))


def _views(obj: Object | None) -> dict[str, int]:
    return {view: int(as_str(at(obj, "status", view, "remaining")) or 0) for view in VIEWS}


def _exclusive(devices: Object | None) -> set[str]:
    rows = [row for group in as_maps(at(devices, "status", "groups")) for row in as_maps(group.get("accelerators"))]
    return {as_str(row.get("id")) for row in rows if row.get("mode") == 1}
