"""Rows of spec 03 B2, and the paths an attacker would send."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiserver.rest.request_info import RequestInfo, boolean, integer, parse
from apiserver.rest.status import Refusal

ROWS = [
    ("GET", "/apis/g/v/res", "", "list", "", "res", "", ""),
    ("GET", "/apis/g/v/res", "watch=true", "watch", "", "res", "", ""),
    ("GET", "/apis/g/v/res", "watch=1", "watch", "", "res", "", ""),
    ("GET", "/apis/g/v/res", "watch=false", "list", "", "res", "", ""),
    ("POST", "/apis/g/v/namespaces/ns/res", "", "create", "ns", "res", "", ""),
    ("DELETE", "/apis/g/v/namespaces/ns/res", "", "deletecollection", "ns", "res", "", ""),
    ("GET", "/apis/g/v/namespaces/ns/res/n", "", "get", "ns", "res", "n", ""),
    ("PUT", "/apis/g/v/namespaces/ns/res/n", "", "update", "ns", "res", "n", ""),
    ("PATCH", "/apis/g/v/namespaces/ns/res/n", "", "patch", "ns", "res", "n", ""),
    ("DELETE", "/apis/g/v/namespaces/ns/res/n", "", "delete", "ns", "res", "n", ""),
    ("GET", "/apis/g/v/namespaces/ns/res/n/sub", "", "get", "ns", "res", "n", "sub"),
    ("GET", "/apis/g/v/watch/namespaces/ns/res", "", "watch", "ns", "res", "", ""),
    ("GET", "/api/v1/namespaces", "", "list", "", "namespaces", "", ""),
    ("GET", "/api/v1/namespaces/ns", "", "get", "ns", "namespaces", "ns", ""),
    ("PUT", "/api/v1/namespaces/ns/finalize", "", "update", "ns", "namespaces", "ns", "finalize"),
    ("PATCH", "/api/v1/namespaces/ns/status", "", "patch", "ns", "namespaces", "ns", "status"),
    ("GET", "/api/v1/namespaces/ns/pods", "", "list", "ns", "pods", "", ""),
    ("GET", "/apis/rbac/v1/clusterroles/system%3Anode", "", "get", "", "clusterroles", "system:node", ""),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]} {row[1]}?{row[2]}")
def test_paths_become_verbs_and_resources(row: tuple[str, ...]) -> None:
    method, path, query, verb, namespace, resource, name, subresource = row
    info = parse(method, path.encode(), query.encode())
    found = (info.verb, info.namespace, info.resource, info.name, info.subresource)
    assert (info.is_resource, *found) == (True, verb, namespace, resource, name, subresource)


@pytest.mark.parametrize("path", ["/", "/api", "/apis", "/apis/", "/apis/g", "/apis/g/v", "/api/v1", "/healthz"])
def test_short_paths_are_no_resources(path: str) -> None:
    assert not parse("GET", path.encode(), b"").is_resource


HOSTILE = [
    b"/apis/g/v/namespaces/ns/res/..%2f..%2fsecrets",
    b"/apis/g/v/namespaces/ns/res/%2e%2e",
    b"/apis/g/v/namespaces/../res",
    b"/apis/g/v/namespaces/ns//res",
    b"/apis/g/v/namespaces/ns/res/a%252fb",
    b"/apis/g/v/namespaces/ns/res/a%00b",
    b"/apis/g/v/namespaces/ns/res/a%0d%0ab",
    b"/apis/g/v/namespaces/ns/res/%ff",
    b"/apis/g/v/namespaces/%2F/res",
    b"//apis/g/v/res",
    b"/apis/g/v/res/",
]


@pytest.mark.parametrize("path", HOSTILE)
def test_hostile_segments_are_400(path: bytes) -> None:
    with pytest.raises(Refusal) as refused:
        parse("GET", path, b"")
    assert refused.value.code == 400


def test_too_deep_paths_are_404() -> None:
    with pytest.raises(Refusal) as refused:
        parse("GET", b"/apis/g/v/namespaces/ns/res/n/sub/more", b"")
    assert refused.value.code == 404


@pytest.mark.parametrize("row", [("PUT", "/apis/g/v/res"), ("PATCH", "/apis/g/v/res"), ("TRACE", "/apis/g/v/res/n")])
def test_verbs_without_meaning_are_405(row: tuple[str, str]) -> None:
    with pytest.raises(Refusal) as refused:
        parse(row[0], row[1].encode(), b"")
    assert refused.value.code == 405


def test_a_field_selector_on_the_name_is_what_authorization_judges() -> None:
    info = parse("GET", b"/apis/g/v/res", b"fieldSelector=metadata.name%3Dx")
    assert (info.verb, info.selected_name, info.name) == ("list", "x", "")


def test_only_parameters_of_the_verb_survive() -> None:
    info = parse("DELETE", b"/apis/g/v/res/n", b"propagationPolicy=Orphan&fieldManager=x&evil=1&timeout=32s")
    assert dict(info.query) == {"propagationPolicy": "Orphan"}


def test_the_first_of_repeated_parameters_counts_and_two_dry_runs_must_agree() -> None:
    info = parse("GET", b"/apis/g/v/res", b"limit=1&limit=2")
    assert info.query["limit"] == "1"
    with pytest.raises(Refusal):
        parse("POST", b"/apis/g/v/res", b"dryRun=All&dryRun=None")


@pytest.mark.parametrize("value", ["maybe", "2", "yes"])
def test_booleans_are_checked(value: str) -> None:
    with pytest.raises(Refusal):
        boolean({"watch": value}, "watch")


@pytest.mark.parametrize("value", ["x", "1.5", "1e3", "٣", "9" * 30, "--1"])
def test_integers_are_checked(value: str) -> None:
    with pytest.raises(Refusal):
        integer({"limit": value}, "limit")


@given(st.binary(max_size=80), st.binary(max_size=40))
def test_any_bytes_give_an_answer_and_never_an_unsafe_segment(path: bytes, query: bytes) -> None:
    info = answer(b"/apis/g/v/namespaces/" + path, query)
    if isinstance(info, Refusal):
        assert info.code in (400, 404, 405)
        return
    for segment in (info.namespace, info.resource, info.name, info.subresource):
        assert segment not in (".", "..")
        assert not set(segment) & set("/%\0\n\r")


def answer(path: bytes, query: bytes) -> RequestInfo | Refusal:
    try:
        return parse("GET", path, query)
    except Refusal as refused:
        return refused


@pytest.mark.parametrize(
    ("selector", "name"),
    [
        ("metadata.name%3Da", "a"),
        ("metadata.name%3D%3Da", "a"),
        ("x%3Dy,metadata.name%3Da", "a"),
        ("metadata.name!%3Da", ""),
        # One term, whose value holds an escaped comma: it selects everything, so no name may be judged.
        ("metadata.name!%3Dz%5C,metadata.name%3Da", ""),
        ("metadata.name%3Da%5C,b", "a,b"),
        ("nonsense,metadata.name%3Da", ""),
    ],
)
def test_the_name_a_selector_pins(selector: str, name: str) -> None:
    info = parse("GET", b"/apis/g/v1/things", f"fieldSelector={selector}".encode())
    assert info.selected_name == name
