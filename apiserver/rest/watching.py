"""Answers to watches: frames, bookmarks, streaming lists, ends (spec 03 B7).

For: `app`. In: an `EventStream` and the form asked for. Out: one JSON document a line, flushed at once.
Promises: a streaming list always ends its initial part with the annotated bookmark, also with no objects and in every
form (case B004); a reader that fell behind gets one ERROR event with Status 410; a watch ends with a clean EOF at its
time-out, when the server drains, or when the client is gone; column definitions only in the first Table.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from apiserver.rest import table
from apiserver.rest.listing import STEP
from apiserver.rest.negotiation import Form, View, encode
from apiserver.rest.options import WatchOptions
from apiserver.rest.responses import Receive, Send, end_stream, send_piece, start_stream
from apiserver.rest.status import Refusal
from apiserver.rest.storage import Document, Event, EventStream, Resource
from kube.clock import Clock
from nodefeature.fields import as_str, at

BOOKMARK_EVERY_S = 60.0
INITIAL_EVENTS_END = "k8s.io/initial-events-end"


@dataclass(slots=True)
class Framer:
    """Turns events into lines of one watch."""

    resource: Resource
    form: Form
    include: str
    clock: Clock
    first: bool = True

    def lines(self, events: Iterable[Event]) -> bytes:
        """Return the lines of some events."""
        if self.form.view is View.PLAIN:
            return b"".join([b'{"type":"%b","object":%b}\n' % (e.type.encode(), e.document.data) for e in events])
        now = self.clock.time()
        return b"".join([self._line(event.type, self._convert(event.document, now)) for event in events])

    def bookmark(self, resource_version: str, *, end_of_initial: bool = False) -> bytes:
        """Return a BOOKMARK line: an object of the right kind with a resourceVersion only."""
        meta: dict[str, Any] = {"resourceVersion": resource_version, "creationTimestamp": None}
        if end_of_initial:
            meta["annotations"] = {INITIAL_EVENTS_END: "true"}
        obj: dict[str, Any] = {"kind": self.resource.kind, "apiVersion": self.resource.api_version, "metadata": meta}
        if self.form.view is View.METADATA:
            obj = table.partial(obj, self.form.version)
        elif self.form.view is View.TABLE:
            row = {"cells": [None] * len(self.resource.columns or table.DEFAULT_COLUMNS), "object": obj}
            if self.include == "Metadata":
                row["object"] = table.partial(obj, self.form.version)
            obj = self._table([row], resource_version)
        return self._line("BOOKMARK", obj)

    def _convert(self, document: Document, now: datetime) -> dict[str, Any]:
        if self.form.view is View.METADATA:
            return table.partial(document.load(), self.form.version)
        obj = document.load()
        row = table.row(obj, self.resource.columns, include=self.include, version=self.form.version, now=now)
        return self._table([row], as_str(at(obj, "metadata", "resourceVersion")))

    def _table(self, rows: Sequence[dict[str, Any]], resource_version: str) -> dict[str, Any]:
        columns = table.definitions(self.resource.columns) if self.first else []
        self.first = False
        return {
            "kind": "Table",
            "apiVersion": f"meta.k8s.io/{self.form.version}",
            "metadata": {"resourceVersion": resource_version},
            "columnDefinitions": columns,
            "rows": rows,
        }

    @staticmethod
    def _line(kind: str, obj: Any) -> bytes:
        return b'{"type":"%b","object":%b}\n' % (kind.encode(), encode(obj))

    def error(self, refusal: Refusal) -> bytes:
        """Return an ERROR line; a Status is never converted."""
        return self._line("ERROR", refusal.document())


async def serve(
    stream: EventStream, framer: Framer, options: WatchOptions, *, receive: Receive, send: Send, duration_s: float
) -> None:
    """Write one watch until it ends."""
    gone = asyncio.create_task(_until_disconnect(receive, stream), name="watch-disconnect")
    try:
        await start_stream(send)
        await _send_initial(stream, framer, send, mark_end=options.mark_end)
        await _send_changes(stream, framer, options, send=send, until=framer.clock.now() + duration_s)
        await end_stream(send)
    finally:
        stream.close()
        gone.cancel()


async def _until_disconnect(receive: Receive, stream: EventStream) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    stream.close()


async def _send_initial(stream: EventStream, framer: Framer, send: Send, *, mark_end: bool) -> None:
    version = stream.resource_version
    documents = stream.initial
    for start in range(0, len(documents), STEP):
        await send_piece(send, framer.lines(Event("ADDED", item) for item in documents[start : start + STEP]))
        await asyncio.sleep(0)
    stream.initial = ()
    if mark_end:
        await send_piece(send, framer.bookmark(version, end_of_initial=True))


async def _send_changes(
    stream: EventStream, framer: Framer, options: WatchOptions, *, send: Send, until: float
) -> None:
    clock = framer.clock
    now = clock.now()
    wake = min(until, now + BOOKMARK_EVERY_S)
    try:
        while now < until:
            events = await stream.next(max(wake - now, 0.0))
            if events is None:
                return
            if events:
                await send_piece(send, framer.lines(events))
            now = clock.now()
            if now >= wake:  # also at the very end: the client resumes from here
                wake = min(until, now + BOOKMARK_EVERY_S)
                if options.bookmarks:
                    await send_piece(send, framer.bookmark(stream.resource_version))
    except Refusal as refusal:
        await send_piece(send, framer.error(refusal))
