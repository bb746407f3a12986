"""The promises of kube.client and kube.connection."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import httpx
import orjson
import pytest
import respx

from kube.client import Client
from kube.connection import Connection
from kube.credentials import Credentials, StaticCredentials
from kube.errors import (
    ApiError,
    Conflict,
    MalformedAnswer,
    NotFound,
    NotLeader,
    OperatorError,
    ServerTimeout,
    TooManyRequests,
    Unauthorized,
    Unavailable,
    Unreachable,
)
from kube.requests import ListOptions
from nodefeature.kinds import NODE, POD
from tests.builders.virtual_clock import VirtualClock
from tests.kube.wire import Stream, Wire, answer, client_over, fail, hang, refuse, status, stream

N1 = {"metadata": {"name": "n1"}}


def play(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)


async def outcome(call: Coroutine[Any, Any, Any], clock: VirtualClock, seconds: float) -> object:
    """Run a call while time passes; return its value or its error."""
    task = asyncio.ensure_future(call)
    await clock.advance(seconds)
    assert task.done(), f"still under way after {seconds} s"
    error = task.exception()
    return error if error is not None else task.result()


def test_verbs_over_respx() -> None:
    router = respx.Router(base_url="https://api.test", assert_all_called=True)
    router.get("/api/v1/nodes/n1").respond(json=N1)
    router.post("/api/v1/namespaces/ns/pods", params={"fieldManager": "gpustack-x", "dryRun": "All"}).respond(
        201, json={"metadata": {"name": "p"}}
    )
    router.put("/api/v1/nodes/n1/status").respond(json=N1)
    router.patch("/api/v1/nodes/n1", headers={"content-type": "application/merge-patch+json"}).respond(json=N1)
    router.patch("/api/v1/nodes/n2", params={"force": "true"}).respond(json=N1)
    router.delete("/api/v1/nodes/n1").respond(json={"kind": "Status", "status": "Success"})

    async def scenario() -> None:
        client = client_over(router.async_handler).as_manager("gpustack-x")
        assert await client.get(NODE, "n1") == {**N1, "apiVersion": "v1", "kind": "Node"}
        await client.create(POD, {"metadata": {"name": "p", "namespace": "ns"}}, dry_run=True)
        await client.update(NODE, dict(N1), subresource="status")
        await client.patch(NODE, "n1", {"metadata": {"labels": {"a": None}}})
        await client.apply(NODE, {"metadata": {"name": "n2"}})
        await client.delete(NODE, "n1", uid="u1")

    play(scenario())
    router.assert_all_called()


def test_list_reads_all_pages_and_completes_items() -> None:
    wire = Wire(
        answer({"metadata": {"resourceVersion": "5", "continue": "t"}, "items": [{"metadata": {"name": "a"}}]}),
        answer({"metadata": {"resourceVersion": "5"}, "items": [{"metadata": {"name": "b"}}, "odd"]}),
    )

    async def scenario() -> None:
        items = await client_over(wire).list(NODE, label_selector="x=y")
        assert [item["metadata"]["name"] for item in items] == ["a", "b"]
        assert {item["kind"] for item in items} == {"Node"}

    play(scenario())
    assert wire.queries() == [
        {"labelSelector": "x=y", "limit": "250"},
        {"labelSelector": "x=y", "limit": "250", "continue": "t"},
    ]


def test_a_page_token_that_expires_leads_to_one_unpaged_list() -> None:
    wire = Wire(
        answer({"metadata": {"resourceVersion": "5", "continue": "t"}, "items": [{"metadata": {"name": "gone"}}]}),
        refuse(410, "Expired"),
        answer({"metadata": {"resourceVersion": "9"}, "items": [{"metadata": {"name": "b"}}]}),
    )

    async def scenario() -> None:
        items, version = await client_over(wire).list_all(NODE, "", ListOptions(limit=250))
        assert [item["metadata"]["name"] for item in items] == ["b"]
        assert version == "9"

    play(scenario())
    assert wire.queries()[-1] == {}


def test_b019_a_list_with_null_items_is_empty() -> None:
    async def scenario() -> None:
        wire = Wire(answer({"kind": "NodeList", "metadata": {"resourceVersion": "1"}, "items": None}))
        assert await client_over(wire).list(NODE) == []

    play(scenario())


def test_every_call_has_a_deadline() -> None:
    async def scenario() -> None:
        clock = VirtualClock()
        error = await outcome(client_over(hang, clock).update(NODE, dict(N1)), clock, 31)
        assert type(error) is Unreachable
        assert str(error) == "update nodes n1: no answer (TimeoutError)"

    play(scenario())


@pytest.mark.parametrize("code", [429, 503])
def test_a_safe_request_is_repeated_not_before_retry_after(code: int) -> None:
    async def scenario() -> None:
        clock, wire = VirtualClock(), Wire(refuse(code, "", retry_after="20"), answer(N1))
        task = asyncio.ensure_future(client_over(wire, clock).get(NODE, "n1"))
        await clock.advance(19)
        assert len(wire.requests) == 1
        await clock.advance(2)
        assert len(wire.requests) == 2
        assert (await task)["metadata"]["name"] == "n1"

    play(scenario())


def test_a_version_of_the_future_is_asked_for_once() -> None:
    async def scenario() -> None:
        ahead = status(
            504, "Timeout", details={"causes": [{"reason": "ResourceVersionTooLarge"}], "retryAfterSeconds": 1}
        )
        clock, wire = VirtualClock(), Wire(answer(ahead, 504))
        asked = client_over(wire, clock).get(NODE, "n1", resource_version="999")
        assert type(await outcome(asked, clock, 60)) is ServerTimeout
        assert [request.url.query for request in wire.requests] == [b"resourceVersion=999"]

    play(scenario())


def test_repetition_is_bounded() -> None:
    async def scenario() -> None:
        clock, wire = VirtualClock(), Wire(refuse(503, "ServiceUnavailable"))
        assert type(await outcome(client_over(wire, clock).get(NODE, "n1"), clock, 60)) is Unavailable
        assert len(wire.requests) == 5
        clock, wire = VirtualClock(), Wire(refuse(429, "TooManyRequests", retry_after="3600"))
        assert type(await outcome(client_over(wire, clock).get(NODE, "n1"), clock, 1)) is TooManyRequests
        assert len(wire.requests) == 1
        clock, wire = VirtualClock(), Wire(fail(httpx.ConnectError("refused")))
        assert type(await outcome(client_over(wire, clock).get(NODE, "n1"), clock, 60)) is Unreachable
        assert len(wire.requests) == 5

    play(scenario())


@pytest.mark.parametrize(
    ("handler", "want"),
    [
        (refuse(503, "ServiceUnavailable", retry_after="1"), Unavailable),
        (refuse(429, "TooManyRequests", retry_after="1"), TooManyRequests),
        (fail(httpx.ReadError("reset")), Unreachable),
        (fail(ConnectionResetError()), Unreachable),
        (refuse(409, "Conflict"), Conflict),
    ],
    ids=["503", "429", "reset", "raw-reset", "409"],
)
def test_a_write_is_never_repeated_by_itself(handler: Any, want: type[OperatorError]) -> None:
    async def scenario() -> None:
        clock, wire = VirtualClock(), Wire(handler)
        assert type(await outcome(client_over(wire, clock).update(NODE, dict(N1)), clock, 1)) is want
        assert len(wire.requests) == 1

    play(scenario())


class RotatingToken:
    """Credentials whose token changes when they are read again."""

    def __init__(self) -> None:
        self.serial = 1

    async def current(self) -> Credentials:
        return Credentials(server="https://api.test", token=f"t{self.serial}")

    async def renewed(self) -> Credentials:
        self.serial += 1
        return await self.current()


def only_token(token: str) -> Any:
    def handler(request: httpx.Request) -> httpx.Response:
        if request.headers["authorization"] == f"Bearer {token}":
            return httpx.Response(200, content=orjson.dumps(N1))
        return httpx.Response(401)

    return handler


def test_b048_a_401_leads_to_one_reread_and_one_retry() -> None:
    async def scenario() -> None:
        source, wire = RotatingToken(), Wire(only_token("t2"))
        await client_over(wire, source=source).update(NODE, dict(N1))
        assert [r.headers["authorization"] for r in wire.requests] == ["Bearer t1", "Bearer t2"]
        wire = Wire(only_token("t9"))
        with pytest.raises(Unauthorized):
            await client_over(wire, source=source).update(NODE, dict(N1))
        assert len(wire.requests) == 2

    play(scenario())


def test_b048_a_watch_refused_for_its_token_is_opened_again_with_the_new_one() -> None:
    async def scenario() -> None:
        source, wire = RotatingToken(), Wire(only_token("t2"))
        client = client_over(wire, source=source)
        async with client.watch(NODE, "", ListOptions(), timeout_s=300, initial=False, first_s=10) as chunks:
            assert b"".join([chunk async for chunk in chunks]) == orjson.dumps(N1)
        assert len(wire.requests) == 2

    play(scenario())


def test_b048_a_changed_ca_opens_new_connections_and_lets_old_ones_end() -> None:
    class Source:
        ca = "old"

        async def current(self) -> Credentials:
            return Credentials(server="https://api.test", ca_pem=self.ca)

        async def renewed(self) -> Credentials:
            return await self.current()

    class Transport(httpx.MockTransport):
        closed = False

        async def aclose(self) -> None:
            self.closed = True

    opened: list[tuple[str, Transport]] = []

    def closed() -> list[bool]:
        return [transport.closed for _, transport in opened]

    async def scenario() -> None:
        body = Stream()

        def handler(request: httpx.Request) -> httpx.Response:
            if request.url.params.get("watch"):
                return httpx.Response(200, stream=body)
            return httpx.Response(200, content=orjson.dumps(N1))

        def open_transport(credentials: Credentials, _limit: int) -> httpx.AsyncBaseTransport:
            opened.append((credentials.ca_pem, Transport(handler)))
            return opened[-1][1]

        source = Source()
        client = Client(Connection(source, clock=VirtualClock(), open_transport=open_transport))
        async with client.watch(NODE, "", ListOptions(), timeout_s=300, initial=False, first_s=10) as chunks:
            source.ca = "new"
            await client.get(NODE, "n1")
            assert [ca for ca, _ in opened] == ["old", "old", "new", "new"]
            body.send(b"still here")
            assert await anext(chunks) == b"still here"
            assert closed() == [False] * 4
        assert closed() == [True, True, False, False]
        await client.close()
        assert closed() == [True] * 4

    play(scenario())


def test_a_redirect_is_an_error() -> None:
    async def scenario() -> None:
        wire = Wire(answer({}, 307, location="https://elsewhere.test/"))
        with pytest.raises(ApiError) as caught:
            await client_over(wire, token="t").get(NODE, "n1")
        assert caught.value.code == 307
        assert len(wire.requests) == 1

    play(scenario())


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b"\xff"], ids=repr)
def test_a_success_that_is_no_object_is_malformed(body: bytes) -> None:
    async def scenario() -> None:
        wire = Wire(lambda _request: httpx.Response(200, content=body))
        with pytest.raises(MalformedAnswer):
            await client_over(wire).get(NODE, "n1")

    play(scenario())


def test_a_stream_that_is_refused_says_why() -> None:
    async def scenario() -> None:
        client = client_over(Wire(refuse(404, "NotFound")))
        opening = client.watch(NODE, "", ListOptions(), timeout_s=300, initial=False, first_s=10)
        with pytest.raises(NotFound):
            await opening.__aenter__()

    play(scenario())


def test_a_stream_is_closed_when_its_reader_leaves() -> None:
    async def scenario() -> None:
        body = Stream(b"x")
        client = client_over(Wire(stream(body)))
        async with client.watch(NODE, "", ListOptions(), timeout_s=300, initial=False, first_s=10) as chunks:
            assert await anext(chunks) == b"x"
        assert body.closed

    play(scenario())


class FixedFence:
    """A fence with so many seconds left."""

    def __init__(self, left_s: float) -> None:
        self.left_s = left_s

    def remaining(self) -> float:
        return self.left_s


def test_every_write_of_a_fenced_client_passes_the_fence() -> None:
    async def scenario() -> None:
        wire = Wire(answer(N1))
        client = client_over(wire).fenced(FixedFence(0)).as_manager("gpustack-y")
        writes = (
            client.create(NODE, dict(N1)),
            client.update(NODE, dict(N1)),
            client.patch(NODE, "n1", {}),
            client.apply(NODE, dict(N1)),
            client.delete(NODE, "n1"),
        )
        for write in writes:
            with pytest.raises(NotLeader):
                await write
        assert wire.requests == []
        await client.get(NODE, "n1")

    play(scenario())


def test_the_deadline_of_a_fenced_write_ends_before_the_lease_can_be_taken() -> None:
    async def scenario() -> None:
        clock = VirtualClock()
        client = client_over(hang, clock).fenced(FixedFence(4))
        assert type(await outcome(client.update(NODE, dict(N1)), clock, 4)) is Unreachable

    play(scenario())


def test_streams_and_calls_use_separate_pools() -> None:
    limits: list[int] = []

    def open_transport(_credentials: Credentials, limit: int) -> httpx.AsyncBaseTransport:
        limits.append(limit)
        return httpx.MockTransport(lambda _request: httpx.Response(200, content=b"{}"))

    async def scenario() -> None:
        source = StaticCredentials(Credentials(server="https://api.test"))
        client = Client(Connection(source, clock=VirtualClock(), open_transport=open_transport))
        await client.get_path("/version")
        await client.get_path("/version")
        assert limits == [64, 0]
        await client.close()

    play(scenario())
