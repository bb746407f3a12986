"""As much of Kueue as the chain can see: the Active condition, usage lists, finalizers, eviction by HoldAndDrain.

For: tests of the chain in memory. A test says who holds what with `hold`; nothing is scheduled or admitted here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from kube.client import Client
from kube.reconciler import DONE, Caches, Index, Key, Object, Outcome, Rule, Watch
from nodefeature.fields import as_list, as_maps, as_str, at, is_deleting, name_of
from nodefeature.kinds import ADMISSION_CHECK, CLUSTER_QUEUE, RESOURCE_FLAVOR, Kind
from tests.builders.queues import active, usage

FINALIZER = "kueue.x-k8s.io/resource-in-use"


def _every_queue(_: Object | None, __: Object | None, caches: Caches) -> Iterable[Key]:
    queues = [Key(name_of(queue)) for queue in caches[CLUSTER_QUEUE].list()]
    return [*queues, Key("*")]


def flavor_names(queue: Object) -> list[str]:
    """Return the flavors of a queue's groups."""
    groups = as_maps(at(queue, "spec", "resourceGroups"))
    return [as_str(f.get("name")) for g in groups for f in as_maps(g.get("flavors"))]


class TinyKueue:
    """Keeps status and finalizers of queues and flavors."""

    NAME: ClassVar[str] = "kueue"
    WATCHES: ClassVar[tuple[Watch, ...]] = (
        Watch(CLUSTER_QUEUE, _every_queue),
        Watch(RESOURCE_FLAVOR, _every_queue),
        Watch(ADMISSION_CHECK, _every_queue),
    )
    READS: ClassVar[tuple[Kind, ...]] = ()
    INDEXES: ClassVar[tuple[Index, ...]] = ()
    RBAC: ClassVar[tuple[Rule, ...]] = ()

    def __init__(self, client: Client, caches: Caches) -> None:
        self.client = client.as_manager("kueue")
        self.caches = caches
        self.held: dict[tuple[str, str], str] = {}
        """(queue, flavor) -> total of the covered resource."""
        self.evicts = True
        self.evicted: list[str] = []

    def hold(self, queue: str, flavor: str, total: str) -> None:
        """Let workloads hold `total` of a flavor; shown at the queue's next change or `reconcile`."""
        self.held[queue, flavor] = total

    async def reconcile(self, key: Key) -> Outcome:
        """Bring one queue's status and finalizer, or all flavors' finalizers, to where they should be."""
        if key.name == "*":
            await self._flavors()
            return DONE
        queue = self.caches[CLUSTER_QUEUE].get(key)
        if queue is None:
            return DONE
        policy = at(queue, "spec", "stopPolicy") or "None"
        holders = [pair for pair in self.held if pair[0] == key.name]
        if policy == "HoldAndDrain" and self.evicts and holders:
            self.evicted.append(key.name)
            for pair in holders:
                del self.held[pair]
            holders = []
        if is_deleting(queue) and not holders:
            await self._finalizers(CLUSTER_QUEUE, queue, on=False)
            return DONE
        await self._finalizers(CLUSTER_QUEUE, queue, on=True)
        status = self._status(queue, policy, len(holders))
        current = at(queue, "status") or {}
        if any(current.get(field) != value for field, value in status.items()):
            await self.client.patch(CLUSTER_QUEUE, key.name, {"status": status}, subresource="status")
        return DONE

    def _status(self, queue: Object, policy: str, holders: int) -> dict[str, Any]:
        name, flavors = name_of(queue), flavor_names(queue)
        resource = next((r for g in as_maps(at(queue, "spec", "resourceGroups")) for r in g["coveredResources"]), "")
        figures = usage(resource, {f: self.held.get((name, f), "0") for f in flavors})
        others = [c for c in as_maps(at(queue, "status", "conditions")) if c.get("type") != "Active"]
        return {
            "conditions": [self._active(queue, policy, flavors), *others],
            "flavorsReservation": figures,
            "flavorsUsage": figures,
            "reservingWorkloads": holders,
            "admittedWorkloads": holders,
        }

    def _active(self, queue: Object, policy: str, flavors: list[str]) -> dict[str, Any]:
        generation = at(queue, "metadata", "generation")
        missing = [f for f in flavors if self.caches[RESOURCE_FLAVOR].get(Key(f)) is None]
        checks = as_maps(at(queue, "spec", "admissionChecksStrategy", "admissionChecks"))
        absent = [c["name"] for c in checks if self.caches[ADMISSION_CHECK].get(Key(c["name"])) is None]
        if policy != "None":
            return active("False", "Stopped", generation=generation, message="is stopped")
        if missing or absent:
            return active("False", "FlavorNotFound", generation=generation, message=f"missing {missing or absent}")
        return active(generation=generation, message="Can admit new workloads")

    async def _flavors(self) -> None:
        named = {f for queue in self.caches[CLUSTER_QUEUE].list() for f in flavor_names(queue)}
        for flavor in list(self.caches[RESOURCE_FLAVOR].list()):
            in_use = name_of(flavor) in named
            await self._finalizers(RESOURCE_FLAVOR, flavor, on=in_use or not is_deleting(flavor))

    async def _finalizers(self, kind: Kind, obj: Object, *, on: bool) -> None:
        finalizers = as_list(at(obj, "metadata", "finalizers"))
        if (FINALIZER in finalizers) == on or (on and is_deleting(obj)):
            return
        wanted = [*finalizers, FINALIZER] if on else [f for f in finalizers if f != FINALIZER]
        await self.client.patch(kind, name_of(obj), {"metadata": {"finalizers": wanted}})
