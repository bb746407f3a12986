"""The promises of kube.informer, and cases B009 and B010."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import random
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import httpx
import pytest

from kube.informer import Informer
from kube.reconciler import Key, Selection
from kube.store import Change, Store
from nodefeature.fields import name_of, uid_of
from nodefeature.kinds import NODE
from tests.builders.virtual_clock import VirtualClock, settle
from tests.kube.wire import (
    Handler,
    Stream,
    Wire,
    answer,
    client_over,
    end_mark,
    fail,
    hang,
    line,
    refuse,
    status,
    stream,
)

B010 = json.loads((Path(__file__).parents[1] / "cases" / "B010-watch-gone.json").read_text())


def node(name: str, version: int, uid: str = "", **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": uid or f"u-{name}", "resourceVersion": str(version), "labels": labels}}


def page(version: str, *items: dict[str, Any], more: str = "") -> Handler:
    return answer(
        {"kind": "NodeList", "metadata": {"resourceVersion": version, "continue": more}, "items": list(items)}
    )


def words(change: Change) -> str:
    if change.old is None:
        return f"add {name_of(change.new)} {uid_of(change.new)}"
    if change.new is None:
        return f"delete {name_of(change.old)} {uid_of(change.old)}"
    return f"change {name_of(change.new)}"


class Follow:
    """An informer of Nodes over a scripted wire, in virtual time."""

    def __init__(self, *script: Handler, selection: Selection | None = None) -> None:
        self.clock = VirtualClock()
        self.wire = Wire(*script)
        self.changes: list[str] = []
        selection = selection or Selection()
        self.store = Store(NODE, project=selection.project)
        self.informer = Informer(
            client_over(self.wire, self.clock),
            self.store,
            lambda change: self.changes.append(words(change)),
            selection=selection,
            clock=self.clock,
            rng=random.Random(1),
        )

    async def __aenter__(self) -> Follow:
        self.task = asyncio.create_task(self.informer.run())
        await settle()
        return self

    async def __aexit__(self, *_: object) -> None:
        assert not self.task.done(), "the informer ended"
        self.task.cancel()
        await asyncio.wait({self.task})

    def names(self) -> list[str]:
        return sorted(key.name for key in self.store.known())


def listed(version: str, *items: dict[str, Any]) -> Stream:
    """Return a streaming list that stays open as a watch."""
    return Stream(*(line("ADDED", item) for item in items), line("BOOKMARK", end_mark(version)))


def play(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scenario())


def test_a_streaming_list_is_asked_for_and_followed() -> None:
    async def scenario() -> None:
        body = listed("20", node("a", 10), node("b", 11))
        async with Follow(stream(body), selection=Selection(label_selector="x=y")) as follow:
            assert follow.informer.synced.is_set()
            assert follow.changes == ["add a u-a", "add b u-b"]
            query = follow.wire.queries()[0]
            assert int(query.pop("timeoutSeconds")) in range(300, 601)
            assert query == {
                "watch": "true",
                "allowWatchBookmarks": "true",
                "sendInitialEvents": "true",
                "resourceVersionMatch": "NotOlderThan",
                "labelSelector": "x=y",
            }
            body.event("MODIFIED", node("a", 21, x="1"))
            body.event("DELETED", node("b", 22))
            await settle()
            assert follow.changes[2:] == ["change a", "delete b u-b"]
            assert len(follow.wire.requests) == 1

    play(scenario)


def test_changes_inside_a_streaming_list_count() -> None:
    async def scenario() -> None:
        body = Stream(
            line("ADDED", node("a", 10)),
            line("ADDED", node("b", 11)),
            line("DELETED", node("a", 12)),
            line("MODIFIED", node("b", 13)),
            line("BOOKMARK", {"metadata": {"resourceVersion": "12"}}),
            line("BOOKMARK", end_mark("13")),
        )
        async with Follow(stream(body)) as follow:
            assert follow.changes == ["add b u-b"]

    play(scenario)


@pytest.mark.parametrize("code", [400, 422, 405, 406, 415])
def test_where_no_streaming_list_is_served_a_paged_list_is_read(code: int) -> None:
    async def scenario() -> None:
        body = Stream()
        async with Follow(
            refuse(code, "Invalid"), page("30", node("a", 10), more="t"), page("30", node("b", 11)), stream(body)
        ) as follow:
            assert follow.names() == ["a", "b"]
            queries = follow.wire.queries()
            assert queries[1] == {"limit": "250"}
            assert queries[2] == {"limit": "250", "continue": "t"}
            assert queries[3]["resourceVersion"] == "30"
            # A refusal is remembered: the next list does not ask again.
            body.event("ERROR", status(410, "Expired"))
            await follow.clock.advance(1)
            assert "sendInitialEvents" not in follow.wire.queries()[4]

    play(scenario)


@pytest.mark.parametrize(
    "handler",
    [
        hang,
        stream(Stream()),
        stream(Stream(line("ADDED", node("a", 10)))),
        stream(Stream(line("ADDED", node("a", 10)), None)),
        refuse(500, "InternalError"),
    ],
    ids=["no-head", "no-first-byte", "no-end", "eof-before-end", "500"],
)
def test_a_streaming_list_without_its_end_becomes_a_paged_list(handler: Handler) -> None:
    async def scenario() -> None:
        async with Follow(handler, page("30", node("a", 10)), stream(Stream())) as follow:
            await follow.clock.advance(10)
            assert follow.names() == ["a"]
            assert follow.wire.queries()[2]["resourceVersion"] == "30"

    play(scenario)


def test_a_410_in_a_page_lists_unpaged() -> None:
    async def scenario() -> None:
        async with Follow(
            refuse(422, "Invalid"),
            page("30", node("gone", 10), more="t"),
            refuse(410, "Expired"),
            page("40", node("a", 35)),
            stream(Stream()),
        ) as follow:
            assert follow.names() == ["a"]
            assert follow.wire.queries()[3] == {}
            assert follow.wire.queries()[4]["resourceVersion"] == "40"

    play(scenario)


def test_a_list_without_a_version_is_not_followed() -> None:
    async def scenario() -> None:
        bad = answer({"kind": "NodeList", "metadata": {}, "items": None})
        async with Follow(refuse(422, "Invalid"), bad, page("30"), stream(Stream())) as follow:
            assert not follow.informer.synced.is_set()
            await follow.clock.advance(1)
            assert follow.informer.synced.is_set()
            assert follow.store.known() == ()
            assert follow.wire.queries()[-1]["resourceVersion"] == "30"

    play(scenario)


CUTS = {
    "in-a-line": line("MODIFIED", node("a", 21))[:-9],
    "in-a-character": line("MODIFIED", node("a", 21, x="漢"))[
        : line("MODIFIED", node("a", 21, x="漢")).index("漢".encode()) + 1
    ],
}


@pytest.mark.parametrize("end", [None, httpx.ReadError("reset"), ConnectionResetError()], ids=["eof", "reset", "raw"])
@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS.keys())
def test_a_watch_cut_anywhere_resumes_from_the_last_version(cut: bytes, end: Exception | None) -> None:
    async def scenario() -> None:
        body, again = listed("20", node("a", 10)), Stream(line("MODIFIED", node("a", 21, x="漢")))
        async with Follow(stream(body), stream(again)) as follow:
            body.send(cut)
            body.send(end)
            await follow.clock.advance(1)
            assert follow.changes == ["add a u-a", "change a"]
            query = follow.wire.queries()[1]
            assert query["resourceVersion"] == "20"
            assert "sendInitialEvents" not in query
            assert "resourceVersionMatch" not in query

    play(scenario)


def test_a_bookmark_alone_moves_the_version_on() -> None:
    async def scenario() -> None:
        body = listed("20", node("a", 10))
        async with Follow(stream(body), stream(Stream())) as follow:
            body.event("BOOKMARK", {"kind": "Node", "metadata": {"resourceVersion": "77", "creationTimestamp": None}})
            body.send(None)
            await follow.clock.advance(1)
            assert follow.changes == ["add a u-a"]
            assert follow.wire.queries()[1]["resourceVersion"] == "77"

    play(scenario)


def test_b009_reset_then_black_hole_then_refused() -> None:
    """Each time a change is seen within the watch's time-out and 10 s."""

    async def scenario() -> None:
        first = listed("20", node("a", 10))
        silent, third = Stream(), Stream(line("MODIFIED", node("a", 22, n="2")))
        script: list[Handler] = [
            stream(first),
            stream(Stream(line("MODIFIED", node("a", 21, n="1")), httpx.ReadError("r"))),
        ]
        async with Follow(*script, stream(silent), stream(third), fail(httpx.ConnectError("refused"))) as follow:
            first.send(httpx.ReadError("reset"))
            await follow.clock.advance(2)
            assert follow.changes[-1] == "change a"
            assert len(follow.wire.requests) == 3
            await follow.clock.advance(600)  # black hole: bytes neither come nor end
            assert len(follow.wire.requests) >= 4
            assert follow.changes == ["add a u-a", "change a", "change a"]
            third.send(httpx.ReadError("reset"))
            before = len(follow.wire.requests)
            await follow.clock.advance(120)  # refused for two minutes
            assert 120 / 8 <= len(follow.wire.requests) - before <= 120 / 4 + 6, "no busy loop, no long silence"
            follow.wire.script[:] = [stream(Stream(line("MODIFIED", node("a", 23, n="3"))))]
            await follow.clock.advance(10)
            assert follow.changes[-1] == "change a"
            assert follow.wire.queries()[-1]["resourceVersion"] == "22"

    play(scenario)


