"""Which nodes of a pool may not take new work (design §8.5, decision 0180).

For: instance_type, which leaves them out of what the pool promises.
In: cached Nodes, the pool's flavors with their tolerations. Out: per flavor the names of its unusable nodes.
Promises: only nodes with some trouble or taint are looked at, and each again only when it or a flavor changed; a node
is judged by the tolerations of its own flavor; long reading lets others have their turn.
State: per type the last verdicts, compared by object identity.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from controllers.instance_type_queue import PoolIdentity
from controllers.instance_type_watches import UNSETTLED_NODES, platform_place
from controllers.node_view import cached_labels, is_usable
from kube.reconciler import Caches, Object
from nodefeature.fields import as_maps, at, name_of, str_map
from nodefeature.kinds import NODE
from nodefeature.pool import matches

_STEP = 250
"""Nodes judged before others get their turn."""


@dataclass(slots=True)
class _Verdicts:
    """What was found under these flavors: node id -> (the node, the flavors it is unusable for)."""

    flavors: tuple[Mapping[str, Any], ...] = ()
    nodes: dict[int, tuple[Object, tuple[str, ...]]] = field(default_factory=dict)


class UnusableNodes:
    """Verdicts per type."""

    def __init__(self, caches: Caches) -> None:
        self._caches = caches
        self._pools: dict[str, _Verdicts] = {}

    def forget(self, name: str) -> None:
        """Drop what is kept for a type."""
        self._pools.pop(name, None)

    async def of(
        self, name: str, pool: PoolIdentity, flavors: Sequence[Mapping[str, Any]]
    ) -> dict[str, frozenset[str]]:
        """Return the unusable nodes of a type's flavors, by flavor; flavors without any are left out."""
        known = self._pools.get(name, _Verdicts())
        old = known.nodes if _same(known.flavors, flavors) else {}
        verdicts: dict[int, tuple[Object, tuple[str, ...]]] = {}
        found: dict[str, set[str]] = {}
        judged = 0
        for node in self._caches[NODE].by(UNSETTLED_NODES, platform_place(pool)):
            verdict = old.get(id(node))
            if verdict is None:
                verdict = (node, self._judge(node, flavors))
                judged += 1
                if judged % _STEP == 0:
                    await asyncio.sleep(0)
            verdicts[id(node)] = verdict
            for flavor in verdict[1]:
                found.setdefault(flavor, set()).add(name_of(node))
        self._pools[name] = _Verdicts(tuple(flavors), verdicts)
        return {flavor: frozenset(nodes) for flavor, nodes in found.items()}

    def _judge(self, node: Object, flavors: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
        labels = cached_labels(node, self._caches)
        return tuple(
            name_of(flavor)
            for flavor in flavors
            if (wanted := str_map(at(flavor, "spec", "nodeLabels")))
            and matches(wanted, labels)
            and not is_usable(node, as_maps(at(flavor, "spec", "tolerations")))
        )


def _same(left: Sequence[object], right: Sequence[object]) -> bool:
    return len(left) == len(right) and all(one is other for one, other in zip(left, right, strict=True))
