"""node_queue: gives each ClusterQueue of ours its quota plan, and takes it away without harming who runs (spec 04 §8).

For: Kueue, which admits by these groups; instance_type, which shows the state.
In: ClusterQueues of type `instancetypes`, our ResourceFlavors, Topologies, AdmissionChecks, nodes, settings.
Out: `resourceGroups`, `admissionChecksStrategy`, stop policies HoldAndDrain, Hold (marked) and back, annotations
`topology.gpustack.ai/*`, condition TopologyReady.
Promises: no difference, no write; every write carries the version it was decided on; a queue that cannot be planned
keeps its plan, says why in TopologyReady, and stops no other queue; queues without our type label are never touched.
State: facts of nodes read before (`PoolNodes`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any, ClassVar

from controllers.node_view import FEATURES_BY_NODE
from controllers.ownership import is_our_flavor, is_our_queue
from controllers.pool_nodes import PoolNodes
from controllers.queue_checks import is_our_check, queue_checks
from controllers.queue_migration import AWAITING_QUEUE_STATUS, NO_FLAVORS, Decision, Verdict, Want, decide
from controllers.queue_plan import Refusal, build_plan, pool_flavors, raw_groups, read_flavor, refuse_plan, sort_flavors
from controllers.queue_state import (
    MIGRATION_PHASE,
    QUEUE_ANNOTATIONS,
    TOPOLOGY_READY,
    UNSET,
    Condition,
    QueueState,
    read_queue,
)
from controllers.settings import LiveSettings, wakes
from kube.client import Client
from kube.clock import Clock, second_time
from kube.reconciler import DONE, Caches, Index, Key, Object, Outcome, Rule, Watch
from nodefeature.fields import annotations_of, as_int, as_maps, as_str, at, is_deleting, labels_of, name_of
from nodefeature.kinds import (
    ADMISSION_CHECK,
    CLUSTER_QUEUE,
    NODE,
    NODE_FEATURE,
    RESOURCE_FLAVOR,
    SECRET,
    TOPOLOGY,
    Kind,
)
from nodefeature.labels import ACCELERATABLE, SYSTEM_NAMESPACE, TRUE
from nodefeature.pool import matches, pool_flavor_selector

log = logging.getLogger(__name__)

WINDOW_S = 3.0
MOVED_S = 0.5
"""Flavors that come or go do so together, and a queue waits for them; a count that grows can wait."""


def _queue_changed(old: Object | None, new: Object | None, _: Caches) -> Iterable[Key]:
    """Run a queue for what people and reconcilers write; for Kueue's status only when a step waits for it."""
    if new is None or not is_our_queue(new):
        return ()
    same = old is not None and _written(old) == _written(new) and not _verdict_lost(old, new)
    return () if same and not _step_is_due(old, new) else (Key(name_of(new)),)


def _step_is_due(old: Object | None, new: Object) -> bool:
    """Say whether Kueue has reached what a change of plan waits for: it saw the queue, stopped it, or let all go."""
    waits = MIGRATION_PHASE in annotations_of(new) or _verdict(new)[1:2] in ((AWAITING_QUEUE_STATUS,), (NO_FLAVORS,))
    return old is not None and waits and _reached(old) != _reached(new)


def _reached(queue: Object) -> tuple[bool, bool, bool]:
    state = read_queue(queue)
    return state.observed, state.stopped, state.reserved


def _verdict_lost(old: Object, new: Object) -> bool:
    """Say whether our condition was there and is no more what it was: somebody wrote the list without it."""
    before = _verdict(old)
    return bool(before) and _verdict(new) != before


def _verdict(queue: Object) -> tuple[object, ...]:
    conditions = as_maps(at(queue, "status", "conditions"))
    ours = (c for c in conditions if c.get("type") == TOPOLOGY_READY)
    return next(((c.get("status"), c.get("reason"), c.get("message")) for c in ours), ())


def _written(queue: Object) -> tuple[object, ...]:
    annotations = annotations_of(queue)
    ours = {key: annotations.get(key) for key in QUEUE_ANNOTATIONS}
    return at(queue, "metadata", "generation"), is_deleting(queue), labels_of(queue), ours


def _all_queues(caches: Caches) -> Iterable[Key]:
    return [Key(name_of(queue)) for queue in caches[CLUSTER_QUEUE].list() if is_our_queue(queue)]