def test_a_silent_stream_is_dead_after_90_seconds_and_bookmarks_keep_it_alive() -> None:
    async def scenario() -> None:
        body = listed("20", node("a", 10))
        async with Follow(stream(body), stream(Stream())) as follow:
            for version in range(21, 31):
                await follow.clock.advance(60)
                body.event("BOOKMARK", {"metadata": {"resourceVersion": str(version)}})
            await follow.clock.advance(89)
            assert len(follow.wire.requests) == 1
            await follow.clock.advance(2)
            assert follow.wire.queries()[1]["resourceVersion"] == "30"
            assert body.closed

    play(scenario)


def b010_items() -> list[dict[str, Any]]:
    return [json.loads(json.dumps(item)) for item in B010["relist"]["items"]]


def in_stream(obj: dict[str, Any]) -> Handler:
    chunks = (line("BOOKMARK", B010["watchLines"][0]["object"]), line("ERROR", obj))
    return lambda _request: httpx.Response(200, stream=Stream(*chunks))


B010_ROWS = {
    "410-in-the-stream": in_stream(B010["watchLines"][1]["object"]),
    "410-instead-of-a-stream": refuse(410, "Gone"),
    "504-version-too-large": in_stream(
        status(504, "Timeout", details={"causes": [{"reason": "ResourceVersionTooLarge"}], "retryAfterSeconds": 1})
    ),
}


