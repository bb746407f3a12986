"""Replicas of the product's API server beside a control plane, under the account a cluster gives them.

For: tests and benches that need the aggregated API as people reach it. In: a control plane, a folder for logs.
Out: processes by name behind one Service; the cluster's own view of them.
Promises: the account holds what `gpustack-operator rbac` prints and no more; the Service (a process that plays
kube-proxy) sends new connections only to replicas that are ready; logs are shown when a wait fails.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hack.controlplane.admin import Admin
from hack.controlplane.control_plane import REPOSITORY, ControlPlane
from hack.controlplane.layout import free_ports
from hack.controlplane.manifests import SYSTEM_NAMESPACE, namespace_manifest
from hack.controlplane.product import Account, printed_rbac
from hack.controlplane.tools import CLIENTS
from nodefeature.fields import as_maps, at
from nodefeature.kinds import (
    API_SERVICE,
    MUTATING_WEBHOOK_CONFIGURATION,
    NAMESPACE,
    SECRET,
    VALIDATING_ADMISSION_POLICY,
    VALIDATING_ADMISSION_POLICY_BINDING,
    VALIDATING_WEBHOOK_CONFIGURATION,
)

ACCOUNT = Account(name="gpustack-operator-apiserver")
NAMES = ("v1.gpustack.ai", "v1.worker.gpustack.ai")
ADMISSION = (
    (MUTATING_WEBHOOK_CONFIGURATION, ("gpustack-worker-mutation",)),
    (VALIDATING_WEBHOOK_CONFIGURATION, ("gpustack-worker-validation",)),
    (VALIDATING_ADMISSION_POLICY, ("gpustack-accelerator-allocations", "gpustack-agents-own-node")),
    (VALIDATING_ADMISSION_POLICY_BINDING, ("gpustack-accelerator-allocations", "gpustack-agents-own-node")),
)
SECRETS = ("gpustack-settings", "gpustack-operator-worker-serving")
REPLICAS = ("a", "b")
WAIT_S = 120.0
_STOP_S = 60.0


class Replicas:
    """Processes of ours behind one Service. None runs at first."""

    def __init__(self, control_plane: ControlPlane, folder: Path) -> None:
        control_plane.tools.require((CLIENTS,))
        self.control_plane = control_plane
        self._folder = folder
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        ports = free_ports(random.Random())
        self._port = next(ports)
        self._ports = dict(zip(REPLICAS, ports, strict=False))
        self._service = self._start_service()
        # Where Kueue and NFD are installed, they live in it too.
        self._shares_namespace = self.admin.get(NAMESPACE, SYSTEM_NAMESPACE) is not None
        self.install()

    @property
    def admin(self) -> Admin:
        """Return the harness's client."""
        return self.control_plane.admin

    def install(self) -> None:
        """Make the namespace and the account."""
        self.admin.apply(namespace_manifest(SYSTEM_NAMESPACE))
        self.kubeconfig = self.control_plane.product_kubeconfig(printed_rbac("apiserver"), ACCOUNT)

    def start(self, name: str = "a", *flags: str, alone: bool = False) -> None:
        """Start one replica; one that is `alone` is asked without the Service's program between."""
        port = self._ports[name] if alone else self._port
        command = (
            *(sys.executable, "-m", "gpustack_operator", "apiserver", "--log-format", "text"),
            *("--kubeconfig", str(self.kubeconfig), "--bind-address", "127.0.0.1"),
            *("--secure-port", str(self._ports[name]), "--external-name", f"localhost:{port}"),
            *("--shutdown-delay-duration", "1s", *flags),
        )
        with (self._folder / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                command, cwd=REPOSITORY, stdout=log, stderr=subprocess.STDOUT, env={**os.environ}
            )

    def stop(self, name: str = "a", *, kill: bool = False) -> int:
        """End one replica and return its exit code."""
        process = self._running.pop(name)
        process.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
        try:
            return process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError(f"replica {name} did not end within {_STOP_S:.0f} s\n{self.log()}") from None

    def restart(self, name: str, *flags: str, kill: bool = False) -> int:
        """End one replica, start it again, and wait until it serves; return the exit code."""
        served = self._served()
        code = self.stop(name, kill=kill)
        self.start(name, *flags)
        self.until_serving(served + 1)
        self.until(lambda: self.is_ready(name), f"{name} is back")
        return code

    def uninstall(self) -> int:
        """Run the command of this name and return its exit code."""
        command = (sys.executable, "-m", "gpustack_operator", "uninstall", "--kubeconfig", str(self.kubeconfig))
        return subprocess.run(command, cwd=REPOSITORY, check=False).returncode

    def is_running(self, name: str = "a") -> bool:
        """Say whether a replica has not ended by itself."""
        return self._running[name].poll() is None

    def is_ready(self, name: str = "a") -> bool:
        """Say whether the Service sends new connections to a replica."""
        host, port = self.address(name)
        said = [line for line in (self._folder / "service.log").read_text().splitlines() if f"{host}:{port} " in line]
        return bool(said) and said[-1].endswith("ready=true")

    def pid(self, name: str = "a") -> int:
        """Return a replica's process id."""
        return self._running[name].pid

    def address(self, name: str = "a") -> tuple[str, int]:
        """Return where a replica listens."""
        return "127.0.0.1", self._ports[name]

    def clear(self) -> None:
        """End everything and take what was installed out of the cluster."""
        for name in tuple(self._running):
            self.stop(name, kill=True)
        self._service.kill()
        self._service.wait()
        for kind, names in ((API_SERVICE, NAMES), *ADMISSION):
            for name in names:
                if self.admin.get(kind, name) is not None:
                    self.admin.delete(kind, name)
        if self._shares_namespace:
            for name in SECRETS:
                if self.admin.get(SECRET, name, SYSTEM_NAMESPACE) is not None:
                    self.admin.delete(SECRET, name, SYSTEM_NAMESPACE)
            return
        if self.admin.get(NAMESPACE, SYSTEM_NAMESPACE) is not None:
            self.admin.delete(NAMESPACE, SYSTEM_NAMESPACE)
        self.until(lambda: self.admin.get(NAMESPACE, SYSTEM_NAMESPACE) is None, "the namespace is gone")

    def log(self) -> str:
        """Return the last lines of every log."""
        return "\n".join(f"{path.name}:\n{path.read_text()[-4000:]}" for path in self._folder.glob("*.log"))

    def until(self, check: Callable[[], bool], what: str, within_s: float = WAIT_S) -> float:
        """Wait for something; return the seconds it took."""
        started = time.monotonic()
        while not check():
            if time.monotonic() - started > within_s:
                raise AssertionError(f"not within {within_s:.0f} s: {what}\n{self.log()}")
            time.sleep(0.1)
        return time.monotonic() - started

    def until_serving(self, replicas: int) -> float:
        """Wait until so many starts have come to serving."""
        return self.until(lambda: self._served() >= replicas, f"{replicas} serve")

    def until_available(self) -> float:
        """Wait until kube-apiserver sends requests here."""
        return self.until(lambda: all(self.available(name) == "True" for name in NAMES), "APIServices available")

    def available(self, name: str) -> str:
        """Return the status of condition Available, and its reason when it is not True."""
        conditions = as_maps(at(self.admin.get(API_SERVICE, name), "status", "conditions"))
        for condition in conditions:
            if condition.get("type") == "Available":
                return str(condition["status"] if condition["status"] == "True" else condition.get("reason"))
        return ""

    def kubectl(self, *words: str, stdin: str = "", check: bool = True) -> str:
        """Run the real kubectl as the administrator; without `check` what it says on both outputs is returned."""
        done = self.run_kubectl(*words, stdin=stdin)
        if check and done.returncode:
            raise AssertionError(f"kubectl {' '.join(words)}: {done.stderr}\n{self.log()}")
        return done.stdout if check else done.stdout + done.stderr

    def run_kubectl(
        self, *words: str, stdin: str = "", environ: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run the real kubectl and return what came of it."""
        return subprocess.run(
            self.kubectl_command(*words),
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=WAIT_S,
            env={**os.environ, **(environ or {})},
        )

    def kubectl_command(self, *words: str) -> list[str]:
        """Return the command line of the real kubectl."""
        binary = self.control_plane.tools.binary("kubectl")
        return [str(binary), "--kubeconfig", str(self.control_plane.kubeconfig), *words]

    def raw(self, path: str) -> Any:
        """Return one answer, decoded."""
        return json.loads(self.kubectl("get", "--raw", path))

    def _served(self) -> int:
        return sum(path.read_text().count(" serving\n") for path in self._folder.glob("*.log"))

    def _start_service(self) -> subprocess.Popen[bytes]:
        binary = self.control_plane.tools.binary("service")
        endpoints = [f"{host}:{port}" for host, port in map(self.address, REPLICAS)]
        with (self._folder / "service.log").open("ab") as log:
            return subprocess.Popen(
                [binary, "-listen", f"127.0.0.1:{self._port}", *endpoints], stdout=log, stderr=subprocess.STDOUT
            )
