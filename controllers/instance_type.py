"""instance_type: makes each InstanceType a queue of its own and shows what its pool can give (spec 04 §7).

For: people and Instances, who choose a type; node_queue, which fills the queue.
In: InstanceTypes, their ClusterQueues, Devices, our ResourceFlavors, Nodes, settings.
Out: the ClusterQueue's existence, labels and Hold/None; the type's finalizer, `spec.inactive` and status.
Promises: no difference, no write; a ledger change recomputes one node's contribution, the views are folded once a
refresh; a namesake queue of somebody else is never touched; the type outlives its queue, never the other way round.
Trusts: Devices and their labels (written by agents and node_devices), notes of flavors that carry our type label.
State: what nodes contributed (`PoolMembers`), and which of CPU pools were unusable (`UnusableNodes`), when last read.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, ClassVar

from controllers.instance_type_queue import (
    HoldChange,
    identity_of,
    label_changes,
    new_queue,
    schedule_labels,
    sync_inactive,
)
from controllers.instance_type_status import PoolFacts, build_status, foreign_queue_status, terminating_status
from controllers.instance_type_watches import INDEXES as WATCHED_INDEXES
from controllers.instance_type_watches import (
    all_types,
    device_place,
    platform_place,
    type_of_queue,
    types_changed,
    types_of_devices,
    types_of_feature,
    types_of_flavor,
    types_of_node,
)
from controllers.node_view import FEATURES_BY_NODE
from controllers.own_status import STATUS_WINDOW_S, status_written
from controllers.ownership import we_made_queue
from controllers.pool_members import Pool, PoolMembers, PoolViews
from controllers.queue_plan import pool_flavors
from controllers.queue_state import read_queue, reserved_nano
from controllers.settings import LiveSettings, wakes
from controllers.unusable_nodes import UnusableNodes
from kube.client import Client
from kube.errors import AlreadyExists, Conflict, NotFound
from kube.reconciler import DONE, After, Caches, Index, Key, Object, Outcome, Rule, Watch
from nodefeature.fields import (
    as_bool,
    as_list,
    as_map,
    at,
    is_deleting,
    name_of,
    uid_of,
)
from nodefeature.kinds import CLUSTER_QUEUE, DEVICES, INSTANCE_TYPE, NODE, NODE_FEATURE, RESOURCE_FLAVOR, SECRET, Kind
from nodefeature.labels import (
    FINALIZER,
    GENERAL_PREFIX,
    SYSTEM_NAMESPACE,
)

log = logging.getLogger(__name__)

WINDOW_S = 3.0
LEDGER_WINDOW_S = 0.5
"""Who waits for cards sees a change of a ledger at once; a busy pool's views move twice a second (decision 0461)."""
TERMINATING = After(15.0)
"""While a queue that is being deleted stands in the way."""
FOREIGN = After(60.0)
"""A queue of somebody else is not watched; look whether it is gone."""


