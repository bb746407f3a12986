"""The metadata of a view and of its backing object (spec 03 A4, marker convention).

For: `storage`, the mappings. In: metadata of one side. Out: metadata of the other.
Promises: the marker label and the notes belong to the server: a view never shows them, a client's write can neither set
nor remove them; managedFields speak of the backing kind's fields and are not shown; the rest is the same object's, uid
and resourceVersion included.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from api.problems import Problem, problem
from nodefeature.fields import as_list, as_map, str_map
from nodefeature.labels import NOTE_PREFIX, RESOURCE_TYPE

Object = dict[str, Any]
TEXTS = ("displayName", "description")
_SHAPES = {"labels": dict, "annotations": dict, "finalizers": list, "ownerReferences": list}
_CLIENTS = tuple(_SHAPES)
"""What of its metadata a client writes."""


def shown(stored: Mapping[str, Any]) -> Object:
    """Return the metadata that a view shows."""
    out = {key: value for key, value in as_map(stored.get("metadata")).items() if key != "managedFields"}
    labels = {key: value for key, value in as_map(out.get("labels")).items() if key != RESOURCE_TYPE}
    annotations = {key: value for key, value in as_map(out.get("annotations")).items() if not _is_note(key)}
    for key, kept in (("labels", labels), ("annotations", annotations)):
        out.pop(key, None)
        if kept:
            out[key] = kept
    return out


def note(stored: Mapping[str, Any], key: str) -> str:
    """Return one note of a backing object; empty when it has none."""
    return str_map(as_map(stored.get("metadata")).get("annotations")).get(NOTE_PREFIX + key, "")


def described(stored: Mapping[str, Any]) -> Object:
    """Return the texts for people that every kind keeps in notes."""
    return {key: note(stored, key) for key in TEXTS if note(stored, key)}


def backing(
    obj: Mapping[str, Any],
    stored: Mapping[str, Any] | None,
    *,
    notes: Mapping[str, str],
    mark: str,
    known: Collection[str] = TEXTS,
) -> Object:
    """Return the metadata to write: the client's, the notes, and the marker (empty: none).

    Notes under keys that are not `known` (of an older version) stay.
    """
    given = as_map(obj.get("metadata"))
    was = as_map(as_map(stored).get("metadata"))
    out: Object = dict(was) if stored is not None else {k: given[k] for k in ("name", "generateName") if given.get(k)}
    kept = {key: value for key, value in as_map(was.get("annotations")).items() if _is_note(key)}
    for name in known:
        kept.pop(NOTE_PREFIX + name, None)
    labels = {**as_map(given.get("labels")), **_marks(was, mark)}
    annotations = {**as_map(given.get("annotations")), **kept}
    annotations |= {NOTE_PREFIX + key: text for key, text in notes.items()}
    lists = {key: as_list(given.get(key)) for key in ("finalizers", "ownerReferences")}
    for key, value in {"labels": labels, "annotations": annotations, **lists}.items():
        out.pop(key, None)
        if value:
            out[key] = value
    if given.get("namespace"):
        out["namespace"] = given["namespace"]
    return out


def applied(obj: Mapping[str, Any], *, notes: Mapping[str, str], mark: str) -> Object:
    """Return the metadata of an apply: what the client applies, and the marker."""
    given = as_map(obj.get("metadata"))
    out: Object = {key: given[key] for key in ("name", "namespace", "resourceVersion", "uid") if given.get(key)}
    out |= {key: given[key] for key in _CLIENTS if given.get(key)}
    if mark:
        out["labels"] = {**as_map(given.get("labels")), RESOURCE_TYPE: mark}
    texts = {NOTE_PREFIX + key: text for key, text in notes.items()}
    if texts:
        out["annotations"] = {**as_map(given.get("annotations")), **texts}
    return out


def metadata_problems(obj: Mapping[str, Any]) -> list[Problem]:
    """Return a problem for each part of another shape, and each label and annotation that only the server may write.

    A part of another shape would read as an empty one, and so take away what is stored.
    """
    given = as_map(obj.get("metadata"))
    problems = [
        problem(f"metadata.{key}", given[key], f"must be {'a list' if shape is list else 'a map'}")
        for key, shape in _SHAPES.items()
        if given.get(key) is not None and not isinstance(given[key], shape)
    ]
    if RESOURCE_TYPE in as_map(given.get("labels")):
        problems.append(problem("metadata.labels", RESOURCE_TYPE, "is reserved for the server"))
    for key in as_map(given.get("annotations")):
        if _is_note(key):
            problems.append(problem("metadata.annotations", key, "is reserved for the server"))
    return problems


def is_reserved(key: str) -> bool:
    """Say whether a label or annotation belongs to the server."""
    return key == RESOURCE_TYPE or _is_note(key)


def _is_note(key: object) -> bool:
    return isinstance(key, str) and key.startswith(NOTE_PREFIX)


def _marks(was: Mapping[str, Any], mark: str) -> dict[str, Any]:
    if mark:
        return {RESOURCE_TYPE: mark}
    return {key: value for key, value in as_map(was.get("labels")).items() if key == RESOURCE_TYPE}
