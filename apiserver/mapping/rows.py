"""Kinds whose objects are rows computed from something else: settings, flavors.

For: the resource modules of such kinds. In: two states of the rows. Out: what changed between them, as events.
Promises: rows keep their order; a row whose content is the same is no event, whatever its version.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from apiserver.rest.negotiation import encode
from apiserver.rest.options import ListOptions, WatchOptions
from apiserver.rest.storage import Document, Event
from kube.reconciler import Object
from kube.watch import Event as BackingEvent
from nodefeature.fields import labels_of, name_of, namespace_of

Row = dict[str, Any]


def selected(rows: Sequence[Row], options: ListOptions | WatchOptions) -> list[Row]:
    """Return the rows that the selectors pass; only name, namespace and labels can be asked for."""
    wanted = {"metadata.name": name_of, "metadata.namespace": namespace_of}
    return [
        row
        for row in rows
        if options.fields.matches(lambda field, row=row: wanted[field](row))  # type: ignore[misc]  # bound at once
        and options.labels.matches(labels_of(row))
    ]


def changes(old: Mapping[str, Row], new: Mapping[str, Row], version: str) -> list[Event]:
    """Return the events that lead from one state to the other; a removed row keeps its last content."""
    events = []
    for name, row in new.items():
        before = old.get(name)
        if before is None or _content(before) != _content(row):
            events.append(Event("ADDED" if before is None else "MODIFIED", Document(encode(row))))
    for name, row in old.items():
        if name not in new:
            gone = {**row, "metadata": {**row["metadata"], "resourceVersion": version}}
            events.append(Event("DELETED", Document(encode(gone))))
    return events


def _content(row: Mapping[str, Any]) -> tuple[Any, Any]:
    return row.get("spec"), row.get("status")


def by_name(rows: Sequence[Row]) -> dict[str, Row]:
    """Return rows by their names."""
    return {name_of(row): row for row in rows}


Compute = Callable[[Sequence[Object], str], Awaitable[dict[str, Row]]]
"""(backing objects, version) -> rows by name."""


class Follower:
    """The rows of one watch, kept in step with the objects they are computed from.

    `found` is the state at `known`. A watch that began at an older version first replays what led here: its rows are
    told again as they are now, or as gone, since what they were is no longer known. Clients take that: it is what they
    would see had they been slow.
    """

    def __init__(self, compute: Compute, found: Sequence[Object], known: str) -> None:
        self._compute = compute
        self._objects = {name_of(obj): obj for obj in found}
        self._known = int(known or 0)
        self.rows: dict[str, Row] = {}

    async def start(self) -> None:
        """Compute the first rows."""
        self.rows = await self._compute(list(self._objects.values()), str(self._known))

    async def convert(self, event: BackingEvent) -> Sequence[Event]:
        """Return what one change of an object changes in the rows."""
        if int(event.version or 0) <= self._known:
            return self._retold(await self._compute([event.object], event.version))
        if event.type == "DELETED":
            self._objects.pop(name_of(event.object), None)
        else:
            self._objects[name_of(event.object)] = event.object
        before, self.rows = self.rows, await self._compute(list(self._objects.values()), event.version)
        return changes(before, self.rows, event.version)

    def _retold(self, touched: Mapping[str, Row]) -> list[Event]:
        return [
            Event("MODIFIED", Document(encode(self.rows[name])))
            if name in self.rows
            else Event("DELETED", Document(encode(row)))
            for name, row in touched.items()
        ]
