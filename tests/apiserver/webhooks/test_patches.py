"""Patches: what they say, and what they leave alone."""

from __future__ import annotations

from typing import Any

import jsonpatch
import pytest

from apiserver.webhooks.patches import Draft

OBJECT: dict[str, Any] = {
    "metadata": {"labels": None},
    "spec": {"containers": [{"name": "a", "resources": {"limits": {"cpu": "1"}}}]},
}
STEPS: dict[str, list[tuple[Any, ...]]] = {
    "a new leaf": [("2", "spec", "containers", 0, "resources", "limits", "a/b~c")],
    "absent parents": [("2", "spec", "containers", 0, "resources", "requests", "x")],
    "null parent": [("v", "metadata", "labels", "k")],
    "twice below one absent parent": [("1", "metadata", "annotations", "a"), ("2", "metadata", "annotations", "b")],
    "replaced": [("2", "spec", "containers", 0, "resources", "limits", "cpu")],
    "as it was": [("1", "spec", "containers", 0, "resources", "limits", "cpu")],
    "a list, then inside": [([{"name": "z"}], "spec", "containers"), ("y", "spec", "containers", 0, "name")],
    "inside, then the whole, then inside": [
        ("q", "spec", "containers", 0, "name"),
        ({"name": "r"}, "spec", "containers", 0),
        ("s", "spec", "containers", 0, "name"),
    ],
    "below another type": [("1", "spec", "containers", 0, "name", "x"), ("1", "metadata", 0)],
}


@pytest.mark.parametrize("name", STEPS)
def test_patch_says_what_was_drafted(name: str) -> None:
    before = repr(OBJECT)
    draft = Draft(OBJECT)
    for value, *path in STEPS[name]:
        draft.set(value, *path)
    assert repr(OBJECT) == before
    assert jsonpatch.JsonPatch([o.document() for o in draft.patch]).apply(OBJECT) == draft.object
    if name in ("as it was", "below another type"):
        assert draft.patch == ()


def test_remove() -> None:
    draft = Draft(OBJECT)
    draft.remove("spec", "containers", 0, "resources", "limits", "cpu")
    draft.remove("spec", "containers", 0, "resources", "limits", "absent")
    draft.remove("metadata", "annotations", "absent")
    assert [o.document() for o in draft.patch] == [{"op": "remove", "path": "/spec/containers/0/resources/limits/cpu"}]
    assert jsonpatch.JsonPatch([o.document() for o in draft.patch]).apply(OBJECT) == draft.object
