"""The worker's NodeFeature as a decision: what it should say, given the Node and what it said before.

For: `node_feature` (spec 04 §3, spec 01 §5.3, decision 0182).
In: a Node, the stored NodeFeature or None, settings. Out: labels, notes, a merge patch.
Promises: pure; weaker evidence never replaces a stronger CPU key; the last word on `gpustack.ai/managed` is kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from controllers.node_view import WORKER_SUFFIX, stored_key
from kube.reconciler import Object
from nodefeature.device_labels import is_accelerated
from nodefeature.fields import annotations_of, as_maps, at, labels_of, name_of, str_map, uid_of
from nodefeature.keys import GENERIC, cpu_annotation, manufacturer_of
from nodefeature.kinds import NODE
from nodefeature.labels import (
    ARCH,
    CPU_ANNOTATION_PREFIX,
    CPU_FAMILY,
    CPU_ID,
    CPU_VENDOR,
    DEVICE_PREFIX,
    FEATURE_PREFIX,
    GENERAL_PREFIX,
    MANAGED,
    NFD_NODE_NAME,
    NOTE_PREFIX,
    OS,
    TOPOLOGY_PROFILE,
    TRUE,
)
from nodefeature.worker_labels import worker_labels

PART_OF = "app.kubernetes.io/part-of"
PART_OF_WORKER = "gpustack-operator-worker"
IDENTITY_NOTE = NOTE_PREFIX + "cpu-identity"
SEEN_NOTE = NOTE_PREFIX + "managed-seen"

# From no evidence to the best; the position is the strength.
_STRENGTHS = ("none", "nameonly", "vendor", "model", "name")
_WATCHED_PREFIXES = (MANAGED, FEATURE_PREFIX, GENERAL_PREFIX, DEVICE_PREFIX)


@dataclass(frozen=True, slots=True)
class WorkerFeature:
    """What the NodeFeature should say; `problems` names each label that was left out."""

    labels: Mapping[str, str]
    notes: Mapping[str, str]
    problems: tuple[str, ...] = ()

    def difference(self, node: object, stored: object) -> dict[str, Any]:
        """Return the merge patch of the stored NodeFeature, guarded by its version; empty when nothing differs."""
        own = {NFD_NODE_NAME: name_of(node), PART_OF: PART_OF_WORKER}
        metadata: dict[str, Any] = {}
        if any(labels_of(stored).get(key) != value for key, value in own.items()):
            metadata["labels"] = own
        notes = {
            key: self.notes.get(key)
            for key in (IDENTITY_NOTE, SEEN_NOTE)
            if annotations_of(stored).get(key) != self.notes.get(key)
        }
        if notes:
            metadata["annotations"] = notes
        if not _is_owner(node, stored):
            metadata["ownerReferences"] = [_owner(node)]
        said = str_map(at(stored, "spec", "labels"))
        labels: dict[str, str | None] = {k: v for k, v in self.labels.items() if said.get(k) != v}
        labels |= dict.fromkeys(key for key in said if key not in self.labels)
        patch: dict[str, Any] = {"metadata": metadata} if metadata else {}
        if labels:
            patch["spec"] = {"labels": labels}
        if not patch:
            return {}
        version = at(stored, "metadata", "resourceVersion")
        return {**patch, "metadata": {**metadata, "resourceVersion": version}}


def wanted_feature(
    node: object, stored: object, *, effective: Mapping[str, str], manual: bool, mixed: bool
) -> WorkerFeature:
    """Return what the NodeFeature of a node should say."""
    said = str_map(at(stored, "spec", "labels"))
    notes = annotations_of(stored)
    managed, seen = managed_word(
        on_node=labels_of(node).get(MANAGED, ""),
        in_feature=said.get(MANAGED, "") if stored is not None else None,
        seen=notes.get(SEEN_NOTE, ""),
        manual=manual,
    )
    checked = worker_labels(
        {**labels_of(node), MANAGED: managed},
        annotations_of(node),
        cpu_capacity=at(node, "status", "capacity", "cpu"),
        # The word on the mark is decided above: an empty one adds no mark.
        manual=True,
        # Cards are looked for among the effective labels, so that an NFD restart makes no node CPU-only.
        mixed=mixed or is_accelerated(effective),
    )
    labels = dict(checked.labels)
    strength = identity_strength(node)
    if _strength(notes.get(IDENTITY_NOTE, ""), said) > _STRENGTHS.index(strength):
        labels = _general_labels(said, labels) | _without_general(labels)
        strength = notes.get(IDENTITY_NOTE, "") or _STRENGTHS[_strength("", said)]
    return WorkerFeature(
        labels,
        {IDENTITY_NOTE: strength} | ({SEEN_NOTE: seen} if seen else {}),
        checked.problems,
    )


def managed_word(*, on_node: str, in_feature: str | None, seen: str, manual: bool) -> tuple[str, str]:
    """Return the value of the mark and what both sides last agreed on (decision 0182, rule 3).

    `in_feature` is None without a NodeFeature; an empty text is an absent mark.
    """
    if in_feature is None:
        word = on_node or ("" if manual else TRUE)
        return word, word
    if not on_node:
        word = in_feature or ("" if manual else TRUE)
        return word, seen or word
    if on_node == in_feature or on_node != seen:
        return on_node, on_node
    # The node still shows what both agreed on, so it was the NodeFeature that somebody changed.
    return in_feature or on_node, seen


def identity_strength(node: object) -> str:
    """Return how much a Node tells about its CPU today, the weakest first: `none`, `nameonly` (a name whose vendor
    label is gone, which would make the key `generic-<name>`), `vendor`, `model`, `name`.
    """
    labels = labels_of(node)
    named = bool(cpu_annotation(annotations_of(node), "name"))
    if not labels.get(CPU_VENDOR):
        return "nameonly" if named else "none"
    if named:
        return "name"
    return "model" if labels.get(CPU_FAMILY) and labels.get(CPU_ID) else "vendor"


def identity_inputs(node: object) -> tuple[object, ...]:
    """Return everything of a Node that the worker's NodeFeature, and what is said about its labels, depends on."""
    labels = labels_of(node)
    return (
        {key: value for key, value in labels.items() if key.startswith(_WATCHED_PREFIXES) or key == TOPOLOGY_PROFILE},
        tuple(labels.get(key) for key in (CPU_VENDOR, CPU_FAMILY, CPU_ID, OS, ARCH)),
        annotations_of(node).get(CPU_ANNOTATION_PREFIX + "name"),
        at(node, "status", "capacity", "cpu"),
        uid_of(node),
    )


