"""Tolerant readers of raw Kubernetes objects.

For: every place that reads an object somebody else wrote. `labels: null` is not a missing key (case B019), and a
field of the wrong type is legal input everywhere (design §5).
In: raw decoded JSON. Out: a value of the promised type, empty when the field is absent, null or of another type.
Promises: never raises; never copies; never invents a value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeGuard

_EMPTY: Mapping[str, Any] = {}


def _is_map(value: object) -> TypeGuard[Mapping[str, Any]]:
    # Nearly all are plain dicts, and asking the abstract class costs ten times as much.
    return type(value) is dict or isinstance(value, Mapping)


def as_map(value: object) -> Mapping[str, Any]:
    """Return `value` when it is a mapping, else an empty one."""
    return value if _is_map(value) else _EMPTY


def as_list(value: object) -> list[Any]:
    """Return `value` when it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def as_maps(value: object) -> list[Mapping[str, Any]]:
    """Return the mappings inside a list, skipping anything else."""
    return [item for item in as_list(value) if _is_map(item)]


def as_str(value: object) -> str:
    """Return `value` when it is a string, else the empty string."""
    return value if isinstance(value, str) else ""


def as_int(value: object) -> int:
    """Return `value` when it is an integer (never a bool, never a float), else 0."""
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def as_bool(value: object) -> bool:
    """Return True only for the boolean `true`."""
    return value is True


def at(obj: object, *path: str) -> Any:
    """Return the value under `path`, or None as soon as a step is absent, null or not a mapping."""
    for step in path:
        if not _is_map(obj):
            return None
        obj = obj.get(step)
    return obj


def str_map(value: object) -> Mapping[str, str]:
    """Return a mapping's string-to-string pairs; the same object when all of them are."""
    pairs = as_map(value)
    if all(isinstance(v, str) for v in pairs.values()):
        return pairs
    return {k: v for k, v in pairs.items() if isinstance(v, str)}


def metadata(obj: object) -> Mapping[str, Any]:
    """Return `metadata` of an object."""
    return as_map(at(obj, "metadata"))


def name_of(obj: object) -> str:
    """Return `metadata.name`."""
    return as_str(at(obj, "metadata", "name"))


def namespace_of(obj: object) -> str:
    """Return `metadata.namespace`; empty for cluster-scoped objects."""
    return as_str(at(obj, "metadata", "namespace"))


def uid_of(obj: object) -> str:
    """Return `metadata.uid`."""
    return as_str(at(obj, "metadata", "uid"))


def labels_of(obj: object) -> Mapping[str, str]:
    """Return `metadata.labels`."""
    return str_map(at(obj, "metadata", "labels"))


def annotations_of(obj: object) -> Mapping[str, str]:
    """Return `metadata.annotations`."""
    return str_map(at(obj, "metadata", "annotations"))


def is_deleting(obj: object) -> bool:
    """Say whether the object carries a deletion timestamp."""
    return bool(at(obj, "metadata", "deletionTimestamp"))


def has_ended(pod: object) -> bool:
    """Say whether a Pod is in a terminal phase: its containers run no more, nor will again."""
    return as_str(at(pod, "status", "phase")) in ("Succeeded", "Failed")


def condition_of(obj: object, kind: str) -> Mapping[str, Any]:
    """Return one condition of an object; empty when there is none."""
    return next((c for c in as_maps(at(obj, "status", "conditions")) if c.get("type") == kind), _EMPTY)


def has_condition(obj: object, kind: str, status: str = "True") -> bool:
    """Say whether a condition has that status."""
    return condition_of(obj, kind).get("status") == status
