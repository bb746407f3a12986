"""Stand-in for NFD master: merges NodeFeature objects and NodeFeatureRules into Node labels and annotations.

For: the devcluster. In: NodeFeature objects labelled with their node's name, NodeFeatureRules. Out: patched Nodes.
Kept from the real one: the union of all of a node's objects in name order, removal of what it once wrote and no object
says any more (remembered in annotations of the Node), rules after features, no write when nothing differs.
Left out: topology updater, garbage collection, taints, extended resources, the label white list.
Delay modes, for the tests of vanished labels: `hold(seconds)` behaves like a master that restarted: it removes every
label it wrote and merges again when the time is over.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from hack.devcluster.standins.nfd_rules import RuleOutput, evaluate, read_features
from kube.client import Client
from kube.clock import Clock
from kube.reconciler import DONE, After, Caches, Index, Key, Object, Outcome, Rule, Watch
from nodefeature.fields import annotations_of, as_maps, at, is_deleting, labels_of, name_of, str_map
from nodefeature.kinds import NODE, NODE_FEATURE, NODE_FEATURE_RULE, Kind
from nodefeature.labels import NFD_NODE_NAME

OWNED_LABELS = "nfd.node.kubernetes.io/feature-labels"
OWNED_ANNOTATIONS = "nfd.node.kubernetes.io/feature-annotations"
BY_NODE = "node"


def _node_of(old: Object | None, new: Object | None, _: Caches) -> Iterable[Key]:
    return {Key(node) for obj in (old, new) if (node := labels_of(obj).get(NFD_NODE_NAME))}


def _all_nodes(_: Object | None, __: Object | None, caches: Caches) -> Iterable[Key]:
    return [Key(name_of(node)) for node in caches[NODE].list()]


def _new_node(old: Object | None, new: Object | None, _: Caches) -> Iterable[Key]:
    return [Key(name_of(new))] if new is not None and old is None else []


@dataclass(frozen=True, slots=True)
class Merged:
    """What a node should carry by NFD's word."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]


class NFDMaster:
    """Reconciles one Node's labels."""

    NAME: ClassVar[str] = "standin-nfd-master"
    WATCHES: ClassVar[tuple[Watch, ...]] = (
        Watch(NODE_FEATURE, _node_of),
        Watch(NODE_FEATURE_RULE, _all_nodes, window_s=0.5),
        Watch(NODE, _new_node),
    )
    READS: ClassVar[tuple[Kind, ...]] = ()
    INDEXES: ClassVar[tuple[Index, ...]] = (
        Index(NODE_FEATURE, BY_NODE, lambda obj: [v] if (v := labels_of(obj).get(NFD_NODE_NAME)) else []),
    )
    RBAC: ClassVar[tuple[Rule, ...]] = ()

    def __init__(self, client: Client, caches: Caches, clock: Clock, *, delay_s: float = 0.0) -> None:
        self._client = client
        self._caches = caches
        self._clock = clock
        self._delay_s = delay_s
        self._held_until = 0.0

    def hold(self, seconds: float) -> None:
        """Act like a master that has lost its memory: labels go now, and come back after `seconds`."""
        self._held_until = self._clock.now() + seconds

    async def reconcile(self, key: Key) -> Outcome:
        """Write what the node's objects say, when it differs."""
        node = self._caches[NODE].get(key)
        if node is None or is_deleting(node):
            return DONE
        left = self._held_until - self._clock.now()
        objects = sorted(self._caches[NODE_FEATURE].by(BY_NODE, key.name), key=name_of) if left <= 0 else []
        rules = sorted(self._caches[NODE_FEATURE_RULE].list(), key=name_of) if left <= 0 else []
        patch = node_patch(node, merge(objects, rules))
        if patch:
            if self._delay_s and left <= 0:
                await self._clock.sleep(self._delay_s)
            await self._client.patch(NODE, key.name, patch)
        return After(left) if left > 0 else DONE


def merge(objects: Iterable[Mapping[str, Any]], rules: Iterable[Mapping[str, Any]]) -> Merged:
    """Union the objects' labels, then let the rules speak; an object's label beats a rule's."""
    objects = list(objects)
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    for obj in objects:
        labels.update(str_map(at(obj, "spec", "labels")))
        annotations.update(str_map(at(obj, "spec", "annotations")))
    said: RuleOutput = evaluate(
        (rule for obj in rules for rule in as_maps(at(obj, "spec", "rules"))), read_features(objects)
    )
    return Merged(labels={**said.labels, **labels}, annotations={**annotations, **said.annotations})


def node_patch(node: Mapping[str, Any], wanted: Merged) -> Object:
    """Return the merge patch that brings a Node to `wanted`; empty when nothing differs."""
    have, notes = labels_of(node), annotations_of(node)
    labels = _difference(have, wanted.labels, notes.get(OWNED_LABELS, ""))
    annotations = _difference(notes, wanted.annotations, notes.get(OWNED_ANNOTATIONS, ""))
    for owned, keys in ((OWNED_LABELS, wanted.labels), (OWNED_ANNOTATIONS, wanted.annotations)):
        listed = ",".join(sorted(keys))
        if listed != notes.get(owned, ""):
            annotations[owned] = listed or None
    metadata: Object = {}
    if labels:
        metadata["labels"] = labels
    if annotations:
        metadata["annotations"] = annotations
    return {"metadata": metadata} if metadata else {}


def _difference(have: Mapping[str, str], want: Mapping[str, str], owned: str) -> dict[str, str | None]:
    changed: dict[str, str | None] = {k: v for k, v in want.items() if have.get(k) != v}
    gone = (k for k in owned.split(",") if k and k in have and k not in want)
    changed.update(dict.fromkeys(gone))
    return changed
