"""Relayed exchanges: nothing is interpreted, nothing is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping

import httpx
import pytest

from kube.connection import Answer, Connection
from kube.credentials import Credentials, StaticCredentials
from kube.errors import Closed, InvalidRequest, Unreachable
from kube.requests import Request
from tests.builders.virtual_clock import VirtualClock

Handler = Callable[[httpx.Request], httpx.Response]


def asked(handler: Handler, request: Request) -> tuple[int, bytes, Mapping[str, str]]:
    async def run() -> tuple[int, bytes, Mapping[str, str]]:
        source = StaticCredentials(Credentials(server="http://server/", token="t"))
        connection = Connection(source, open_transport=lambda credentials, limit: httpx.MockTransport(handler))
        async with connection.exchange(request, first_s=5) as answer:
            assert isinstance(answer, Answer)
            found = (answer.code, await answer.body(), answer.headers)
        await connection.close()
        return found

    return asyncio.run(run())


def test_any_status_is_an_answer() -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        return httpx.Response(409, content=b'{"reason":"Conflict"}', headers={"retry-after": "3"})

    code, body, headers = asked(refuse, Request(method="PUT", path="/a", what="put a", content=b"{}"))
    assert (code, body, headers["retry-after"]) == (409, b'{"reason":"Conflict"}', "3")


def test_headers_repeat_and_replace_our_own() -> None:
    seen: list[httpx.Request] = []

    def keep(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, content=b"{}")

    headers = (("accept", "text/plain"), ("impersonate-group", "a"), ("impersonate-group", "b"))
    query = (("labelSelector", "a in (b, c)"), ("fieldManager", "x&y"))
    asked(keep, Request(method="GET", path="/a", what="get a", headers=headers, query=query))
    (request,) = seen
    assert request.headers.get_list("accept") == ["text/plain"]
    assert request.headers.get_list("impersonate-group") == ["a", "b"]
    assert request.headers["authorization"] == "Bearer t"
    assert request.headers["accept-encoding"] == "identity"
    assert request.url.raw_path == b"/a?labelSelector=a%20in%20%28b%2C%20c%29&fieldManager=x%26y"
    assert request.extensions["timeout"]["read"] is None


def test_a_refused_token_is_renewed_once() -> None:
    codes = iter((401, 401))
    code, _, _ = asked(lambda request: httpx.Response(next(codes)), Request(method="GET", path="/a", what="get a"))
    assert code == 401


@pytest.mark.parametrize("error", [httpx.ConnectError("no"), OSError("no"), httpx.ReadError("no")])
def test_failures_of_the_wire_are_unreachable(error: Exception) -> None:
    def fail(request: httpx.Request) -> httpx.Response:
        raise error

    with pytest.raises(Unreachable):
        asked(fail, Request(method="GET", path="/a", what="get a"))


def test_a_request_that_is_too_long_for_an_address_is_told_apart() -> None:
    request = Request(method="GET", path="/a", what="list a", query=(("labelSelector", "a," * 100_000),))
    with pytest.raises(InvalidRequest, match=r"list a: URL .*too long"):
        asked(lambda request: httpx.Response(200), request)

    async def call() -> None:
        source = StaticCredentials(Credentials(server="http://server/", token="t"))
        transport = httpx.MockTransport(lambda request: httpx.Response(200))
        connection = Connection(source, open_transport=lambda credentials, limit: transport)
        with pytest.raises(InvalidRequest, match=r"list a: URL .*too long"):
            await connection.call(request, deadline_s=5)
        await connection.close()

    asyncio.run(call())


async def _call(connection: Connection, request: Request) -> None:
    await connection.call(request, deadline_s=5)


async def _exchange(connection: Connection, request: Request) -> None:
    async with connection.exchange(request, first_s=5):
        raise AssertionError("nothing is answered")


@pytest.mark.parametrize("ask", [_call, _exchange])
@pytest.mark.parametrize("was_used", [True, False])
def test_a_closed_connection_opens_nothing(ask: Callable[..., Coroutine[None, None, None]], *, was_used: bool) -> None:
    opened: list[int] = []

    def open_transport(_credentials: Credentials, limit: int) -> httpx.AsyncBaseTransport:
        opened.append(limit)
        return httpx.MockTransport(lambda request: httpx.Response(200, content=b"{}"))

    async def test() -> None:
        source, request = Waiting(), Request(method="GET", path="/a", what="get a")
        connection = Connection(source, clock=VirtualClock(), open_transport=open_transport)
        source.answered.set()
        if was_used:
            await _call(connection, request)
        source.answered.clear()
        under_way = asyncio.create_task(ask(connection, request))  # waits for its credentials
        await asyncio.sleep(0)
        await connection.close()
        source.answered.set()
        for late in (under_way, ask(connection, request)):
            with pytest.raises(Closed):  # at once: time stands still
                await asyncio.wait_for(late, 5)
        await connection.close()
        assert len(opened) == (2 if was_used else 0)

    asyncio.run(test())


class Waiting:
    """Credentials that come when they are let."""

    def __init__(self) -> None:
        self.answered = asyncio.Event()

    async def current(self) -> Credentials:
        await self.answered.wait()
        return Credentials(server="http://server/")

    async def renewed(self) -> Credentials:
        return await self.current()
