"""Rows of spec 03 B8, PATCH."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from apiserver.rest.patch import MAX_OPERATIONS, PatchType, merge, read
from apiserver.rest.status import Refusal

SUPPORTED = (PatchType.JSON, PatchType.MERGE, PatchType.APPLY)
JSON, MERGE, APPLY = PatchType.JSON.value, PatchType.MERGE.value, PatchType.APPLY.value

# RFC 7386, appendix A.
MERGES: list[tuple[Any, Any, Any]] = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}),
    ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    (["a", "b"], ["c", "d"], ["c", "d"]),
    ({"a": "b"}, ["c"], ["c"]),
    ({"a": "foo"}, None, None),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
]


@pytest.mark.parametrize("row", MERGES, ids=repr)
def test_merge_patches(row: tuple[Any, Any, Any]) -> None:
    before = orjson.dumps(row[0])
    assert merge(row[0], row[1]) == row[2]
    assert orjson.dumps(row[0]) == before


def test_a_json_patch_changes_a_copy() -> None:
    live = {"spec": {"a": [1, 2]}}
    patch = read(
        b'[{"op":"add","path":"/spec/a/-","value":3},{"op":"test","path":"/spec/a/0","value":1}]', JSON, SUPPORTED
    )
    assert patch.apply(live) == {"spec": {"a": [1, 2, 3]}}
    assert live == {"spec": {"a": [1, 2]}}


UNREADABLE = [
    ("json patch is no array", b"{}", JSON, 400),
    ("json patch of strings", b'["x"]', JSON, 400),
    ("broken json", b"[", JSON, 400),
    ("merge patch is no object", b"[]", MERGE, 400),
    ("apply without kind", b"apiVersion: v1", APPLY, 400),
    ("apply with managedFields", b"{apiVersion: v1, kind: Pod, metadata: {managedFields: [{}]}}", APPLY, 400),
    ("strategic", b"{}", PatchType.STRATEGIC.value, 415),
    ("plain json", b"{}", "application/json", 415),
    ("no type", b"{}", "", 415),
]


@pytest.mark.parametrize("row", UNREADABLE, ids=lambda row: row[0])
def test_unreadable_patches(row: tuple[str, bytes, str, int]) -> None:
    with pytest.raises(Refusal) as refused:
        read(row[1], row[2], SUPPORTED)
    assert refused.value.code == row[3]


def test_a_merge_patch_that_is_no_object_is_refused_in_a_sentence() -> None:
    with pytest.raises(Refusal) as refused:
        read(b"[]", MERGE, SUPPORTED)
    assert refused.value.message == "the body of an application/merge-patch+json must be an object"


def test_too_many_operations_are_413() -> None:
    operations = [{"op": "test", "path": "/a", "value": 1}] * (MAX_OPERATIONS + 1)
    with pytest.raises(Refusal) as refused:
        read(orjson.dumps(operations), JSON, SUPPORTED)
    assert refused.value.code == 413


UNFIT = [
    ("failed test", [{"op": "test", "path": "/a", "value": 2}]),
    ("missing path", [{"op": "remove", "path": "/b"}]),
    ("unknown operation", [{"op": "explode", "path": "/a"}]),
    ("no path", [{"op": "remove"}]),
    ("index out of range", [{"op": "add", "path": "/l/9", "value": 1}]),
    ("replaces the document by a list", [{"op": "replace", "path": "", "value": []}]),
    ("path is a number", [{"op": "add", "path": 5, "value": 1}]),
    ("copies itself into itself", [{"op": "copy", "from": "", "path": "/a"}] * 300),
    ("copies what is not there", [{"op": "copy", "from": "/b", "path": "/c"}]),
    ("copies from a number", [{"op": "copy", "from": 5, "path": "/c"}]),
    ("copies from an object", [{"op": "copy", "from": {}, "path": "/c"}]),
    ("copies from nowhere", [{"op": "copy", "path": "/c"}]),
]


@pytest.mark.parametrize("row", UNFIT, ids=lambda row: row[0])
def test_patches_that_do_not_fit_are_422(row: tuple[str, Any]) -> None:
    patch = read(orjson.dumps(row[1]), JSON, SUPPORTED)
    with pytest.raises(Refusal) as refused:
        patch.apply({"a": 1, "l": []})
    assert refused.value.code == 422


def test_a_failed_test_says_so_without_words_of_ours() -> None:
    with pytest.raises(Refusal) as refused:
        read(orjson.dumps([{"op": "test", "path": "/a", "value": "x"}]), JSON, SUPPORTED).apply({"a": "y"})
    assert refused.value.message.endswith("a test operation found another value than it names")


def test_what_a_patch_copies_is_bounded() -> None:
    doubling = [{"op": "add", "path": "/l", "value": ["x"]}, *[{"op": "copy", "from": "/l", "path": "/l/-"}] * 60]
    patch = read(orjson.dumps(doubling), JSON, SUPPORTED)
    with pytest.raises(Refusal) as refused:
        patch.apply({})
    assert (refused.value.code, refused.value.reason) == (413, "RequestEntityTooLarge")
    few = [{"op": "copy", "from": "/l", "path": "/l/-"}, {"op": "test", "path": "/l/1", "value": ["x"]}]
    assert read(orjson.dumps(few), JSON, SUPPORTED).apply({"l": ["x"]}) == {"l": ["x", ["x"]]}
