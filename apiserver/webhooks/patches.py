"""JSON patches, written down while an object is changed.

For: mutating webhooks. In: an object, and values by path. Out: operations that kube-apiserver applies to the original.
Promises: the original is never changed and never copied as a whole; a value that is already there makes no operation;
parents that are absent or null come into being with their first child; lists are only changed as a whole or in place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Step = str | int


@dataclass(frozen=True, slots=True)
class Operation:
    """One `add` (which also replaces) or `remove`."""

    op: str
    path: tuple[Step, ...]
    value: Any = None

    def document(self) -> dict[str, Any]:
        """Return the JSON form."""
        pointer = "".join(f"/{_escaped(step)}" for step in self.path)
        return {"op": self.op, "path": pointer} | ({"value": self.value} if self.op != "remove" else {})


class Draft:
    """An object being changed. `object` is what it would be after the patch."""

    def __init__(self, obj: Mapping[str, Any]) -> None:
        self.object: Any = dict(obj)
        self._operations: list[Operation] = []
        self._copied: set[tuple[Step, ...]] = {()}

    @property
    def patch(self) -> tuple[Operation, ...]:
        """Return the operations so far."""
        return tuple(self._operations)

    def get(self, *path: Step) -> Any:
        """Return the value under a path, or None."""
        found = self.object
        for step in path:
            if isinstance(found, Mapping) and isinstance(step, str):
                found = found.get(step)
            elif isinstance(found, list) and isinstance(step, int) and step < len(found):
                found = found[step]
            else:
                return None
        return found

    def set(self, value: Any, *path: Step) -> None:
        """Set a value; under a parent of another type nothing is set, validation names it."""
        if value is not None and self.get(*path) == value:
            return
        there = next((depth for depth in range(1, len(path)) if self.get(*path[:depth]) is None), len(path))
        parent, member = self.get(*path[: there - 1]), path[there - 1]
        if not (isinstance(parent, Mapping) if isinstance(member, str) else isinstance(parent, list)):
            return
        nested = value
        for step in reversed(path[there:]):
            nested = {step: nested}
        self._open(path[: there - 1])[member] = nested
        if path[:there] in self._copied:  # what stands there now is the operation's own value
            self._copied = {known for known in self._copied if known[:there] != path[:there]}
        op = "replace" if isinstance(member, int) else "add"
        self._operations.append(Operation(op, path[:there], nested))

    def remove(self, *path: Step) -> None:
        """Remove a member of an object, if it is there."""
        parent = self.get(*path[:-1])
        if isinstance(parent, Mapping) and path[-1] in parent:
            del self._open(path[:-1])[path[-1]]
            self._operations.append(Operation("remove", path))

    def _open(self, path: tuple[Step, ...]) -> Any:
        """Return the container under a path, copied so that it may be written to."""
        container = self.object
        for depth in range(1, len(path) + 1):
            here = path[:depth]
            child = container[path[depth - 1]]
            if here not in self._copied:
                child = child.copy() if isinstance(child, list) else dict(child)
                container[path[depth - 1]] = child
                self._copied.add(here)
            container = child
        return container


def _escaped(step: Step) -> str:
    return str(step).replace("~", "~0").replace("/", "~1")
