"""One control plane: started, restarted in parts, stopped.

For: `python -m hack.controlplane`, and tests as `with ControlPlane(folder) as cp:`.
In: built tools and a state folder. Out: a kubeconfig, an `Admin`, the audit log, and processes by name.
Promises: `start` returns when everything answers, or raises with the last log lines of what does not; `stop` leaves no
process; a process stopped by a test stays down until the test starts it again; of two that start in one folder one is
refused and touches nothing.
"""

from __future__ import annotations

import base64
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx
import yaml

from hack.controlplane.admin import Admin, Object
from hack.controlplane.components import Components
from hack.controlplane.errors import ControlPlaneError, NotReadyError
from hack.controlplane.kubeconfig import write_kubeconfig
from hack.controlplane.layout import HeldPorts, Layout
from hack.controlplane.lock import Lock
from hack.controlplane.manifests import (
    KUEUE_ACCOUNT,
    NFD_ACCOUNT,
    SYSTEM_NAMESPACE,
    kueue_configuration,
    kueue_manifests,
    namespace_manifest,
    nfd_configuration,
    nfd_manifests,
)
from hack.controlplane.pki import CLUSTER_CA, Pki
from hack.controlplane.processes import Program, Running, Supervisor
from hack.controlplane.product import OPERATOR, Account, install_account, read_rbac, write_account_kubeconfig
from hack.controlplane.readiness import Readiness, kueue_certificates
from hack.controlplane.tools import DEFAULT_CACHE, Toolbox
from nodefeature.fields import name_of
from nodefeature.kinds import NODE
from nodefeature.manufacturers import Manufacturers, build_manufacturers

REPOSITORY = Path(__file__).parents[2]
DEFAULT_STATE = REPOSITORY / ".state" / "controlplane"
ENGINES = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok", "kubelet")
CHAIN = ("kueue", "nfd-master")
"""What an operator installs: left out, and started later, with `ControlPlane(chain=())`."""

_PASSING_NODE = "controlplane-nfd-start"
_READY_S = 180.0
_POLL_S = 0.1
_ACCOUNT_TOKEN_S = 30 * 24 * 3600
_USERS = {
    "admin": ("controlplane-admin", ("system:masters",)),
    "kube-controller-manager": ("system:kube-controller-manager", ()),
    "kube-scheduler": ("system:kube-scheduler", ()),
    "kwok": ("kwok", ("system:masters",)),
    "kubelet": ("controlplane-kubelet", ("system:masters",)),
}


