"""The product's processes, as they run in a cluster: own accounts, own roles, own logs.

For: the scenarios. In: a control plane and a folder. Out: processes by name, started, killed, stopped.
Promises: the accounts hold what `gpustack-operator rbac` prints and no more; a process that ends unasked fails the test
that meets it; every line a process wrote about an object can be asked for.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from api.crds import crd_manifests
from hack.controlplane.control_plane import REPOSITORY, ControlPlane
from hack.controlplane.manifests import SYSTEM_NAMESPACE, namespace_manifest
from hack.controlplane.product import OPERATOR, Account
from nodefeature.fields import as_maps, as_str, at, name_of
from nodefeature.kinds import ADMISSION_CHECK, CUSTOM_RESOURCE_DEFINITION, NODE_FEATURE_RULE

AGENT = Account(name="gpustack-operator-device-manager")
USERS = (OPERATOR.user, AGENT.user)
_STOP_S = 60.0
_SHOWN_LINES = 12


@dataclass(slots=True)
class Running:
    """One process of ours."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    def ended(self, timeout_s: float, *, asked: str = "by itself") -> int:
        """Wait for its end and return its exit code; one that goes on is killed, and fails the test by name."""
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(
                f"{self.name} did not end {asked} within {timeout_s:g} s; its last lines:\n{self.last_lines()}"
            ) from None

    def stop(self, with_signal: signal.Signals, timeout_s: float = _STOP_S) -> int:
        """End it with a signal and return its exit code."""
        self.process.send_signal(with_signal)
        return self.ended(timeout_s, asked=f"after {with_signal.name}")

    def last_lines(self) -> str:
        """Return the last lines it wrote."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-_SHOWN_LINES:])


class Product:
    """Everything of ours that runs beside one control plane."""

    def __init__(self, control_plane: ControlPlane, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._control_plane = control_plane
        self._running: dict[str, Running] = {}
        self._operator = folder / "operator.kubeconfig"
        self._agent = folder / "agent.kubeconfig"

    def install(self) -> None:
        """Apply our CRDs and accounts, as an installation does."""
        admin = self._control_plane.admin
        admin.apply(namespace_manifest(SYSTEM_NAMESPACE))
        for manifest in crd_manifests():
            admin.apply(dict(manifest))
        for manifest in crd_manifests():
            admin.wait(CUSTOM_RESOURCE_DEFINITION, name_of(manifest), until=_is_established, what="Established")
        for path, process, account in (
            (self._operator, "controllers", OPERATOR),
            (self._agent, "device-manager", AGENT),
        ):
            rbac = subprocess.run(
                [sys.executable, "-m", "gpustack_operator", "rbac", "--process", process],
                cwd=REPOSITORY,
                capture_output=True,
                text=True,
                check=True,
            )
            path.write_text(self._control_plane.product_kubeconfig(rbac.stdout, account).read_text())

    def uninstall(self) -> None:
        """Take away what our processes installed and nothing else owns; CRDs and accounts stay."""
        for kind in (NODE_FEATURE_RULE, ADMISSION_CHECK):
            for obj in self._control_plane.admin.list(kind):
                self._control_plane.admin.delete(kind, name_of(obj))

    def start_controllers(self, name: str = "controllers", *flags: str, kubeconfig: Path | None = None) -> None:
        """Start one replica of the controllers."""
        self._start(name, ("controllers", "--kubeconfig", str(kubeconfig or self._operator), *flags))

    def another_token(self, name: str) -> Path:
        """Return a kubeconfig of the operator's account with a token of its own, by which the audit log knows it."""
        path = self.folder / f"{name}.kubeconfig"
        path.write_text(self._control_plane.product_kubeconfig("", OPERATOR).read_text())
        return path

    def start_agents(self, fleet: Path, name: str, *more: str) -> None:
        """Start the node agents of a fleet's machines in one process; `more` are further flags."""
        flags = ("--kubeconfig", str(self._agent), "--fleet", str(fleet), "--monitor-period", "2s")
        command = ("device-manager", "serve", *flags, *more)
        self._start(name, command)

    def _start(self, name: str, command: tuple[str, ...]) -> None:
        log = self.folder / f"{name}.log"
        with log.open("ab") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "gpustack_operator", *command],
                cwd=REPOSITORY,
                env={**os.environ, "KUBECONFIG": ""},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._running[name] = Running(name, process, log)

    def is_running(self, name: str) -> bool:
        """Say whether a process was started and not stopped."""
        return name in self._running

    def pid(self, name: str) -> int:
        """Return the id of a running process."""
        return self._running[name].process.pid

    def stop(self, name: str, with_signal: signal.Signals = signal.SIGTERM) -> int:
        """End a process and return its exit code."""
        return self._running.pop(name).stop(with_signal)

    def stop_all(self) -> None:
        """End every process, also after one that would not."""
        late = []
        for name in list(self._running):
            running = self._running.pop(name)
            try:
                running.stop(signal.SIGTERM)
            except AssertionError as error:
                late.append(str(error))
        assert not late, "\n".join(late)

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal and go on."""
        self._running[name].process.send_signal(number)

    def ended(self, name: str, timeout_s: float) -> int:
        """Wait until a process ends by itself; return its exit code."""
        return self._running.pop(name).ended(timeout_s)

    def check(self) -> None:
        """Fail when a process ended that nobody stopped."""
        for running in list(self._running.values()):
            if (code := running.process.poll()) is not None:
                del self._running[running.name]
                raise AssertionError(f"{running.name} ended with {code}; its last lines:\n{running.last_lines()}")

    def lines_about(self, name: str) -> str:
        """Return the last lines our processes wrote about an object."""
        found = []
        for log in sorted(self.folder.glob("*.log")):
            about = [line for line in log.read_text(errors="replace").splitlines() if name in line]
            found += [f"{log.stem}: {line}" for line in about[-_SHOWN_LINES:]]
        return "\n".join(found) or "our processes wrote nothing about it"

    def count(self, name: str, text: str) -> int:
        """Return how many times a process of this name, or one before it, has said something."""
        log = self.folder / f"{name}.log"
        return log.read_text(errors="replace").count(text) if log.exists() else 0

    def wait_count(self, name: str, text: str, count: int, *, timeout_s: float) -> None:
        """Wait until a process has said something so many times: a log has no watch, so it is read again."""
        deadline = time.monotonic() + timeout_s
        while self.count(name, text) < count:
            self.check()
            assert time.monotonic() < deadline, f"{name} did not say {text} {count} times within {timeout_s:.0f} s"
            time.sleep(0.1)


def _is_established(crd: object) -> bool:
    conditions = as_maps(at(crd, "status", "conditions"))
    return any((as_str(c.get("type")), c.get("status")) == ("Established", "True") for c in conditions)
