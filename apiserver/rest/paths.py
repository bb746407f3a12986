"""The JSON paths of printer columns.

For: `table`. In: `.status.conditions[?(@.type=="Ready")].status` and its kind. Out: a compiled reader.
Promises: field steps, quoted steps, indexes, `[*]` and equality filters, which is what CRD columns may use; anything
else is an error when the column is declared, never when a row is printed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

_STEP = re.compile(
    r"""\.(?P<field>(?:[^.\[\]\\\s{}]|\\.)+)"""
    r"""|\[(?P<index>-?\d+)\]"""
    r"""|\[(?P<all>\*)\]"""
    r"""|\[['"](?P<quoted>[^'"]+)['"]\]"""
    r"""|\[\?\(\s*@\.(?P<key>[^=\s\[\]]+?)\s*==\s*(?P<value>"[^"]*"|'[^']*'|true|false|-?\d+)\s*\)\]"""
)
Step = Callable[[Any], list[Any]]


class PathError(ValueError):
    """A path that this reader does not know."""


@lru_cache(maxsize=1024)
def compile_path(text: str) -> tuple[Step, ...]:
    """Compile a JSON path; braces around it are stripped. Raises PathError."""
    path = text.strip().removeprefix("{").removesuffix("}")
    if path and not path.startswith((".", "[")):
        path = "." + path
    steps: list[Step] = []
    position = 0
    while position < len(path):
        found = _STEP.match(path, position)
        if found is None:
            raise PathError(f"JSON path {text!r} cannot be read at {path[position:]!r}")
        steps.append(_step(found))
        position = found.end()
    return tuple(steps)


def _step(found: re.Match[str]) -> Step:
    if found["index"] is not None:
        return _index(int(found["index"]))
    if found["all"]:
        return lambda value: value if isinstance(value, list) else []
    if found["key"]:
        return _filter(tuple(found["key"].split(".")), found["value"])
    return _field(found["quoted"] or re.sub(r"\\(.)", r"\1", found["field"]))


def _field(name: str) -> Step:
    def read(value: Any) -> list[Any]:
        return [value[name]] if isinstance(value, Mapping) and value.get(name) is not None else []

    return read


def _index(position: int) -> Step:
    def read(value: Any) -> list[Any]:
        return [value[position]] if isinstance(value, list) and -len(value) <= position < len(value) else []

    return read


def _filter(keys: tuple[str, ...], literal: str) -> Step:
    if literal[0] in "\"'":
        wanted: Any = literal[1:-1]
    else:
        wanted = {"true": True, "false": False}.get(literal)
        wanted = int(literal) if wanted is None else wanted

    def read(value: Any) -> list[Any]:
        return [item for item in (value if isinstance(value, list) else []) if _deep(item, keys) == wanted]

    return read


def _deep(value: Any, keys: tuple[str, ...]) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def evaluate(steps: tuple[Step, ...], obj: Mapping[str, Any]) -> list[Any]:
    """Return every value the path reaches; nulls are not reached."""
    values: list[Any] = [obj]
    for step in steps:
        values = [found for value in values for found in step(value)]
    return values
