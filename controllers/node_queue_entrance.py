"""node_queue_entrance: opens every pool to every namespace, with one LocalQueue each (spec 04 §9, decision 0202).

For: Instances and Pods, which name the LocalQueue. In: our ClusterQueues, Namespaces. Out: LocalQueues.
Promises: a request is one queue in one namespace, so a namespace that is going costs nobody else; a refused create in
it is not repeated; a LocalQueue of ours that was edited or deleted by hand is set right; one that is not ours is left
alone and named in the log.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any, ClassVar

from controllers.ownership import is_our_queue
from controllers.reports import Reports
from kube.client import Client
from kube.errors import AlreadyExists, Forbidden, NotFound
from kube.reconciler import DONE, Caches, Index, Key, Object, Outcome, Rule, Watch
from nodefeature.fields import (
    annotations_of,
    as_maps,
    as_str,
    at,
    is_deleting,
    name_of,
    namespace_of,
    uid_of,
)
from nodefeature.kinds import CLUSTER_QUEUE, LOCAL_QUEUE, NAMESPACE, Kind
from nodefeature.labels import CLUSTER_QUEUE_ANNOTATION, RESERVED_NAMESPACES, SYSTEM_NAMESPACE
from nodefeature.queue_names import local_queue_name

log = logging.getLogger(__name__)

WINDOW_S = 5.0


def _is_open(namespace: Object) -> bool:
    terminating = is_deleting(namespace) or at(namespace, "status", "phase") == "Terminating"
    return not terminating and name_of(namespace) not in RESERVED_NAMESPACES


def _queue_added(old: Object | None, new: Object | None, caches: Caches) -> Iterable[Key]:
    """Open a new queue everywhere. One that took the place of a namesake has another uid."""
    if new is None or not is_our_queue(new) or (old is not None and is_our_queue(old) and uid_of(old) == uid_of(new)):
        return ()
    return [Key(name_of(new), name_of(ns)) for ns in caches[NAMESPACE].list() if _is_open(ns)]


def _namespace_added(old: Object | None, new: Object | None, caches: Caches) -> Iterable[Key]:
    if new is None or not _is_open(new) or (old is not None and uid_of(old) == uid_of(new)):
        return ()
    return [Key(name_of(queue), name_of(new)) for queue in caches[CLUSTER_QUEUE].list() if is_our_queue(queue)]


def _local_queue_changed(old: Object | None, new: Object | None, _: Caches) -> Iterable[Key]:
    """Look again at a LocalQueue that somebody made, took away or wrote to; Kueue's status is no reason."""
    if old is not None and new is not None and _written(old) == _written(new):
        return ()
    shown = old if old is not None else new
    named = annotations_of(shown).get(CLUSTER_QUEUE_ANNOTATION) or as_str(at(shown, "spec", "clusterQueue"))
    return (Key(named, namespace_of(shown)),) if named and name_of(shown) == local_queue_name(named) else ()


def _written(local_queue: Object) -> tuple[object, ...]:
    named = annotations_of(local_queue).get(CLUSTER_QUEUE_ANNOTATION)
    owners = at(local_queue, "metadata", "ownerReferences")
    return local_queue.get("spec"), named, owners, is_deleting(local_queue)