@pytest.mark.parametrize("streaming", [True, False], ids=["streaming-list", "paged-list"])
@pytest.mark.parametrize("handler", B010_ROWS.values(), ids=B010_ROWS.keys())
def test_b010_after_410_relist_with_deletions_and_namesakes(handler: Handler, streaming: bool) -> None:
    async def scenario() -> None:
        version = B010["relist"]["resourceVersion"]
        relist = stream(listed(version, *b010_items())) if streaming else page(version, *b010_items())
        first: list[Handler] = [stream(listed("11", node("a", 10, "u1"), node("b", 11, "u2")))]
        if not streaming:
            first = [refuse(422, "Invalid"), page("11", node("a", 10, "u1"), node("b", 11, "u2")), stream(Stream(None))]
        last = Stream()
        async with Follow(*first, handler, relist, stream(last)) as follow:
            if streaming:
                opened: Any = first[0](follow.wire.requests[0])
                opened.stream.send(None)
            before = len(follow.wire.requests)
            await follow.clock.advance(0)
            await follow.clock.advance(3)
            assert sorted(follow.changes[2:]) == ["add a u9", "add c u3", "delete a u1", "delete b u2"]
            assert follow.changes.index("delete a u1") < follow.changes.index("add a u9")
            assert follow.names() == ["a", "c"]
            assert before < len(follow.wire.requests)
            if not streaming:
                assert follow.wire.queries()[-1]["resourceVersion"] == B010["expectNextWatchFrom"]
            assert all(query.get("resourceVersion", "11") in {"11", "15", "90"} for query in follow.wire.queries())

    play(scenario)


