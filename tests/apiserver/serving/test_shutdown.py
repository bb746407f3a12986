"""The order of leaving, on virtual time and over real connections."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import threading
from itertools import pairwise
from typing import Any

import pytest

from apiserver.serving.shutdown import Shutdown, Times
from kube.clock import SystemClock
from tests.apiserver.serving.https import NAME, Server, answer, run
from tests.builders.virtual_loop import LoopClock, run_virtually


class FakeStream:
    """A watch that notes when it was ended."""

    def __init__(self, open_ones: list[FakeStream], ends: list[float]) -> None:
        self._open = open_ones
        self._ends = ends
        open_ones.append(self)

    def close(self) -> None:
        if self in self._open:
            self._open.remove(self)
            self._ends.append(LoopClock().now() - 1000.0)


class FakeListener:
    """Notes when it was told to stop."""

    def __init__(self, steps: list[tuple[str, float]]) -> None:
        self._steps = steps

    def stop_accepting(self) -> None:
        self._steps.append(("stop accepting", LoopClock().now() - 1000.0))

    async def finish(self, within_s: float) -> None:
        self._steps.append(("finish", within_s))


def test_the_order_and_its_times() -> None:
    steps: list[tuple[str, float]] = []
    ends: list[float] = []
    streams: list[FakeStream] = []
    for _ in range(50):
        FakeStream(streams, ends)

    async def test() -> None:
        shutdown = Shutdown(Times(), LoopClock(), random.Random(1))
        shutdown.begin()
        shutdown.begin()
        assert shutdown.begun
        await shutdown.told()

        def refuse() -> None:
            steps.append(("refuse streams", LoopClock().now() - 1000.0))

        listener: Any = FakeListener(steps)
        await shutdown.run(listener, streams=lambda: list(streams), refuse_streams=refuse)

    run_virtually(test())
    assert [name for name, _ in steps] == ["refuse streams", "stop accepting", "finish"]
    assert [round(when, 3) for _, when in steps] == [10.0, 15.0, 15.0]
    assert len(ends) == 50
    assert (round(min(ends), 3), max(ends) < 15.0) == (10.0, True)
    assert max(later - sooner for sooner, later in pairwise(ends)) < 0.11


def test_streams_that_slipped_in_end_too() -> None:
    ends: list[float] = []
    streams: list[FakeStream] = []
    FakeStream(streams, ends)

    async def test() -> None:
        shutdown = Shutdown(Times(serve_s=1, spread_s=1), LoopClock(), random.Random(1))

        def refuse() -> None:
            asyncio.get_running_loop().call_later(0.5, lambda: FakeStream(streams, ends))

        listener: Any = FakeListener([])
        await shutdown.run(listener, streams=lambda: list(streams), refuse_streams=refuse)

    run_virtually(test())
    assert not streams
    assert len(ends) == 2


class Stopped:
    """An application with one slow answer and one stream."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()

    def close(self) -> None:
        self.ended.set()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/stream":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"{}\n", "more_body": True})
            await self.ended.wait()
            await send({"type": "http.response.body", "body": b""})
            return
        await asyncio.sleep({"/slow": 0.3, "/never": 60}.get(scope["path"], 0))
        await answer(send)


