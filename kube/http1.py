"""One HTTP/1.1 connection to a server: a request goes out, its answer is handed out as it arrives (decision 0524).

For: `kube.socket_wire`, which opens and keeps connections. In: a request as bytes. Out: an `InboundAnswer`.
Promises:
- a header or target that could be read as more than one is never sent;
- nothing is decoded; a body is handed out in pieces as large as what has come;
- a reader that falls behind stops the server, at `BUFFER_BYTES`;
- a connection is offered for another request only when its last answer came to its end, and nothing after it: one that
  is let go of before, bytes that nobody asked for, or a long request that was refused, perhaps unread, end theirs;
- an answer that ends early is an error, never a short body;
- a head, a trailer, and what else is no body end the answer past `MOST_HEAD_BYTES`.
"""

from __future__ import annotations

import asyncio
import re
from typing import Protocol

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from kube.errors import InvalidRequest
from kube.tls import RecordObject
from kube.wire import Headers, watch_over

BUFFER_BYTES = 256 * 1024
"""What is read of an answer before its reader has taken it: as much as the event loop reads at once."""
PIECE_BYTES = 56
"""What a piece takes beside its own bytes: of chunks of one byte, a buffer would hold fifty times its size."""
MOST_HEAD_BYTES = 128 * 1024
LONG_REQUEST_BYTES = 64 * 1024
"""Above this, a server may refuse a request before it has read all of it. Beneath TLS nobody says what is unsent."""
_TARGET = re.compile(r"/[!\"$-~]*")
_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_VALUE = re.compile(r"[^\0\r\n\u0100-\U0010ffff]*")


class BrokenAnswer(ConnectionError):
    """The connection ended, or says what is no HTTP, before the answer was complete."""


class ConnectionClosed(BrokenAnswer):
    """The connection ended before a byte of an answer came."""


class Keeper(Protocol):
    """Whoever holds connections."""

    def opened(self, channel: Channel) -> None:
        """Note a connection."""

    def keep(self, channel: Channel) -> None:
        """Take back a connection whose answer was read to its end."""

    def gone(self, channel: Channel) -> None:
        """Forget a connection."""


class Channel(asyncio.Protocol):
    """One connection, with one answer under way at most: `_answer`, from its request to the end of its body."""

    def __init__(self, keeper: Keeper, loop: asyncio.AbstractEventLoop) -> None:
        self._keeper = keeper
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._parser = HttpResponseParser(self)
        self._answer: InboundAnswer | None = None
        self._bare_bytes = 0  # of an answer, since its last that were body
        self._is_long = False  # of the request
        self._until_end = False
        self.idle_since = 0.0

    @property
    def is_usable(self) -> bool:
        """Say whether another request may be sent."""
        return self._transport is not None and not self._transport.is_closing()

    async def ask(self, message: bytes) -> InboundAnswer:
        """Send a request; return its answer when the head has come. Raises ConnectionClosed, BrokenAnswer."""
        if self._transport is None or not self.is_usable:
            raise ConnectionClosed("the connection is closed")
        answer = self._answer = InboundAnswer(self, self._loop)
        self._bare_bytes = 0
        self._is_long = len(message) > LONG_REQUEST_BYTES
        self._transport.write(message)
        try:
            await answer.head()
        except BaseException:
            self.let_go(answer)
            raise
        return answer

    def let_go(self, answer: InboundAnswer) -> None:
        """End the connection, unless its answer has come to its end."""
        if self._answer is answer:
            self.drop()

    def drop(self) -> None:
        """End the connection now, and what is under way on it."""
        self._end(BrokenAnswer("the connection was given up"))

    def pause(self) -> None:
        """Stop reading."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read on."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    # asyncio

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # a stream's
        """Begin; a peer that is gone without a word is noticed by the kernel."""
        self._transport = transport
        self._keeper.opened(self)
        watch_over(transport.get_extra_info("socket"))

    def data_received(self, data: bytes) -> None:
        """Parse; nobody speaks unasked."""
        if self._answer is None:
            self.drop()
            return
        self._bare_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            self._end(BrokenAnswer(f"no HTTP answer: {error}"))
            return
        if self._answer is not None and self._bare_bytes > MOST_HEAD_BYTES:
            part = "trailer" if self._answer.code else "head"
            self._end(BrokenAnswer(f"the {part} of the answer is too long"))

    def connection_lost(self, exc: Exception | None) -> None:
        """End what was under way: well only where the end of the connection is the end of the body."""
        self._keeper.gone(self)
        transport, self._transport = self._transport, None
        answer, self._answer = self._answer, None
        if answer is None:
            return
        if exc is None and self._until_end and transport is not None and _ended_by_peer(transport):
            answer.end()
            return
        began = answer.code > 0 or self._bare_bytes > 0
        error = BrokenAnswer("the connection was closed within an answer") if began else ConnectionClosed("no answer")
        error.__cause__ = exc  # raised by whoever reads
        answer.fail(error)

    def _end(self, error: BrokenAnswer) -> None:
        answer, self._answer = self._answer, None
        self._keeper.gone(self)
        if self._transport is not None:
            self._transport.abort()
        if answer is not None:
            answer.fail(error)

    # httptools

    def on_message_begin(self) -> None:
        """Begin an answer, be it one that only says "go on"; nobody speaks unasked, in the same piece neither."""
        if self._answer is None:
            self.drop()
        else:
            self._answer.begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; trailers come after the head and are dropped."""
        if self._answer is not None and self._answer.code == 0:
            self._answer.pairs.append((name.lower().decode("latin-1"), value.decode("latin-1")))

    def on_headers_complete(self) -> None:
        """Hand out the head."""
        code = self._parser.get_status_code()
        if self._answer is None or code < 200:
            return
        names = {name for name, _ in self._answer.pairs}
        self._bare_bytes = 0
        self._until_end = not ({"content-length", "transfer-encoding"} & names) and code not in (204, 304)
        self._answer.start(code)

    def on_body(self, body: bytes) -> None:
        """Hand out a piece."""
        self._bare_bytes = 0
        if self._answer is not None:
            self._answer.take(body)

    def on_message_complete(self) -> None:
        """End the answer; keep the connection when both sides want to."""
        answer = self._answer
        if answer is None or answer.code == 0:  # the latter: only "go on"
            return
        self._answer = None
        unread = self._is_long and answer.code >= 300
        if self._parser.should_keep_alive() and self.is_usable and not unread:
            self.idle_since = self._loop.time()
            self._keeper.keep(self)
        else:
            self.drop()
        answer.end()


