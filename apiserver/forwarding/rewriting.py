"""Rewriting the version of objects in an answer while it passes through (design §6).

For: `view`. In: chunks of JSON as kube-apiserver sends them, cut anywhere. Out: chunks in which each object names the
version of the view.
Promises:
- only the anchored beginning of an object or of the list is rewritten: no other byte changes, nothing is parsed, and at
  most one opening and one anchor are held back;
- an answer whose first object does not begin with an anchor is collected, parsed and written anew, so that a server
  with other habits is served slowly instead of wrongly;
- watch lines go out complete, one event a line; events that hold no object of the kind (ERROR, Tables) stay.

An anchor holds unescaped quotes, so no text inside an object can look like one; an owner reference has no `metadata`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import orjson

OPENING_BYTES = 65536
"""How much of an answer is looked at before it is called unusual."""
_ITEMS = b'"items":['
_OBJECT = b'"object":'
_EVENT_HEAD = 48
# kube-apiserver sorts the keys of custom resources; a typed encoder writes the kind first.
_OBJECT_HEADS = (
    '{"apiVersion":"VERSION","kind":"KIND","metadata":{',
    '{"kind":"KIND","apiVersion":"VERSION","metadata":{',
)
_LIST_HEADS = (
    '{"apiVersion":"VERSION","items":[',
    '{"apiVersion":"VERSION","kind":"KINDList",',
    '{"kind":"KINDList","apiVersion":"VERSION",',
)
_CONVERTED = (
    b'{"kind":"Table","apiVersion":"meta.k8s.io/',
    b'{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/',
    b'{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/',
    b'{"kind":"Status","apiVersion":"v1",',
)


@dataclass(frozen=True, slots=True)
class Renaming:
    """One kind under two versions of its group."""

    group: str
    old: str
    new: str
    kind: str

    @property
    def old_api_version(self) -> str:
        """Return the `apiVersion` that upstream speaks."""
        return f"{self.group}/{self.old}"

    @property
    def new_api_version(self) -> str:
        """Return the `apiVersion` of the view."""
        return f"{self.group}/{self.new}"


class Rewriter:
    """What to replace, as bytes. One per kind; holds no state."""

    def __init__(self, renaming: Renaming) -> None:
        self._renaming = renaming
        old, new, kind = renaming.old_api_version, renaming.new_api_version, renaming.kind
        self._anchors = _filled(_OBJECT_HEADS, old, kind)
        self._renamed = _filled(_OBJECT_HEADS, new, kind)
        self._list_heads = tuple(zip(_filled(_LIST_HEADS, old, kind), _filled(_LIST_HEADS, new, kind), strict=True))
        self._held = max(map(len, self._anchors)) - 1
        self._longest_head = max(self._held + 1, *(len(before) for before, _ in self._list_heads))

    def replace(self, data: bytes) -> bytes:
        """Rename every object that begins within `data`."""
        for anchor, renamed in zip(self._anchors, self._renamed, strict=True):
            data = data.replace(anchor, renamed)
        return data

    def one(self, data: bytes) -> bytes:
        """Rename a complete single object; anything else (a Status, a Table) stays as it is."""
        if data.startswith(self._anchors) or data.startswith(_CONVERTED):
            return self.replace(data)
        return self._parsed(data)

    async def chunks(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Rename the objects of a list, or of one object, as it passes."""
        opening = b""
        async for chunk in chunks:
            opening += chunk
            if self._decided(opening):
                break
        head = self._opened(opening)
        if head is None:
            rest = [chunk async for chunk in chunks]
            yield self._parsed(b"".join([opening, *rest]))
            return
        ready, held = self._split(head)
        yield ready
        async for chunk in chunks:
            ready, held = self._split(held + chunk)
            if ready:
                yield ready
        if held:
            yield held

    async def lines(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Rename the objects of a watch; what a broken stream left of a line is dropped."""
        pending: list[bytes] = []
        async for chunk in chunks:
            end = chunk.rfind(b"\n") + 1
            if not end:
                pending.append(chunk)
                continue
            whole = b"".join([*pending, chunk[:end]])
            pending = [chunk[end:]] if end < len(chunk) else []
            yield b"".join([self._line(line) for line in whole.splitlines(keepends=True)])

    def _line(self, line: bytes) -> bytes:
        at = line.find(_OBJECT, 0, _EVENT_HEAD) + len(_OBJECT)
        if at >= len(_OBJECT) and (line.startswith(self._anchors, at) or line.startswith(_CONVERTED, at)):
            return line[:at] + self.replace(line[at:])
        return self._parsed_event(line)

    def _split(self, data: bytes) -> tuple[bytes, bytes]:
        """Return what is ready to go, and the end that could be the beginning of an anchor."""
        data = self.replace(data)
        at = data.find(b"{", max(0, len(data) - self._held))
        while at >= 0:
            if any(anchor.startswith(data[at:]) for anchor in self._anchors):
                return data[:at], data[at:]
            at = data.find(b"{", at + 1)
        return data, b""

    def _decided(self, opening: bytes) -> bool:
        """Say whether enough has come to know how the answer begins."""
        if len(opening) >= OPENING_BYTES:
            return True
        if opening.startswith(self._anchors):
            return True
        if len(opening) < self._longest_head:
            return False
        if not any(opening.startswith(before) for before, _ in self._list_heads):
            return True
        items = opening.find(_ITEMS)
        return items >= 0 and len(opening) >= items + len(_ITEMS) + self._held + 1

    def _opened(self, opening: bytes) -> bytes | None:
        """Return the opening with the list's own version renamed; None when it has to be parsed."""
        if opening.startswith(self._anchors) or opening.startswith(_CONVERTED):
            return opening
        for before, after in self._list_heads:
            if not opening.startswith(before):
                continue
            first = opening.find(_ITEMS)
            if first < 0:
                return None
            first += len(_ITEMS)
            if opening.startswith(b"]", first) or opening.startswith(self._anchors, first):
                return after + opening[len(before) :]
        return None

    # The slow path

    def _parsed(self, data: bytes) -> bytes:
        try:
            value = orjson.loads(data)
        except orjson.JSONDecodeError:
            return data
        return orjson.dumps(value) if self._rename_decoded(value) else data

    def _parsed_event(self, line: bytes) -> bytes:
        try:
            event = orjson.loads(line)
        except orjson.JSONDecodeError:
            return line
        changed = isinstance(event, dict) and self._rename_decoded(event.get("object"))
        return orjson.dumps(event) + b"\n" if changed else line

    def _rename_decoded(self, value: Any) -> bool:
        """Rename a decoded object or list in place; say whether anything was."""
        if not isinstance(value, dict) or value.get("apiVersion") != self._renaming.old_api_version:
            return False
        kind, items = value.get("kind"), value.get("items")
        if kind not in (self._renaming.kind, f"{self._renaming.kind}List"):
            return False
        value["apiVersion"] = self._renaming.new_api_version
        for item in items if kind != self._renaming.kind and isinstance(items, list) else ():
            self._rename_decoded(item)
        return True


def _filled(forms: tuple[str, ...], version: str, kind: str) -> tuple[bytes, ...]:
    return tuple(form.replace("VERSION", version).replace("KIND", kind).encode() for form in forms)