def test_b010_a_500_without_a_version_resumes_backed_off_then_doubts_the_version() -> None:
    async def scenario() -> None:
        broken, refused = in_stream({"kind": "Status", "code": 500}), refuse(500, "")
        body = listed("11", node("a", 10))
        async with Follow(stream(body), broken, refused, refused, stream(listed("90", node("a", 10)))) as follow:
            body.send(None)
            await follow.clock.advance(0.1)
            assert len(follow.wire.requests) <= 2
            await follow.clock.advance(20)
            queries = follow.wire.queries()
            assert [query.get("resourceVersion") for query in queries[:3]] == [None, "11", "15"]
            assert queries[-1].get("sendInitialEvents") == "true"
            assert follow.changes == ["add a u-a"]

    play(scenario)


def test_b010_no_loop_without_back_off() -> None:
    async def scenario() -> None:
        async with Follow(refuse(410, "Expired")) as follow:
            await follow.clock.advance(60)
            assert len(follow.wire.requests) <= 2 * 16
        async with Follow(stream(listed("5")), lambda _request: httpx.Response(200, content=b"")) as follow:
            await follow.clock.advance(100)  # every further watch ends at once
            assert 5 <= len(follow.wire.requests) <= 40

    play(scenario)


BUSY = {"kind": "Status", "code": 429, "reason": "TooManyRequests", "details": {"retryAfterSeconds": 30}}


@pytest.mark.parametrize(
    ("script", "before"),
    [
        ((refuse(429, "TooManyRequests", retry_after="30"),), 1),
        ((refuse(503, "ServiceUnavailable", retry_after="30"),), 1),
        ((refuse(400, "BadRequest"), refuse(429, "TooManyRequests", retry_after="30")), 2),
        ((stream(Stream(line("ERROR", BUSY))),), 1),
    ],
    ids=["streaming list", "streaming list, 503", "paged list", "inside the stream"],
)
def test_who_is_asked_to_stay_away_stays_away(script: tuple[Handler, ...], before: int) -> None:
    async def scenario() -> None:
        async with Follow(*script, stream(listed("5", node("a", 1))), page("5", node("a", 1)), hang) as follow:
            await follow.clock.advance(29)
            assert len(follow.wire.requests) == before
            await follow.clock.advance(2)
            assert len(follow.wire.requests) > before

    play(scenario)


def test_a_server_that_asks_for_hours_is_asked_again_after_five_minutes() -> None:
    async def scenario() -> None:
        never = refuse(429, "TooManyRequests", retry_after="86400")
        async with Follow(never, stream(listed("5", node("a", 1)))) as follow:
            await follow.clock.advance(299)
            assert len(follow.wire.requests) == 1
            await follow.clock.advance(2)
            assert follow.names() == ["a"]

    play(scenario)


def test_duplicates_and_reordering_after_a_reconnect_change_nothing() -> None:
    async def scenario() -> None:
        body = listed("20", node("a", 20, x="new"))
        again = Stream(
            line("ADDED", node("a", 20, x="new")),
            line("MODIFIED", node("a", 12, x="old")),
            line("DELETED", node("a", 9, "u-older")),
            line("MODIFIED", node("a", 25, x="newest")),
        )
        async with Follow(stream(body), stream(again)) as follow:
            body.send(httpx.ReadError("reset"))
            await follow.clock.advance(1)
            assert follow.changes == ["add a u-a", "change a"]
            stored = follow.store.get(Key("a"))
            assert stored is not None
            assert stored["metadata"]["labels"] == {"x": "newest"}

    play(scenario)