def test_nobody_loses_a_request_and_streams_end_cleanly(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        app = Stopped()
        shutdown = Shutdown(Times(serve_s=0.2, spread_s=0.1, finish_s=1), SystemClock(), random.Random(1))
        async with Server(app, closing=lambda: shutdown.begun).running() as server:
            slow, watching, idle, never = [await server.connect() for _ in range(4)]
            streamed = asyncio.create_task(watching.ask("GET", "/stream"))
            unending = asyncio.create_task(never.ask("GET", "/never"))
            await asyncio.sleep(0.05)
            shutdown.begin()
            leaving = asyncio.create_task(
                shutdown.run(server.listener, streams=lambda: [app], refuse_streams=lambda: None)
            )
            await asyncio.sleep(0.05)
            served = await (await server.connect()).ask()
            assert served is not None
            assert (served.code, served.headers["connection"]) == (200, "close")
            last = await slow.ask("GET", "/slow")
            assert last is not None
            assert last.code == 200
            whole = await streamed
            assert whole is not None
            assert whole.body == b"{}\n"
            assert await idle.ended()
            await leaving
            assert await unending is None
            assert not [record for record in caplog.records if record.levelname == "ERROR"]
            assert server.listener.connections == 0
            try:
                await server.connect()
            except OSError:
                return
            raise AssertionError("the socket still listens")

    run(test())


def _ask_twice(server: Server, idle: threading.Event, go: threading.Event, sent: threading.Event) -> bytes:
    """Ask, wait for the word, ask again; return what comes of the second request. Runs beside the loop."""
    request = b"GET / HTTP/1.1\r\nHost: server.test\r\n\r\n"
    plain = socket.create_connection(("127.0.0.1", server.listener.port), timeout=5)
    with server.context().wrap_socket(plain, server_hostname=NAME) as connection:
        connection.sendall(request)
        first = b""
        while not first.endswith(b"ok"):
            first += connection.recv(65536)
        idle.set()
        go.wait(5)
        connection.sendall(request)
        sent.set()
        answered = b""
        with contextlib.suppress(ConnectionError):
            while piece := connection.recv(65536):
                answered += piece
        return answered


def test_a_request_that_has_arrived_when_idle_connections_end_is_answered() -> None:
    async def test() -> None:
        async with Server(Stopped()).running() as server:
            idle, go, sent = threading.Event(), threading.Event(), threading.Event()
            asking = asyncio.create_task(asyncio.to_thread(_ask_twice, server, idle, go, sent))
            assert await asyncio.to_thread(idle.wait, 5)
            go.set()
            sent.wait(5)  # holds the loop: the bytes lie in the kernel, unread
            server.listener.stop_accepting()
            await server.listener.finish(2)
            answered = await asking
            assert answered.startswith(b"HTTP/1.1 200 OK\r\n"), answered
            assert b"connection: close" in answered
            assert server.listener.connections == 0

    run(test())


def test_a_request_that_has_begun_when_idle_connections_end_is_answered() -> None:
    async def test() -> None:
        async with Server(Stopped()).running() as server:
            begun, used, new, silent = [await server.connect() for _ in range(4)]
            for client in (begun, used):
                assert (await client.ask()) is not None
            begun.send(b"GET / HTTP/1.1\r\nHo")
            await asyncio.sleep(0.05)
            server.listener.stop_accepting()
            leaving = asyncio.create_task(server.listener.finish(5))
            assert await used.ended()
            begun.send(b"st: server.test\r\n\r\n")
            for reply in (await begun.reply(), await new.ask()):
                assert reply is not None
                assert (reply.code, reply.headers["connection"]) == (200, "close")
            assert await silent.ended()
            await leaving
            assert server.listener.connections == 0

    run(test())


def test_idle_connections_stay_until_nobody_has_asked_for_a_while() -> None:
    async def test() -> None:
        async with Server(Stopped(), quiet_s=0.4).running() as server:
            clients = [await server.connect() for _ in range(4)]
            for client in clients:
                assert (await client.ask()) is not None
            server.listener.stop_accepting()
            leaving = asyncio.create_task(server.listener.finish(5))
            for client in clients[:3]:  # as a pool is used up that has been idle
                await asyncio.sleep(0.25)
                reply = await client.ask()
                assert reply is not None
                assert (reply.code, reply.headers["connection"]) == (200, "close")
            assert await clients[3].ended()
            await leaving

    run(test())


def test_a_long_answer_arrives_whole() -> None:
    size, answered = 16 * 1024 * 1024, asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await answer(send, b"x" * size)
        answered.set()

    async def test() -> None:
        async with Server(app).running() as server:
            client = await server.connect()
            client.send(b"GET / HTTP/1.1\r\nHost: server.test\r\n\r\n")
            await answered.wait()
            server.listener.stop_accepting()
            leaving = asyncio.create_task(server.listener.finish(5))
            await asyncio.sleep(0.1)
            reply = await client.reply()
            assert reply is not None
            assert len(reply.body) == size
            await leaving

    run(test())