def queues_of_flavor(old: Object | None, new: Object | None, caches: Caches) -> Iterable[Key]:
    """Return the queues that select a flavor, as it was or as it is."""
    shown = [labels_of(flavor) for flavor in (old, new) if flavor is not None]
    keys = []
    for queue in caches[CLUSTER_QUEUE].list():
        selector = pool_flavor_selector(labels_of(queue))
        if is_our_queue(queue) and selector and any(matches(selector, labels) for labels in shown):
            keys.append(Key(name_of(queue)))
    return keys


def queues_of_moved_flavor(old: Object | None, new: Object | None, caches: Caches) -> Iterable[Key]:
    """Return the queues that select a flavor which came, went, or is on its way out."""
    stays = old is not None and new is not None and is_deleting(old) == is_deleting(new)
    return () if stays else queues_of_flavor(old, new, caches)


def _queues_of_topology(old: Object | None, new: Object | None, caches: Caches) -> Iterable[Key]:
    if old is not None and new is not None:
        return ()
    name = name_of(new if new is not None else old)
    return {
        key
        for flavor in caches[RESOURCE_FLAVOR].list()
        if at(flavor, "spec", "topologyName") == name
        for key in queues_of_flavor(None, flavor, caches)
    }


def _queues_of_check(old: Object | None, new: Object | None, caches: Caches) -> Iterable[Key]:
    if not any(is_our_check(check) for check in (old, new) if check is not None):
        return ()
    return _all_queues(caches)


class NodeQueue:
    """Fills, holds, drains and migrates one ClusterQueue."""

    NAME: ClassVar[str] = "node_queue"
    WATCHES: ClassVar[tuple[Watch, ...]] = (
        Watch(CLUSTER_QUEUE, _queue_changed),
        Watch(RESOURCE_FLAVOR, queues_of_moved_flavor, window_s=MOVED_S),
        Watch(RESOURCE_FLAVOR, queues_of_flavor, window_s=WINDOW_S),
        Watch(TOPOLOGY, _queues_of_topology, window_s=WINDOW_S),
        Watch(ADMISSION_CHECK, _queues_of_check, window_s=WINDOW_S),
        wakes("node_queue", _all_queues),
    )
    READS: ClassVar[tuple[Kind, ...]] = (NODE, NODE_FEATURE, SECRET)
    INDEXES: ClassVar[tuple[Index, ...]] = (FEATURES_BY_NODE,)
    RBAC: ClassVar[tuple[Rule, ...]] = (
        Rule("kueue.x-k8s.io", "clusterqueues", ("list", "watch", "patch")),
        Rule("kueue.x-k8s.io", "clusterqueues/status", ("patch",)),
        Rule("kueue.x-k8s.io", "resourceflavors", ("list", "watch")),
        Rule("kueue.x-k8s.io", "topologies", ("list", "watch")),
        Rule("kueue.x-k8s.io", "admissionchecks", ("list", "watch")),
        Rule("", "nodes", ("list", "watch")),
        Rule("nfd.k8s-sigs.io", "nodefeatures", ("list", "watch"), SYSTEM_NAMESPACE),
        Rule("", "secrets", ("get", "list", "watch"), SYSTEM_NAMESPACE),
    )

    def __init__(self, client: Client, caches: Caches, *, settings: LiveSettings, clock: Clock) -> None:
        self.client = client.as_manager("gpustack-node-queue")
        self.caches = caches
        self.settings = settings
        self.clock = clock
        self._nodes = PoolNodes(caches)

    async def reconcile(self, key: Key) -> Outcome:
        """Bring one queue's plan, stop policy and TopologyReady to where they should be."""
        queue = self.caches[CLUSTER_QUEUE].get(key)
        if queue is None or not is_our_queue(queue):
            return DONE
        selector = pool_flavor_selector(labels_of(queue))
        state = read_queue(queue)
        if not selector and not state.deleting:
            return DONE
        decision = decide(state, await self._want(state, selector or {}))
        written = await self._write_queue(queue, decision)
        if decision.verdict is not None:
            await self._write_verdict(written, decision.verdict)
        return decision.outcome

    async def _want(self, state: QueueState, selector: dict[str, str]) -> Want:
        settings = self.settings.now()
        accelerated = selector.get(ACCELERATABLE) == TRUE
        raw = pool_flavors(self.caches[RESOURCE_FLAVOR].list(), selector) if selector else []
        flavors = sort_flavors(flavor for flavor in map(read_flavor, raw) if flavor is not None)
        # One that is going counts while it is there: Kueue works with it, and keeps it as long as a flavor names it.
        topologies = (name_of(topology) for topology in self.caches[TOPOLOGY].list())
        refusal: Refusal | None = None
        if flavors:
            nodes = await self._nodes.of(selector)
            refusal = await refuse_plan(state, flavors, topologies, nodes, in_transit=self._in_transit(selector))
        return Want(
            plan=build_plan(flavors),
            refusal=refusal,
            checks=queue_checks(
                self.caches[ADMISSION_CHECK].list(),
                accelerated=accelerated,
                derived=settings.instance_type_derived_from_node,
            ),
            drain_when_empty=settings.instance_type_drain_when_no_flavors,
        )

    def _in_transit(self, selector: dict[str, str]) -> bool:
        """Say whether a flavor of the pool is going: Kueue keeps it until the queue lets it go, and only then can it
        be made again for its nodes."""
        flavors = self.caches[RESOURCE_FLAVOR].list()
        return any(is_deleting(f) and is_our_flavor(f) and matches(selector, labels_of(f)) for f in flavors)

    async def _write_queue(self, queue: Object, decision: Decision) -> Object:
        patch = queue_patch(decision)
        if not patch:
            return queue
        metadata = {**patch.get("metadata", {}), "resourceVersion": at(queue, "metadata", "resourceVersion")}
        name = name_of(queue)
        written = await self.client.patch(CLUSTER_QUEUE, name, {**patch, "metadata": metadata})
        log.info(
            "queue written",
            extra={
                "kind": "ClusterQueue",
                "object": name,
                "reason": decision.verdict.reason if decision.verdict else "",
            },
        )
        return written

    async def _write_verdict(self, queue: Object, verdict: Verdict) -> None:
        conditions = conditions_with(queue, verdict, now=second_time(self.clock.time()))
        if conditions is None:
            return
        version = at(queue, "metadata", "resourceVersion")
        # A merge patch replaces the whole list; the version makes sure that Kueue's condition in it is the newest.
        patch = {"metadata": {"resourceVersion": version}, "status": {"conditions": conditions}}
        await self.client.patch(CLUSTER_QUEUE, name_of(queue), patch, subresource="status")


