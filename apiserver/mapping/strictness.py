"""Unknown fields of a written object, as `fieldValidation` asks (spec 03 B8).

For: `storage`, the settings. In: the object and its kind's schema. Out: warnings, or a Refusal.
Promises: Strict refuses, Warn (the default) warns, Ignore says nothing; every unknown field is named with its path; a
depth or number that no real object has ends the search, never the server.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from apiserver.rest import status
from apiserver.rest.status import Cause, Refusal

MOST = 20
_META = frozenset({"apiVersion", "kind", "metadata"})


def unknown_fields(schema: Mapping[str, Any], obj: Mapping[str, Any]) -> list[str]:
    """Return the paths of fields the schema does not know, at most `MOST`."""
    found: list[str] = []
    for path in _walk(schema, {key: value for key, value in obj.items() if key not in _META}, ""):
        found.append(path)
        if len(found) == MOST:
            break
    return found


def _walk(schema: Mapping[str, Any], value: Any, path: str) -> Iterator[str]:
    properties = schema.get("properties")
    if isinstance(properties, Mapping) and isinstance(value, Mapping):
        for key, item in value.items():
            where = f"{path}.{key}" if path else str(key)
            if key in properties:
                yield from _walk(properties[key], item, where)
            else:
                yield where
    elif isinstance(schema.get("items"), Mapping) and isinstance(value, list):
        for index, item in enumerate(value):
            yield from _walk(schema["items"], item, f"{path}[{index}]")


def judge(unknown: list[str], validation: str, *, kind: str, group: str, patching: bool) -> tuple[str, ...]:
    """Return the warnings of unknown fields; raises Refusal 400, or 422 for a patch, when they are not allowed."""
    if not unknown or validation == "Ignore":
        return ()
    texts = [f'unknown field "{path}"' for path in unknown]
    if validation != "Strict":
        return tuple(texts)
    raise _refusal(", ".join(texts), kind=kind, group=group, patching=patching)


def _refusal(text: str, *, kind: str, group: str, patching: bool) -> Refusal:
    if patching:
        cause = Cause("FieldValueInvalid", f"Invalid value: strict decoding error: {status.cut(text)}", "patch")
        return status.invalid(kind, group, "", [cause])
    return status.bad_request(f"strict decoding error: {text}")