class InboundAnswer:
    """The answer to one request. `pairs` are its headers, named in lower case."""

    __slots__ = ("_channel", "_ended", "_error", "_loop", "_paused", "_pieces", "_size", "_waiter", "code", "pairs")

    def __init__(self, channel: Channel, loop: asyncio.AbstractEventLoop) -> None:
        self._channel = channel
        self._loop = loop
        self._pieces: list[bytes] = []
        self._size = 0
        self._paused = False
        self._ended = False
        self._error: BrokenAnswer | None = None
        self._waiter: asyncio.Future[None] | None = None
        self.code = 0
        self.pairs: list[tuple[str, str]] = []

    async def head(self) -> None:
        """Wait for the head."""
        while self.code == 0:
            if self._error is not None:
                raise self._error
            await self._wait()

    async def read(self) -> bytes:
        """Return what has come since; nothing at the end."""
        while not self._pieces:
            if self._error is not None:
                raise self._error
            if self._ended:
                return b""
            await self._wait()
        data = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        self._size = 0
        self._flow()
        return data

    async def close(self) -> None:
        """Let go of the connection."""
        self._channel.let_go(self)

    def _flow(self) -> None:
        if self._paused:
            self._paused = False
            self._channel.resume()

    def begin(self) -> None:
        """Forget the head of an answer that only said "go on"."""
        self.pairs.clear()

    def start(self, code: int) -> None:
        """Take the head as it stands."""
        self.code = code
        self._wake()

    def take(self, piece: bytes) -> None:
        """Take a piece of the body."""
        self._pieces.append(piece)
        self._size += len(piece) + PIECE_BYTES
        if self._size > BUFFER_BYTES and not self._paused and not self._ended:
            self._paused = True
            self._channel.pause()
        self._wake()

    def end(self) -> None:
        """Say that the body is whole."""
        self._ended = True
        self._flow()
        self._wake()

    def fail(self, error: BrokenAnswer) -> None:
        """Say that nothing more will come."""
        self._error = error
        self._wake()

    async def _wait(self) -> None:
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _ended_by_peer(transport: asyncio.Transport) -> bool:
    tls = transport.get_extra_info("ssl_object")
    return not isinstance(tls, RecordObject) or tls.has_ended


def request_message(method: str, target: str, authority: str, headers: Headers, content: bytes | None) -> bytes:
    """Return a request as it goes out; raises InvalidRequest."""
    if not _TARGET.fullmatch(target):
        raise InvalidRequest("a request's path or query holds what is no part of an address")
    lines = [f"{method} {target} HTTP/1.1", f"host: {authority}"]
    for name, value in headers:
        if not (_NAME.fullmatch(name) and _VALUE.fullmatch(value)):
            raise InvalidRequest(f"header {name!r} holds what is no part of a header")
        lines.append(f"{name}: {value}")
    if content is not None or method != "GET":
        lines.append(f"content-length: {len(content or b'')}")
    head = "\r\n".join(lines).encode("latin-1")
    return b"%b\r\n\r\n%b" % (head, content or b"")
