"""A kubelet stand-in that follows an API server: admits the node's Pods, advertises its devices.

For: tests and the demo, in place of the words-only stand-in or kwok, on nodes with an agent of their own.
In: a client, a `Kubelet`. Out: Pods' phases and removal, the Node's capacity and allocatable.
Promises: Pods are admitted one after another; capacity counts all devices, allocatable the healthy ones; keys that the
kubelet does not know are left alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from hack.kubelet.kubelet import Kubelet
from kube.client import Client
from kube.errors import Conflict, NotFound
from kube.reconciler import DONE, Caches, Index, Key, Object, Outcome, Rule, Selection, Watch
from kube.runtime import Manager
from nodefeature.fields import as_map, at, is_deleting, name_of, namespace_of, uid_of
from nodefeature.kinds import NODE, POD, Kind


def _itself(old: Object | None, new: Object | None, _: Caches) -> Iterable[Key]:
    pod = new if new is not None else old
    return [Key(name_of(pod), namespace_of(pod))]


class AdmitPods:
    """Reconciles one Pod of the node."""

    NAME: ClassVar[str] = "kubelet-admission"
    WATCHES: ClassVar[tuple[Watch, ...]] = (Watch(POD, _itself),)
    READS: ClassVar[tuple[Kind, ...]] = ()
    INDEXES: ClassVar[tuple[Index, ...]] = ()
    RBAC: ClassVar[tuple[Rule, ...]] = ()

    def __init__(self, client: Client, caches: Caches, kubelet: Kubelet) -> None:
        self._client = client
        self._caches = caches
        self._kubelet = kubelet
        self._uids: dict[Key, str] = {}

    async def reconcile(self, key: Key) -> Outcome:
        """Admit a new Pod, let a deleted one go."""
        pod = self._caches[POD].get(key)
        before = self._uids.get(key, "")
        if pod is None or uid_of(pod) != before:
            self._kubelet.remove(before)
            self._uids.pop(key, None)
        if pod is None:
            return DONE
        if is_deleting(pod):
            try:
                await self._client.delete(POD, key.name, key.namespace, uid=uid_of(pod), grace_s=0)
            except (Conflict, NotFound):
                return DONE
        elif uid_of(pod) not in self._kubelet.pods:
            self._uids[key] = uid_of(pod)
            await self._kubelet.admit(pod)
        return DONE


class NodeKubelet:
    """One node's kubelet at an API server."""

    def __init__(self, client: Client, node_name: str, kubelet: Kubelet) -> None:
        self._client = client
        self._node_name = node_name
        self._kubelet = kubelet
        self._told: dict[str, dict[str, str]] = {}
        selection = Selection(field_selector=f"spec.nodeName={node_name}")
        self.manager = Manager(client, selections={POD: selection})
        self.manager.add(AdmitPods(client, self.manager.caches, kubelet), workers=1)

    async def run(self) -> None:
        """Start the kubelet, follow until cancelled, stop it."""
        await self._kubelet.start()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.manager.run())
                group.create_task(self._advertise())
        finally:
            await self._kubelet.stop()

    async def _advertise(self) -> None:
        while True:
            self._kubelet.devices.changed.clear()
            status = {
                "capacity": _texts(self._kubelet.devices.capacity()),
                "allocatable": _texts(self._kubelet.devices.allocatable()),
            }
            if status != self._told:
                await self._client.patch(NODE, self._node_name, {"status": status}, subresource="status")
                self._told = status
            await self._kubelet.devices.changed.wait()


def tell_through(client: Client) -> Any:
    """Return what writes a Pod's status for a kubelet."""

    async def tell(pod: Mapping[str, Any], status: dict[str, Any]) -> None:
        conditions = [{"type": "Ready", "status": "True" if status.get("phase") == "Running" else "False"}]
        try:
            patch = {"status": {**as_map(at(pod, "status")), **status, "conditions": conditions}}
            await client.patch(POD, name_of(pod), patch, namespace_of(pod), subresource="status")
        except NotFound:
            return

    return tell


def _texts(amounts: Mapping[str, int]) -> dict[str, str]:
    return {name: str(amount) for name, amount in amounts.items()}
