"""Gets and lists: pages, versions, selectors."""

from __future__ import annotations

import pytest

from nodefeature.fields import at
from nodefeature.kinds import CONFIG_MAP
from tests.protocol.samples import Shelf
from tests.protocol.wire import Server, names, version_of

FUTURE = "999999999"


def test_an_absent_object_is_not_found(shelf: Shelf) -> None:
    answer = shelf.server.ask("GET", shelf.at("none"))
    assert (answer.code, answer.reason) == (404, "NotFound")
    assert answer.json["details"] == {
        "name": shelf.name("none"),
        "kind": shelf.kind.plural,
        **({"group": shelf.kind.group} if shelf.kind.group else {}),
    }


def test_an_unknown_resource_is_not_found(server: Server) -> None:
    assert server.ask("GET", "/apis/worker.gpustack.ai/v1alpha1/nothings").code == 404


def test_a_created_object_reads_back(shelf: Shelf) -> None:
    created = shelf.create("a")
    assert shelf.server.ok("GET", shelf.at("a")) == created


def test_an_empty_list_has_items_and_a_version(shelf: Shelf) -> None:
    listed = shelf.list()
    assert listed["items"] == []
    assert listed["kind"] == f"{shelf.kind.kind}List"
    assert int(version_of(listed)) > 0


def test_a_list_is_in_order_of_names(shelf: Shelf) -> None:
    for word in ("b", "c", "a"):
        shelf.create(word)
    assert names(shelf.list()) == [shelf.name(word) for word in "abc"]


def test_items_of_built_in_lists_name_no_kind_and_ours_do(shelf: Shelf) -> None:
    shelf.create("a")
    (item,) = shelf.list()["items"]
    expected = shelf.server.answer_of("kind-of-items") if shelf.kind == CONFIG_MAP else True
    assert ("kind" in item and "apiVersion" in item) is expected


def test_pages_are_one_snapshot(shelf: Shelf) -> None:
    for word in "abcde":
        shelf.create(word)
    first = shelf.list(limit="2")
    shelf.create("aa")
    second = shelf.list(limit="2", **{"continue": first["metadata"]["continue"]})
    third = shelf.list(limit="2", **{"continue": second["metadata"]["continue"]})
    found = names(first) + names(second) + names(third)
    assert found == [shelf.name(word) for word in "abcde"]
    assert not third["metadata"].get("continue")
    assert version_of(first) == version_of(second) == version_of(third)


def test_pages_without_selector_count_what_remains(server: Server, namespace: str) -> None:
    shelf = Shelf(server, CONFIG_MAP, namespace)
    for word in "abc":
        shelf.create(word)
    whole = len(server.ok("GET", shelf.path)["items"])
    page = server.ok("GET", shelf.path, limit="1")
    assert page["metadata"]["remainingItemCount"] == whole - 1
    assert "remainingItemCount" not in shelf.list(limit="1")["metadata"]


@pytest.mark.parametrize("token", ["abc", "e30"])
def test_a_page_token_that_is_none_is_refused(server: Server, namespace: str, token: str) -> None:
    shelf = Shelf(server, CONFIG_MAP, namespace)
    answer = server.ask("GET", shelf.path, limit="1", **{"continue": token})
    assert (answer.code, answer.reason) == (400, "BadRequest")


def test_a_list_at_no_number_is_refused(shelf: Shelf) -> None:
    answer = shelf.server.ask("GET", shelf.path, resourceVersion="abc")
    assert answer.code == 400


def test_one_object_at_no_number_is_refused(shelf: Shelf) -> None:
    shelf.create("a")
    answer = shelf.server.ask("GET", f"{shelf.path}/{shelf.name('a')}", resourceVersion="abc")
    assert answer.code == (400 if shelf.is_view else shelf.server.answer_of("one-at-abc"))


def test_one_object_of_the_future_asks_to_retry(shelf: Shelf) -> None:
    shelf.create("a")
    answer = shelf.server.ask("GET", f"{shelf.path}/{shelf.name('a')}", resourceVersion=FUTURE)
    assert answer.code == shelf.server.answer_of("one-from-the-future")


def test_a_list_at_zero_is_served(shelf: Shelf) -> None:
    created = shelf.create("a")
    listed = shelf.list(resourceVersion="0")
    assert int(version_of(listed)) > 0
    # 0 accepts any state, also one before the create; the newest one must be there when asked for.
    recent = shelf.list(resourceVersion=version_of(created), resourceVersionMatch="NotOlderThan")
    assert names(recent) == [shelf.name("a")]


def test_a_list_from_the_future_asks_to_retry(shelf: Shelf) -> None:
    answer = shelf.server.ask("GET", shelf.path, resourceVersion=FUTURE, resourceVersionMatch="NotOlderThan")
    assert (answer.code, answer.reason) == (504, "Timeout")
    assert answer.json["details"]["retryAfterSeconds"] >= 1
    assert answer.json["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


@pytest.mark.parametrize(
    "query",
    [
        {"resourceVersionMatch": "Exact"},
        {"resourceVersionMatch": "Newest", "resourceVersion": "1"},
        {"resourceVersionMatch": "Exact", "resourceVersion": "0"},
        {"sendInitialEvents": "true"},
    ],
    ids=["match alone", "unknown match", "exactly 0", "initial events"],
)
def test_options_that_do_not_fit_a_list_are_refused(shelf: Shelf, query: dict[str, str]) -> None:
    answer = shelf.server.ask("GET", shelf.path, **query)
    assert (answer.code, answer.reason) == (422, "Invalid")


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("tier=front", "a"),
        ("tier!=front", "bc"),
        ("tier in (front,back)", "ab"),
        ("tier notin (front)", "bc"),
        ("tier", "ab"),
        ("!tier", "c"),
        ("tier=front,zone=x", "a"),
    ],
)
def test_label_selectors(shelf: Shelf, selector: str, found: str) -> None:
    for word, labels in {"a": {"tier": "front", "zone": "x"}, "b": {"tier": "back"}, "c": {}}.items():
        shelf.create(word, labels=labels)
    listed = shelf.server.ok("GET", shelf.path, labelSelector=f"{shelf.select},{selector}")
    assert names(listed) == [shelf.name(word) for word in found]


def test_a_label_selector_that_is_none_is_refused(shelf: Shelf) -> None:
    answer = shelf.server.ask("GET", shelf.path, labelSelector="a in b")
    assert (answer.code, answer.reason) == (400, "BadRequest")


def test_field_selectors(shelf: Shelf) -> None:
    for word in "ab":
        shelf.create(word)
    assert names(shelf.list(fieldSelector=f"metadata.name={shelf.name('b')}")) == [shelf.name("b")]
    assert names(shelf.list(fieldSelector=f"metadata.name!={shelf.name('b')}")) == [shelf.name("a")]


def test_an_unknown_field_selector_is_refused(shelf: Shelf) -> None:
    answer = shelf.server.ask("GET", shelf.path, fieldSelector="spec.colour=red")
    assert (answer.code, answer.reason) == (400, "BadRequest")


def test_a_secret_is_selected_by_type(server: Server, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/secrets"
    for name, type_ in {"plain": "Opaque", "typed": "example.com/typed"}.items():
        body = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name},
            "type": type_,
            "stringData": {"a": "b"},
        }
        server.ok("POST", path, body)
    listed = server.ok("GET", path, fieldSelector="type=example.com/typed")
    assert names(listed) == ["typed"]
    assert at(listed["items"][0], "data", "a") == "Yg=="
