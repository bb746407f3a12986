"""One request out, its answer back as it comes: what streams and relays travel on.

For: `kube.connection`, whose calls go through an httpx client instead.
In: a method, the target of a request line, headers, a body. Out: a `Reply`, or an exception of `TRANSPORT_FAILURES`.
Promises: nothing is decoded, followed, or remembered for another request; a body is handed out as it arrived, in
pieces as large as what has come; a reply that is closed before its end ends its connection.
Two wires: aiohttp's session as it is, for production; any httpx transport, for tests that bring their own.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from typing import Protocol

import aiohttp
import httpx
from yarl import URL

from kube.credentials import Credentials
from kube.tls import api_server_context

CONNECT_S = 5.0
KEEP_ALIVE_S = 30.0
BUFFER_BYTES = 256 * 1024
"""What is read of an answer before its reader has taken it: as much as the event loop reads at once."""
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
    """An answer whose head has come. `headers` are looked up in any case."""

    @property
    def code(self) -> int:
        """Return the status."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Return the headers."""

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


class SessionWire:
    """The wire of production."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._server = credentials.server.rstrip("/")
        self._context = client_context(credentials)
        self._session: aiohttp.ClientSession | None = None

    async def send(self, method: str, target: str, headers: Headers, content: bytes | None) -> Reply:
        """Send a request; return when the head of its answer has come."""
        if self._session is None:  # a session belongs to the loop that runs when it is made
            self._session = open_session(self._context, limit=0)
        answer = await self._session.request(
            method,
            URL(f"{self._server}{target}", encoded=True),  # as it was authorized: `%2e%2e` is no step up
            headers=headers,
            data=content,
            allow_redirects=False,
            server_hostname=self._credentials.server_name or None,
        )
        return _SessionReply(answer)

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()


class _SessionReply:
    """An answer of aiohttp."""

    __slots__ = ("_answer", "_content", "code", "headers")

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self._answer = answer
        self._content = answer.content
        self.code = answer.status
        self.headers: Mapping[str, str] = answer.headers

    async def read(self) -> bytes:
        return await self._content.readany()

    async def close(self) -> None:
        self._answer.release()


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
        self.headers: Mapping[str, str] = answer.headers

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
        read_bufsize=BUFFER_BYTES,
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
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for name, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 30_000)):
        if hasattr(socket, name):
            opened.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return opened