class ControlPlane:
    """A control plane in one state folder."""

    def __init__(
        self,
        state: Path,
        *,
        cache: Path = DEFAULT_CACHE,
        manufacturers: Manufacturers | None = None,
        engines: tuple[str, ...] = ENGINES,
        chain: tuple[str, ...] = CHAIN,
        flags: Mapping[str, tuple[str, ...]] | None = None,
    ) -> None:
        """Name the folder; `flags` are added to a process's command line, where the last of a name counts."""
        self.layout = Layout(state.resolve())
        self._lock = Lock(self.layout.root)
        self._held = HeldPorts()
        self.tools = Toolbox(cache.resolve())
        self._manufacturers = manufacturers or build_manufacturers({})
        self._engines = engines
        self._chain = chain
        self._flags = dict(flags or {})
        self._supervisor = Supervisor(self.layout)
        self.ready_in_s = 0.0
        """How long the last start took."""
        self._admin: Admin | None = None
        self._components: Components | None = None

    def __enter__(self) -> Self:
        self.claim()  # outside: what runs in another's folder is not ours to stop
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def kubeconfig(self) -> Path:
        """Return the administrator's kubeconfig."""
        return self.layout.admin_kubeconfig

    @property
    def audit_log(self) -> Path:
        """Return kube-apiserver's audit log; `hack.controlplane.audit` reads it."""
        return self.layout.audit_log

    @property
    def server(self) -> str:
        """Return kube-apiserver's URL."""
        return self.components.server

    @property
    def authority(self) -> Path:
        """Return the certificate that kube-apiserver's is checked against."""
        return Pki(self.layout.pki).pair(CLUSTER_CA).certificate

    @property
    def components(self) -> Components:
        """Return the command lines; the ports are chosen with the first call."""
        if self._components is None:
            self.layout.create()
            self._components = Components(self.tools, self.layout, self.layout.ports(self._held))
        return self._components

    @property
    def admin(self) -> Admin:
        """Return the harness's client, of a user in system:masters."""
        if self._admin is None:
            client = Pki(self.layout.pki).pair("admin")
            self._admin = Admin(self.server, authority=self.authority, client=client)
        return self._admin

    @property
    def running(self) -> dict[str, Running]:
        """Return the processes that should run."""
        return dict(self._supervisor.running)

    def claim(self) -> None:
        """Become the one who may start here, knowing what another started before; BusyError while another may."""
        if self._lock.take():
            self._supervisor.read()

    def release(self) -> None:
        """Let others start here again; `stop` does it too."""
        self._held.release()
        self._lock.release()

    def start(self) -> None:
        """Start everything from an empty folder; remains of an earlier run are stopped and removed first."""
        began = time.monotonic()
        self.tools.require()
        self.claim()
        self._stop()
        self.layout.empty()
        self._write_credentials()
        for name in ("etcd", "kube-apiserver"):
            self.start_process(name)
        together = [name for name in self._engines if name not in self.running]
        for name in together:
            self._launch(name)
        self.admin.apply(namespace_manifest(SYSTEM_NAMESPACE))
        for name in self._chain:
            self.install(name)
            self._launch(name)
        for name in (*together, *self._chain):
            self._wait_ready(name)
        self.check()
        self.ready_in_s = time.monotonic() - began

    def wait_ready(self) -> None:
        """Wait until every process that should run answers; raise ProcessDiedError when one has ended."""
        self.check()
        for name in self.running:
            self._wait_ready(name)

    def stop(self) -> None:
        """Stop every process of this folder, whoever started it. State and logs stay."""
        try:
            self._stop()
        finally:
            self.release()

    def _stop(self) -> None:
        if self._admin is not None:
            self._admin.close()
            self._admin = None
        # Without etcd, kube-apiserver would wait for its own shutdown's requests.
        self._supervisor.stop_all(last=("kube-apiserver", "etcd"))

    def check(self) -> None:
        """Raise ProcessDiedError when a process ended that nobody stopped."""
        self._supervisor.check()

    def install(self, name: str) -> None:
        """Apply the manifests of `kueue` or `nfd-master` and give it a kubeconfig of its own ServiceAccount."""
        account = Account(name=KUEUE_ACCOUNT if name == "kueue" else NFD_ACCOUNT)
        for obj in self._manifests(name):
            self.admin.apply(obj)
        self._write_account(name, account)

    def start_process(self, name: str) -> None:
        """Start one process and wait until it answers."""
        self._launch(name)
        self._wait_ready(name)

    def stop_process(self, name: str) -> None:
        """End one process with SIGTERM and wait for its end."""
        self._supervisor.stop(name)

    def kill(self, name: str) -> None:
        """End one process with SIGKILL."""
        self._supervisor.stop(name, with_signal=signal.SIGKILL)

    def restart(self, name: str) -> None:
        """Stop one process and start it again, on its old port and data."""
        self.stop_process(name)
        self.start_process(name)

    def reconfigure(self, name: str, change: Callable[[Object], None]) -> None:
        """Change the configuration of `kueue` or `nfd-master` in place, then restart it."""
        path = self.layout.etc / f"{name}.yaml"
        configuration: Object = yaml.safe_load(path.read_text())
        change(configuration)
        path.write_text(yaml.safe_dump(configuration, sort_keys=False))
        self.restart(name)

    def tail(self, name: str, lines: int = 40) -> str:
        """Return the last log lines of a process."""
        return self._supervisor.tail(name, lines)

    def product_kubeconfig(self, rbac_manifest: str, account: Account = OPERATOR) -> Path:
        """Install the product's account with its RBAC manifest and return a kubeconfig that speaks as it."""
        install_account(self.admin, account, read_rbac(rbac_manifest, account))
        return self._write_account(account.name, account)

    def compact(self) -> int:
        """Compact etcd up to now, which expires old resource versions and page tokens; returns the revision.

        kube-apiserver follows within 15 s; until then it may still answer from its snapshots.
        """
        url = f"http://127.0.0.1:{self.components.ports.etcd_client}/v3"
        revision = int(
            _post(f"{url}/kv/range", {"key": _base64("/registry/controlplane-compaction")})["header"]["revision"]
        )
        # kube-apiserver lists from snapshots of its own until it reads here how far etcd was compacted.
        told = {"key": _base64("compact_rev_key"), "value": _base64(str(revision))}
        _post(f"{url}/kv/put", told)
        _post(f"{url}/kv/compaction", {"revision": str(revision), "physical": True})
        return revision

    def _launch(self, name: str) -> None:
        program = self._program(name)
        self._supervisor.start(replace(program, command=(*program.command, *self._flags.get(name, ()))))

    def _manifests(self, name: str) -> list[Object]:
        if name == "nfd-master":
            (self.layout.etc / "nfd-master.yaml").write_text(yaml.safe_dump(nfd_configuration()))
            return nfd_manifests(self.tools)
        configuration = kueue_configuration(
            self._manufacturers.by_name.values(),
            ports=self.components.ports,
            certificates=kueue_certificates(self.layout),
        )
        (self.layout.etc / "kueue.yaml").write_text(yaml.safe_dump(configuration, sort_keys=False))
        return kueue_manifests(self.tools, configuration, home=self.layout.root)

    def _program(self, name: str) -> Program:
        components = self.components
        if name == "kubelet":
            command = (sys.executable, "-m", "hack.controlplane.kubelet", str(self.layout.kubeconfig(name)))
            return Program(name=name, command=command, environment={"PYTHONPATH": str(REPOSITORY)})
        if name == "kueue":
            return components.kueue(config=str(self.layout.etc / "kueue.yaml"))
        if name == "nfd-master":
            return components.nfd_master(config=str(self.layout.etc / "nfd-master.yaml"), node=self._some_node())
        programs: dict[str, Callable[[], Program]] = {
            "etcd": components.etcd,
            "kube-apiserver": components.apiserver,
            "kube-controller-manager": components.controller_manager,
            "kube-scheduler": components.scheduler,
            "kwok": components.kwok,
        }
        if name not in programs:
            raise ControlPlaneError(f"{name}: no such process; there are {', '.join((*ENGINES, *CHAIN))}")
        return programs[name]()

    def _some_node(self) -> str:
        """Return a Node for NFD master to start on; in an empty cluster one that is deleted once it has started."""
        nodes = sorted(name_of(node) for node in self.admin.list(NODE))
        if nodes:
            return nodes[0]
        self.admin.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": _PASSING_NODE}})
        return _PASSING_NODE

    def _write_credentials(self) -> None:
        self.layout.create()
        pki = Pki(self.layout.pki)
        pki.create(["127.0.0.1", "localhost", "10.0.0.1", "kubernetes.default.svc", "kubernetes.default"])
        for name, (user, groups) in _USERS.items():
            pair = pki.issue(name, common_name=user, groups=groups)
            path = self.kubeconfig if name == "admin" else self.layout.kubeconfig(name)
            write_kubeconfig(path, server=self.server, authority=self.authority, client=pair)

    def _write_account(self, name: str, account: Account) -> Path:
        return write_account_kubeconfig(
            self.layout.kubeconfig(name),
            self.admin,
            account,
            server=self.server,
            authority=self.authority,
            lifetime_s=_ACCOUNT_TOKEN_S,
        )

    def _wait_ready(self, name: str) -> None:
        readiness = Readiness(self.components, self.admin)
        deadline = time.monotonic() + _READY_S
        while not readiness.of(name):
            self.check()
            if time.monotonic() > deadline:
                raise NotReadyError(f"{name}: not ready within {_READY_S:.0f} s; last lines:\n{self.tail(name)}")
            time.sleep(_POLL_S)
        if name == "nfd-master":
            self.admin.delete(NODE, _PASSING_NODE)


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _post(url: str, body: Object) -> Object:
    answer = httpx.post(url, json=body, timeout=30.0, trust_env=False)
    answer.raise_for_status()
    decoded: Object = answer.json()
    return decoded