def worker_feature(node: object, wanted: WorkerFeature, *, namespace: str) -> Object:
    """Return the NodeFeature to create."""
    return {
        "metadata": {
            "name": name_of(node) + WORKER_SUFFIX,
            "namespace": namespace,
            "labels": {NFD_NODE_NAME: name_of(node), PART_OF: PART_OF_WORKER},
            "annotations": dict(wanted.notes),
            "ownerReferences": [_owner(node)],
        },
        "spec": {"features": {}, "labels": dict(wanted.labels)},
    }


def _strength(note: str, said: Mapping[str, str]) -> int:
    """Return how strong the evidence for the stored key was; an unmarked NodeFeature is judged by its key."""
    if note in _STRENGTHS:
        return _STRENGTHS.index(note)
    key = stored_key(said)
    if key in ("", GENERIC):
        return 0
    return _STRENGTHS.index("model" if "-" in key else "vendor")


def _general_labels(said: Mapping[str, str], fresh: Mapping[str, str]) -> dict[str, str]:
    """Return the stored CPU key's labels, with the count that the node reports today."""
    key = stored_key(said)
    kept = {GENERAL_PREFIX + manufacturer_of(key): TRUE, GENERAL_PREFIX + key: TRUE}
    count_label = f"{GENERAL_PREFIX}{key}.count"
    today = next((v for k, v in fresh.items() if k.startswith(GENERAL_PREFIX) and k.endswith(".count")), "")
    count = today or said.get(count_label, "")
    return kept | ({count_label: count} if count else {})


def _without_general(labels: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in labels.items() if not key.startswith(GENERAL_PREFIX)}


def _owner(node: object) -> dict[str, Any]:
    return {
        "apiVersion": NODE.api_version,
        "kind": NODE.kind,
        "name": name_of(node),
        "uid": uid_of(node),
        "controller": True,
    }


def _is_owner(node: object, stored: object) -> bool:
    owners = as_maps(at(stored, "metadata", "ownerReferences"))
    return any(o.get("uid") == uid_of(node) and o.get("controller") is True for o in owners)
