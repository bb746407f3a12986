"""The promises of kube.meaning."""

from __future__ import annotations

from typing import Any

import pytest

from kube.meaning import asks_change, meaning_differs

SAME: list[tuple[str, Any, Any]] = [
    ("null-absent", {"a": None}, {}),
    ("empty-list-absent", {"a": []}, {}),
    ("empty-labels-absent", {"metadata": {"labels": {}}}, {"metadata": {}}),
    ("key-order", {"a": 1, "b": 2}, {"b": 2, "a": 1}),
    ("nested-null", {"a": {"b": None, "c": 1}}, {"a": {"c": 1}}),
    (
        "conditions-in-any-order",
        {"conditions": [{"type": "A"}, {"type": "B"}]},
        {"conditions": [{"type": "B"}, {"type": "A"}]},
    ),
    ("finalizers-in-any-order", {"finalizers": ["a", "b"]}, {"finalizers": ["b", "a"]}),
    ("int-float", {"a": 1}, {"a": 1.0}),
    ("item-nulls", {"a": [{"x": None}]}, {"a": [{}]}),
]
OTHER: list[tuple[str, Any, Any]] = [
    ("selector-takes-all-or-nothing", {"namespaceSelector": {}}, {}),
    ("list-order", {"a": [1, 2]}, {"a": [2, 1]}),
    ("list-length", {"a": [1]}, {"a": [1, 1]}),
    ("value", {"a": "1"}, {"a": 1}),
    ("bool-int", {"a": True}, {"a": 1}),
    ("false-absent", {"a": False}, {}),
    ("zero-absent", {"a": 0}, {}),
    ("empty-string-absent", {"a": ""}, {}),
    (
        "condition-status",
        {"conditions": [{"type": "A", "status": "True"}]},
        {"conditions": [{"type": "A", "status": "False"}]},
    ),
    ("map-list", {"a": {}}, {"a": []}),
]


@pytest.mark.parametrize(("_name", "a", "b"), SAME, ids=[row[0] for row in SAME])
def test_same_meaning(_name: str, a: Any, b: Any) -> None:
    assert not meaning_differs(a, b)
    assert not meaning_differs(b, a)


@pytest.mark.parametrize(("_name", "a", "b"), OTHER, ids=[row[0] for row in OTHER])
def test_other_meaning(_name: str, a: Any, b: Any) -> None:
    assert meaning_differs(a, b)
    assert meaning_differs(b, a)


def test_what_is_not_mentioned_is_left_to_others() -> None:
    have = {"spec": {"a": 1, "defaulted": "x", "groups": [{"name": "g", "defaulted": 1}]}}
    assert not asks_change(have, {"spec": {"a": 1}})
    assert not asks_change(have, {"spec": {"a": 1, "groups": [{"name": "g"}]}})
    assert not asks_change(have, {"spec": {"b": None}})
    assert asks_change(have, {"spec": {"a": 2}})
    assert asks_change(have, {"spec": {"b": 1}})
    assert asks_change(have, {"spec": {"groups": [{"name": "h"}]}})
    assert asks_change(None, {"spec": {}})
