"""Which nodes belong to a pool, by the labels we believe in.

For: node_queue, which compares a plan with the nodes behind it (spec 04 §8 NonConservedQuota; design §8.4).
In: cached Nodes and our NodeFeatures. Out: `NodeFacts`, frozen.
Promises: a question costs the nodes that changed and the nodes that offer what the pool asks for; a label that NFD took
away for a moment still counts; a node whose count cannot be read belongs to no pool, so that it never blocks its
neighbours.
State: the facts of all nodes (`NodeFiling`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from controllers.node_filing import NodeFiling
from kube.pace import in_steps
from kube.reconciler import Caches, Object
from nodefeature.device_labels import device_models, label_count
from nodefeature.fields import name_of
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
        return bool(self.own) or _offers_any(node, self.prefix)

    @property
    def place(self) -> str:
        """Return where all nodes that may hold are filed."""
        return min(self.own, default=self.prefix)


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
        self._filing = NodeFiling(caches, _read, _offers)

    async def of(self, selector: Mapping[str, str]) -> list[NodeFacts]:
        """Return the nodes of a pool, in steps that let others run."""
        test = pool_test(selector)
        found: list[NodeFacts] = []
        async for part in in_steps(await self._filing.under(test.place)):
            found += filter(test.holds, part)
        return found


def _read(node: Object, labels: Mapping[str, str]) -> NodeFacts:
    return read_node(name_of(node), labels)


def _offers(node: NodeFacts) -> frozenset[str]:
    """File a node under each model it offers, and under each sort of model for pools that take all of a sort."""
    return node.offered | {prefix for prefix in (DEVICE_PREFIX, GENERAL_PREFIX) if _offers_any(node, prefix)}


def _offers_any(node: NodeFacts, prefix: str) -> bool:
    return any(key.startswith(prefix) for key in node.offered)
