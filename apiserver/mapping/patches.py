"""Which patches of a mapped kind may go to its backing object as they are (design §6).

For: `storage`. In: a decoded patch. Out: whether it touches the metadata alone, and none of it that the server keeps.
Promises: what is forwarded verbatim can neither show nor change a mark, a note or the content; everything else is done
as one conditional write.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from apiserver.mapping.metadata import is_reserved
from apiserver.rest.patch import Patch, PatchType
from nodefeature.fields import as_map

_LISTS = ("/metadata/finalizers", "/metadata/ownerReferences")
_MAPS = ("/metadata/labels/", "/metadata/annotations/")
_GUARDS = ("/metadata/resourceVersion", "/metadata/uid", "/metadata/name", "/metadata/namespace")


def is_verbatim(patch: Patch) -> bool:
    """Say whether the backing API may judge this patch by itself."""
    match patch.type:
        case PatchType.JSON:
            return bool(patch.body) and all(_harmless(operation) for operation in patch.body)
        case PatchType.MERGE | PatchType.STRATEGIC:
            return _metadata_only(as_map(patch.body))
        case _:
            return False


def _metadata_only(body: Mapping[str, Any]) -> bool:
    if not body or not body.keys() <= {"metadata", "apiVersion", "kind"}:
        return False
    metadata = body.get("metadata")
    if not isinstance(metadata, Mapping):
        return False
    for name in ("labels", "annotations"):
        changed = metadata.get(name, {})
        # null would take the server's own entries along; so would a directive
        if not isinstance(changed, Mapping) or any(is_reserved(key) or key.startswith("$") for key in changed):
            return False
    return "$patch" not in metadata


def stripped(patch: Patch) -> Any:
    """Return the body that the backing API gets: the view's own version and kind left out."""
    if patch.type is PatchType.JSON:
        return patch.body
    return {key: value for key, value in patch.body.items() if key not in ("apiVersion", "kind")}


def _harmless(operation: Mapping[str, Any]) -> bool:
    path, source = operation.get("path"), operation.get("from")
    if not isinstance(path, str) or not _touches_metadata(path):
        return operation.get("op") == "test" and path in _GUARDS
    return source is None or (isinstance(source, str) and _touches_metadata(source))


def _touches_metadata(path: str) -> bool:
    if path.startswith(_LISTS):
        return True
    prefix = next((prefix for prefix in _MAPS if path.startswith(prefix)), None)
    if prefix is None:
        return False
    key = path.removeprefix(prefix).replace("~1", "/").replace("~0", "~")
    return not is_reserved(key)


def states_version(patch: Patch) -> bool:
    """Say whether the patch itself asks for a certain version, so that a conflict is the client's to solve."""
    if patch.type is PatchType.JSON:
        return any(operation.get("path") == "/metadata/resourceVersion" for operation in patch.body)
    return bool(as_map(as_map(patch.body).get("metadata")).get("resourceVersion"))
