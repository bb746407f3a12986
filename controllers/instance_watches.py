"""What makes an Instance worth another look (spec 05 §9, "Watches").

For: the instance controller. In: changes of what an Instance stands on. Out: the Instances they concern.
Promises: an Instance's own status is a reason half a minute later only, for what a hand wrote there (decision 0280);
a change that no Instance can feel wakes nobody, so the cost follows what changed; one change of a pool wakes only its
Instances.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from api.instance_type import HOLD_AND_DRAIN
from controllers.card_claims import WORKLOADS_BY_OWNER
from controllers.own_status import STATUS_WINDOW_S, status_written
from controllers.settings import wakes
from kube.reconciler import Caches, Index, Key, Object, Watch
from nodefeature.fields import as_map, as_maps, as_str, at, is_deleting, name_of, namespace_of, uid_of
from nodefeature.kinds import CLUSTER_QUEUE, INSTANCE, INSTANCE_TYPE, POD, SERVICE, WORKLOAD

BY_TYPE = "instance-type"
POOL_WINDOW_S = 0.2


def _self_changed(old: Object | None, new: Object | None, _: Caches) -> Iterable[Key]:
    if new is None:
        return ()
    if old is not None and _asked(old) == _asked(new):
        return ()
    return (Key(name_of(new), namespace_of(new)),)


def _asked(instance: Object) -> tuple[object, ...]:
    meta = as_map(instance.get("metadata"))
    return meta.get("uid"), meta.get("generation"), meta.get("deletionTimestamp"), meta.get("finalizers")


def _namesake(old: Object | None, new: Object | None, caches: Caches) -> Iterable[Key]:
    """Pods and Services have their Instance's name."""
    changed = new if new is not None else old
    key = Key(name_of(changed), namespace_of(changed))
    return (key,) if caches[INSTANCE].get(key) is not None else ()


def _type_changed(old: Object | None, new: Object | None, caches: Caches) -> Iterable[Key]:
    if old is not None and new is not None and _pool(old) == _pool(new):
        return ()
    return _instances_of(name_of(new if new is not None else old), caches)


def _pool(instance_type: Object) -> tuple[object, ...]:
    detail = at(instance_type, "status", "detail")
    entrance = at(instance_type, "status", "entrance")
    return uid_of(instance_type), is_deleting(instance_type), entrance, bool(at(detail, "manufacturer"))


def _queue_changed(old: Object | None, new: Object | None, caches: Caches) -> Iterable[Key]:
    """A queue that begins to drain stops its Instances; nothing else about a queue does."""
    if not is_draining(new) or (old is not None and is_draining(old)):
        return ()
    return _instances_of(name_of(new), caches)


def is_draining(queue: Mapping[str, Any] | None) -> bool:
    """Say whether a ClusterQueue is being drained."""
    return bool(at(queue, "spec", "stopPolicy") == HOLD_AND_DRAIN)


def _workload_changed(old: Object | None, new: Object | None, caches: Caches) -> Iterable[Key]:
    if old is not None and new is not None and _said(old) == _said(new):
        return ()
    changed = new if new is not None else old
    owners = as_maps(at(changed, "metadata", "ownerReferences"))
    keys = [Key(as_str(o.get("name")), namespace_of(changed)) for o in owners if o.get("kind") == POD.kind]
    return [key for key in keys if caches[INSTANCE].get(key) is not None]


def _said(workload: Object) -> tuple[object, ...]:
    told = [
        (c.get("type"), c.get("status"), c.get("reason"), c.get("message"))
        for c in as_maps(at(workload, "status", "conditions"))
        if c.get("type") in ("QuotaReserved", "Evicted")
    ]
    checks = [
        (c.get("name"), c.get("state"), c.get("message")) for c in as_maps(at(workload, "status", "admissionChecks"))
    ]
    return told, checks


def _instances_of(name: str, caches: Caches) -> Iterable[Key]:
    return [Key(name_of(found), namespace_of(found)) for found in caches[INSTANCE].by(BY_TYPE, name)]


def _all(caches: Caches) -> Iterable[Key]:
    return [Key(name_of(found), namespace_of(found)) for found in caches[INSTANCE].list()]


def _type_of(instance: Object) -> Iterable[str]:
    return (as_str(at(instance, "spec", "type")),)


WATCHES: tuple[Watch, ...] = (
    Watch(INSTANCE, _self_changed),
    Watch(INSTANCE, status_written, window_s=STATUS_WINDOW_S),
    Watch(POD, _namesake),
    Watch(SERVICE, _namesake),
    Watch(INSTANCE_TYPE, _type_changed, window_s=POOL_WINDOW_S),
    Watch(CLUSTER_QUEUE, _queue_changed, window_s=POOL_WINDOW_S),
    Watch(WORKLOAD, _workload_changed, window_s=POOL_WINDOW_S),
    wakes("instance", _all),
)
INDEXES: tuple[Index, ...] = (Index(INSTANCE, BY_TYPE, _type_of), WORKLOADS_BY_OWNER)
