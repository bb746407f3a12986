"""How many nodes of a CPU pool may not take new work (design §8.5, decision 0180).

For: instance_type, which leaves them out of what the pool promises. (Of an accelerated pool `pool_members` knows.)
In: cached Nodes and our NodeFeatures, the pool's flavors with their tolerations. Out: unusable nodes by flavor.
Promises: only nodes with some trouble or taint are looked at, and each again only when something changed that speaks
of it, or a flavor; a node is judged by the tolerations of its own flavor; long reading lets others have their turn.
State: per type the last verdicts and how far the caches were read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from controllers.instance_type_watches import UNSETTLED_NODES
from controllers.node_changes import NodeChanges
from controllers.node_view import cached_labels, is_usable, stands_behind
from kube.pace import Pace
from kube.reconciler import Caches, Key, Object
from nodefeature.fields import as_maps, at, name_of
from nodefeature.kinds import NODE, NODE_FEATURE


@dataclass(slots=True)
class _Verdicts:
    """Node -> the flavors it is unusable for, found under these flavors."""

    flavors: tuple[Mapping[str, Any], ...]
    changes: NodeChanges
    nodes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    def judge(self, node: str, flavors: tuple[str, ...]) -> None:
        self.counts.subtract(self.nodes.pop(node, ()))
        if flavors:
            self.nodes[node] = flavors
            self.counts.update(flavors)


class UnusableNodes:
    """Verdicts per type."""

    def __init__(self, caches: Caches) -> None:
        self._caches = caches
        self._pools: dict[str, _Verdicts] = {}

    def forget(self, name: str) -> None:
        """Drop what is kept for a type."""
        self._pools.pop(name, None)

    async def of(self, name: str, place: str, flavors: Sequence[Mapping[str, Any]]) -> Mapping[str, int]:
        """Return the number of unusable nodes by flavor. `place` is where UNSETTLED_NODES files the pool's platform."""
        # Taken out while it is worked on: a run that is cut off leaves nothing half read behind.
        kept = self._pools.pop(name, None)
        if kept is None or [at(f, "spec") for f in kept.flavors] != [at(f, "spec") for f in flavors]:
            kept = _Verdicts(tuple(flavors), NodeChanges(self._caches, (NODE, NODE_FEATURE)))
        changed, pace = kept.changes.names(), Pace()
        if changed is None:
            kept.nodes.clear()
            kept.counts.clear()
            changed = {name_of(node) for node in self._caches[NODE].by(UNSETTLED_NODES, place)}
        for node in changed:
            kept.judge(node, self._judge(self._caches[NODE].get(Key(node)), flavors))
            await pace.step()
        self._pools[name] = kept
        return +kept.counts

    def _judge(self, node: Object | None, flavors: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
        if node is None or is_usable(node, ()):
            return ()
        labels = cached_labels(node, self._caches)
        return tuple(
            name_of(flavor)
            for flavor in flavors
            if stands_behind(flavor, labels) and not is_usable(node, as_maps(at(flavor, "spec", "tolerations")))
        )
