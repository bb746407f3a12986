"""Of which nodes something changed since the last look.

For: readers that keep facts about thousands of nodes and must not walk over all of them again (design §8.11, §11).
In: the caches of Nodes, of our NodeFeatures, of Devices. Out: names of nodes.
Promises: a change is told to every reader once, in its own time; a reader too far behind is told to read everything;
asking costs what changed, not what is stored.
State: how far each cache was read.
"""

from __future__ import annotations

from collections.abc import Iterable

from controllers.node_view import node_named_by
from kube.reconciler import Caches
from nodefeature.kinds import NODE_FEATURE, Kind


class NodeChanges:
    """One reader's place in the changes of some kinds, each of which is named after a node."""

    def __init__(self, caches: Caches, kinds: Iterable[Kind]) -> None:
        self._caches = caches
        self._read = dict.fromkeys(kinds, -1)

    def names(self) -> set[str] | None:
        """Return the nodes to look at again; None: at all of them."""
        found: set[str] = set()
        everything = False
        for kind, since in self._read.items():
            self._read[kind], keys = self._caches[kind].changed(since)
            if keys is None:
                everything = True
            elif kind is NODE_FEATURE:
                found.update(node_named_by(key.name) for key in keys)
            else:
                found.update(key.name for key in keys)
        return None if everything else found - {""}
