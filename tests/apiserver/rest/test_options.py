"""Rows of spec 03 B7 and B8: which combinations of options are refused, and with what."""

from __future__ import annotations

from typing import Any

import pytest

from apiserver.rest.options import delete_options, list_options, watch_options, write_options
from apiserver.rest.request_info import parse
from apiserver.rest.status import Refusal

LIST_ROWS = [
    ("match without version", "resourceVersionMatch=Exact", 422),
    ("match with continue", "resourceVersionMatch=Exact&resourceVersion=5&continue=x", 422),
    ("unknown match", "resourceVersionMatch=Newest&resourceVersion=5", 422),
    ("Exact with version 0", "resourceVersionMatch=Exact&resourceVersion=0", 422),
    ("sendInitialEvents on a list", "sendInitialEvents=true", 422),
    ("version with continue", "resourceVersion=5&continue=x", 400),
    ("negative limit", "limit=-1", 422),
    ("version is no number", "resourceVersion=abc", 400),
    ("bad label selector", "labelSelector=a%3D%3D%3Db", 400),
    ("bad field selector", "fieldSelector=nothing", 400),
]
WATCH_ROWS = [
    ("initial events without NotOlderThan", "sendInitialEvents=true", 422),
    ("initial events with Exact", "sendInitialEvents=true&resourceVersionMatch=Exact&resourceVersion=1", 422),
    ("no initial events without match", "sendInitialEvents=false", 422),
    ("match without initial events", "resourceVersionMatch=NotOlderThan&resourceVersion=1", 422),
    ("continue", "continue=x", 422),
    ("negative time-out", "timeoutSeconds=-1", 422),
    ("bad boolean", "allowWatchBookmarks=perhaps", 400),
]


@pytest.mark.parametrize("row", LIST_ROWS, ids=lambda row: row[0])
def test_list_options_that_are_refused(row: tuple[str, str, int]) -> None:
    with pytest.raises(Refusal) as refused:
        list_options(parse("GET", b"/apis/g/v/res", row[1].encode()))
    assert refused.value.code == row[2]


@pytest.mark.parametrize("row", WATCH_ROWS, ids=lambda row: row[0])
def test_watch_options_that_are_refused(row: tuple[str, str, int]) -> None:
    with pytest.raises(Refusal) as refused:
        watch_options(parse("GET", b"/apis/g/v/res", b"watch=1&" + row[1].encode()))
    assert refused.value.code == row[2]


def test_a_list_reads_every_option() -> None:
    query = b"labelSelector=a%3Db&fieldSelector=metadata.name%3Dx&limit=5&resourceVersion=9&resourceVersionMatch=Exact"
    options = list_options(parse("GET", b"/apis/g/v/res", query))
    assert options.labels.matches({"a": "b"})
    assert options.fields.required("metadata.name") == "x"
    assert (options.limit, options.resource_version, options.match) == (5, 9, "Exact")


@pytest.mark.parametrize(
    ("query", "initial", "mark"),
    [
        ("", True, False),
        ("resourceVersion=0", True, False),
        ("resourceVersion=8", False, False),
        ("sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=", True, False),
        ("sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", True, True),
        ("sendInitialEvents=false&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", False, False),
    ],
)
def test_where_a_watch_starts(query: str, initial: bool, mark: bool) -> None:
    options = watch_options(parse("GET", b"/apis/g/v/res", b"watch=1&" + query.encode()))
    assert (options.initial, options.mark_end) == (initial, mark)


def test_a_watch_of_one_name_selects_it_and_a_contradiction_is_400() -> None:
    options = watch_options(parse("GET", b"/apis/g/v/res/x", b"watch=1"))
    assert options.fields.required("metadata.name") == "x"
    with pytest.raises(Refusal) as refused:
        watch_options(parse("GET", b"/apis/g/v/res/x", b"watch=1&fieldSelector=metadata.name%3Dy"))
    assert refused.value.code == 400


@pytest.mark.parametrize("query", ["dryRun=Some", "fieldManager=" + "x" * 129, "fieldValidation=Loud"])
def test_write_options_that_are_refused(query: str) -> None:
    with pytest.raises(Refusal) as refused:
        write_options(parse("POST", b"/apis/g/v/res", query.encode()), default_manager="m")
    assert refused.value.code == 422


def test_the_field_manager_falls_back_to_the_client() -> None:
    info = parse("POST", b"/apis/g/v/res", b"")
    assert write_options(info, default_manager="kubectl").field_manager == "kubectl"


DELETE_ROWS: list[tuple[str, str, Any, int]] = [
    ("policy with orphanDependents", "", {"propagationPolicy": "Orphan", "orphanDependents": True}, 422),
    ("unknown policy", "propagationPolicy=Never", None, 422),
    ("negative grace", "", {"gracePeriodSeconds": -1}, 422),
    ("grace is no number", "", {"gracePeriodSeconds": "1"}, 422),
    ("dry run of something", "", {"dryRun": ["Some"]}, 422),
    ("a list", "", [], 400),
    ("another kind", "", {"kind": "Pod"}, 400),
]


@pytest.mark.parametrize("row", DELETE_ROWS, ids=lambda row: row[0])
def test_delete_options_that_are_refused(row: tuple[str, str, Any, int]) -> None:
    with pytest.raises(Refusal) as refused:
        delete_options(parse("DELETE", b"/apis/g/v/res/n", row[1].encode()), row[2])
    assert refused.value.code == row[3]


def test_delete_options_of_body_and_query() -> None:
    info = parse("DELETE", b"/apis/g/v/res/n", b"gracePeriodSeconds=3&orphanDependents=true")
    assert delete_options(info, None).propagation == "Orphan"
    assert delete_options(info, None).grace_period_s == 3
    body = {"preconditions": {"uid": "u", "resourceVersion": "4"}, "gracePeriodSeconds": 0, "dryRun": ["All"]}
    options = delete_options(parse("DELETE", b"/apis/g/v/res/n", b""), body)
    assert (options.uid, options.resource_version, options.grace_period_s, options.dry_run) == ("u", "4", 0, True)
