"""The four patch formats, as far as a storage can apply them by itself.

For: `app`, which reads the media type; storages, which call `Patch.apply` on the live object.
In: Content-Type and body. Out: a `Patch`, or 400, 413, 415, 422.
Promises: RFC 6902 and RFC 7386 to the letter; a result that is no object, or too deep to be written, is 422; what
`copy` multiplies is bounded, as kube-apiserver bounds it; the live object is never changed.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

import jsonpatch
import orjson

from apiserver.rest import negotiation, status

MAX_OPERATIONS = 10_000
MAX_COPIED_BYTES = status.MAX_BODY_BYTES
"""What the copies of one JSON patch may add: each can double what the one before it made."""


class PatchType(Enum):
    """Media types of patches."""

    JSON = "application/json-patch+json"
    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    APPLY = "application/apply-patch+yaml"


@dataclass(frozen=True, slots=True)
class Patch:
    """A decoded patch."""

    type: PatchType
    body: Any

    def apply(self, live: Mapping[str, Any]) -> dict[str, Any]:
        """Return the patched copy of `live`; raises Refusal 422 when a JSON patch does not fit."""
        if self.type is PatchType.JSON:
            return _json_patch(live, self.body)
        merged = merge(live, self.body)
        if not isinstance(merged, dict):
            raise status.bad_request("a merge patch must be an object")
        return merged


def read(body: bytes, content_type: str, supported: Collection[PatchType]) -> Patch:
    """Decode a patch of one of the supported types."""
    media_type = content_type.partition(";")[0].strip().lower()
    kind = next((candidate for candidate in supported if candidate.value == media_type), None)
    if kind is None:
        raise status.unsupported_media_type([candidate.value for candidate in supported])
    if kind is PatchType.APPLY:
        return Patch(kind, _apply_body(body))
    value = negotiation.decode_json(body)
    if kind is PatchType.JSON:
        _check_operations(value)
    elif not isinstance(value, Mapping):
        raise status.bad_request(f"the body of an {kind.value} must be an object")
    return Patch(kind, value)


def _apply_body(body: bytes) -> Mapping[str, Any]:
    value = negotiation.decode_yaml(body)
    if not isinstance(value, Mapping):
        raise status.bad_request("the body of an apply must be an object")
    if not value.get("apiVersion") or not value.get("kind"):
        raise status.bad_request("the body of an apply must carry apiVersion and kind")
    managed = (value.get("metadata") or {}).get("managedFields") if isinstance(value.get("metadata"), Mapping) else None
    if managed:
        raise status.bad_request("metadata.managedFields must be nil")
    return value


def _check_operations(value: Any) -> None:
    if not isinstance(value, list) or not all(isinstance(operation, Mapping) for operation in value):
        raise status.bad_request("the body of a JSON patch must be an array of operations")
    if len(value) > MAX_OPERATIONS:
        text = f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {len(value)}"
        raise status.too_large(text)


def _json_patch(live: Mapping[str, Any], operations: list[Any]) -> dict[str, Any]:
    try:
        result = _operated(copy.deepcopy(dict(live)), operations)
    except jsonpatch.JsonPatchTestFailed as error:  # its own text names types of Python
        raise _unfit("a test operation found another value than it names") from error
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException) as error:
        raise _unfit(status.cut(str(error))) from error
    except (TypeError, KeyError, ValueError, IndexError, AttributeError, RecursionError) as error:
        raise _unfit(f"an operation cannot be applied ({type(error).__name__})") from error
    if not isinstance(result, dict):
        raise _unfit("the patched document is not an object")
    if negotiation.nests_too_deep(result):
        raise _unfit(f"the patched document nests deeper than {negotiation.MOST_DEEP}")
    return result


def _operated(document: Any, operations: list[Any]) -> Any:
    """Apply all operations in place; those of a patch that copies one by one, counting."""
    whole = jsonpatch.JsonPatch(operations)
    if not any(operation.get("op") == "copy" for operation in operations):
        return whole.apply(document, in_place=True)
    copied = 0
    for operation in operations:
        if operation["op"] == "copy":
            copied += len(orjson.dumps(jsonpatch.JsonPointer(operation["from"]).resolve(document)))
            if copied > MAX_COPIED_BYTES:
                raise status.too_large(f"the copies of a JSON patch may add at most {MAX_COPIED_BYTES} bytes")
        document = jsonpatch.JsonPatch([operation]).apply(document, in_place=True)
    return document


def _unfit(why: str) -> status.Refusal:
    return status.Refusal(422, "Invalid", f"the server rejected our request due to an error in our request: {why}")


def merge(target: Any, patch: Any) -> Any:
    """Apply RFC 7386. Parts of `target` that the patch does not touch are shared, not copied."""
    if not isinstance(patch, Mapping):
        return patch
    out = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            out.pop(key, None)
        else:
            out[key] = merge(out.get(key), value)
    return out
