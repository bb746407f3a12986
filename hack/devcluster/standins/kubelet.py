"""Stand-in for the kubelets of all nodes: registers machines, advertises device pools, runs Pods in words only.

For: the devcluster. In: machines (as Node objects to register), Devices, bound Pods. Out: Nodes with status, Pods that
become Running and Ready and go away when deleted.
Kept: capacity is copied to allocatable, also keys that somebody else patched; device pools (`<base>`, `.shared`,
`.sliced`, `.partitioned`) follow the inventory; a Pod stays until its deletion is confirmed.
Left out: containers, probes, leases and heartbeats (a Node stays Ready), eviction, volumes, logs, the device plugin
protocol. Nodes whose kubelet speaks it (`hack/kubelet`) are left to it, save the copying of keys it does not know.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, ClassVar

from api.devices import is_of_node
from api.ledger.pools import device_pools, pool_names
from hack.devcluster.standins.kueue.state import condition_is
from kube.client import Client
from kube.clock import Clock
from kube.errors import Conflict, NotFound
from kube.reconciler import DONE, Caches, Index, Key, Object, Outcome, Rule, Watch
from nodefeature.fields import as_map, as_maps, as_str, at, is_deleting, name_of, namespace_of, uid_of
from nodefeature.kinds import DEVICES, NODE, POD, Kind
from nodefeature.manufacturers import Manufacturers
from nodefeature.resource_names import Family, resource_of

_ADVERTISED = (Family.EXCLUSIVE, Family.SHARED, Family.SLICED, Family.PARTITIONED, Family.VISIBILITY)


def _same_name(old: Object | None, new: Object | None, _: Caches) -> Iterable[Key]:
    return [Key(name_of(new if new is not None else old))]


def _bound(old: Object | None, new: Object | None, _: Caches) -> Iterable[Key]:
    return [Key(name_of(new), namespace_of(new))] if new is not None and at(new, "spec", "nodeName") else []


class KubeletNode:
    """Reconciles one Node's capacity."""

    NAME: ClassVar[str] = "standin-kubelet-node"
    WATCHES: ClassVar[tuple[Watch, ...]] = (Watch(NODE, _same_name), Watch(DEVICES, _same_name))
    READS: ClassVar[tuple[Kind, ...]] = ()
    INDEXES: ClassVar[tuple[Index, ...]] = ()
    RBAC: ClassVar[tuple[Rule, ...]] = ()

    def __init__(
        self, client: Client, caches: Caches, *, manufacturers: Manufacturers, left_out: Collection[str] = ()
    ) -> None:
        self._client = client
        self._caches = caches
        self._manufacturers = manufacturers
        self._left_out = left_out

    async def reconcile(self, key: Key) -> Outcome:
        """Advertise the pools of the node's cards and copy capacity to allocatable."""
        node = self._caches[NODE].get(key)
        if node is None or is_deleting(node):
            return DONE
        pools = None
        if key.name not in self._left_out:
            devices = self._caches[DEVICES].get(key) or {}
            pools = device_pools(devices if is_of_node(devices, node) else {}, self._manufacturers)
        patch = status_patch(node, pools, self._manufacturers)
        if patch:
            try:
                whole = {"metadata": {"uid": uid_of(node)}, "status": patch}
                await self._client.patch(NODE, key.name, whole, subresource="status")
            except (Conflict, NotFound):
                return DONE
        return DONE


class KubeletPods:
    """Reconciles one bound Pod."""

    NAME: ClassVar[str] = "standin-kubelet-pod"
    WATCHES: ClassVar[tuple[Watch, ...]] = (Watch(POD, _bound),)
    READS: ClassVar[tuple[Kind, ...]] = (NODE,)
    INDEXES: ClassVar[tuple[Index, ...]] = ()
    RBAC: ClassVar[tuple[Rule, ...]] = ()

    def __init__(self, client: Client, caches: Caches, clock: Clock, *, left_out: Collection[str] = ()) -> None:
        self._client = client
        self._caches = caches
        self._clock = clock
        self._left_out = left_out

    async def reconcile(self, key: Key) -> Outcome:
        """Start a bound Pod, or let a deleted one go."""
        pod = self._caches[POD].get(key)
        if pod is None or at(pod, "spec", "nodeName") in self._left_out:
            return DONE
        try:
            if is_deleting(pod):
                await self._client.delete(
                    POD, key.name, key.namespace, uid=as_str(at(pod, "metadata", "uid")), grace_s=0
                )
            elif needs_start(pod):
                await self._client.patch(
                    POD, key.name, {"status": self._running(pod)}, key.namespace, subresource="status"
                )
        except (Conflict, NotFound):
            return DONE
        return DONE

    def _running(self, pod: Mapping[str, Any]) -> Object:
        stamp = self._clock.time().strftime("%Y-%m-%dT%H:%M:%SZ")
        node = self._caches[NODE].get(Key(as_str(at(pod, "spec", "nodeName"))))
        host = next(
            (
                as_str(a.get("address"))
                for a in as_maps(at(node, "status", "addresses"))
                if a.get("type") == "InternalIP"
            ),
            "127.0.0.1",
        )
        conditions = [
            {"type": kind, "status": "True", "lastTransitionTime": stamp}
            for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
        ]
        containers = [
            {
                "name": c.get("name"),
                "image": c.get("image", ""),
                "ready": True,
                "started": True,
                "restartCount": 0,
                "state": {"running": {"startedAt": stamp}},
            }
            for c in as_maps(at(pod, "spec", "containers"))
        ]
        return {
            "phase": "Running",
            "conditions": conditions,
            "containerStatuses": containers,
            "startTime": stamp,
            "hostIP": host,
            "hostIPs": [{"ip": host}],
            "podIP": "127.0.0.1",
            "podIPs": [{"ip": "127.0.0.1"}],
        }


def needs_start(pod: Mapping[str, Any]) -> bool:
    """Say whether a Pod neither runs and is ready, nor has ended."""
    phase = as_str(at(pod, "status", "phase"))
    return phase not in ("Succeeded", "Failed") and (phase != "Running" or not condition_is(pod, "Ready", "True"))


def status_patch(node: Mapping[str, Any], pools: Mapping[str, int] | None, manufacturers: Manufacturers) -> Object:
    """Return the merge patch of a Node's status: device pools into capacity, capacity into allocatable.

    Where device plugins advertise (`pools` None), nothing is said of what they advertise.
    """
    capacity = dict(as_map(at(node, "status", "capacity")))
    change: dict[str, str | None] = {}
    if pools is None:
        plugins = {resource_of(manufacturers, m, family) for m in manufacturers.names for family in _ADVERTISED}
        left = {name: amount for name, amount in capacity.items() if name not in plugins}
        return _copied(left, {k: v for k, v in as_map(at(node, "status", "allocatable")).items() if k not in plugins})
    for name in (pool for m in manufacturers.names for pool in pool_names(manufacturers, m)):
        want = str(pools[name]) if name in pools else None
        have = capacity.get(name)
        if want is None and have not in (None, "0"):
            change[name] = "0"
        elif want is not None and have != want:
            change[name] = want
    capacity.update(change)
    patch = _copied(capacity, as_map(at(node, "status", "allocatable")))
    if change:
        patch["capacity"] = change
    return patch


def _copied(capacity: Mapping[str, Any], allocatable: Mapping[str, Any]) -> Object:
    copied: dict[str, Any] = {k: v for k, v in capacity.items() if allocatable.get(k) != v}
    copied.update({k: None for k in allocatable if k not in capacity})
    return {"allocatable": copied} if copied else {}
