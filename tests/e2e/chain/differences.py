"""What differs between two descriptions of a cluster, field by field.

For: the scenarios, which leave the cluster as they found it. In: two trees of plain values. Out: a line a difference.
Promises: pure; a line names the path and both values; equal trees give no line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeGuard

_ABSENT = object()


def differences(before: object, after: object) -> list[str]:
    """Return one line for each leaf that differs, in the order of the paths."""
    return sorted(_differences("", before, after))


def _differences(path: str, before: object, after: object) -> Iterator[str]:
    if before == after:
        return
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in before.keys() | after.keys():
            yield from _differences(f"{path}[{key}]", before.get(key, _ABSENT), after.get(key, _ABSENT))
    elif _is_list(before) and _is_list(after) and len(before) == len(after):
        for number, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from _differences(f"{path}[{number}]", old, new)
    else:
        yield f"{path}: {_shown(before)} became {_shown(after)}"


def _is_list(value: object) -> TypeGuard[Sequence[object]]:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _shown(value: object) -> str:
    return "nothing" if value is _ABSENT else repr(value)
