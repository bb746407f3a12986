"""Does a write change anything?

For: whoever writes: no difference in meaning, no write (a settled cluster gets none).
In: JSON values. Out: a truth. Pure.
Promises:
- null and absent mean the same, and so do an empty list and absent; an empty map means something
  (a selector `{}` takes everything), save under the names of `EMPTY_MAPS`;
- lists are ordered, save those of `KEYED` (order and place follow their key) and `SETS`;
- 1 and True differ, 1 and 1.0 do not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

EMPTY_MAPS = frozenset({"labels", "annotations", "nodeLabels", "matchLabels"})
KEYED: Mapping[str, tuple[str, ...]] = {"conditions": ("type",), "ownerReferences": ("uid",)}
SETS = frozenset({"finalizers"})


def meaning_differs(have: object, want: object, field: str = "") -> bool:
    """Say whether two values mean different things. `field` is the name they stand under."""
    have, want = _plain(have, field), _plain(want, field)
    if isinstance(have, Mapping) and isinstance(want, Mapping):
        return any(meaning_differs(have.get(name), want.get(name), name) for name in have.keys() | want.keys())
    if isinstance(have, list) and isinstance(want, list):
        if len(have) != len(want):
            return True
        return any(meaning_differs(a, b) for a, b in zip(_ordered(have, field), _ordered(want, field), strict=True))
    return isinstance(have, bool) != isinstance(want, bool) or bool(have != want)


def asks_change(have: object, want: object, field: str = "") -> bool:
    """Say whether `want` asks for something that `have` is not; what `want` does not mention is left to others.

    A list is wanted as a whole: one that is mentioned must be the same, items compared in the same way.
    """
    want = _plain(want, field)
    if want is None:
        return False
    have = _plain(have, field)
    if isinstance(have, Mapping) and isinstance(want, Mapping):
        return any(asks_change(have.get(name), value, name) for name, value in want.items())
    if isinstance(have, list) and isinstance(want, list):
        if len(have) != len(want):
            return True
        return any(asks_change(a, b) for a, b in zip(_ordered(have, field), _ordered(want, field), strict=True))
    return isinstance(have, bool) != isinstance(want, bool) or bool(have != want)


def _plain(value: object, field: str) -> Any:
    if value == [] or (value == {} and field in EMPTY_MAPS):
        return None
    return value


def _ordered(items: list[Any], field: str) -> list[Any]:
    if field in SETS:
        return sorted(items, key=str)
    names = KEYED.get(field)
    if names is None:
        return items
    return sorted(items, key=lambda item: [str(item.get(name)) if isinstance(item, Mapping) else "" for name in names])
