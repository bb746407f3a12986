"""Strategic merge patches as merge patches, where both mean the same (design §6, spec 03 B8).

For: `view`, `apiserver.mapping`. In: a decoded strategic merge patch, the live object's metadata. Out: a merge patch.
Promises: maps merge and null deletes in both; a list replaces the old one in both, but for owner references (merged by
uid) and finalizers (a set); whatever asks for more (`$patch`, `$setElementOrder`, ...) is refused with exactly 415, on
which the garbage collector falls back to a merge patch of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from apiserver.rest import status
from apiserver.rest.patch import PatchType
from nodefeature.fields import as_list, as_map, as_maps, as_str

SUPPORTED = (PatchType.JSON, PatchType.MERGE, PatchType.APPLY)
_MERGED = ("finalizers", "ownerReferences")


def unsupported() -> status.Refusal:
    """Return the 415 of a patch that cannot be translated."""
    return status.unsupported_media_type([kind.value for kind in SUPPORTED])


def check(patch: Mapping[str, Any]) -> None:
    """Raise Refusal 415 for a patch with directives."""
    waiting: list[Any] = [patch]
    while waiting:
        value = waiting.pop()
        if isinstance(value, Mapping):
            if any(key.startswith("$") for key in value):
                raise unsupported()
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)


def needs_live(patch: Mapping[str, Any]) -> bool:
    """Say whether the patch changes a list that is merged with the stored one."""
    metadata = as_map(patch.get("metadata"))
    return any(isinstance(metadata.get(key), list) for key in _MERGED)


def merged(patch: Mapping[str, Any], live_metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the merge patch with merged lists, conditional on the version of the live object."""
    metadata = dict(as_map(patch.get("metadata")))
    if isinstance(metadata.get("finalizers"), list):
        stored = as_list(live_metadata.get("finalizers"))
        metadata["finalizers"] = [*stored, *(item for item in metadata["finalizers"] if item not in stored)]
    if isinstance(metadata.get("ownerReferences"), list):
        owners = {as_str(owner.get("uid")): owner for owner in as_maps(live_metadata.get("ownerReferences"))}
        for owner in metadata["ownerReferences"]:
            uid = as_str(as_map(owner).get("uid"))
            if not uid:
                raise status.bad_request("metadata.ownerReferences: an owner is known by its uid, which is missing")
            owners[uid] = {**owners.get(uid, {}), **owner}
        metadata["ownerReferences"] = list(owners.values())
    metadata.setdefault("resourceVersion", live_metadata.get("resourceVersion"))
    return {**patch, "metadata": metadata}