def queue_patch(decision: Decision) -> dict[str, Any]:
    """Return a decision as a merge patch; empty when nothing changes."""
    spec: dict[str, Any] = {}
    if decision.plan is not None:
        spec["resourceGroups"] = raw_groups(decision.plan)
    if decision.policy is not None:
        spec["stopPolicy"] = None if decision.policy == UNSET else decision.policy
    if decision.checks is not None:
        references = [{"name": check.name} for check in decision.checks]
        spec["admissionChecksStrategy"] = {"admissionChecks": references} if references else None
    patch: dict[str, Any] = {"spec": spec} if spec else {}
    if decision.annotations:
        patch["metadata"] = {"annotations": dict(decision.annotations)}
    return patch


def conditions_with(queue: Object, verdict: Verdict, *, now: str) -> list[Any] | None:
    """Return the queue's conditions with the verdict in them; None when it stands there already."""
    generation = as_int(at(queue, "metadata", "generation"))
    current = as_maps(at(queue, "status", "conditions"))
    old = next((c for c in current if c.get("type") == TOPOLOGY_READY), {})
    said = Condition(
        as_str(old.get("status")),
        as_str(old.get("reason")),
        as_str(old.get("message")),
        as_int(old.get("observedGeneration")),
    )
    if said == Condition(verdict.status, verdict.reason, verdict.message, generation):
        return None
    since = as_str(old.get("lastTransitionTime")) if said.status == verdict.status else ""
    condition = {
        "type": TOPOLOGY_READY,
        "status": verdict.status,
        "reason": verdict.reason,
        "message": verdict.message,
        "observedGeneration": generation,
        "lastTransitionTime": since or now,
    }
    return [*(c for c in current if c.get("type") != TOPOLOGY_READY), condition]
