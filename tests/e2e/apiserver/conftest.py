"""A control plane of its own: tests here delete the operator's namespace and stop its server."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.controlplane.control_plane import REPOSITORY, ControlPlane
from hack.controlplane.replicas import Replicas
from hack.controlplane.tools import DEFAULT_CACHE

CACHE = Path(os.environ.get("CONTROLPLANE_CACHE_DIR") or DEFAULT_CACHE)


@pytest.fixture(scope="package")
def api_plane(worker_id: str) -> Iterator[ControlPlane]:
    """Start etcd, kube-apiserver and the controller manager, for as long as this folder's tests run."""
    folder = REPOSITORY / ".state" / f"e2e-apiserver-{worker_id}"
    engines = ("etcd", "kube-apiserver", "kube-controller-manager")
    with ControlPlane(folder, cache=CACHE, engines=engines, chain=()) as running:
        yield running


@pytest.fixture
def replicas(api_plane: ControlPlane, tmp_path: Path) -> Iterator[Replicas]:
    """Return replicas of our server, none started; what they installed is gone afterwards."""
    made = Replicas(api_plane, tmp_path)
    try:
        yield made
    finally:
        made.clear()
