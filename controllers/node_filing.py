"""One reading of each node, filed under what it says (design §8.11, §11; decision 0410).

For: node_flavor, which asks for the nodes behind a flavor; node_queue, which asks for the nodes of a pool.
In: cached Nodes and our NodeFeatures, a pure reading of one node, the places a reading belongs to. Out: readings.
Promises: a node is read again only when it or one of its NodeFeatures changed; a question costs what changed and its
answer, never the fleet; labels are the effective ones (design §8.4); questions asked at the same time share the reading
and one that is cut off leaves the rest to the next; long reading lets others have their turn.
State: the readings, and how far the caches were read. Rebuilt from the caches after a restart.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Generic, TypeVar

from controllers.node_changes import NodeChanges
from controllers.node_view import cached_labels
from kube.pace import Pace
from kube.reconciler import Caches, Key, Object
from nodefeature.fields import name_of
from nodefeature.kinds import NODE, NODE_FEATURE

T = TypeVar("T")


class NodeFiling(Generic[T]):
    """Readings by place."""

    def __init__(
        self,
        caches: Caches,
        read: Callable[[Object, Mapping[str, str]], T],
        places: Callable[[T], Iterable[Hashable]],
    ) -> None:
        self._caches = caches
        self._read = read
        self._places = places
        self._changes = NodeChanges(caches, (NODE, NODE_FEATURE))
        self._unread: set[str] = set()
        self._filed: dict[str, tuple[Hashable, ...]] = {}
        self._readings: dict[Hashable, dict[str, T]] = {}

    async def under(self, place: Hashable) -> tuple[T, ...]:
        """Return the readings filed under a place, as of now."""
        changed = self._changes.names()
        if changed is None:
            changed = {name_of(node) for node in self._caches[NODE].list()} | self._filed.keys()
        self._unread |= changed
        pace = Pace()
        while self._unread:
            self._file(self._unread.pop())
            await pace.step()
        return tuple(self._readings.get(place, {}).values())

    def _file(self, name: str) -> None:
        """Bring one node up to date; by what the caches say now, which may be newer than what asked for it."""
        for place in self._filed.pop(name, ()):
            readings = self._readings[place]
            del readings[name]
            if not readings:
                del self._readings[place]
        node = self._caches[NODE].get(Key(name))
        if node is None:
            return
        reading = self._read(node, cached_labels(node, self._caches))
        self._filed[name] = places = tuple(dict.fromkeys(self._places(reading)))
        for place in places:
            self._readings.setdefault(place, {})[name] = reading
