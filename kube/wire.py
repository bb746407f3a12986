"""One request out, its answer back as it comes: what streams and relays travel on.

For: `kube.connection`, whose calls go through an httpx client instead.
In: a method, the target of a request line, headers, a body. Out: a `Reply`, or an exception of `TRANSPORT_FAILURES`.
Promises: nothing is decoded, followed, or remembered for another request; a body is handed out as it arrived, in
pieces as large as what has come; a reply that is closed before its end ends its connection.
Two wires: `socket_wire`, for production; any httpx transport, for tests that bring their own.
"""

from __future__ import annotations

import socket
import ssl
from asyncio.trsock import TransportSocket
from typing import Protocol

import aiohttp
import httpx

from kube.credentials import Credentials
from kube.tls import api_server_context

CONNECT_S = 5.0
KEEP_ALIVE_S = 30.0
Headers = list[tuple[str, str]]

TRANSPORT_FAILURES: tuple[type[Exception], ...] = (
    httpx.HTTPError,
    httpx.StreamError,
    httpx.InvalidURL,
    aiohttp.ClientError,  # the adapter lets some of them through
    ssl.SSLError,
    OSError,
    TimeoutError,
)


class Reply(Protocol):
    """An answer whose head has come."""

    @property
    def code(self) -> int:
        """Return the status."""

    @property
    def pairs(self) -> Headers:
        """Return the headers, named in lower case; names may repeat."""

    async def read(self) -> bytes:
        """Return what has come since; nothing at the end."""

    async def close(self) -> None:
        """Let go of the connection, which another request may use when the answer was read to its end."""


class Wire(Protocol):
    """One way to one server."""

    async def send(self, method: str, target: str, headers: Headers, content: bytes | None) -> Reply:
        """Send a request; return when the head of its answer has come."""

    async def close(self) -> None:
        """Close what is open."""


class TransportWire:
    """The wire over an injected transport."""

    def __init__(self, credentials: Credentials, transport: httpx.AsyncBaseTransport) -> None:
        self._server = credentials.server.rstrip("/")
        self._extensions = extensions(credentials)
        self._transport = transport

    async def send(self, method: str, target: str, headers: Headers, content: bytes | None) -> Reply:
        """Send a request; return when the head of its answer has come."""
        address = f"{self._server}{target}"
        request = httpx.Request(method, address, headers=headers, content=content, extensions=self._extensions)
        return _TransportReply(await self._transport.handle_async_request(request))

    async def close(self) -> None:
        """Close the transport."""
        await self._transport.aclose()


class _TransportReply:
    """An answer of httpx, read below the class that would decode it."""

    def __init__(self, answer: httpx.Response) -> None:
        if not isinstance(answer.stream, httpx.AsyncByteStream):
            raise httpx.StreamError("the answer cannot be read as it comes")
        self._answer = answer
        self._pieces = aiter(answer.stream)
        self.code = answer.status_code
        self.pairs: Headers = [
            (name.lower().decode("latin-1"), value.decode("latin-1")) for name, value in answer.headers.raw
        ]

    async def read(self) -> bytes:
        async for piece in self._pieces:
            if piece:
                return piece
        return b""

    async def close(self) -> None:
        await self._answer.aclose()


def client_context(credentials: Credentials) -> ssl.SSLContext:
    """Return how a server is recognised, and what it is shown."""
    return api_server_context(
        ca_pem=credentials.ca_pem,
        certificate_pem=credentials.certificate_pem,
        key_pem=credentials.key_pem,
        verify=credentials.verify,
    )


def open_session(context: ssl.SSLContext, *, limit: int) -> aiohttp.ClientSession:
    """Open a session of at most `limit` connections, 0 for no bound; an answer may take as long as its reader lets."""
    connector = aiohttp.TCPConnector(
        ssl=context, limit=limit, keepalive_timeout=KEEP_ALIVE_S, socket_factory=_open_socket
    )
    return aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),
    )


def extensions(credentials: Credentials) -> dict[str, object]:
    """Return what an httpx transport is told beside a request: deadlines are the caller's."""
    timeout = {"connect": CONNECT_S, "read": None, "write": None, "pool": None}
    return {"timeout": timeout, **({"sni_hostname": credentials.server_name} if credentials.server_name else {})}


def _open_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    family, kind, protocol, _, _ = address
    opened = socket.socket(family, kind, protocol)
    opened.setblocking(False)
    watch_over(opened)
    return opened


def watch_over(opened: socket.socket | TransportSocket) -> None:
    """Let the kernel notice a peer that is gone without a word."""
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for name, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 30_000)):
        if hasattr(socket, name):
            opened.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
