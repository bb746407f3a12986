"""node_feature: what the worker says about a node, as NodeFeature `<node>-gpustack-worker` (spec 04 §3, decision 0182).

For: NFD, which copies these labels to the Node; the other reconcilers, which read them as a node's effective labels.
In: Nodes, our NodeFeatures, settings `node-management-manual` and `instance-type-mixed-on-node`.
Out: one NodeFeature a node; Node condition `GPUStackLabelsMerged` when NFD leaves our labels out for too long.
Promises: a vanished label or annotation never weakens what was known; `gpustack.ai/managed` follows whoever changed it
last; a label the API server would refuse is left out and named once; a settled node gets no write.
Trusts: labels and annotations of Nodes (NFD, administrators), NodeFeatures in our namespace.
State: when this process first saw a node's labels unmerged, which nodes it saw merged, and when it last changed a
node's mark; lost on restart, which only delays the condition.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from controllers.merge_condition import condition_operations, merge_condition, unmerged_keys, wait_for_merge
from controllers.node_view import FEATURES_BY_NODE, LABELS_MERGED, WORKER_SUFFIX, effective_labels, node_of_feature
from controllers.reports import Reports
from controllers.settings import LiveSettings, wakes
from controllers.worker_feature import WorkerFeature, identity_inputs, wanted_feature, worker_feature
from kube.client import Client
from kube.clock import Clock, second_time
from kube.errors import NotFound
from kube.reconciler import DONE, After, Caches, Index, Key, Object, Outcome, Rule, Watch
from nodefeature.fields import annotations_of, as_str, at, is_deleting, labels_of, name_of, str_map
from nodefeature.flavor import extract_node_flavors
from nodefeature.kinds import NODE, NODE_FEATURE, SECRET, Kind
from nodefeature.labels import MANAGED, SYSTEM_NAMESPACE

log = logging.getLogger(__name__)

MARK_SETTLES_S = 5.0
"""After a change of the mark the Node may still show what NFD merged before; its next word counts only then, or the
two would answer each other for ever (decision 0284)."""


def _node_keys(old: Object | None, new: Object | None, caches: Caches) -> Iterable[Key]:
    return (Key(name_of(new)),) if new is not None and rederives(old, new) else ()


def _feature_keys(old: Object | None, new: Object | None, caches: Caches) -> Iterable[Key]:
    node = node_of_feature(new if new is not None else old)
    same = old is not None and new is not None and _feature_meaning(old) == _feature_meaning(new)
    return (Key(node),) if node and not same else ()


def _feature_meaning(feature: Object) -> tuple[object, ...]:
    return (
        at(feature, "metadata", "labels"),
        at(feature, "metadata", "annotations"),
        at(feature, "metadata", "ownerReferences"),
        at(feature, "spec", "labels"),
    )


def _all_nodes(caches: Caches) -> Iterable[Key]:
    return [Key(name_of(node)) for node in caches[NODE].list()]


class NodeFeature:
    """Keeps the worker's NodeFeature of one node."""

    NAME: ClassVar[str] = "node_feature"
    WATCHES: ClassVar[tuple[Watch, ...]] = (
        Watch(NODE, _node_keys),
        Watch(NODE_FEATURE, _feature_keys),
        wakes("node_feature", _all_nodes),
    )
    READS: ClassVar[tuple[Kind, ...]] = (SECRET,)
    INDEXES: ClassVar[tuple[Index, ...]] = (FEATURES_BY_NODE,)
    RBAC: ClassVar[tuple[Rule, ...]] = (
        Rule("", "nodes", ("get", "list", "watch")),
        Rule("", "nodes/status", ("patch",)),
        Rule("nfd.k8s-sigs.io", "nodefeatures", ("get", "list", "watch", "create", "patch"), SYSTEM_NAMESPACE),
        Rule("", "secrets", ("get", "list", "watch"), SYSTEM_NAMESPACE),
    )

    def __init__(
        self,
        client: Client,
        caches: Caches,
        *,
        settings: LiveSettings,
        clock: Clock,
        namespace: str = SYSTEM_NAMESPACE,
    ) -> None:
        self.client = client.as_manager("gpustack-node-feature")
        self.caches = caches
        self.settings = settings
        self.clock = clock
        self.namespace = namespace
        self._unmerged_since: dict[str, float] = {}
        self._merged: set[str] = set()
        self._marked: dict[str, float] = {}
        self._reports = Reports()

    async def reconcile(self, key: Key) -> Outcome:
        """Create or align the NodeFeature; once it stands, look whether NFD copied our labels."""
        node = self.caches[NODE].get(key)
        if node is None or is_deleting(node):
            self._unmerged_since.pop(key.name, None)
            self._merged.discard(key.name)
            self._marked.pop(key.name, None)
            self._reports.forget(key.name)
            return DONE
        stored = self.caches[NODE_FEATURE].get(Key(key.name + WORKER_SUFFIX, self.namespace))
        settings = self.settings.now()
        features = list(self.caches[NODE_FEATURE].by(FEATURES_BY_NODE.name, key.name))
        effective = effective_labels(node, features)
        wanted = wanted_feature(
            node,
            stored,
            effective=effective,
            manual=settings.node_management_manual,
            mixed=settings.instance_type_mixed_on_node,
        )
        unsettled_s = self._until_mark_settles(key.name, stored, wanted)
        if unsettled_s > 0:
            return After(unsettled_s)
        unusable = extract_node_flavors(effective, annotations_of(node)).problems
        for problem in self._reports.news(key.name, (*wanted.problems, *unusable)):
            log.warning("node label left out", extra={"kind": "Node", "object": key.name, "reason": problem})
        await self._align(node, stored, wanted)
        return await self._judge_merge(node, features) if stored is not None else DONE

    def _until_mark_settles(self, node: str, stored: Object | None, wanted: WorkerFeature) -> float:
        """Return the seconds for which a change of the mark has to wait; note the time of one that may go on."""
        if stored is None or as_str(at(stored, "spec", "labels", MANAGED)) == wanted.labels.get(MANAGED, ""):
            return 0.0
        now = self.clock.now()
        left = self._marked.get(node, now - MARK_SETTLES_S) + MARK_SETTLES_S - now
        if left <= 0:
            self._marked[node] = now
        return left

    async def _align(self, node: Object, stored: Object | None, wanted: WorkerFeature) -> None:
        if stored is None:
            await self.client.create(NODE_FEATURE, worker_feature(node, wanted, namespace=self.namespace))
            log.info("node feature created", extra={"kind": "NodeFeature", "object": name_of(node) + WORKER_SUFFIX})
            return
        patch = wanted.difference(node, stored)
        if patch:
            await self.client.patch(NODE_FEATURE, name_of(stored), patch, self.namespace)
            log.info("node feature aligned", extra={"kind": "NodeFeature", "object": name_of(stored)})

    async def _judge_merge(self, node: Object, features: Iterable[Object]) -> Outcome:
        name = name_of(node)
        missing = unmerged_keys(labels_of(node), [str_map(at(feature, "spec", "labels")) for feature in features])
        if not missing:
            self._unmerged_since.pop(name, None)
            self._merged.add(name)
        since = self._unmerged_since.setdefault(name, self.clock.now()) if missing else self.clock.now()
        wait_s = wait_for_merge(seen_merged=name in self._merged) - (self.clock.now() - since)
        if missing and wait_s > 0:
            return After(wait_s)
        wanted = merge_condition(node, missing, now=second_time(self.clock.time()))
        if wanted is not None:
            await self._write_condition(name, wanted)
        return DONE

    async def _write_condition(self, name: str, condition: Mapping[str, Any]) -> None:
        """Patch one condition among those of others, which no cache keeps; a moved one fails and is retried."""
        try:
            live = await self.client.get(NODE, name)
            operations = condition_operations(live, condition)
            await self.client.patch(NODE, name, operations, patch_type="json", subresource="status")
        except NotFound:
            return
        log.info(
            "node condition set",
            extra={"kind": "Node", "object": name, "reason": as_str(condition.get("reason")), "type": LABELS_MERGED},
        )


def rederives(old: object, new: object) -> bool:
    """Say whether a change of a Node can change its NodeFeature or the judgement on its labels (spec 04 §14.1)."""
    if is_deleting(new):
        return False
    return old is None or is_deleting(old) or identity_inputs(old) != identity_inputs(new)
