"""What kube-controller-manager does in a cluster and the devcluster does itself: collect.

For: `server`, which runs it. In: the store's changes. Out: deletes.
Promises: objects all of whose owners are gone are deleted; `orphan` and `foregroundDeletion` finalizers are honoured;
a deleted namespace or CRD first loses its content, then itself; a reference to an owner that is gone is removed while
another owner lives. It takes `blockOwnerDeletion` as true for every dependent.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Sequence

from apiserver.rest.options import DeleteOptions
from apiserver.rest.storage import Catalog
from hack.devcluster.crds import CLEANUP
from hack.devcluster.objects import ObjectStorage
from hack.devcluster.store import Change, Entry, Place, Store
from nodefeature.fields import as_list, as_maps
from nodefeature.kinds import CUSTOM_RESOURCE_DEFINITION

log = logging.getLogger(__name__)

Ref = tuple[str, Place]
"""(resource, place)."""

_CRDS = CUSTOM_RESOURCE_DEFINITION.group_resource
_STEP = 100


class Collector:
    """Follows every change and works off what it causes, one object at a time."""

    def __init__(self, store: Store, catalog: Catalog) -> None:
        self._store = store
        self._catalog = catalog
        self._alive: dict[str, Ref] = {}
        self._dependents: defaultdict[str, set[Ref]] = defaultdict(set)
        self._queue: dict[Ref, None] = {}
        self._wake = asyncio.Event()
        for shelf in store.shelves():
            for entry in tuple(shelf.entries.values()):
                self._take_in(shelf.resource, entry)
        for shelf in store.shelves():
            for entry in tuple(shelf.entries.values()):
                self._consider(shelf.resource, entry)
        store.listen(self._changed)

    def adopt(self, resource: str) -> None:
        """Take in the objects of a resource whose shelf was opened later."""
        for entry in tuple(self._store.shelf(resource).entries.values()):
            self._take_in(resource, entry)

    def _take_in(self, resource: str, entry: Entry) -> None:
        ref = (resource, entry.place)
        self._alive[entry.uid] = ref
        for owner in entry.owners:
            self._dependents[owner].add(ref)

    def _changed(self, resource: str, change: Change) -> None:
        entry, ref = change.entry, (resource, change.entry.place)
        if change.previous is not None:
            for owner in change.previous.owners:
                self._dependents[owner].discard(ref)
                if not self._dependents[owner]:
                    del self._dependents[owner]
        if change.type != "DELETED":
            self._take_in(resource, entry)
            self._consider(resource, entry)
            return
        self._alive.pop(entry.uid, None)
        for dependent in self._dependents.get(entry.uid, ()):
            self._push(dependent)
        for owner in entry.owners:
            if owner in self._alive:
                self._push_if_deleting(self._alive[owner])
        if entry.namespace:
            self._push_if_deleting(("namespaces", ("", entry.namespace)))
        self._push_if_deleting((_CRDS, ("", resource)))

    def _consider(self, resource: str, entry: Entry) -> None:
        if entry.deleting or self._gone(entry):
            self._push((resource, entry.place))

    def _gone(self, entry: Entry) -> list[str]:
        """Return the owners that no longer exist."""
        return [owner for owner in entry.owners if owner not in self._alive]

    def _push(self, ref: Ref) -> None:
        self._queue[ref] = None
        self._wake.set()

    def _push_if_deleting(self, ref: Ref) -> None:
        entry = self._store.shelf(ref[0]).entries.get(ref[1])
        if entry is not None and entry.deleting:
            self._push(ref)

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            await self._wake.wait()
            self.work_off()
            # Let requests through between two steps.
            await asyncio.sleep(0)

    def work_off(self) -> None:
        """Take one step of the queue."""
        for ref in [ref for ref, _ in zip(self._queue, range(_STEP), strict=False)]:
            del self._queue[ref]
            try:
                self._collect(ref)
            except Exception:
                log.exception("collecting failed", extra={"kind": ref[0], "object": ref[1]})
        if not self._queue:
            self._wake.clear()

    def _collect(self, ref: Ref) -> None:
        resource, place = ref
        entry = self._store.shelf(resource).entries.get(place)
        storage = self._storage(resource)
        if entry is None or storage is None:
            return
        if not entry.deleting:
            gone = self._gone(entry)
            if gone and len(gone) == len(entry.owners):
                storage.delete_entry(entry, DeleteOptions(propagation="Background", uid=entry.uid))
            elif gone:
                _disown(entry, storage, gone)
            return
        if resource == "namespaces":
            self._empty_namespace(entry, storage)
        elif resource == _CRDS and CLEANUP in entry.finalizers:
            self._empty_crd(entry, storage)
        elif "orphan" in entry.finalizers:
            self._each_dependent(entry, lambda dependent, where: _disown(dependent, where, [entry.uid]))
            _drop_finalizer(entry, storage, "orphan")
        elif "foregroundDeletion" in entry.finalizers:
            self._each_dependent(entry, _delete)
            if not self._dependents.get(entry.uid):
                _drop_finalizer(entry, storage, "foregroundDeletion")

    def _storage(self, resource: str) -> ObjectStorage | None:
        for served in self._catalog.all():
            storage = served.storage
            if isinstance(storage, ObjectStorage) and storage.shelf.resource == resource:
                return storage
        return None

    def _each_dependent(self, entry: Entry, act: Callable[[Entry, ObjectStorage], None]) -> None:
        for resource, place in tuple(self._dependents.get(entry.uid, ())):
            dependent = self._store.shelf(resource).entries.get(place)
            storage = self._storage(resource)
            if dependent is not None and storage is not None:
                act(dependent, storage)

    def _storages(self) -> Sequence[ObjectStorage]:
        return [r.storage for r in self._catalog.all() if isinstance(r.storage, ObjectStorage)]

    def _empty_namespace(self, entry: Entry, storage: ObjectStorage) -> None:
        contents = self._storages()
        for content in contents:
            for held in tuple(content.shelf.ordered(entry.name)):
                _delete(held, content)
        if not any(True for content in contents for _ in content.shelf.ordered(entry.name)):
            obj = entry.load()
            obj["spec"] = {**obj.get("spec", {}), "finalizers": []}
            storage.edit(entry, obj)

    def _empty_crd(self, entry: Entry, storage: ObjectStorage) -> None:
        content = self._storage(entry.name)
        if content is not None:
            for held in tuple(content.shelf.entries.values()):
                _delete(held, content)
        if content is None or not content.shelf.entries:
            _drop_finalizer(entry, storage, CLEANUP)


def _delete(entry: Entry, storage: ObjectStorage) -> None:
    if not entry.deleting:
        storage.delete_entry(entry, DeleteOptions(propagation="Background", uid=entry.uid))


def _disown(entry: Entry, storage: ObjectStorage, owners: Sequence[str]) -> None:
    obj = entry.load()
    refs = [ref for ref in as_maps(obj["metadata"].get("ownerReferences")) if ref.get("uid") not in owners]
    obj["metadata"]["ownerReferences"] = refs
    storage.edit(entry, obj)


def _drop_finalizer(entry: Entry, storage: ObjectStorage, finalizer: str) -> None:
    obj = entry.load()
    left = [name for name in as_list(obj["metadata"].get("finalizers")) if name != finalizer]
    obj["metadata"]["finalizers"] = left
    storage.edit(entry, obj)