def test_a_namesake_is_a_deletion_and_an_addition() -> None:
    async def scenario() -> None:
        body = listed("20", node("a", 10, "u1"))
        async with Follow(stream(body)) as follow:
            body.event("MODIFIED", node("a", 21, "u2"))
            body.event("DELETED", node("a", 22, "u1"))
            await settle()
            assert follow.changes == ["add a u1", "delete a u1", "add a u2"]
            assert follow.names() == ["a"]

    play(scenario)


def test_a_kind_not_served_yet_is_asked_for_again(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        missing: Handler = lambda _request: httpx.Response(404, text="404 page not found")  # noqa: E731 - one line
        async with Follow(missing) as follow:
            await follow.clock.advance(120)
            assert 120 / 8 <= len(follow.wire.requests) <= 40
            follow.wire.script[:] = [stream(listed("5", node("a", 4)))]
            await follow.clock.advance(8)
            assert follow.names() == ["a"]

    with caplog.at_level(logging.INFO):
        play(scenario)
    assert caplog.text.count("kind not served yet") == 1
    assert caplog.text.count("watch recovered") == 1


def recovered(request: httpx.Request) -> httpx.Response:
    """Serve one Node, however it is asked for."""
    if "watch" in request.url.params:
        body = listed("5", node("a", 4)) if "sendInitialEvents" in request.url.params else Stream()
        return httpx.Response(200, stream=body)
    served = page("5", node("a", 4))(request)
    assert isinstance(served, httpx.Response)
    return served


def test_a_server_that_accepts_and_hangs_is_left_alone_in_between() -> None:
    async def scenario() -> None:
        async with Follow(hang) as follow:
            await follow.clock.advance(600)
            assert 10 <= len(follow.wire.requests) <= 60
            follow.wire.script[:] = [recovered]
            await follow.clock.advance(30 + 8)
            assert follow.names() == ["a"]

    play(scenario)


def test_a_projection_that_fails_hides_no_object(caplog: pytest.LogCaptureFixture) -> None:
    def project(obj: dict[str, Any]) -> dict[str, Any]:
        return {"metadata": obj["metadata"], "zone": obj["metadata"]["labels"]["zone"]}

    async def scenario() -> None:
        odd = {"metadata": {"name": "odd", "labels": None, "managedFields": [1]}}
        async with Follow(
            stream(listed("20", odd, node("a", 10, zone="z"))), selection=Selection(project=project)
        ) as follow:
            assert follow.names() == ["a", "odd"]
            stored = follow.store.get(Key("odd"))
            assert stored is not None
            assert "managedFields" not in stored["metadata"]

    play(scenario)
    assert [r for r in caplog.records if r.message == "projection failed" and vars(r)["object"] == "odd"]


def test_no_step_of_a_large_list_holds_the_loop_for_20_ms() -> None:
    """Measured in the thread's own CPU time, which other processes do not lengthen."""

    async def scenario() -> None:
        steps: list[float] = []

        async def measure() -> None:
            while True:
                began = time.thread_time()
                await asyncio.sleep(0)
                steps.append(time.thread_time() - began)

        items = [node(f"n{number}", number + 1, **{f"l{k}": "v" for k in range(40)}) for number in range(5000)]
        chunks = b"".join(line("ADDED", item) for item in items)
        body = Stream(*(chunks[start : start + 16384] for start in range(0, len(chunks), 16384)))
        body.event("BOOKMARK", end_mark("9000"))
        follow = Follow(stream(body))
        gc.collect()
        gc.disable()  # what a collection costs is another promise: `Manager(freeze=gc.freeze)`
        tasks = {asyncio.create_task(measure()), asyncio.create_task(follow.informer.run())}
        await follow.informer.synced.wait()
        gc.enable()
        assert len(follow.store) == 5000
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        assert max(steps) < 0.020

    play(scenario)
