"""A kube-apiserver of its own with our server beside it: tests here stop the server and edit its configurations."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import pytest

from api.settings import SECRET_NAME
from hack.controlplane.admin import Admin
from hack.controlplane.control_plane import REPOSITORY, ControlPlane
from hack.controlplane.manifests import SYSTEM_NAMESPACE, kueue_manifests, namespace_manifest
from hack.controlplane.replicas import Replicas
from nodefeature.kinds import INSTANCE_TYPE, MUTATING_WEBHOOK_CONFIGURATION, SECRET, SERVICE_ACCOUNT
from nodefeature.queue_names import local_queue_name
from tests.builders.admission import INSTANCE_POOLS, POOLS

NAMESPACES = ("team-a", "team-b", "team-c")
_QUEUEING = ("clusterqueues", "localqueues", "workloads")
NOT_REAL = ("two types", "unreadable", "none", "absent")
"""Pools that a real server cannot be brought into, or that are nothing."""


@pytest.fixture(scope="package")
def admission_plane(worker_id: str) -> Iterator[ControlPlane]:
    """Start etcd, kube-apiserver and the controller manager, with Kueue's kinds and without Kueue."""
    folder = REPOSITORY / ".state" / f"e2e-admission-{worker_id}"
    engines = ("etcd", "kube-apiserver", "kube-controller-manager")
    with ControlPlane(folder, engines=engines, chain=()) as running:
        for manifest in kueue_manifests(running.tools, {"webhook": {"port": 9443}}, home=running.layout.root):
            if manifest["kind"] == "CustomResourceDefinition" and manifest["spec"]["names"]["plural"] in _QUEUEING:
                manifest["spec"].pop("conversion", None)  # nobody is there to convert
                running.admin.apply(manifest)
        yield running


@pytest.fixture(autouse=True)
def processes_live(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail the test during which a process of its control plane died; the other one is not started for it."""
    plane = request.getfixturevalue("admission_plane" if "server" in request.fixturenames else "control_plane")
    yield
    plane.check()


@pytest.fixture(scope="package")
def server(admission_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicas]:
    """Serve, with every pool of the tables in the cluster."""
    made = Replicas(admission_plane, tmp_path_factory.mktemp("replicas"))
    try:
        made.start()
        made.until_serving(1)
        made.until(
            lambda: made.admin.get(MUTATING_WEBHOOK_CONFIGURATION, "gpustack-worker-mutation") is not None, "hooks"
        )
        furnish(made)
        yield made
    finally:
        made.clear()


def furnish(made: Replicas) -> None:
    """Make namespaces and pools; general resources are not overcommitted, so that asked sizes are judged."""
    admin = made.admin
    for name in NAMESPACES:
        admin.apply(namespace_manifest(name))
    off = base64.b64encode(b"false").decode()
    made.until(lambda: admin.get(SECRET, SECRET_NAME, SYSTEM_NAMESPACE) is not None, "settings")
    admin.patch(SECRET, SECRET_NAME, {"data": {"instance-general-resources-overcommit": off}}, SYSTEM_NAMESPACE)
    for pools in (POOLS, INSTANCE_POOLS):
        for key, found in pools.items():
            if key not in NOT_REAL:
                install_pool(admin, name_of_pool(key), found[0])
    for name in (*NAMESPACES, "kube-system", SYSTEM_NAMESPACE):
        made.until(lambda name=name: admin.get(SERVICE_ACCOUNT, "default", name) is not None, "accounts")  # type: ignore[misc] # a default argument binds the loop's name


def name_of_pool(key: str) -> str:
    """Return the name that a table's pool has in the cluster."""
    return "pool-" + "".join(c if c.isalnum() else "-" for c in key.lower())


def entrance_of(key: str) -> str:
    """Return the queue label that leads to a table's pool."""
    return local_queue_name(name_of_pool(key))


def install_pool(admin: Admin, name: str, wanted: Any) -> None:
    """Create an InstanceType with its published status."""
    created = admin.create({**wanted, "metadata": {"name": name}, "status": None})
    view = {"onceMaxRequest": "0", "remaining": "0", "capacity": "0"}
    names = ("accelerator", "acceleratorShared", "acceleratorSliced", "acceleratorPartitioned", "cpu")
    status = {**dict.fromkeys(names, view), **wanted["status"]}
    admin.replace({**created, "status": status}, subresource="status")
    assert admin.get(INSTANCE_TYPE, name) is not None
