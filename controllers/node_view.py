"""What we believe about a node: its effective labels and whether it is usable.

For: the reconcilers of the chain, which must not take a vanished label for a fact (design §8.4, decision 0182).
In: a cached Node and the NodeFeatures that the operator itself wrote for it. Out: plain values.
Promises: pure; never raises on null or wrong-typed fields; a node's own label always wins over a NodeFeature's.
Trusts: labels of Nodes (cluster administrators, NFD) and NodeFeatures in the operator's namespace (our processes).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kube.reconciler import Caches, Index, Key, Object
from nodefeature.fields import as_maps, as_str, at, is_deleting, labels_of, name_of, str_map
from nodefeature.keys import general_key
from nodefeature.kinds import NODE, NODE_FEATURE
from nodefeature.labels import GENERAL_PREFIX, TRUE
from nodefeature.pool import matches

WORKER_SUFFIX = "-gpustack-worker"
DEVICE_MANAGER_SUFFIX = "-gpustack-device-manager"
LABELS_MERGED = "GPUStackLabelsMerged"
"""The Node condition that says whether NFD copies our labels."""

_BLOCKING_EFFECTS = frozenset({"NoSchedule", "NoExecute"})


def node_of_feature(feature: object) -> str:
    """Return the node that one of our NodeFeatures speaks of; empty for anybody else's."""
    return node_named_by(name_of(feature))


def node_named_by(name: str) -> str:
    """Return the node that a NodeFeature of this name speaks of; empty for a name that is not ours."""
    for suffix in (WORKER_SUFFIX, DEVICE_MANAGER_SUFFIX):
        if name.endswith(suffix):
            return name[: -len(suffix)]
    return ""


def _feature_node(feature: Object) -> Iterable[str]:
    node = node_of_feature(feature)
    return (node,) if node else ()


FEATURES_BY_NODE = Index(NODE_FEATURE, "node", _feature_node)
"""Our NodeFeatures by the node they speak of; to be declared by whoever calls `cached_labels`."""


def effective_labels(node: object, features: Iterable[object]) -> Mapping[str, str]:
    """Return the node's labels plus those that only our NodeFeatures carry; the node's own map when none is missing."""
    own = labels_of(node)
    missing = {
        key: value
        for feature in features
        for key, value in str_map(at(feature, "spec", "labels")).items()
        if key not in own
    }
    return {**missing, **own} if missing else own


def cached_labels(node: object, caches: Caches) -> Mapping[str, str]:
    """Return the effective labels of a cached node."""
    return effective_labels(node, caches[NODE_FEATURE].by(FEATURES_BY_NODE.name, name_of(node)))


def labels_by_node_name(name: str, caches: Caches) -> Mapping[str, str]:
    """Return the effective labels of a node by name; empty when the node is not cached."""
    node = caches[NODE].get(Key(name))
    return cached_labels(node, caches) if node is not None else {}


def stored_key(labels: Mapping[str, str]) -> str:
    """Return the CPU key that a label map carries: of maker and model the longer one; empty when there is none."""
    keys = [
        label.removeprefix(GENERAL_PREFIX)
        for label, value in labels.items()
        if label.startswith(GENERAL_PREFIX) and value == TRUE
    ]
    return max(sorted(keys), key=len, default="")


def cpu_key(labels: Mapping[str, str], annotations: Mapping[str, str]) -> str:
    """Return a node's CPU key: what NFD reports or, while NFD is silent, what our NodeFeature keeps.

    A maker alone (`generic` when nothing is reported) is no answer while a model of that maker is kept.
    """
    key, kept = general_key(labels, annotations), stored_key(labels)
    if labels.get(GENERAL_PREFIX + key) == TRUE and not kept.startswith(f"{key}-"):
        return key
    return kept or key


def stands_behind(flavor: object, labels: Mapping[str, str]) -> bool:
    """Say whether a node with these effective labels is one that a flavor selects, and so counts."""
    wanted = str_map(at(flavor, "spec", "nodeLabels"))
    return bool(wanted) and matches(wanted, labels)


def is_ready(node: object) -> bool:
    """Say whether nobody reports the node as not ready; a node without the condition counts as ready."""
    conditions = as_maps(at(node, "status", "conditions"))
    ready = next((c for c in conditions if c.get("type") == "Ready"), None)
    return ready is None or as_str(ready.get("status")) not in ("False", "Unknown")


def is_usable(node: object, tolerations: Sequence[Mapping[str, Any]]) -> bool:
    """Say whether new Pods carrying `tolerations` may start on the node (decision 0180)."""
    if is_deleting(node) or at(node, "spec", "unschedulable") is True or not is_ready(node):
        return False
    return all(
        any(tolerates(toleration, taint) for toleration in tolerations)
        for taint in as_maps(at(node, "spec", "taints"))
        if taint.get("effect") in _BLOCKING_EFFECTS
    )


def tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    """Say whether one toleration matches one taint, by Kubernetes' own rules."""
    effect = as_str(toleration.get("effect"))
    if effect and effect != taint.get("effect"):
        return False
    key = as_str(toleration.get("key"))
    if as_str(toleration.get("operator")) == "Exists":
        return not key or key == taint.get("key")
    return bool(key) and key == taint.get("key") and as_str(toleration.get("value")) == as_str(taint.get("value"))
