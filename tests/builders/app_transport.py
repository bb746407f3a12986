"""A wire without sockets: httpx requests straight into an ASGI application that can fail, lag and restart.

For: tests that run the real client against the real devcluster in one process.
In: an application, or none while the server is down. Out: what a network gives: answers, refused connections, streams
that break off.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx

App = Callable[[Any, Any, Any], Any]
Fault = Callable[[httpx.Request], httpx.Response | None]


class Wire:
    """What lies between all clients of a test and the server."""

    def __init__(self) -> None:
        self.app: App | None = None
        self.lag_s = 0.0
        """Between the server's doing and the client's hearing of it."""
        self.faults: list[Fault] = []
        """Asked before the server; an answer of theirs is the answer."""
        self._open: set[_Exchange] = set()

    def cut(self) -> None:
        """Break everything that is under way, as a killed server does."""
        for exchange in tuple(self._open):
            exchange.cut()

    async def idle(self) -> None:
        """Return when the server's side of every exchange has ended."""
        await asyncio.gather(*(exchange.task for exchange in self._open), return_exceptions=True)

    async def exchange(self, request: httpx.Request) -> httpx.Response:
        """Carry one request."""
        for fault in self.faults:
            answer = fault(request)
            if answer is not None:
                return answer
        if self.app is None:
            raise httpx.ConnectError("connection refused")
        exchange = _Exchange(self.app, request, self._open)
        self._open.add(exchange)
        exchange.task.add_done_callback(lambda _: self._open.discard(exchange))
        try:
            response = await exchange.response()
            if self.lag_s:
                await asyncio.sleep(self.lag_s)
        except BaseException:
            exchange.leave()
            raise
        return response


class WireTransport(httpx.AsyncBaseTransport):
    """One client's end of the wire."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return await self._wire.exchange(request)


class _Exchange(httpx.AsyncByteStream):
    """One request on its way through the application."""

    def __init__(self, app: App, request: httpx.Request, open_ones: set[_Exchange]) -> None:
        self._body = request.content
        self._sent_body = False
        self._messages: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self._gone = asyncio.Event()
        self._open = open_ones
        path, _, query = request.url.raw_path.partition(b"?")
        scope = {
            "type": "http",
            "method": request.method,
            "path": path.decode(),
            "raw_path": path,
            "query_string": query,
            "headers": [(key.lower(), value) for key, value in request.headers.raw],
        }
        self.task = asyncio.create_task(self._run(app, scope), name=f"{request.method} {request.url.path}")

    async def _run(self, app: App, scope: dict[str, Any]) -> None:
        try:
            await app(scope, self._receive, self._messages.put)
        finally:
            self._messages.put_nowait(None)

    async def _receive(self) -> dict[str, Any]:
        if not self._sent_body:
            self._sent_body = True
            return {"type": "http.request", "body": self._body, "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def response(self) -> httpx.Response:
        """Return the answer's head; its body is this stream."""
        head = await self._messages.get()
        if head is None:
            raise httpx.RemoteProtocolError("the server closed the connection without an answer")
        return httpx.Response(head["status"], headers=head["headers"], stream=self)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            message = await self._messages.get()
            if message is None:
                raise httpx.ReadError("the connection broke off")
            if message.get("body"):
                yield message["body"]
            if not message.get("more_body"):
                return

    async def aclose(self) -> None:
        self.leave()

    def leave(self) -> None:
        """The client hangs up."""
        self._gone.set()

    def cut(self) -> None:
        """The server is killed."""
        self.task.cancel()
