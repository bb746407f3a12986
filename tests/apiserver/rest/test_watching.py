"""Streams: frames, bookmarks, streaming lists, ends (spec 03 B7, case B004)."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from apiserver.rest import status
from apiserver.rest.negotiation import encode
from apiserver.rest.storage import Document, Event
from tests.apiserver.rest.asgi import Browser
from tests.apiserver.rest.memory_storage import MemoryStorage, serve, widget
from tests.builders.rows import case_json
from tests.builders.virtual_clock import VirtualClock

CASE = case_json("B004-watchlist")
BASE = "/apis/example.com/v1/namespaces/ns/widgets"
TABLE, PARTIAL = CASE["accept"][1], CASE["accept"][2]
END = "k8s.io/initial-events-end"


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(test)


def event(kind: str, name: str) -> Event:
    return Event(kind, Document(encode(widget(name, size=1))))


def metadata_of(line: Any) -> Any:
    obj = line["object"]
    return obj["rows"][0]["object"]["metadata"] if obj["kind"] == "Table" else obj["metadata"]


@pytest.mark.parametrize("accept", CASE["accept"])
@pytest.mark.parametrize("count", [0, 1, 3])
def test_b004_a_streaming_list_ends_with_its_mark(accept: str, count: int) -> None:
    async def test() -> None:
        storage = MemoryStorage([widget(f"w{i}") for i in range(count)])
        async with Browser(serve(storage)).watch(f"{BASE}?{CASE['query']}", accept=accept) as watch:
            lines = await watch.take(count + 1)
            assert [line["type"] for line in lines] == ["ADDED"] * count + ["BOOKMARK"]
            meta = metadata_of(lines[-1])
            assert (meta["annotations"], meta["resourceVersion"]) == ({END: "true"}, "7")

    run(test())


@pytest.mark.parametrize("query", ["watch=1&sendInitialEvents=true", "watch=1&resourceVersionMatch=NotOlderThan"])
def test_b004_half_of_a_streaming_list_is_422_at_once(query: str) -> None:
    answer = asyncio.run(Browser(serve(MemoryStorage()))("GET", f"{BASE}?{query}"))
    assert (answer.code, answer.json["reason"]) == (422, "Invalid")


def test_changes_are_flushed_one_line_each() -> None:
    async def test() -> None:
        storage = MemoryStorage()
        async with Browser(serve(storage)).watch(f"{BASE}?watch=1&resourceVersion=7") as watch:
            storage.streams[0].queue.put_nowait([event("ADDED", "a"), event("MODIFIED", "a")])
            storage.streams[0].queue.put_nowait([event("DELETED", "a")])
            lines = await watch.take(3)
            assert [line["type"] for line in lines] == ["ADDED", "MODIFIED", "DELETED"]
            assert lines[0]["object"] == widget("a", size=1)

    run(test())


def test_tables_name_their_columns_once() -> None:
    async def test() -> None:
        storage = MemoryStorage()
        async with Browser(serve(storage)).watch(f"{BASE}?watch=1&resourceVersion=7", accept=TABLE) as watch:
            storage.streams[0].queue.put_nowait([event("ADDED", "a"), event("MODIFIED", "a")])
            first, second = await watch.take(2)
            assert [c["name"] for c in first["object"]["columnDefinitions"]] == ["Name", "Size"]
            assert second["object"]["columnDefinitions"] == []
            assert second["object"]["rows"][0]["cells"] == ["a", 1]
            assert second["object"]["metadata"]["resourceVersion"] == "5"

    run(test())


def test_metadata_streams_carry_metadata_only() -> None:
    async def test() -> None:
        storage = MemoryStorage()
        async with Browser(serve(storage)).watch(f"{BASE}?watch=1&resourceVersion=7", accept=PARTIAL) as watch:
            storage.streams[0].queue.put_nowait([event("ADDED", "a")])
            (line,) = await watch.take(1)
            assert line["object"]["kind"] == "PartialObjectMetadata"
            assert "spec" not in line["object"]

    run(test())


@pytest.mark.parametrize("accept", CASE["accept"])
def test_a_reader_that_fell_behind_gets_410_and_the_end(accept: str) -> None:
    async def test() -> None:
        storage = MemoryStorage()
        async with Browser(serve(storage)).watch(f"{BASE}?watch=1&resourceVersion=7", accept=accept) as watch:
            storage.streams[0].error = status.expired("too old resource version")
            line, end = await watch.take(2)
            assert (line["type"], line["object"]["kind"], line["object"]["code"]) == ("ERROR", "Status", 410)
            assert end is None

    run(test())


def test_bookmarks_come_each_minute_and_at_the_end() -> None:
    async def test() -> None:
        storage, clock = MemoryStorage(), VirtualClock()
        target = f"{BASE}?watch=1&resourceVersion=7&allowWatchBookmarks=true&timeoutSeconds=90"
        async with Browser(serve(storage, clock=clock)).watch(target) as watch:
            await clock.advance(61)
            assert (await watch.next())["type"] == "BOOKMARK"
            await clock.advance(30)
            last, end = await watch.take(2)
            assert (last["type"], last["object"]["metadata"]["resourceVersion"]) == ("BOOKMARK", "7")
            assert end is None

    run(test())


def test_without_being_asked_no_bookmark_comes() -> None:
    async def test() -> None:
        storage, clock = MemoryStorage(), VirtualClock()
        target = f"{BASE}?watch=1&resourceVersion=7&timeoutSeconds=90"
        async with Browser(serve(storage, clock=clock)).watch(target) as watch:
            await clock.advance(91)
            assert await watch.next() is None

    run(test())


def test_draining_ends_watches_cleanly_and_refuses_new_ones() -> None:
    async def test() -> None:
        app = serve(MemoryStorage())
        browser = Browser(app)
        async with browser.watch(f"{BASE}?watch=1&resourceVersion=7") as watch:
            app.drain()
            assert await watch.next() is None
        assert (await browser("GET", f"{BASE}?watch=1")).code == 503

    run(test())


def test_a_client_that_leaves_frees_its_stream() -> None:
    async def test() -> None:
        storage = MemoryStorage()
        async with Browser(serve(storage)).watch(f"{BASE}?watch=1&resourceVersion=7"):
            assert not storage.streams[0].closed
        assert storage.streams[0].closed

    run(test())
