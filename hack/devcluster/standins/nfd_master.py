"""Stand-in for NFD master: merges NodeFeature objects and NodeFeatureRules into Node labels and annotations.

For: the devcluster. In: NodeFeature objects labelled with their node's name, NodeFeatureRules. Out: patched Nodes.
Kept from the real one: the union of all of a node's objects in name order; what a rule says beats them; removal of what
it once wrote and nobody says any more (remembered in annotations of the Node); no write when nothing differs.
Left out: topology updater, garbage collection, taints, extended resources, the label white list, name spaces of labels.

Vanishing labels, for tests of what a restarted master does: annotate a Node, some or all of them, from anywhere:
`kubectl annotate node --all standins.devcluster/nfd-hold=45s`. The node loses every label NFD wrote, and gets them
back when the time is over; then the annotation goes too. `delay_s` holds up each merge.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from hack.devcluster.standins.nfd_rules import RuleOutput, evaluate, read_features
from kube.client import Client
from kube.clock import Clock
from kube.reconciler import DONE, After, Caches, Index, Key, Object, Outcome, Rule, Watch
from nodefeature.fields import annotations_of, as_maps, as_str, at, is_deleting, labels_of, name_of, str_map
from nodefeature.kinds import NODE, NODE_FEATURE, NODE_FEATURE_RULE, Kind
from nodefeature.labels import NFD_NODE_NAME

log = logging.getLogger(__name__)

HOLD = "standins.devcluster/nfd-hold"
OWNED_LABELS = "nfd.node.kubernetes.io/feature-labels"
OWNED_ANNOTATIONS = "nfd.node.kubernetes.io/feature-annotations"
BY_NODE = "node"
_DEFAULT_PREFIX = "feature.node.kubernetes.io/"


def _node_of(old: Object | None, new: Object | None, _: Caches) -> Iterable[Key]:
    return {Key(node) for obj in (old, new) if (node := labels_of(obj).get(NFD_NODE_NAME))}


def _all_nodes(_: Object | None, __: Object | None, caches: Caches) -> Iterable[Key]:
    return [Key(name_of(node)) for node in caches[NODE].list()]


def _node(old: Object | None, new: Object | None, _: Caches) -> Iterable[Key]:
    """A new Node, and one whose hold was set, changed or taken away."""
    if new is None or (old is not None and annotations_of(old).get(HOLD) == annotations_of(new).get(HOLD)):
        return []
    return [Key(name_of(new))]


@dataclass(frozen=True, slots=True)
class Merged:
    """What a node should carry by NFD's word, and why some rules said nothing."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    problems: tuple[str, ...] = ()


class NFDMaster:
    """Reconciles one Node's labels."""

    NAME: ClassVar[str] = "standin-nfd-master"
    WATCHES: ClassVar[tuple[Watch, ...]] = (
        Watch(NODE_FEATURE, _node_of),
        Watch(NODE_FEATURE_RULE, _all_nodes, window_s=0.5),
        Watch(NODE, _node),
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
        self._held: dict[str, tuple[str, float]] = {}
        self._reported: set[str] = set()
        self._written: dict[str, int] = {}

    async def reconcile(self, key: Key) -> Outcome:
        """Write what the node's objects say, when it differs."""
        node = self._caches[NODE].get(key)
        if node is None or is_deleting(node):
            self._held.pop(key.name, None)
            self._written.pop(key.name, None)
            return DONE
        left = self._seconds_held(node)
        wanted = Merged({}, {}) if left > 0 else self._wanted(key.name)
        patch = node_patch(await self._current(node), wanted)
        if left <= 0 and HOLD in annotations_of(node):
            patch.setdefault("metadata", {}).setdefault("annotations", {})[HOLD] = None
        if patch:
            if self._delay_s and left <= 0:
                await self._clock.sleep(self._delay_s)
            written = await self._client.patch(NODE, key.name, patch)
            self._written[key.name] = _version(written)
        return After(left) if left > 0 else DONE

    async def _current(self, node: Object) -> Object:
        """Return the Node with our last patch in it: the real master always reads it live."""
        if _version(node) >= self._written.get(name_of(node), 0):
            return node
        return await self._client.get(NODE, name_of(node))

    def _wanted(self, node: str) -> Merged:
        objects = sorted(self._caches[NODE_FEATURE].by(BY_NODE, node), key=name_of)
        merged = merge(objects, sorted(self._caches[NODE_FEATURE_RULE].list(), key=name_of))
        for problem in merged.problems:
            if problem not in self._reported:
                self._reported.add(problem)
                log.error("rule left out", extra={"kind": NODE_FEATURE_RULE.kind, "reason": problem})
        return merged

    def _seconds_held(self, node: Object) -> float:
        """Return how long a node still has to go without labels; the time runs from when its annotation was seen."""
        name, text = name_of(node), annotations_of(node).get(HOLD, "")
        if not text:
            self._held.pop(name, None)
            return 0.0
        if name not in self._held or self._held[name][0] != text:
            self._held[name] = (text, self._clock.now() + hold_seconds(text))
        return self._held[name][1] - self._clock.now()


def _version(obj: Mapping[str, Any]) -> int:
    """Return the resourceVersion as the number the devcluster makes it of."""
    text = as_str(at(obj, "metadata", "resourceVersion"))
    return int(text) if text.isdecimal() else 0


def hold_seconds(text: str) -> float:
    """Read `45s` or `45`; what is no time holds nothing."""
    match = re.fullmatch(r"(\d{1,6})s?", text)
    return float(match[1]) if match else 0.0


def merge(objects: Iterable[Mapping[str, Any]], rules: Iterable[Mapping[str, Any]]) -> Merged:
    """Union the objects' labels, then let the rules speak: a rule's label beats an object's."""
    objects = list(objects)
    labels: dict[str, str] = {}
    for obj in objects:
        labels.update(str_map(at(obj, "spec", "labels")))
    said: RuleOutput = evaluate(
        (rule for obj in rules for rule in as_maps(at(obj, "spec", "rules"))), read_features(objects)
    )
    return Merged({**labels, **said.labels}, said.annotations, tuple(said.problems))


def node_patch(node: Mapping[str, Any], wanted: Merged) -> Object:
    """Return the merge patch that brings a Node to `wanted`; empty when nothing differs."""
    have, notes = labels_of(node), annotations_of(node)
    labels = _difference(have, wanted.labels, notes.get(OWNED_LABELS, ""))
    annotations = _difference(notes, wanted.annotations, notes.get(OWNED_ANNOTATIONS, ""))
    for owned, keys in ((OWNED_LABELS, wanted.labels), (OWNED_ANNOTATIONS, wanted.annotations)):
        listed = ",".join(sorted(key.removeprefix(_DEFAULT_PREFIX) for key in keys))
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
    once = (key if "/" in key else _DEFAULT_PREFIX + key for key in owned.split(",") if key)
    changed.update(dict.fromkeys(key for key in once if key in have and key not in want))
    return changed
