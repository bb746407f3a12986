"""One HTTPS exchange with an extension API server, streamed.

For: `aggregator`. In: an address, a TLS context, a request. Out: status, headers, pieces of the body as they come.
Promises: one connection per exchange; every wait before the first byte has a deadline; a stream ends cleanly when the
other side ends it and is closed when ours does.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import httptools

CONNECT_S = 5.0
_PIECE = 65536
Pairs = Sequence[tuple[bytes, bytes]]


class UpstreamError(Exception):
    """The extension server cannot be reached, or does not speak HTTP."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where an extension server listens and the name its certificate must carry."""

    host: str
    port: int
    server_name: str
    tls: ssl.SSLContext


@dataclass(slots=True)
class _Parsed:
    """What the parser has seen so far."""

    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    pieces: list[bytes] = field(default_factory=list)
    headers_done: bool = False
    done: bool = False

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self.headers_done = True

    def on_body(self, piece: bytes) -> None:
        self.pieces.append(piece)

    def on_message_complete(self) -> None:
        self.done = True


class Answer:
    """One answer; `pieces` may be read once."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._parsed = _Parsed()
        self._parser = httptools.HttpResponseParser(self._parsed)
        self.code = 0

    @property
    def headers(self) -> Pairs:
        """Return the headers, names in lower case."""
        return self._parsed.headers

    async def read_head(self, deadline_s: float) -> None:
        """Read until the headers are complete."""
        async with asyncio.timeout(deadline_s):
            while not self._parsed.headers_done:
                if not await self._feed():
                    raise UpstreamError("the connection ended before an answer came")
        self.code = self._parser.get_status_code()

    async def _feed(self) -> bool:
        piece = await self._reader.read(_PIECE)
        if not piece:
            return False
        try:
            self._parser.feed_data(piece)
        except httptools.HttpParserError as error:
            raise UpstreamError(f"the answer is no HTTP: {error}") from error
        return True

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the body as it comes."""
        while True:
            ready, self._parsed.pieces = self._parsed.pieces, []
            for piece in ready:
                yield piece
            if self._parsed.done or not (ready or await self._feed()):
                return

    def close(self) -> None:
        """Drop the connection; a waiting reader sees the end."""
        self._writer.close()


@asynccontextmanager
async def exchange(
    endpoint: Endpoint, method: str, target: bytes, *, headers: Pairs, body: bytes = b"", deadline_s: float = 60.0
) -> AsyncIterator[Answer]:
    """Send a request; the body of the answer is read inside the block. Raises UpstreamError."""
    try:
        async with asyncio.timeout(CONNECT_S):
            reader, writer = await asyncio.open_connection(
                endpoint.host, endpoint.port, ssl=endpoint.tls, server_hostname=endpoint.server_name
            )
    except (OSError, TimeoutError) as error:
        raise UpstreamError(f"{endpoint.server_name}: {type(error).__name__}: {error}") from error
    answer = Answer(reader, writer)
    try:
        lines = [b"%s %s HTTP/1.1" % (method.encode(), target), b"host: " + endpoint.server_name.encode()]
        lines += [name + b": " + value for name, value in headers]
        lines += [b"connection: close", b"content-length: %d" % len(body), b"", body]
        writer.write(b"\r\n".join(lines))
        try:
            await answer.read_head(deadline_s)
        except (OSError, TimeoutError) as error:
            raise UpstreamError(f"{endpoint.server_name}: no answer: {type(error).__name__}") from error
        yield answer
    finally:
        writer.close()
