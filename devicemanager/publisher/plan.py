"""A write, decided and not yet done; and who owns what the agent writes.

For: `node_feature` and `devices`, which decide; `publish`, which acts.
In: raw objects as last read. Out: frozen plans.
Promises: a patch carries the resourceVersion it was decided on, so a change in between is a conflict, never lost; what
already means the same is not in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kube.meaning import meaning_differs
from kube.reconciler import Object
from nodefeature.fields import as_list, as_maps, as_str, at, name_of, uid_of
from nodefeature.kinds import NODE


@dataclass(frozen=True, slots=True)
class Plan:
    """Create an object, or patch it, or (neither) leave it alone."""

    create: Object | None = None
    patch: Object | None = None

    @property
    def idle(self) -> bool:
        """Say whether nothing is to be written."""
        return self.create is None and self.patch is None


LEAVE = Plan()


def owned_by(node: Mapping[str, Any], existing: object = ()) -> list[Object]:
    """Return owner references with the Node as the one controller.

    Another controller goes (the API server takes only one), and so does a Node of another uid: a namesake that is gone.
    Waiting owners of other kinds stay.
    """
    others = [
        dict(reference)
        for reference in as_maps(existing)
        if reference.get("controller") is not True and as_str(reference.get("kind")) != NODE.kind
    ]
    own = {
        "apiVersion": NODE.api_version,
        "kind": NODE.kind,
        "name": name_of(node),
        "uid": uid_of(node),
        "controller": True,
        # Without this the write needs rights on the Node's finalizers where owner references are guarded.
        "blockOwnerDeletion": False,
    }
    return [*others, own]


def patch_of(stored: Object, *, metadata: Mapping[str, Any], content: Mapping[str, Any]) -> Plan:
    """Return the merge patch that brings `stored` to the given parts; `content` holds whole top-level fields' parts.

    Maps are merged and a None in them removes; a list stands for the whole list.
    """
    changed: Object = {}
    if part := _difference(as_dict(stored.get("metadata")), metadata):
        changed["metadata"] = part
    for name, want in content.items():
        if part := _difference(as_dict(stored.get(name)), want):
            changed[name] = part
    if not changed:
        return LEAVE
    changed.setdefault("metadata", {})["resourceVersion"] = at(stored, "metadata", "resourceVersion")
    return Plan(patch=changed)


def as_dict(value: object) -> dict[str, Any]:
    """Return a mapping as a dict; anything else is empty."""
    return dict(value) if isinstance(value, Mapping) else {}


def references_of(obj: Mapping[str, Any] | None) -> list[Any]:
    """Return an object's owner references."""
    return as_list(at(obj, "metadata", "ownerReferences"))


def _difference(have: Mapping[str, Any], want: Mapping[str, Any]) -> Object:
    changed: Object = {}
    for key, value in want.items():
        if isinstance(value, Mapping):
            if part := _difference(as_dict(have.get(key)), value):
                changed[key] = part
        elif value is None:
            if key in have:
                changed[key] = None
        elif meaning_differs(have.get(key), value, key):
            changed[key] = value
    return changed