class InstanceType:
    """Keeps one type's queue and status."""

    NAME: ClassVar[str] = "instance_type"
    WATCHES: ClassVar[tuple[Watch, ...]] = (
        Watch(INSTANCE_TYPE, types_changed),
        Watch(INSTANCE_TYPE, status_written, window_s=STATUS_WINDOW_S),
        Watch(CLUSTER_QUEUE, type_of_queue, window_s=WINDOW_S),
        Watch(DEVICES, types_of_devices, window_s=LEDGER_WINDOW_S, first_at_once=True),
        Watch(RESOURCE_FLAVOR, types_of_flavor, window_s=WINDOW_S),
        Watch(NODE, types_of_node, window_s=WINDOW_S),
        Watch(NODE_FEATURE, types_of_feature, window_s=WINDOW_S),
        wakes("instance_type", all_types),
    )
    READS: ClassVar[tuple[Kind, ...]] = (SECRET,)
    INDEXES: ClassVar[tuple[Index, ...]] = (
        FEATURES_BY_NODE,
        *WATCHED_INDEXES,
    )
    RBAC: ClassVar[tuple[Rule, ...]] = (
        Rule("worker.gpustack.ai", "instancetypes", ("list", "watch", "patch")),
        Rule("worker.gpustack.ai", "instancetypes/status", ("update",)),
        Rule("worker.gpustack.ai", "devices", ("list", "watch")),
        Rule("kueue.x-k8s.io", "clusterqueues", ("get", "list", "watch", "create", "patch", "delete")),
        Rule("kueue.x-k8s.io", "resourceflavors", ("list", "watch")),
        Rule("", "nodes", ("list", "watch")),
        Rule("nfd.k8s-sigs.io", "nodefeatures", ("list", "watch"), SYSTEM_NAMESPACE),
        Rule("", "secrets", ("get", "list", "watch"), SYSTEM_NAMESPACE),
    )

    def __init__(self, client: Client, caches: Caches, *, settings: LiveSettings) -> None:
        self.client = client.as_manager("gpustack-instance-type")
        self.caches = caches
        self.settings = settings
        self._members = PoolMembers(caches)
        self._unusable = UnusableNodes(caches)

    async def reconcile(self, key: Key) -> Outcome:
        """Bring one type's queue, hold and status to where they should be."""
        instance_type = self.caches[INSTANCE_TYPE].get(key)
        if instance_type is None:
            self._members.forget(key.name)
            self._unusable.forget(key.name)
            return DONE
        if is_deleting(instance_type):
            return await self._tear_down(instance_type)
        aware = self.settings.now().instance_type_aware_cpu_manufacturer
        instance_type = await self._with_finalizer(instance_type)
        queue = await self._ensure_queue(instance_type, aware=aware)
        if queue is None:
            await self._write_status(instance_type, foreign_queue_status(key.name))
            return FOREIGN
        if is_deleting(queue):
            return TERMINATING
        inactive = as_bool(at(instance_type, "spec", "inactive"))
        change = sync_inactive(read_queue(queue), inactive=inactive)
        if change:
            await self._write_hold(instance_type, queue, change)
            return DONE
        facts = await self._facts(instance_type, queue, aware=aware)
        await self._write_status(instance_type, build_status(facts))
        return DONE

    async def _with_finalizer(self, instance_type: Object) -> Object:
        finalizers = as_list(at(instance_type, "metadata", "finalizers"))
        if FINALIZER in finalizers:
            return instance_type
        return await self._patch_finalizers(instance_type, [*finalizers, FINALIZER])

    async def _patch_finalizers(self, instance_type: Object, finalizers: list[Any]) -> Object:
        metadata = {"finalizers": finalizers, "resourceVersion": at(instance_type, "metadata", "resourceVersion")}
        return await self.client.patch(INSTANCE_TYPE, name_of(instance_type), {"metadata": metadata})

    async def _ensure_queue(self, instance_type: Object, *, aware: bool) -> Object | None:
        """Return the type's queue, created or relabelled; None when the name is somebody else's."""
        name = name_of(instance_type)
        queue = self.caches[CLUSTER_QUEUE].get(Key(name))
        if queue is None:
            try:
                created = await self.client.create(CLUSTER_QUEUE, new_queue(instance_type, aware=aware))
            except AlreadyExists:
                # Ours without its label, somebody else's, or our cache is behind: the server knows.
                queue = await self.client.get(CLUSTER_QUEUE, name)
            else:
                log.info("queue created", extra={"kind": "ClusterQueue", "object": name})
                return created
        if not we_made_queue(queue):
            return None
        if is_deleting(queue):
            return queue
        changes = label_changes(queue, schedule_labels(identity_of(instance_type), aware=aware))
        if not changes:
            return queue
        metadata = {"labels": changes, "resourceVersion": at(queue, "metadata", "resourceVersion")}
        return await self.client.patch(CLUSTER_QUEUE, name, {"metadata": metadata})

    async def _write_hold(self, instance_type: Object, queue: Object, change: HoldChange) -> None:
        name = name_of(instance_type)
        if change.inactive:
            version = at(instance_type, "metadata", "resourceVersion")
            patch = {"metadata": {"resourceVersion": version}, "spec": {"inactive": True}}
            await self.client.patch(INSTANCE_TYPE, name, patch)
            log.info("type made inactive as its queue drains", extra={"kind": "InstanceType", "object": name})
            return
        metadata: dict[str, Any] = {"resourceVersion": at(queue, "metadata", "resourceVersion")}
        if change.annotations:
            metadata["annotations"] = dict(change.annotations)
        spec = {} if change.policy is None else {"spec": {"stopPolicy": change.policy}}
        await self.client.patch(CLUSTER_QUEUE, name, {"metadata": metadata, **spec})
        log.info("queue hold written", extra={"kind": "ClusterQueue", "object": name, "reason": change.policy or ""})

    async def _write_status(self, instance_type: Object, status: Mapping[str, Any]) -> None:
        if as_map(instance_type.get("status")) != status:
            await self.client.update(INSTANCE_TYPE, {**instance_type, "status": dict(status)}, subresource="status")

    async def _tear_down(self, instance_type: Object) -> Outcome:
        """Delete the queue, wait until it is gone, then let the type go (spec 04 §7)."""
        finalizers = as_list(at(instance_type, "metadata", "finalizers"))
        name = name_of(instance_type)
        if FINALIZER not in finalizers:
            return DONE
        try:
            queue = self.caches[CLUSTER_QUEUE].get(Key(name)) or await self.client.get(CLUSTER_QUEUE, name)
        except NotFound:
            queue = None
        if queue is None or not we_made_queue(queue):
            await self._patch_finalizers(instance_type, [f for f in finalizers if f != FINALIZER])
            return DONE
        if at(instance_type, "status", "phase") != "Inactive":
            await self._write_status(instance_type, terminating_status(name))
        if not is_deleting(queue):
            try:
                await self.client.delete(CLUSTER_QUEUE, name, uid=uid_of(queue))
            except (NotFound, Conflict):
                return TERMINATING  # gone already, or a namesake took its place: look at what is there
            log.info("queue deleted", extra={"kind": "ClusterQueue", "object": name})
        return TERMINATING

    async def _facts(self, instance_type: Object, queue: Object, *, aware: bool) -> PoolFacts:
        pool = identity_of(instance_type)
        selector = schedule_labels(pool, aware=aware)
        flavors = sorted(pool_flavors(self.caches[RESOURCE_FLAVOR].list(), selector), key=name_of)
        unusable: Mapping[str, int] = {}
        views = PoolViews()
        if pool.acceleratable:
            cpu_keys = tuple(key for key in selector if key.startswith(GENERAL_PREFIX))
            members = Pool(device_place(pool), pool.accelerator_group, cpu_keys, tuple(flavors))
            views = await self._members.views(name_of(instance_type), members)
        else:
            unusable = await self._unusable.of(name_of(instance_type), platform_place(pool), flavors)
        return PoolFacts(
            instance_type=instance_type,
            state=read_queue(queue),
            flavors=flavors,
            views=views.usable,
            capability=views.all_nodes,
            compute_capability=views.compute_capability,
            cpu_reserved_nano=reserved_nano(queue, "cpu"),
            unusable=unusable,
            aware=aware,
            overcommit=self.settings.now().instance_general_resources_overcommit,
        )