class NodeQueueEntrance:
    """Keeps one LocalQueue; the key is (ClusterQueue, namespace)."""

    NAME: ClassVar[str] = "node_queue_entrance"
    WATCHES: ClassVar[tuple[Watch, ...]] = (
        Watch(CLUSTER_QUEUE, _queue_added),
        Watch(NAMESPACE, _namespace_added, window_s=WINDOW_S),
        Watch(LOCAL_QUEUE, _local_queue_changed, window_s=WINDOW_S),
    )
    READS: ClassVar[tuple[Kind, ...]] = ()
    INDEXES: ClassVar[tuple[Index, ...]] = ()
    RBAC: ClassVar[tuple[Rule, ...]] = (
        Rule("", "namespaces", ("list", "watch")),
        Rule("kueue.x-k8s.io", "clusterqueues", ("list", "watch")),
        # Without this, a cluster with owner-reference admission on refuses the controller reference.
        Rule("kueue.x-k8s.io", "clusterqueues/finalizers", ("update",)),
        Rule("kueue.x-k8s.io", "localqueues", ("list", "watch", "create", "patch", "delete")),
    )

    def __init__(self, client: Client, caches: Caches, *, namespace: str = SYSTEM_NAMESPACE) -> None:
        self.client = client.as_manager("gpustack-node-queue-entrance")
        self.caches = caches
        self.namespace = namespace
        self._reports = Reports()

    async def reconcile(self, key: Key) -> Outcome:
        """Create or mend the LocalQueue of one queue in one namespace."""
        queue = self.caches[CLUSTER_QUEUE].get(Key(key.name))
        namespace = self.caches[NAMESPACE].get(Key(key.namespace))
        if queue is None or is_deleting(queue) or not is_our_queue(queue):
            return DONE
        if namespace is None or not _is_open(namespace) or key.namespace == self.namespace:
            return DONE
        wanted = local_queue(queue, key.namespace)
        current = self.caches[LOCAL_QUEUE].get(Key(name_of(wanted), key.namespace))
        if current is None:
            await self._create(wanted)
        elif not is_deleting(current):
            await self._mend(current, wanted)
        return DONE

    async def _create(self, wanted: Object) -> None:
        try:
            await self.client.create(LOCAL_QUEUE, wanted)
        except AlreadyExists:
            return  # our cache is behind; what it then shows is looked at again
        except NotFound:
            return  # the namespace is gone
        except Forbidden as refused:
            if not namespace_is_terminating(refused):
                raise
            return  # it will be gone, or come back as a new one, and then its event runs us

    async def _mend(self, current: Object, wanted: Object) -> None:
        subject = f"{namespace_of(current)}/{name_of(current)}"
        extra = {"kind": "LocalQueue", "object": subject}
        if not is_our_local_queue(current):
            message = "somebody else's LocalQueue has the name of ours; delete it to open the pool here"
            for reason in self._reports.news(subject, (message,)):
                log.warning("local queue left alone", extra={**extra, "reason": reason})
            return
        self._reports.forget(subject)
        if at(current, "spec", "clusterQueue") != at(wanted, "spec", "clusterQueue"):
            # Kueue never lets this field change: replace the object. Its deletion brings us back to create.
            log.info("local queue replaced", extra=extra)
            await self.client.delete(LOCAL_QUEUE, name_of(current), namespace_of(current), uid=uid_of(current))
            return
        patch = mend_patch(current, wanted)
        if patch:
            version = at(current, "metadata", "resourceVersion")
            patch["metadata"]["resourceVersion"] = version
            await self.client.patch(LOCAL_QUEUE, name_of(current), patch, namespace_of(current))


def local_queue(queue: Object, namespace: str) -> Object:
    """Return the LocalQueue that leads from a namespace to a queue; it goes when the queue goes."""
    return {
        "apiVersion": LOCAL_QUEUE.api_version,
        "kind": LOCAL_QUEUE.kind,
        "metadata": {
            "name": local_queue_name(name_of(queue)),
            "namespace": namespace,
            "annotations": {CLUSTER_QUEUE_ANNOTATION: name_of(queue)},
            "ownerReferences": [
                {
                    "apiVersion": CLUSTER_QUEUE.api_version,
                    "kind": CLUSTER_QUEUE.kind,
                    "name": name_of(queue),
                    "uid": uid_of(queue),
                    "controller": True,
                }
            ],
        },
        "spec": {"clusterQueue": name_of(queue)},
    }


def is_our_local_queue(local: Object) -> bool:
    """Say whether a LocalQueue was made by us: it names its queue in our annotation, or a ClusterQueue controls it."""
    owners = as_maps(at(local, "metadata", "ownerReferences"))
    controlled = any(o.get("kind") == CLUSTER_QUEUE.kind and o.get("controller") is True for o in owners)
    return controlled or CLUSTER_QUEUE_ANNOTATION in annotations_of(local)


def mend_patch(current: Object, wanted: Object) -> dict[str, Any]:
    """Return the merge patch that restores annotation and owner; empty when both stand."""
    metadata: dict[str, Any] = {}
    named = annotations_of(wanted)[CLUSTER_QUEUE_ANNOTATION]
    if annotations_of(current).get(CLUSTER_QUEUE_ANNOTATION) != named:
        metadata["annotations"] = {CLUSTER_QUEUE_ANNOTATION: named}
    owner = as_maps(at(wanted, "metadata", "ownerReferences"))[0]
    owners = as_maps(at(current, "metadata", "ownerReferences"))
    if not any(as_str(o.get("uid")) == owner["uid"] and o.get("controller") is True for o in owners):
        # A queue of the same name that is gone may still stand there as controller; there can be one only.
        others = [o for o in owners if o.get("controller") is not True and o.get("uid") != owner["uid"]]
        metadata["ownerReferences"] = [*others, owner]
    return {"metadata": metadata} if metadata else {}


def namespace_is_terminating(refused: Forbidden) -> bool:
    """Say whether a create was refused because its namespace is going."""
    return "NamespaceTerminating" in refused.causes()
