"""What makes a cluster with the controllers in it a whole one: the API server with its webhooks, recorded allocations.

For: fixtures of folders beside `chain`. In: a control plane, the product beside it. Out: a block during which it runs.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hack.controlplane.control_plane import REPOSITORY, ControlPlane
from hack.controlplane.replicas import Replicas
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
