"""Server-side apply, as far as our own code calls it.

For: `objects`. In: the live object, the applied configuration, the manager, `force`. Out: the merged object.
Promises: what a manager applied before and no longer applies is removed unless another applier owns it; a forced apply
takes fields over; lists are atomic unless they are keyed (`conditions`, owner references, finalizers, the schema's list
maps). Owners of plain updates are not recorded, so an unforced apply that would change a field nobody applied cannot be
judged: it is refused with 501, never guessed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from apiserver.rest import status
from apiserver.rest.status import Cause
from nodefeature.fields import as_list, as_map, as_maps, as_str

Object = dict[str, Any]
FieldPath = tuple[str, ...]
Keys = Mapping[str, tuple[str, ...]]
"""Dotted path of a list -> the keys that identify an item."""

ALWAYS_KEYED: Keys = {"metadata.ownerReferences": ("uid",), "status.conditions": ("type",)}
_SETS = frozenset({"metadata.finalizers"})
_IDENTITY = frozenset({"apiVersion", "kind", "metadata.name", "metadata.namespace", "metadata.resourceVersion"})
_ITEM = "k:"
_VALUE = "v:"


def leaves(value: Any, keys: Keys, path: FieldPath = (), dotted: str = "") -> Iterator[FieldPath]:
    """Yield the path of everything an apply of `value` owns."""
    if dotted in _IDENTITY:
        return
    if isinstance(value, Mapping) and (value or not path):
        for name, item in value.items():
            yield from leaves(item, keys, (*path, f"f:{name}"), f"{dotted}.{name}" if dotted else name)
    elif isinstance(value, list) and dotted in keys:
        for item in as_maps(value):
            yield from leaves(item, keys, (*path, _ITEM + _identity(item, keys[dotted])), dotted)
    elif isinstance(value, list) and dotted in _SETS:
        for item in value:
            yield (*path, _VALUE + orjson.dumps(item).decode())
    else:
        yield path


def _identity(item: Mapping[str, Any], keys: Sequence[str]) -> str:
    return orjson.dumps({key: item.get(key) for key in keys}, option=orjson.OPT_SORT_KEYS).decode()


def to_fields_v1(paths: Iterator[FieldPath] | Sequence[FieldPath]) -> Object:
    """Return the FieldsV1 form of some paths."""
    root: Object = {}
    for path in paths:
        node = root
        for step in path:
            node = node.setdefault(step, {})
    return root


def from_fields_v1(fields: Mapping[str, Any], path: FieldPath = ()) -> Iterator[FieldPath]:
    """Yield the paths of a FieldsV1 document."""
    for step, below in fields.items():
        if below:
            yield from from_fields_v1(below, (*path, step))
        else:
            yield (*path, step)


def value_at(obj: Any, path: FieldPath) -> Any:
    """Return the value a path leads to, or None."""
    for step in path:
        if step.startswith("f:"):
            obj = as_map(obj).get(step[2:])
        elif step.startswith(_ITEM):
            obj = next((item for item in as_maps(obj) if _is_item(item, step)), None)
        else:
            wanted = orjson.loads(step[2:])
            obj = wanted if wanted in as_list(obj) else None
    return obj


def _is_item(item: Mapping[str, Any], step: str) -> bool:
    wanted = orjson.loads(step[2:])
    return all(item.get(key) == value for key, value in wanted.items())


def merge(live: Any, applied: Any, keys: Keys, dotted: str = "") -> Any:
    """Return `live` with `applied` laid over it; shares nothing that it changes."""
    if isinstance(applied, Mapping):
        out = dict(live) if isinstance(live, Mapping) else {}
        for name, value in applied.items():
            out[name] = merge(out.get(name), value, keys, f"{dotted}.{name}" if dotted else name)
        return out
    if isinstance(applied, list) and dotted in keys:
        out_list = as_list(live).copy()
        for item in as_maps(applied):
            step = _ITEM + _identity(item, keys[dotted])
            index = next((i for i, old in enumerate(out_list) if _is_item(as_map(old), step)), len(out_list))
            old = out_list[index] if index < len(out_list) else None
            out_list[index : index + 1] = [merge(old, item, keys, dotted)]
        return out_list
    if isinstance(applied, list) and dotted in _SETS:
        return [*as_list(live), *(item for item in applied if item not in as_list(live))]
    return applied


def remove(obj: Any, path: FieldPath) -> Any:
    """Return `obj` without what the path leads to, and without containers that this emptied."""
    step, rest = path[0], path[1:]
    if step.startswith("f:"):
        out = dict(as_map(obj))
        below = remove(out[step[2:]], rest) if rest and step[2:] in out else None
        if below in (None, {}, []):
            out.pop(step[2:], None)
        else:
            out[step[2:]] = below
        return out
    if step.startswith(_VALUE):
        return [item for item in as_list(obj) if item != orjson.loads(step[2:])]
    kept = []
    for item in as_list(obj):
        reduced = remove(item, rest) if rest and _is_item(as_map(item), step) else item
        identity = orjson.loads(step[2:])
        if not (_is_item(as_map(item), step) and (not rest or reduced.keys() <= identity.keys())):
            kept.append(reduced)
    return kept


def entries_of(obj: Mapping[str, Any]) -> list[Object]:
    """Return the managedFields entries of an object."""
    return [dict(entry) for entry in as_maps(as_map(obj.get("metadata")).get("managedFields"))]


def apply(
    live: Object, applied: Mapping[str, Any], *, manager: str, force: bool, keys: Keys, subresource: str, time: str
) -> Object:
    """Return the object after `manager` applied; raises Refusal 409 or 501."""
    keys = {**ALWAYS_KEYED, **keys}
    wanted = set(leaves(applied, keys))
    mine: set[FieldPath] = set()
    theirs: dict[FieldPath, str] = {}
    others = []
    for entry in entries_of(live):
        paths = set(from_fields_v1(as_map(entry.get("fieldsV1"))))
        if entry.get("manager") == manager and as_str(entry.get("subresource")) == subresource:
            mine = paths
        else:
            theirs |= dict.fromkeys(paths, as_str(entry.get("manager")))
            others.append(entry)
    changed = {path for path in wanted if value_at(live, path) != value_at(applied, path)}
    if not force:
        _check_conflicts(live, changed, theirs, mine)
    merged: Object = merge(live, applied, keys)
    for path in sorted(mine - wanted - theirs.keys(), reverse=True):
        if not any(other[: len(path)] == path for other in wanted):
            merged = remove(merged, path)
    entry = {"manager": manager, "operation": "Apply", "apiVersion": applied["apiVersion"], "time": time}
    entry |= {"fieldsType": "FieldsV1", "fieldsV1": to_fields_v1(sorted(wanted))}
    if subresource:
        entry["subresource"] = subresource
    merged["metadata"] = {**merged["metadata"], "managedFields": [*without(others, changed), entry]}
    return merged


def _check_conflicts(
    live: Object, changed: set[FieldPath], theirs: Mapping[FieldPath, str], mine: set[FieldPath]
) -> None:
    if not live.get("metadata", {}).get("uid"):
        return
    causes = [
        Cause("FieldManagerConflict", f'conflict with "{theirs[path]}"', dotted_path(path))
        for path in sorted(changed)
        if path in theirs
    ]
    name = as_str(live["metadata"].get("name"))
    if causes:
        text = f"Apply failed with {len(causes)} conflict(s): {causes[0].message}: {causes[0].field}"
        raise status.conflict(as_str(live.get("kind")), "", name, text, causes=causes)
    unknown = [dotted_path(path) for path in sorted(changed - mine) if value_at(live, path) is not None]
    if unknown:
        text = f"an unforced apply would change {unknown[0]} of {name!r}, whose owner the devcluster does not record"
        raise status.not_implemented(f"{text}; use force")


def dotted_path(path: FieldPath) -> str:
    """Return the readable form of a path."""
    return "".join(f".{step[2:]}" if step.startswith("f:") else f"[{step[2:]}]" for step in path)


def without(entries: Sequence[Object], taken: set[FieldPath]) -> list[Object]:
    """Return managedFields entries that lost `taken`; an entry that owns nothing more is dropped."""
    out = []
    for entry in entries:
        left = [path for path in from_fields_v1(as_map(entry.get("fieldsV1"))) if path not in taken]
        if left:
            out.append({**entry, "fieldsV1": to_fields_v1(left)})
    return out


def disown_changed(old: Mapping[str, Any], new: Object) -> None:
    """After a plain write: appliers lose the fields whose value somebody else changed."""
    entries = entries_of(old)
    if not entries:
        return
    owned = {path for entry in entries for path in from_fields_v1(as_map(entry.get("fieldsV1")))}
    taken = {path for path in owned if value_at(old, path) != value_at(new, path)}
    kept = without(entries, taken) if taken else entries
    new["metadata"]["managedFields"] = kept
