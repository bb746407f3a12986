"""The cluster as the scenarios see it: machines that come and go, objects of the chain, what they must become.

For: the scenarios. In: a control plane with the product beside it. Out: objects; failures that show the object's last
states and what our processes wrote about it.
Promises: every wait follows a watch until a deadline; expectations are on objects, never on calls.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from hack.controlplane import audit
from hack.controlplane.admin import Admin, Object
from hack.controlplane.control_plane import ControlPlane
from hack.controlplane.errors import NotReadyError
from hack.controlplane.manifests import SYSTEM_NAMESPACE
from hack.fleet import FleetNode, Machines, write_fleet
from hack.machines import nfd_feature_of, node_of
from nodefeature.fields import as_maps, as_str, at, labels_of, name_of
from nodefeature.kinds import (
    CLUSTER_QUEUE,
    DEVICES,
    INSTANCE_TYPE,
    LEASE,
    LOCAL_QUEUE,
    NODE,
    NODE_FEATURE,
    RESOURCE_FLAVOR,
    SECRET,
    TOPOLOGY,
    Kind,
)
from tests.e2e.chain.product import USERS, Product

WAIT_S = 120.0
QUIET_S = 3
LONG_QUIET_S = 8
"""Longer than any window of the chain: where nothing says what must have become of the last change."""
_CHAIN_KINDS = (NODE, DEVICES, RESOURCE_FLAVOR, CLUSTER_QUEUE, LOCAL_QUEUE, INSTANCE_TYPE, TOPOLOGY)
Machine = Mapping[str, Any]


class Cluster:
    """One control plane, our processes, and the machines in it."""

    def __init__(self, control_plane: ControlPlane, product: Product) -> None:
        self.control_plane = control_plane
        self.product = product
        self.machines: dict[str, tuple[FleetNode, Machine]] = {}
        self._agents: dict[str, Sequence[str]] = {}
        self._starts: list[tuple[str, str]] = []
        self._copies = Machines()

    @property
    def admin(self) -> Admin:
        """Return the administrator's client."""
        return self.control_plane.admin

    # Machines

    def join(self, *nodes: FleetNode, machines: Mapping[str, Machine] | None = None) -> None:
        """Let machines join: their kubelets and NFD workers register, their agents start, all in one process."""
        for node in nodes:
            machine = (machines or {}).get(node.name) or self._copies.of(node)
            self.machines[node.name] = (node, machine)
            self.register(node.name)
        self._start_agents([node.name for node in nodes])

    def register(self, name: str) -> None:
        """Create a machine's Node and its NFD worker's NodeFeature."""
        node, machine = self.machines[name]
        self.admin.create(node_of(name, machine, node.labels))
        self.admin.apply(nfd_feature_of(name, machine, SYSTEM_NAMESPACE))

    def stop_agents(self, *names: str) -> None:
        """Stop the agents of some machines; others that shared their process get a new one."""
        for process, own in list(self._agents.items()):
            if not set(own) & set(names):
                continue
            if self.product.is_running(process):
                self.product.stop(process)
            del self._agents[process]
            if left := [name for name in own if name not in names]:
                self._start_agents(left)

    def _start_agents(self, names: Sequence[str]) -> None:
        """Start the agents of some machines in one process; in a cluster each starts with its node."""
        process = f"agents-{names[0]}"
        path = self.product.folder / f"{process}.jsonl"
        write_fleet(path, [self.machines[name][0] for name in names], _Given(self.machines))
        self.product.start_agents(path, process)
        self._agents[process] = names

    def leave(self, *names: str) -> None:
        """Let machines leave for good: Nodes are deleted, and what their agents and workers published with them."""
        self.stop_agents(*names)
        for name in names:
            self.machines.pop(name, None)
            self.admin.delete(NODE, name)
            for feature in (name, f"{name}-gpustack-worker", f"{name}-gpustack-device-manager"):
                self.admin.delete(NODE_FEATURE, feature, SYSTEM_NAMESPACE)

    def clear(self) -> None:
        """Take every machine, setting and pool away, as an administrator would."""
        self.leave(*list(self.machines))
        self.unset()
        for name in self.names(RESOURCE_FLAVOR):
            self.wait_gone(RESOURCE_FLAVOR, name)
        for name in self.names(INSTANCE_TYPE):
            self.admin.delete(INSTANCE_TYPE, name)
        for name in self.names(INSTANCE_TYPE):
            self.wait_gone(INSTANCE_TYPE, name)
        assert self.names(CLUSTER_QUEUE) == []

    # Waiting

    def wait(
        self,
        kind: Kind,
        name: str,
        namespace: str = "",
        *,
        until: Callable[[Object | None], object],
        what: str,
        timeout_s: float = WAIT_S,
    ) -> Object:
        """Follow an object until it is as awaited; a failure shows its last states and our lines about it."""
        try:
            found = self.admin.wait(kind, name, namespace, until=until, timeout_s=timeout_s, what=what)
        except NotReadyError as late:
            self.product.check()
            raise AssertionError(f"{late}\n--- our lines about {name}:\n{self.product.lines_about(name)}") from late
        return found or {}

    def wait_gone(self, kind: Kind, name: str, namespace: str = "", *, timeout_s: float = WAIT_S) -> None:
        """Wait until an object is gone."""
        self.wait(kind, name, namespace, until=lambda obj: obj is None, what="gone", timeout_s=timeout_s)

    def wait_type(self, name: str, *, timeout_s: float = WAIT_S, phase: str = "Active", **cells: str) -> Object:
        """Wait until a type is in `phase` and its summary shows the given cells."""

        def fits(obj: Object | None) -> bool:
            shown = at(obj, "status", "summary") or {}
            return at(obj, "status", "phase") == phase and all(shown.get(key) == cells[key] for key in cells)

        return self.wait(INSTANCE_TYPE, name, until=fits, what=f"{phase} with {cells}", timeout_s=timeout_s)

    def wait_queue(
        self, name: str, *, quotas: Mapping[str, str] | None = None, stop: str | None = None, timeout_s: float = WAIT_S
    ) -> Object:
        """Wait until a queue has exactly the given quotas, by flavor, and the given stop policy."""

        def fits(obj: Object | None) -> bool:
            if obj is None or at(obj, "metadata", "deletionTimestamp"):
                return False
            return (quotas is None or quotas_of(obj) == quotas) and (
                stop is None or (as_str(at(obj, "spec", "stopPolicy")) or "None") == stop
            )

        return self.wait(CLUSTER_QUEUE, name, until=fits, what=f"{quotas} and {stop}", timeout_s=timeout_s)

    def settle(self, timeout_s: float = 120.0, quiet_s: int = QUIET_S) -> None:
        """Wait until no object of the chain has changed for a while, by holding a watch for that long."""
        deadline = time.monotonic() + timeout_s
        before: dict[tuple[str, str, str], str] = {}
        while (now := self.versions()) != before:
            assert time.monotonic() < deadline, f"still moving: {sorted(set(now.items()) ^ set(before.items()))[:10]}"
            before = now
            self.hold(quiet_s)
        self.product.check()

    def hold(self, seconds: int) -> None:
        """Let time pass by keeping a watch open; one that the server ends early is opened again."""
        ends = time.monotonic() + seconds
        while (left := ends - time.monotonic()) > 0.1:
            for _ in self.admin.watch(TOPOLOGY, since=_list_version(self.admin), timeout_s=left):
                pass

    def versions(self) -> dict[tuple[str, str, str], str]:
        """Return the version of every object of the chain; Nodes by what we read of them, since kubelets renew them."""
        found = {}
        for kind in _CHAIN_KINDS:
            for obj in self.admin.list(kind):
                key = (kind.kind, as_str(at(obj, "metadata", "namespace")), name_of(obj))
                found[key] = as_str(at(obj, "metadata", "resourceVersion"))
        return found

    # Reading

    def names(self, kind: Kind) -> list[str]:
        """Return the names of all objects of a kind."""
        return sorted(name_of(obj) for obj in self.admin.list(kind))

    def get(self, kind: Kind, name: str, namespace: str = "") -> Object:
        """Return an object that must be there."""
        found = self.admin.get(kind, name, namespace)
        assert found is not None, f"{kind} {name} is not there\n{self.product.lines_about(name)}"
        return found

    def merged_labels(self, node: str) -> dict[str, str]:
        """Return what NFD merges into a Node from our NodeFeatures."""
        names = (f"{node}-gpustack-worker", f"{node}-gpustack-device-manager")
        features = [self.admin.get(NODE_FEATURE, name, SYSTEM_NAMESPACE) for name in names]
        return {key: value for feature in features for key, value in (at(feature, "spec", "labels") or {}).items()}

    def meaning(self) -> dict[str, Any]:
        """Return what the chain's objects say, without identities, versions and times."""
        found: dict[str, Any] = {}
        for kind in (RESOURCE_FLAVOR, CLUSTER_QUEUE, INSTANCE_TYPE, TOPOLOGY):
            for obj in self.admin.list(kind):
                status = obj.get("status", {}) if kind == INSTANCE_TYPE else {}
                notes = at(obj, "metadata", "annotations")
                found[f"{kind.kind}/{name_of(obj)}"] = (labels_of(obj), notes, obj.get("spec"), status)
        for queue in self.admin.list(LOCAL_QUEUE):
            where = f"LocalQueue/{at(queue, 'metadata', 'namespace')}/{name_of(queue)}"
            found[where] = at(queue, "spec", "clusterQueue")
        for node in self.admin.list(NODE):
            ours = {k: v for k, v in labels_of(node).items() if "gpustack.ai" in k}
            found[f"Node/{name_of(node)}"] = (ours, at(node, "status", "capacity"))
        return found

    # Settings and audit

    def set(self, **settings: str) -> None:
        """Write settings: underscores stand for dashes."""
        values = {key.replace("_", "-"): value for key, value in settings.items()}
        meta = {"name": "gpustack-settings", "namespace": SYSTEM_NAMESPACE}
        self.admin.apply({"apiVersion": "v1", "kind": "Secret", "metadata": meta, "stringData": values})

    def unset(self) -> None:
        """Go back to the defaults."""
        self.admin.delete(SECRET, "gpustack-settings", SYSTEM_NAMESPACE)

    def position(self) -> int:
        """Return the end of the audit log."""
        return audit.position(self.control_plane.audit_log)

    def restart(self, engine: str) -> None:
        """Restart a process of the control plane, and remember when: until its caches are full, RBAC refuses all."""
        began = _now()
        try:
            self.control_plane.restart(engine)
            self._wait_store()
            self.hold(3)
        finally:
            self._starts.append((began, _now()))

    def _wait_store(self) -> None:
        """Wait until kube-apiserver reads each kind from its store: its connections to a new etcd come one by one."""
        for kind in (*_CHAIN_KINDS, NODE_FEATURE, LEASE):
            namespace = SYSTEM_NAMESPACE if kind.namespaced else ""
            self.wait(kind, "nobody", namespace, until=lambda obj: obj is None, what="read from the store")

    def refused(self) -> list[str]:
        """Return the requests of ours that were refused while the server was in a state to judge."""
        return [
            str(r)
            for r in self.requests()
            if r.is_refused and not any(began <= r.time <= ended for began, ended in self._starts)
        ]

    def requests(self, since: int = 0) -> list[audit.Request]:
        """Return the requests of our accounts."""
        return [r for user in USERS for r in audit.read(self.control_plane.audit_log, user=user, since=since)]


class _Given(Machines):
    """Machines for `write_fleet`: those of the cluster, made or recorded."""

    def __init__(self, machines: Mapping[str, tuple[FleetNode, Machine]]) -> None:
        super().__init__()
        self._machines = machines

    def of(self, node: FleetNode) -> dict[str, Any]:
        return dict(self._machines[node.name][1])


def _list_version(admin: Admin) -> str:
    return as_str(at(admin.page(CLUSTER_QUEUE, limit=1), "metadata", "resourceVersion"))


def _now() -> str:
    return datetime.now(UTC).isoformat()


def quotas_of(queue: Object) -> dict[str, str]:
    """Return a queue's nominal quotas by flavor, in their order."""
    groups = as_maps(at(queue, "spec", "resourceGroups"))
    return {f["name"]: f["resources"][0]["nominalQuota"] for g in groups for f in as_maps(g.get("flavors"))}


def checks_of(queue: Object | None) -> list[str]:
    """Return the names of the admission checks that a queue asks."""
    return [as_str(c.get("name")) for c in as_maps(at(queue, "spec", "admissionChecksStrategy", "admissionChecks"))]
