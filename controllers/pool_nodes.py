"""Which nodes belong to a pool, by the labels we believe in.

For: node_queue, which compares a plan with the nodes behind it; instance_type, which takes unusable nodes out of what
a pool promises (spec 04 §8 NonConservedQuota; design §8.4, §8.5).
In: cached Nodes and our NodeFeatures. Out: `NodeFacts`, frozen.
Promises: a node is read again only when it or one of its NodeFeatures changed; a label that NFD took away for a moment
still counts; a node whose count cannot be read belongs to no pool, so that it never blocks its neighbours.
State: the facts of the nodes last asked for, compared by object identity (a cache replaces what changes).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from controllers.node_view import FEATURES_BY_NODE, effective_labels
from kube.reconciler import Caches, Object
from nodefeature.device_labels import device_models, label_count
from nodefeature.fields import name_of
from nodefeature.kinds import NODE, NODE_FEATURE
from nodefeature.labels import (
    ACCELERATABLE,
    ARCH,
    DEVICE_PREFIX,
    GENERAL_PREFIX,
    OS,
    TOPOLOGY_PROFILE,
    TRUE,
    is_managed,
)

_COUNT = ".count"
_STEP = 250
"""Nodes looked at before others get their turn."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """One node of ours: its effective labels and the feature labels it offers a number of."""

    name: str
    labels: Mapping[str, str]
    offered: frozenset[str] = frozenset()
    """Label keys, cleaned: of CPU models, and of device models."""


def read_node(name: str, labels: Mapping[str, str]) -> NodeFacts:
    """Return the facts of a node with these effective labels; one we do not manage offers nothing."""
    if not is_managed(labels) or not labels.get(TOPOLOGY_PROFILE):
        return NodeFacts(name, labels)
    devices = {DEVICE_PREFIX + model.key for model in device_models(labels) if model.count > 0}
    cpus = {
        key.removesuffix(_COUNT)
        for key in labels
        if key.startswith(GENERAL_PREFIX) and key.endswith(_COUNT) and label_count(labels, key) > 0
    }
    return NodeFacts(name, labels, frozenset(devices | cpus))


@dataclass(frozen=True, slots=True)
class PoolTest:
    """A pool's flavor selector, taken apart once for the many nodes it is put to."""

    platform: tuple[tuple[str, str], ...]
    own: frozenset[str]
    """Feature keys the node must offer a number of."""
    beside: tuple[str, ...]
    """Feature keys the node must only have."""
    prefix: str

    def holds(self, node: NodeFacts) -> bool:
        """Say whether a node belongs to the pool."""
        if not self.own <= node.offered or any(node.labels.get(key) != value for key, value in self.platform):
            return False
        if self.beside and any(node.labels.get(key) != TRUE for key in self.beside):
            return False
        return bool(self.own) or any(key.startswith(self.prefix) for key in node.offered)


def pool_test(selector: Mapping[str, str]) -> PoolTest:
    """Return the test of the pool that selects its flavors by `selector`."""
    accelerated = selector.get(ACCELERATABLE) == TRUE
    prefix = DEVICE_PREFIX if accelerated else GENERAL_PREFIX
    # Under CPU awareness the CPU's key of an accelerated pool only has to be there; its count is the CPU pool's affair.
    return PoolTest(
        platform=tuple((key, selector[key]) for key in (OS, ARCH) if key in selector),
        own=frozenset(key for key in selector if key.startswith(prefix)),
        beside=tuple(key for key in selector if accelerated and key.startswith(GENERAL_PREFIX)),
        prefix=prefix,
    )


class PoolNodes:
    """Facts of all nodes, kept from one question to the next."""

    def __init__(self, caches: Caches) -> None:
        self._caches = caches
        self._facts: dict[str, tuple[Object, tuple[Object, ...], NodeFacts]] = {}

    async def of(self, selector: Mapping[str, str]) -> list[NodeFacts]:
        """Return the nodes of a pool, in steps that let others run."""
        test = pool_test(selector)
        found: list[NodeFacts] = []
        known: dict[str, tuple[Object, tuple[Object, ...], NodeFacts]] = {}
        for position, node in enumerate(list(self._caches[NODE].list()), 1):
            entry = self._entry(node)
            known[name_of(node)] = entry
            if test.holds(entry[2]):
                found.append(entry[2])
            if position % _STEP == 0:
                await asyncio.sleep(0)
        self._facts = known
        return found

    def _entry(self, node: Object) -> tuple[Object, tuple[Object, ...], NodeFacts]:
        name = name_of(node)
        features = tuple(self._caches[NODE_FEATURE].by(FEATURES_BY_NODE.name, name))
        known = self._facts.get(name)
        if known is not None and known[0] is node and _same(known[1], features):
            return known
        return node, features, read_node(name, effective_labels(node, features))


def _same(left: tuple[Object, ...], right: tuple[Object, ...]) -> bool:
    return len(left) == len(right) and all(one is other for one, other in zip(left, right, strict=True))
