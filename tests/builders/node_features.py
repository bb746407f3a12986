"""Builds NodeFeatures, and an NFD master that copies their labels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar

from controllers.node_view import DEVICE_MANAGER_SUFFIX, FEATURES_BY_NODE, WORKER_SUFFIX, node_of_feature
from kube.client import Client
from kube.reconciler import DONE, Caches, Index, Key, Object, Outcome, Rule, Watch
from nodefeature.fields import at, labels_of, str_map
from nodefeature.kinds import NODE, NODE_FEATURE, Kind
from nodefeature.labels import NFD_NODE_NAME, SYSTEM_NAMESPACE
from tests.builders.node_labels import card_labels

PREFIXES = (
    "gpustack.ai/",
    "feature.gpustack.ai/",
    "general.feature.",
    "acceleratable.feature.",
    "topology.gpustack.ai/",
)


def feature(node: str, labels: Mapping[str, str], *, suffix: str = DEVICE_MANAGER_SUFFIX) -> Object:
    """Return a NodeFeature of ours."""
    return {
        "metadata": {
            "name": node + suffix,
            "namespace": SYSTEM_NAMESPACE,
            "labels": {NFD_NODE_NAME: node},
        },
        "spec": {"features": {}, "labels": dict(labels)},
    }


def card_feature(node: str, key: str, count: int, **details: str) -> Object:
    """Return what the agent publishes about one model."""
    return feature(node, card_labels(key, str(count), **details))


def worker_feature_of(node: str, labels: Mapping[str, str]) -> Object:
    """Return the worker's NodeFeature."""
    return feature(node, labels, suffix=WORKER_SUFFIX)


def _node_keys(old: Object | None, new: Object | None, caches: Caches) -> Iterable[Key]:
    name = node_of_feature(new if new is not None else old)
    return (Key(name),) if name else ()


class NfdMaster:
    """Copies the labels of NodeFeatures to their Nodes and takes back what it copied; `up` False stops it."""

    NAME: ClassVar[str] = "nfd"
    WATCHES: ClassVar[tuple[Watch, ...]] = (Watch(NODE_FEATURE, _node_keys),)
    READS: ClassVar[tuple[Kind, ...]] = (NODE,)
    INDEXES: ClassVar[tuple[Index, ...]] = (FEATURES_BY_NODE,)
    RBAC: ClassVar[tuple[Rule, ...]] = ()

    def __init__(self, client: Client, caches: Caches) -> None:
        self.client = client.as_manager("nfd")
        self.caches = caches
        self.up = True

    async def reconcile(self, key: Key) -> Outcome:
        node = self.caches[NODE].get(key)
        if node is None or not self.up:
            return DONE
        wanted: dict[str, str] = {}
        for each in self.caches[NODE_FEATURE].by(FEATURES_BY_NODE.name, key.name):
            wanted |= str_map(at(each, "spec", "labels"))
        shown = {k: v for k, v in labels_of(node).items() if k.startswith(PREFIXES)}
        patch: dict[str, str | None] = {k: v for k, v in wanted.items() if shown.get(k) != v}
        patch |= dict.fromkeys(k for k in shown if k not in wanted)
        if patch:
            await self.client.patch(NODE, key.name, {"metadata": {"labels": patch}})
        return DONE
