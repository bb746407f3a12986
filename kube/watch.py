"""A stream of bytes becomes events.

For: `kube.informer` and whoever follows a watch by hand.
In: chunks as they arrive, cut anywhere. Out: `Event`s; an ERROR event becomes an error of `kube.errors`.
Promises:
- a line ends at the byte `\\n` only, never at another character that Unicode calls a line break;
- a chunk may end in the middle of a line or of a multi-byte character;
- a line without its end is never an event;
- a line longer than `LINE_LIMIT` is an error, not memory.
"""

from __future__ import annotations

from typing import NamedTuple

import orjson

from kube.errors import MalformedAnswer, status_error
from kube.reconciler import Object
from nodefeature.fields import as_str, at, metadata

LINE_LIMIT = 32 * 1024 * 1024
"""Bytes; an API server stores objects of 1.5 MiB at most."""

INITIAL_EVENTS_END = "k8s.io/initial-events-end"


class Event(NamedTuple):
    """One line of a watch: `type` is ADDED, MODIFIED, DELETED or BOOKMARK."""

    type: str
    object: Object

    @property
    def version(self) -> str:
        """Return the version to resume from after this event; empty when it carries none."""
        return as_str(metadata(self.object).get("resourceVersion"))

    @property
    def ends_initial(self) -> bool:
        """Say whether this is the bookmark that ends a streaming list."""
        if self.type != "BOOKMARK":
            return False
        return as_str(at(self.object, "metadata", "annotations", INITIAL_EVENTS_END)) == "true"


class LineSplitter:
    """Collects bytes until a line is whole."""

    def __init__(self) -> None:
        self._tail: list[bytes] = []
        self._tail_bytes = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take a chunk; return the lines it completed, blank ones left out."""
        parts = chunk.split(b"\n")
        if len(parts) > 1:
            self._tail.append(parts[0])
            parts[0] = b"".join(self._tail)
            self._tail.clear()
            self._tail_bytes = 0
        last = parts.pop()
        if last:
            self._tail.append(last)
            self._tail_bytes += len(last)
            if self._tail_bytes > LINE_LIMIT:
                raise MalformedAnswer(f"a watch sent a line longer than {LINE_LIMIT} bytes")
        return [line for line in parts if line.strip()]


def decode_event(line: bytes) -> Event:
    """Read one line; raise what an ERROR event says."""
    try:
        decoded = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise MalformedAnswer("a watch sent a line that is no JSON") from error
    kind, obj = as_str(at(decoded, "type")), at(decoded, "object")
    if kind == "ERROR":
        raise status_error(obj)
    if kind not in {"ADDED", "MODIFIED", "DELETED", "BOOKMARK"} or not isinstance(obj, dict):
        raise MalformedAnswer(f"a watch sent an event of type {kind[:20]!r} that is none")
    return Event(kind, obj)
