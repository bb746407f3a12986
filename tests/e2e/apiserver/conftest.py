"""A control plane of its own: tests here delete the operator's namespace and stop its server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.controlplane.control_plane import REPOSITORY, ControlPlane
from hack.controlplane.manifests import namespace_manifest
from hack.controlplane.replicas import Replicas
from nodefeature.kinds import NAMESPACE
from tests.e2e.apiserver.conformance import TABLE, Conformance


def pytest_configure(config: pytest.Config) -> None:
    """Write the conformance table."""
    config.pluginmanager.register(Conformance(TABLE), "conformance")


@pytest.fixture(scope="package")
def api_plane(worker_id: str) -> Iterator[ControlPlane]:
    """Start etcd, kube-apiserver and the controller manager, for as long as this folder's tests run."""
    folder = REPOSITORY / ".state" / f"e2e-apiserver-{worker_id}"
    engines = ("etcd", "kube-apiserver", "kube-controller-manager")
    with ControlPlane(folder, engines=engines, chain=()) as running:
        yield running


@pytest.fixture
def replicas(api_plane: ControlPlane, tmp_path: Path) -> Iterator[Replicas]:
    """Return replicas of our server, none started; what they installed is gone afterwards."""
    made = Replicas(api_plane, tmp_path)
    try:
        yield made
    finally:
        made.clear()


@pytest.fixture(scope="module")
def pair(api_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicas]:
    """Return two replicas that serve, shared by the tests of one module."""
    made = Replicas(api_plane, tmp_path_factory.mktemp("replicas"))
    try:
        for name in ("a", "b"):
            made.start(name)
        made.until_serving(2)
        made.until_available()
        yield made
    finally:
        made.clear()


@pytest.fixture
def namespace(pair: Replicas, request: pytest.FixtureRequest) -> Iterator[str]:
    """Return an empty namespace of the test's own."""
    name = f"t-{abs(hash(request.node.nodeid)) % 10**8}"
    pair.admin.apply(namespace_manifest(name))
    yield name
    pair.admin.delete(NAMESPACE, name)
