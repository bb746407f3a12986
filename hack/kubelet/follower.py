"""Kubelet stand-ins that follow an API server: they admit their nodes' Pods and advertise their devices.

For: tests and the demo, in place of the words-only stand-in or kwok, on nodes with an agent of their own.
In: a client, the nodes' `Kubelet`s. Out: Pods' phases and removal, the Nodes' capacity and allocatable.
Promises: Pods of a node are admitted one after another; capacity counts all devices, allocatable the healthy ones; keys
that the kubelet does not know are left alone; the leases of nodes that have one are kept fresh.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from hack.kubelet.kubelet import Kubelet
from kube.client import Client
from kube.clock import Clock, SystemClock, micro_time, second_time
from kube.errors import ApiError, Conflict, NotFound, OperatorError, Unreachable
from kube.reconciler import DONE, Caches, Index, Key, Object, Outcome, Rule, Selection, Watch
from kube.runtime import Manager
from nodefeature.fields import as_map, as_maps, as_str, at, is_deleting, name_of, namespace_of, uid_of
from nodefeature.kinds import LEASE, NODE, POD, Kind

_LEASES = "kube-node-lease"
_RENEW_S = 10.0
_AGAIN_S = 0.5
_MAX_SOCKET_PATH = 107
_LONGEST_SOCKET = len("/device-plugins/iluvatar.partitioned.sock")


def socket_template(root: Path) -> str:
    """Return where the kubelets below a folder listen; `{node}` stands for the node's name."""
    return str(root / "{node}" / "device-plugins" / "kubelet.sock")


def open_kubelets(client: Client, root: Path, nodes: Iterable[str]) -> dict[str, Kubelet]:
    """Return a kubelet for each node, with a folder of its own below `root`."""
    kubelets = {}
    for node in nodes:
        folder = root / node
        if len(str(folder)) + _LONGEST_SOCKET > _MAX_SOCKET_PATH:
            raise ValueError(f"{folder}: too long for sockets below it; a shorter folder is needed")
        kubelets[node] = Kubelet(folder, tell=tell_through(client))
    return kubelets


def _itself(old: Object | None, new: Object | None, _: Caches) -> Iterable[Key]:
    pod = new if new is not None else old
    return [Key(name_of(pod), namespace_of(pod))]


class AdmitPods:
    """Reconciles one Pod of the nodes. State: the Pods that were taken in, with their nodes."""

    NAME: ClassVar[str] = "kubelet-admission"
    WATCHES: ClassVar[tuple[Watch, ...]] = (Watch(POD, _itself),)
    READS: ClassVar[tuple[Kind, ...]] = ()
    INDEXES: ClassVar[tuple[Index, ...]] = ()
    RBAC: ClassVar[tuple[Rule, ...]] = ()

    def __init__(self, client: Client, caches: Caches, kubelets: Mapping[str, Kubelet]) -> None:
        self._client = client
        self._caches = caches
        self._kubelets = kubelets
        self._taken: dict[Key, tuple[str, str]] = {}
        """Pod -> (its node, its uid)."""

    async def reconcile(self, key: Key) -> Outcome:
        """Admit a new Pod, let a deleted one go."""
        pod = self._caches[POD].get(key)
        node, uid = self._taken.get(key, ("", ""))
        if uid and (pod is None or uid_of(pod) != uid):
            self._kubelets[node].remove(uid)
            del self._taken[key]
        kubelet = self._kubelets.get(as_str(at(pod, "spec", "nodeName")))
        if pod is None or kubelet is None:
            return DONE
        if is_deleting(pod):
            try:
                await self._client.delete(POD, key.name, key.namespace, uid=uid_of(pod), grace_s=0)
            except (Conflict, NotFound):
                return DONE
        elif uid_of(pod) not in kubelet.pods:
            self._taken[key] = (as_str(at(pod, "spec", "nodeName")), uid_of(pod))
            await kubelet.admit(pod)
        return DONE


class NodeKubelets:
    """The kubelets of some nodes at one API server."""

    def __init__(self, client: Client, kubelets: Mapping[str, Kubelet], clock: Clock | None = None) -> None:
        self._client = client
        self._clock = clock or SystemClock()
        self._kubelets = kubelets
        self._told: dict[str, dict[str, dict[str, str]]] = {}
        names = list(kubelets)
        selection = Selection(field_selector=f"spec.nodeName={names[0]}" if len(names) == 1 else "")
        self.manager = Manager(client, selections={POD: selection})
        # Each node's own lock keeps its admissions apart.
        workers = 1 if len(names) == 1 else 2 * len(names)
        self.manager.add(AdmitPods(client, self.manager.caches, kubelets), workers=workers)

    async def run(self) -> None:
        """Start the kubelets, follow until cancelled, stop them."""
        for kubelet in self._kubelets.values():
            await kubelet.start()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.manager.run())
                group.create_task(self._renew_leases())
                for node, kubelet in self._kubelets.items():
                    group.create_task(self._advertise(node, kubelet), name=f"advertise {node}")
        finally:
            for kubelet in self._kubelets.values():
                await kubelet.stop()

    async def _advertise(self, node: str, kubelet: Kubelet) -> None:
        devices = kubelet.devices
        while True:
            devices.changed.clear()
            status = {"capacity": _texts(devices.capacity()), "allocatable": _texts(devices.allocatable())}
            if status != self._told.get(node):
                try:
                    await self._client.patch(NODE, node, {"status": status}, subresource="status")
                    self._told[node] = status
                except OperatorError:  # not registered yet, or nobody there: told again
                    await self._clock.sleep(_AGAIN_S)
                    continue
            await devices.changed.wait()

    async def _renew_leases(self) -> None:
        """Keep nodes alive whose kubelet had a lease before; a devcluster has none."""
        while True:
            spec = {"renewTime": micro_time(self._clock.time())}
            for node in self._kubelets:
                try:
                    await self._client.patch(LEASE, node, {"spec": spec}, _LEASES)
                    await self._say_ready(node)
                except (ApiError, Unreachable):
                    continue
            await self._clock.sleep(_RENEW_S)

    async def _say_ready(self, name: str) -> None:
        """Take back what was concluded while nobody renewed the lease."""
        conditions = as_maps(at(await self._client.get(NODE, name), "status", "conditions"))
        ready = next((c for c in conditions if c.get("type") == "Ready"), None)
        if ready is None or ready.get("status") == "True":
            return
        now = second_time(self._clock.time())
        said = {**ready, "status": "True", "reason": "KubeletReady", "message": "", "lastTransitionTime": now}
        status = {"conditions": [said if c is ready else c for c in conditions]}
        await self._client.patch(NODE, name, {"status": status}, subresource="status")


def tell_through(client: Client) -> Any:
    """Return what writes a Pod's status for a kubelet."""

    async def tell(pod: Mapping[str, Any], status: dict[str, Any]) -> None:
        ready = "True" if status.get("phase") == "Running" else "False"
        before = at(pod, "status", "conditions")
        others = [c for c in (before if isinstance(before, list) else []) if at(c, "type") not in _READY]
        conditions: Sequence[Mapping[str, Any]] = [*others, *({"type": kind, "status": ready} for kind in _READY)]
        try:
            patch = {"status": {**as_map(at(pod, "status")), **status, "conditions": conditions}}
            await client.patch(POD, name_of(pod), patch, namespace_of(pod), subresource="status")
        except NotFound:
            return

    return tell


_READY = ("Initialized", "ContainersReady", "Ready")


def _texts(amounts: Mapping[str, int]) -> dict[str, str]:
    return {name: str(amount) for name, amount in amounts.items()}
