"""One client connection: uvicorn's HTTP/1.1 protocol with a verified peer, bounds and no leniency.

For: `listener`. In: bytes of a TLS connection. Out: ASGI scopes that carry the `Peer`; answers.
Promises:
- nothing after the end of a request's head is a header: a trailer is dropped, whatever it is called;
- two readings of one message are refused with 400 and the connection ends: Content-Length beside Transfer-Encoding (the
  parser), any coding but `chunked`, Transfer-Encoding before HTTP/1.1, an upgrade, CONNECT, two Host headers;
- a head has `HEAD_S` seconds and `HEAD_BYTES`; a connection without a request has `keep_alive_s`;
- an answer given before the request's body was read ends the connection, after a short wait for the client to stop
  sending, else the reset would take the answer away;
- of connections that wait for nothing the longest idle goes when there are more than the listener allows;
- the head of an answer leaves with the first of its body, in one write;
- at a shutdown and after its idle time a connection is ended between two requests only: one whose first byte has
  reached this machine is answered.
"""

from __future__ import annotations

import asyncio
import logging
import math
import select
from collections.abc import Callable
from typing import Any

import orjson
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from apiserver.authn.authenticator import PEER
from apiserver.authn.peer import peer_of
from apiserver.rest import status

HEAD_S = 15.0
HEAD_BYTES = 128 * 1024
"""A user with a thousand groups fits."""
LINGER_S = 2.0
FIRST_REQUEST_S = 1.0
"""How long a client that has just connected to a server that leaves may take to ask."""
_AGAIN_S = 0.02

log = logging.getLogger(__name__)


class Refused(Exception):
    """A request that the parser took and we do not."""


class Idle:
    """The connections of one listener that have no request under way, the longest idle first."""

    def __init__(self, most_connections: int) -> None:
        self.most_connections = most_connections
        self.asked_at = -math.inf
        """When the last request came, on whichever of them, in the loop's time."""
        self._waiting: dict[Connection, None] = {}

    def add(self, connection: Connection) -> None:
        """Note that a connection has nothing to do."""
        self._waiting.pop(connection, None)
        self._waiting[connection] = None

    def discard(self, connection: Connection) -> None:
        """Note that a connection has something to do, or is gone."""
        self._waiting.pop(connection, None)

    def make_room(self, open_connections: int) -> None:
        """End the longest idle connections when too many are open."""
        for connection in tuple(self._waiting)[: max(0, open_connections - self.most_connections)]:
            self.discard(connection)
            connection.transport.abort()


class Connection(HttpToolsProtocol):
    """One connection. `closing` says whether answers tell the client to leave."""

    def __init__(self, config: Config, state: ServerState, *, idle: Idle, closing: Callable[[], bool]) -> None:
        super().__init__(config=config, server_state=state, app_state={})
        self._idle = idle
        self._closing = closing
        self._extensions: dict[str, Any] = {}
        self._head_done = True
        self._head_bytes = 0
        self._refusal = ""
        self._head_timer: asyncio.TimerHandle | None = None
        self._waits_until = 0.0
        self._made_at = 0.0
        self._has_asked = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn's own
        """Read the peer's certificate; wait for a request."""
        super().connection_made(transport)
        self._made_at = self.loop.time()
        peer = peer_of(transport.get_extra_info("ssl_object"))
        self._extensions = {PEER: peer} if peer is not None else {}
        self._wait_for_request()
        self._idle.make_room(len(self.connections))

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._idle.discard(self)
        self._stop_head_timer()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse; bound what a head may take."""
        if self.transport.is_closing():
            return
        self._head_bytes += len(data)
        super().data_received(data)
        if self.transport.is_closing():
            return
        if not self._head_done and self._head_bytes > HEAD_BYTES:
            self._refusal = "the head of the request is too long"
            self.send_400_response(self._refusal)
        elif self._is_waiting():
            self._arm_keep_alive()  # part of a head, or blank lines: they buy no time

    def on_message_begin(self) -> None:
        """Begin a head."""
        self._head_done = False
        self._head_bytes = 0
        self._stop_head_timer()
        self._head_timer = self.loop.call_later(HEAD_S, self._head_late)
        super().on_message_begin()
        self.scope["extensions"] = self._extensions

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header of the head; trailers are dropped."""
        if not self._head_done:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """End the head; refuse what could be read in two ways."""
        self._head_done = True
        self._stop_head_timer()
        self._refusal = why_refused(self.parser.get_method(), self.parser.get_http_version(), self.headers)
        if self._refusal:
            raise Refused(self._refusal)
        self._idle.discard(self)
        self._idle.asked_at = self.loop.time()
        self._has_asked = True
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        """Answer with a Status and end the connection."""
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:
            if not cycle.more_body:
                # Whole requests are being answered; a second answer now would be taken for theirs.
                cycle.keep_alive = False
                self.flow.pause_reading()
                return
            started = cycle.response_started or bool(self.pipeline)
            cycle.disconnected = True
            cycle.message_event.set()
            if started:
                self.transport.close()
                return
        document = status.bad_request(self._refusal or msg).document()
        body = orjson.dumps(document)
        head = b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: "
        self.transport.write(head + str(len(body)).encode() + b"\r\n\r\n" + body)
        self.transport.close()

    def shutdown(self) -> None:
        """End the connection if nobody asks anything on it; called until it is gone."""
        if not self._is_waiting():
            self.cycle.keep_alive = False
        elif self._is_idle() and (self._has_asked or self.loop.time() > self._made_at + FIRST_REQUEST_S):
            self.transport.close()

    def timeout_keep_alive_handler(self) -> None:
        """End a connection that waited long enough."""
        if self._has_arrived():
            self.timeout_keep_alive_task = self.loop.call_later(_AGAIN_S, self.timeout_keep_alive_handler)
        else:
            super().timeout_keep_alive_handler()

    def _is_idle(self) -> bool:
        """Say whether no request has begun, be it with a byte that was not read yet."""
        return self._head_done and not self._has_arrived()

    def _has_arrived(self) -> bool:
        """Say whether the kernel holds bytes for us; `select` would not take the numbers of thousands of sockets."""
        taken = self.transport.get_extra_info("socket")
        if taken is None or taken.fileno() < 0:
            return False  # it is gone already
        waiting = select.poll()
        waiting.register(taken.fileno(), select.POLLIN)
        return bool(waiting.poll(0))

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        if not self.transport.is_closing() and self._is_waiting():
            self._wait_for_request()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        outlet = _Outlet(self.transport)
        cycle.transport = outlet  # type: ignore[assignment] # all that a cycle asks of a transport

        async def answer(scope: Any, receive: Any, send: Any) -> None:
            try:
                await app(scope, receive, _Answer(cycle, send, outlet, self._closing).send)
            except asyncio.CancelledError:  # given up on at the end of a shutdown: no fault of the application
                cycle.disconnected = True
                self.transport.abort()

        super()._start_asgi_task(cycle, answer)

    def _is_waiting(self) -> bool:
        return self.cycle is None or (self.cycle.response_complete and not self.pipeline)

    def _wait_for_request(self) -> None:
        self._waits_until = self.loop.time() + self.timeout_keep_alive
        self._idle.add(self)
        self._arm_keep_alive()

    def _arm_keep_alive(self) -> None:
        self._unset_keepalive_if_required()
        self.timeout_keep_alive_task = self.loop.call_at(self._waits_until, self.timeout_keep_alive_handler)

    def _head_late(self) -> None:
        self._head_timer = None
        if not self.transport.is_closing():
            self.transport.abort()

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


