"""The four patch formats, as far as a storage can apply them by itself.

For: `app`, which reads the media type; storages, which call `Patch.apply` on the live object.
In: Content-Type and body. Out: a `Patch`, or 400, 413, 415, 422.
Promises: RFC 6902 and RFC 7386 to the letter; a result that is no object is 422; the live object is never changed.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

import jsonpatch

from apiserver.rest import negotiation, status

MAX_OPERATIONS = 10_000


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
        raise status.bad_request(f"the body of a {kind.value} must be an object")
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
        result = jsonpatch.JsonPatch(operations).apply(copy.deepcopy(dict(live)))
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException) as error:
        raise _unfit(str(error)) from error
    except (TypeError, KeyError, ValueError, IndexError) as error:
        raise _unfit(f"an operation cannot be applied ({type(error).__name__})") from error
    if not isinstance(result, dict):
        raise _unfit("the patched document is not an object")
    return result


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
