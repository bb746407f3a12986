"""Tables, metadata-only forms, ages and the paths of columns (spec 03 B5, spec 02 §13)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from apiserver.rest import table
from apiserver.rest.paths import PathError, compile_path, evaluate
from apiserver.rest.status import Refusal
from apiserver.rest.storage import Column
from tests.apiserver.rest.memory_storage import widget

NOW = datetime(2026, 1, 1, tzinfo=UTC)
OBJECT: dict[str, Any] = {
    "metadata": {"labels": {"a.b/c": "x"}},
    "status": {
        "conditions": [{"type": "Ready", "status": "True"}, {"type": "Other", "status": "False"}],
        "list": ["p", "q"],
        "count": 3,
        "null": None,
    },
}

PATHS = [
    (".status.count", [3]),
    ("{.status.count}", [3]),
    ("status.count", [3]),
    (".status.null", []),
    (".status.none.deep", []),
    (".status.list[1]", ["q"]),
    (".status.list[-1]", ["q"]),
    (".status.list[7]", []),
    (".status.list[*]", ["p", "q"]),
    ('.status.conditions[?(@.type=="Ready")].status', ["True"]),
    (".status.conditions[?(@.type=='None')].status", []),
    (r".metadata.labels.a\.b/c", ["x"]),
    (".metadata.labels['a.b/c']", ["x"]),
    ("", [OBJECT]),
]


@pytest.mark.parametrize("row", PATHS, ids=lambda row: row[0])
def test_paths(row: tuple[str, list[Any]]) -> None:
    assert evaluate(compile_path(row[0]), OBJECT) == row[1]


@pytest.mark.parametrize("text", [".a[", ".a[?(@.b>1)]", ".a..b", ".a[1:2]", "{range .a}"])
def test_unknown_paths_are_refused_when_declared(text: str) -> None:
    with pytest.raises(PathError):
        compile_path(text)


AGES = [
    (0, "0s"),
    (119, "119s"),
    (120, "2m"),
    (125, "2m5s"),
    (599, "9m59s"),
    (600, "10m"),
    (3 * 3600 - 1, "179m"),
    (3 * 3600, "3h"),
    (3 * 3600 + 300, "3h5m"),
    (8 * 3600, "8h"),
    (47 * 3600, "47h"),
    (48 * 3600, "2d"),
    (49 * 3600, "2d1h"),
    (8 * 86400, "8d"),
    (729 * 86400, "729d"),
    (730 * 86400, "2y"),
    (731 * 86400, "2y1d"),
    (9 * 365 * 86400, "9y"),
    (-1, "0s"),
    (-5, "<invalid>"),
]


@pytest.mark.parametrize("row", AGES, ids=lambda row: row[1])
def test_ages(row: tuple[int, str]) -> None:
    then = (NOW - timedelta(seconds=row[0])).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert table.age(then, NOW) == row[1]


def test_an_unreadable_time_says_so() -> None:
    assert table.age("yesterday", NOW) == "<invalid>"


COLUMNS = (
    table.NAME,
    Column("List", ".status.list[*]"),
    Column("Whole", ".status.list"),
    Column("Count", ".status.count", type="integer"),
    Column("Yes", ".status.yes", type="boolean"),
    Column("Missing", ".status.missing"),
    Column("Made", ".metadata.creationTimestamp", type="date"),
    Column("Rendered", render=lambda obj: obj["spec"]["size"] * 2),
)


def test_cells() -> None:
    obj = widget("w", size=2) | {"status": {"list": ["p", "q"], "count": 3, "yes": True}}
    row = table.row(obj, COLUMNS, include="None", version="v1", now=NOW)
    assert row == {"cells": ["w", "p,q", "[p,q]", 3, True, None, "60s", 4]}


@pytest.mark.parametrize("include", ["Metadata", "Object"])
def test_rows_carry_what_was_asked_for(include: str) -> None:
    row = table.row(widget("w", size=2), (), include=include, version="v1beta1", now=NOW)
    assert row["object"]["kind"] == {"Metadata": "PartialObjectMetadata", "Object": "Widget"}[include]
    assert ("spec" in row["object"]) is (include == "Object")


def test_include_is_checked() -> None:
    assert table.check_include("") == "Metadata"
    with pytest.raises(Refusal) as refused:
        table.check_include("Everything")
    assert refused.value.code == 400


def test_date_columns_are_strings_for_clients() -> None:
    kinds = [(d["name"], d["type"], d["priority"]) for d in table.definitions(())]
    assert kinds == [("Name", "string", 0), ("Age", "string", 0)]