class _Outlet:
    """Where one answer is written to: its head waits for the first of its body, and both leave in one write."""

    __slots__ = ("_held", "_transport")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._held: list[bytes] | None = None

    def write(self, data: bytes) -> None:
        if self._held is None:
            self._transport.write(data)
        else:
            self._held.append(data)

    def hold(self) -> None:
        """Write nothing until `release`."""
        self._held = []

    def release(self) -> None:
        """Write what is held."""
        if self._held is not None:
            self._transport.write(b"".join(self._held))
            self._held = None

    def close(self) -> None:
        self.release()
        self._transport.close()

    def is_closing(self) -> bool:
        return self._transport.is_closing()


class _Answer:
    """The sending side of one request."""

    def __init__(self, cycle: RequestResponseCycle, send: Any, outlet: _Outlet, closing: Callable[[], bool]) -> None:
        self._cycle = cycle
        self._send = send
        self._outlet = outlet
        self._closing = closing
        self._cut_short = False

    async def send(self, message: Any) -> None:
        """Pass a message on; an answer that is earlier than the request's end, or the last one, says so."""
        if message["type"] == "http.response.start":
            self._cut_short = self._cycle.more_body
            if self._cut_short or self._closing():
                message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
            self._outlet.hold()
            await self._send(message)
            return
        if self._cut_short and not message.get("more_body"):
            await self._send({**message, "more_body": True})
            self._outlet.release()
            await _until_sent(self._cycle)
            message = {"type": "http.response.body", "body": b""}
        await self._send(message)
        self._outlet.release()


async def _until_sent(cycle: RequestResponseCycle) -> None:
    """Throw away what the client still sends, for a short time."""
    try:
        async with asyncio.timeout(LINGER_S):
            while (await cycle.receive()).get("more_body"):
                pass
    except TimeoutError:
        return


def why_refused(method: bytes, version: str, headers: list[tuple[bytes, bytes]]) -> str:
    """Return why a parsed head is not taken; empty when it is. Names are in lower case."""
    if version not in ("1.0", "1.1"):
        return "this server speaks HTTP/1.1"
    if method == b"CONNECT" or any(name == b"upgrade" for name, _ in headers):
        return "this server neither upgrades nor tunnels"
    codings = [value for name, value in headers if name == b"transfer-encoding"]
    if codings and (version != "1.1" or [value.strip().lower() for value in codings] != [b"chunked"]):
        return "the only transfer coding is chunked, once, in HTTP/1.1"
    if version == "1.1" and sum(name == b"host" for name, _ in headers) != 1:
        return "a request names its host once"
    return ""
