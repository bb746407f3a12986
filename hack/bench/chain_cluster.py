"""The real control plane under `bench-chain`, and the product in it as it runs in a cluster.

For: `hack.bench.chain_real`. In: a folder. Out: a control plane, kubeconfigs of the product's accounts, nodes.
Promises: everything that is set otherwise than in `hack.controlplane` stands in FLAGS and NFD_UPDATERS and is printed
with the figures; the accounts hold what `gpustack-operator rbac` prints; a Node is created with its status.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from api.crds import crd_manifests
from hack.bench.chain_copies import Published, published
from hack.bench.chain_floor import FLOOR, FLOOR_NAME, floor_crd
from hack.bench.figures import say
from hack.controlplane.admin import Admin
from hack.controlplane.control_plane import ControlPlane
from hack.controlplane.manifests import SYSTEM_NAMESPACE
from hack.controlplane.product import AGENT, OPERATOR, printed_rbac
from hack.fleet import FleetNode, Machines
from hack.machines import nfd_feature_of, node_of
from kube.client import Client
from nodefeature.fields import as_maps, at, name_of, uid_of
from nodefeature.kinds import CUSTOM_RESOURCE_DEFINITION, DEVICES, NODE, NODE_FEATURE

FLAGS: Mapping[str, tuple[str, ...]] = {
    # Two cores cannot carry a lease renewal every 10 s of 5,000 kubelets: they renew none, and nobody waits for one.
    "kwok": ("--node-lease-duration-seconds=0",),
    "kube-controller-manager": ("--controllers=-ttl-controller,-node-lifecycle-controller",),
    # Who would take the taint of a new node away is off.
    "kube-apiserver": ("--disable-admission-plugins=TaintNodesByCondition",),
}
NFD_UPDATERS = 100
"""Each of NFD master's updaters sends 5 requests a second at most; 10 of them is its default, 25 nodes a second."""
_IN_FLIGHT = 16
_SPOKEN_NODES = 500


def terms() -> str:
    """Return what is set otherwise than a cluster would have it."""
    changed = [f"{name} {' '.join(flags)}" for name, flags in FLAGS.items()]
    return "; ".join([*changed, f"nfd-master nfdApiParallelism={NFD_UPDATERS}"])


def start(folder: Path) -> ControlPlane:
    """Start a control plane for many nodes."""
    control_plane = ControlPlane(folder, flags=FLAGS)
    try:
        control_plane.start()
        control_plane.reconfigure("nfd-master", lambda c: c.update(nfdApiParallelism=NFD_UPDATERS))
    except BaseException:
        control_plane.stop()
        raise
    return control_plane


def install(control_plane: ControlPlane, folder: Path) -> tuple[Path, Path]:
    """Install the product and the floor; return the kubeconfigs of the operator and of the agents."""
    admin = control_plane.admin
    _apply_crds(admin, [*crd_manifests(), floor_crd()])
    admin.create({"apiVersion": FLOOR.api_version, "kind": FLOOR.kind, "metadata": {"name": FLOOR_NAME}})
    paths = []
    for process, account in (("controllers", OPERATOR), ("device-manager", AGENT)):
        paths.append(folder / f"{process}.kubeconfig")
        paths[-1].write_text(control_plane.product_kubeconfig(printed_rbac(process), account).read_text())
    return paths[0], paths[1]


async def register(client: Client, nodes: Iterable[FleetNode], machines: Machines) -> None:
    """Create each machine's Node and what its NFD worker publishes."""
    for node in nodes:
        machine = machines.of(node)
        await client.create(NODE, registered(node_of(node.name, machine, node.labels)))
        await client.create(NODE_FEATURE, nfd_feature_of(node.name, machine, SYSTEM_NAMESPACE))


async def read_published(client: Client, name: str) -> Published:
    """Return what the cluster holds of a node."""
    features = (name, f"{name}-gpustack-device-manager")
    return published(
        await client.get(NODE, name),
        [await client.get(NODE_FEATURE, feature, SYSTEM_NAMESPACE) for feature in features],
        await client.get(DEVICES, name),
    )


async def publish_copies(client: Client, originals: Mapping[str, Published], nodes: Iterable[FleetNode]) -> None:
    """Create a copy of its machine's original for each node, some at a time."""
    waiting = enumerate(nodes, 1)

    async def work() -> None:
        for number, node in waiting:
            if number % _SPOKEN_NODES == 0:
                say(f"  {number:,} copies")
            original = originals[node.machine]
            created = await client.create(NODE, original.node_named(node.name))
            features, devices = original.others_of(node.name, uid_of(created))
            for feature in features:
                await client.create(NODE_FEATURE, feature)
            await client.create(DEVICES, devices)
            await client.patch(DEVICES, node.name, {"status": devices["status"]}, subresource="status")

    async with asyncio.TaskGroup() as group:
        for _ in range(_IN_FLIGHT):
            group.create_task(work())


def registered(node: dict[str, Any]) -> dict[str, Any]:
    """Return a Node with the annotation every kubelet sets; NFD master's patches need one to be there."""
    metadata = {**node["metadata"], "annotations": {"volumes.kubernetes.io/controller-managed-attach-detach": "true"}}
    return {**node, "metadata": metadata}


def _apply_crds(admin: Admin, manifests: Sequence[Mapping[str, Any]]) -> None:
    for manifest in manifests:
        admin.apply(dict(manifest))
    for manifest in manifests:
        admin.wait(CUSTOM_RESOURCE_DEFINITION, name_of(manifest), until=_is_established, what="Established")


def _is_established(crd: object) -> bool:
    conditions = as_maps(at(crd, "status", "conditions"))
    return any((c.get("type"), c.get("status")) == ("Established", "True") for c in conditions)
