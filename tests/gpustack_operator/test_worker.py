"""`worker` and `uninstall` as processes, against a devcluster."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

CHECKOUT = Path(__file__).parents[2]
pytestmark = pytest.mark.component


@contextmanager
def process(folder: Path, name: str, *argv: str, **environ: str) -> Iterator[subprocess.Popen[bytes]]:
    with (folder / f"{name}.log").open("wb") as log:
        started = subprocess.Popen(
            [sys.executable, "-m", *argv],
            cwd=CHECKOUT,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environ},
        )
    try:
        yield started
    finally:
        started.kill()
        started.wait()


def until(check: Callable[[], bool], log: Path) -> None:
    deadline = time.monotonic() + 30
    while not check():
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)


def client_of(kubeconfig: Path) -> httpx.Client:
    config: dict[str, Any] = yaml.safe_load(kubeconfig.read_text())
    token = config["users"][0]["user"]["token"]
    server = config["clusters"][0]["cluster"]["server"]
    return httpx.Client(base_url=server, headers={"authorization": f"Bearer {token}"}, verify=False, trust_env=False)


def test_one_process_serves_and_reconciles_and_leaves_in_order(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    home = ("--data-dir", str(tmp_path / "store"), "--kubeconfig", str(kubeconfig))
    with process(tmp_path, "devcluster", "hack.devcluster", *home):
        until(lambda: "ready on" in (tmp_path / "devcluster.log").read_text(), tmp_path / "devcluster.log")
        with client_of(kubeconfig) as http:
            namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "gpustack-system"}}
            assert http.post("/api/v1/namespaces", json=namespace).status_code == 201
            flags = ("--bind-address", "127.0.0.1", "--secure-port", "0", "--external-name", "localhost")
            words = ("gpustack_operator", "worker", *flags, "--shutdown-delay-duration", "0s", "--log-format", "text")
            with process(tmp_path, "worker", *words, KUBECONFIG=str(kubeconfig)) as worker:
                served = "/apis/worker.gpustack.ai/v1/instancetypes"
                until(lambda: http.get(served).status_code == 200, tmp_path / "worker.log")
                until(lambda: "controller started" in (tmp_path / "worker.log").read_text(), tmp_path / "worker.log")
                worker.send_signal(signal.SIGTERM)
                assert worker.wait(20) == 0, (tmp_path / "worker.log").read_text()
            lease = http.get("/apis/coordination.k8s.io/v1/namespaces/gpustack-system/leases/worker.gpustack.ai")
            assert not lease.json()["spec"].get("holderIdentity")
            services = "/apis/apiregistration.k8s.io/v1/apiservices"
            assert len(http.get(services).json()["items"]) == 2
            command = [sys.executable, "-m", "gpustack_operator", "uninstall", "--kubeconfig", str(kubeconfig)]
            for _ in range(2):
                assert subprocess.run(command, cwd=CHECKOUT, check=False, capture_output=True).returncode == 0
            assert http.get(services).json()["items"] == []
