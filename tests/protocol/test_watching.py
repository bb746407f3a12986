"""Watches: events, selectors, bookmarks, streaming lists, versions that are too old or too new."""

from __future__ import annotations

import pytest

from tests.protocol.samples import Shelf, change
from tests.protocol.wire import METADATA, TABLE, Event, version_of

FUTURE = "999999999"
STREAMING = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}


def words(events: list[Event]) -> list[tuple[str, str]]:
    return [(event.type, event.name.rpartition("-")[2]) for event in events]


def test_a_watch_from_a_list_sees_every_change(shelf: Shelf) -> None:
    since = version_of(shelf.list())
    with shelf.server.watch(shelf.path, labelSelector=shelf.select, resourceVersion=since) as events:
        shelf.create("a")
        shelf.server.patch(shelf.at("a"), change(shelf.kind, "b"))
        shelf.server.ok("DELETE", shelf.at("a"))
        seen = [next(events) for _ in range(3)]
    assert words(seen) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
    versions = [int(version_of(event.object)) for event in seen]
    assert versions == sorted(set(versions))


def test_a_watch_without_version_begins_with_what_there_is(shelf: Shelf) -> None:
    for word in "ab":
        shelf.create(word)
    with shelf.server.watch(shelf.path, labelSelector=shelf.select) as events:
        assert sorted(words([next(events), next(events)])) == [("ADDED", "a"), ("ADDED", "b")]
        shelf.server.ok("DELETE", shelf.at("a"))
        assert words([next(events)]) == [("DELETED", "a")]


def test_a_watch_resumes_where_it_ended(shelf: Shelf) -> None:
    first = shelf.create("a")
    shelf.server.patch(shelf.at("a"), change(shelf.kind, "b"))
    shelf.server.patch(shelf.at("a"), change(shelf.kind, "c"))
    query = {"labelSelector": shelf.select, "resourceVersion": version_of(first)}
    with shelf.server.watch(shelf.path, **query) as events:
        once = next(events)
    with shelf.server.watch(shelf.path, **{**query, "resourceVersion": version_of(once.object)}) as events:
        assert int(version_of(next(events).object)) > int(version_of(once.object))


def test_an_object_that_leaves_a_selector_is_deleted_for_the_watch(shelf: Shelf) -> None:
    shelf.create("a", labels={"tier": "front"})
    since = version_of(shelf.list())
    selector = f"{shelf.select},tier=front"
    with shelf.server.watch(shelf.path, labelSelector=selector, resourceVersion=since) as events:
        shelf.server.patch(shelf.at("a"), {"metadata": {"labels": {"tier": "back"}}})
        left = next(events)
        shelf.server.patch(shelf.at("a"), {"metadata": {"labels": {"tier": "front"}}})
        entered = next(events)
    assert words([left, entered]) == [("DELETED", "a"), ("ADDED", "a")]
    assert left.object["metadata"]["labels"]["tier"] == "front"
    assert int(version_of(left.object)) > int(since)


def test_one_object_is_watched_by_name(shelf: Shelf) -> None:
    since = version_of(shelf.list())
    query = {"fieldSelector": f"metadata.name={shelf.name('b')}", "resourceVersion": since}
    with shelf.server.watch(shelf.path, **query) as events:
        shelf.create("a")
        shelf.create("b")
        assert words([next(events)]) == [("ADDED", "b")]


@pytest.mark.parametrize("count", [0, 3])
@pytest.mark.parametrize("version", ["", "0"], ids=["newest", "any"])
def test_b004_a_streaming_list_ends_with_its_bookmark(shelf: Shelf, count: int, version: str) -> None:
    for number in range(count):
        shelf.create(str(number))
    query = {**STREAMING, "labelSelector": shelf.select, **({"resourceVersion": version} if version else {})}
    with shelf.server.watch(shelf.path, **query) as events:
        seen = [next(events) for _ in range(count + 1)] if not version else _until_end(events)
        assert seen[-1].is_end
        assert seen[-1].object["kind"] == shelf.kind.kind
        assert {event.type for event in seen[:-1]} <= {"ADDED"}
        if not version:
            assert len(seen) == count + 1
        shelf.create("later")
        # A state of any age may lack what was made last: it follows the list as a change.
        rest = words([next(events) for _ in range(count + 2 - len(seen))])
        assert sorted(words(seen[:-1]) + rest) == [("ADDED", name) for name in (*map(str, range(count)), "later")]
        assert rest[-1] == ("ADDED", "later")


def _until_end(events: object) -> list[Event]:
    seen: list[Event] = []
    for event in events:  # type: ignore[attr-defined]  # an iterator of events
        seen.append(event)
        if event.is_end:
            break
    return seen


@pytest.mark.parametrize("accept", [TABLE, METADATA], ids=["table", "metadata"])
def test_b004_a_streaming_list_ends_in_every_form(shelf: Shelf, accept: str) -> None:
    shelf.create("a")
    with shelf.server.watch(shelf.path, accept=accept, **STREAMING, labelSelector=shelf.select) as events:
        first, second = next(events), next(events)
    assert (first.type, second.type) == ("ADDED", "BOOKMARK")
    kinds = {TABLE: "Table", METADATA: "PartialObjectMetadata"}
    assert (first.object["kind"], second.object["kind"]) == (kinds[accept], kinds[accept])


def test_a_watch_at_zero_starts_with_any_state(shelf: Shelf) -> None:
    created = shelf.create("a")
    shelf.list(resourceVersion=version_of(created), resourceVersionMatch="NotOlderThan")
    with shelf.server.watch(shelf.path, labelSelector=shelf.select, resourceVersion="0") as events:
        assert words([next(events)]) == [("ADDED", "a")]


def test_a_watch_at_no_number_is_refused(shelf: Shelf) -> None:
    answer = shelf.server.ask("GET", shelf.path, watch="true", resourceVersion="abc")
    assert answer.code == (400 if shelf.is_view else shelf.server.answer_of("watch-at-abc"))


def test_a_watch_from_the_future_asks_to_retry(shelf: Shelf) -> None:
    answer = shelf.server.ask("GET", shelf.path, watch="true", timeoutSeconds="3", resourceVersion=FUTURE)
    assert answer.code == shelf.server.answer_of("watch-from-the-future")


@pytest.mark.parametrize(
    "query",
    [
        {"sendInitialEvents": "true"},
        {"sendInitialEvents": "true", "resourceVersionMatch": "Exact"},
        {"resourceVersionMatch": "NotOlderThan"},
    ],
    ids=["no match", "exact match", "match alone"],
)
def test_options_that_do_not_fit_a_watch_are_refused(shelf: Shelf, query: dict[str, str]) -> None:
    answer = shelf.server.ask("GET", shelf.path, watch="true", timeoutSeconds="3", **query)
    assert (answer.code, answer.reason) == (422, "Invalid")


def test_a_watch_ends_at_its_timeout(shelf: Shelf) -> None:
    with shelf.server.watch(shelf.path, labelSelector=shelf.select, timeoutSeconds="1") as events:
        assert list(events) == []
