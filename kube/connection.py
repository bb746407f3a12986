"""How bytes travel: two HTTP clients, credentials, deadlines, bounded repetition.

For: `kube.client`, which knows kinds; this module knows none.
In: a `Request`, a deadline. Out: the body of a success, a stream of bytes, or an error of `kube.errors`.
Promises:
- watches and calls use separate pools, so that many watches never starve a call;
- every attempt has a deadline, and the repetitions of one call have one together;
- changed trust (CA, client certificate) opens new connections; what is under way on old ones may end;
- no answer is followed anywhere else: a redirect is an error.
"""

from __future__ import annotations

import random
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

import aiohttp
import httpx
from httpx_aiohttp import AiohttpTransport

from kube.clock import Clock, SystemClock
from kube.credentials import Credentials, CredentialSource
from kube.errors import (
    ApiError,
    InvalidRequest,
    OperatorError,
    ServerTimeout,
    TooManyRequests,
    Unauthorized,
    Unavailable,
    Unreachable,
    answer_error,
    cut,
    transport_error,
)
from kube.requests import Request
from kube.tls import api_server_context

MAX_CALLS = 64
"""Calls in flight a process. An API server grants a client of our kind about this many seats."""
CONNECT_S = 5.0
ATTEMPTS = 5
REPEAT_WITHIN_S = 60.0
FIRST_PAUSE_S = 0.25
MAX_PAUSE_S = 8.0
ERROR_BODY_LIMIT = 64 * 1024
# identity: on one machine or in one cluster, packing costs both sides more than the bytes it saves
DEFAULT_HEADERS = {"user-agent": "gpustack-operator", "accept-encoding": "identity"}

TRANSPORT_FAILURES: tuple[type[Exception], ...] = (
    httpx.HTTPError,
    httpx.StreamError,
    httpx.InvalidURL,
    aiohttp.ClientError,  # the adapter lets some of them through
    ssl.SSLError,
    OSError,
    TimeoutError,
)
REPEATED: tuple[type[OperatorError], ...] = (TooManyRequests, Unavailable, ServerTimeout, Unreachable)

OpenTransport = Callable[[Credentials, int], httpx.AsyncBaseTransport]
"""(credentials, most connections at a time, 0 for no bound) -> transport."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer on its way: `headers` are looked up in any case, `chunks` may be read once."""

    code: int
    headers: Mapping[str, str]
    chunks: AsyncIterator[bytes]

    @property
    def is_success(self) -> bool:
        """Say whether the status is 2xx."""
        return 200 <= self.code < 300

    async def body(self) -> bytes:
        """Return what is left of the body."""
        return b"".join([chunk async for chunk in self.chunks])


class Pair:
    """The two HTTP clients over one trust. Closed when it is retired and its last user has left."""

    def __init__(self, credentials: Credentials, open_transport: OpenTransport) -> None:
        self.credentials = credentials
        self.calls = _http_client(credentials, open_transport(credentials, MAX_CALLS))
        self.relays = open_transport(credentials, 0)
        self.streams = _http_client(credentials, self.relays)
        self._users = 0
        self._retired = False

    @asynccontextmanager
    async def used(self) -> AsyncIterator[None]:
        """Hold the pair open for the length of the block."""
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            if self._retired and self._users == 0:
                await self.close()

    async def retire(self) -> None:
        """Close now, or when the last user leaves."""
        self._retired = True
        if self._users == 0:
            await self.close()

    async def close(self) -> None:
        """Close both clients."""
        await self.calls.aclose()
        await self.streams.aclose()


class Connection:
    """One way to one API server, shared by all clients of a process."""

    def __init__(
        self,
        source: CredentialSource,
        *,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        open_transport: OpenTransport | None = None,
    ) -> None:
        self.clock = clock or SystemClock()
        self._source = source
        self._rng = rng or random.Random()  # noqa: S311 - spreads retries; no secret depends on it
        self._open_transport = open_transport or aiohttp_transport
        self._pair: Pair | None = None

    async def call(self, request: Request, *, deadline_s: float) -> bytes:
        """Send a request and return the body. Only safe requests are sent again."""
        started, attempt, renewed = self.clock.now(), 0, False
        while True:
            attempt += 1
            try:
                return await self._attempt(request, deadline_s)
            except Unauthorized:
                if renewed:
                    raise
                renewed = True
                await self._source.renewed()
            except REPEATED as error:
                pause_s = self._pause(error, attempt)
                late = self.clock.now() - started + pause_s > REPEAT_WITHIN_S
                if not request.safe or attempt >= ATTEMPTS or late:
                    raise
                await self.clock.sleep(pause_s)

    @asynccontextmanager
    async def stream(self, request: Request, *, first_s: float) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a stream; its head must come within `first_s`. Reading deadlines are the reader's."""
        pair = await self._current_pair()
        async with pair.used():
            response = await self._open_stream(pair, request, first_s)
            if response.status_code == 401:
                await self._close_stream(response)
                await self._source.renewed()
                response = await self._open_stream(await self._current_pair(), request, first_s)
            try:
                if not response.is_success:
                    raise await self._refusal(response, request, first_s)
                async with aclosing(_chunks(response, request.what)) as chunks:
                    yield chunks
            finally:
                await self._close_stream(response)

    @asynccontextmanager
    async def exchange(self, request: Request, *, first_s: float) -> AsyncIterator[Answer]:
        """Send a request once and hand out the answer as it comes, whatever its status; the head within `first_s`.

        For relays: nothing is interpreted, repeated or decoded. An old token leads to one renewal, as elsewhere.
        """
        pair = await self._current_pair()
        async with pair.used():
            response = await self._relayed(pair, request, first_s)
            if response.status_code == 401:
                await self._close_stream(response)
                await self._source.renewed()
                response = await self._relayed(await self._current_pair(), request, first_s)
            try:
                async with aclosing(_chunks(response, request.what)) as chunks:
                    yield Answer(response.status_code, response.headers, chunks)
            finally:
                await self._close_stream(response)

    async def close(self) -> None:
        """Close all connections that are open."""
        if self._pair is not None:
            await self._pair.close()
            self._pair = None

    async def _attempt(self, request: Request, deadline_s: float) -> bytes:
        pair = await self._current_pair()
        async with pair.used():
            try:
                async with self.clock.timeout(deadline_s):
                    response = await pair.calls.send(await self._build(pair.calls, request))
                    body = response.content
            except TRANSPORT_FAILURES as error:
                raise transport_error(error, request.what) from error
        if not response.is_success:
            raise answer_error(response.status_code, response.headers, body)
        return body

    async def _open_stream(self, pair: Pair, request: Request, first_s: float) -> httpx.Response:
        try:
            async with self.clock.timeout(first_s):
                return await pair.streams.send(await self._build(pair.streams, request), stream=True)
        except TRANSPORT_FAILURES as error:
            raise transport_error(error, request.what) from error

    async def _relayed(self, pair: Pair, request: Request, first_s: float) -> httpx.Response:
        """Send without the client around the transport: its cookies, redirects and URL merging cost more than we do."""
        query = f"?{urlencode(request.query, quote_via=quote)}" if request.query else ""
        headers = [*DEFAULT_HEADERS.items(), *(await self._headers(request)).items(), *request.headers]
        with _sendable(request):
            built = httpx.Request(
                request.method,
                f"{pair.credentials.server.rstrip('/')}{request.path}{query}",
                headers=headers,
                content=request.content,
                extensions=self._extensions(pair.credentials),
            )
        try:
            async with self.clock.timeout(first_s):
                return await pair.relays.handle_async_request(built)
        except TRANSPORT_FAILURES as error:
            raise transport_error(error, request.what) from error

    async def _refusal(self, response: httpx.Response, request: Request, first_s: float) -> ApiError:
        body = b""
        try:
            async with self.clock.timeout(first_s):
                async for chunk in response.aiter_bytes():
                    body += chunk
                    if len(body) > ERROR_BODY_LIMIT:
                        break
        except TRANSPORT_FAILURES as error:
            raise transport_error(error, request.what) from error
        return answer_error(response.status_code, response.headers, body)

    async def _close_stream(self, response: httpx.Response) -> None:
        try:
            async with self.clock.timeout(CONNECT_S):
                await response.aclose()
        except TRANSPORT_FAILURES:
            return  # it was broken before we closed it

    async def _build(self, client: httpx.AsyncClient, request: Request) -> httpx.Request:
        headers = [*(await self._headers(request)).items(), *request.headers]
        with _sendable(request):
            built = client.build_request(
                request.method, request.path, params=request.query or None, content=request.content, headers=headers
            )
        built.extensions.update(self._extensions(await self._source.current()))
        return built

    async def _headers(self, request: Request) -> dict[str, str]:
        headers = {"accept": "application/json"}
        if request.content is not None:
            headers["content-type"] = request.content_type
        for name, _ in request.headers:
            headers.pop(name, None)
        credentials = await self._source.current()
        if credentials.token:
            headers["authorization"] = f"Bearer {credentials.token}"
        return headers

    @staticmethod
    def _extensions(credentials: Credentials) -> dict[str, Any]:
        timeout = {"connect": CONNECT_S, "read": None, "write": None, "pool": None}
        name = {"sni_hostname": credentials.server_name} if credentials.server_name else {}
        return {"timeout": timeout, **name}

    async def _current_pair(self) -> Pair:
        while True:
            credentials = await self._source.current()
            # Nothing may wait between this look and the caller's `used`: another change could close the pair.
            if self._pair is not None and self._pair.credentials.same_transport(credentials):
                return self._pair
            old, self._pair = self._pair, Pair(credentials, self._open_transport)
            if old is None:
                return self._pair
            await old.retire()

    def _pause(self, error: OperatorError, attempt: int) -> float:
        pause_s = min(MAX_PAUSE_S, FIRST_PAUSE_S * 2.0 ** (attempt - 1)) * self._rng.uniform(0.5, 1.0)
        asked_s = error.retry_after if isinstance(error, ApiError) else None
        return max(pause_s, asked_s or 0.0)


@contextmanager
def _sendable(request: Request) -> Iterator[None]:
    """Tell of a request that cannot be written down: a selector may be longer than an address may be."""
    try:
        yield
    except httpx.InvalidURL as error:
        raise InvalidRequest(f"{request.what}: {cut(str(error))}") from error


def aiohttp_transport(credentials: Credentials, limit: int) -> httpx.AsyncBaseTransport:
    """Open the production transport."""
    context = api_server_context(
        ca_pem=credentials.ca_pem,
        certificate_pem=credentials.certificate_pem,
        key_pem=credentials.key_pem,
        verify=credentials.verify,
    )

    def open_session() -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(ssl=context, limit=limit, keepalive_timeout=30, socket_factory=_open_socket)
        return aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar())

    return AiohttpTransport(verify=context, client=open_session)


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


def _http_client(credentials: Credentials, transport: httpx.AsyncBaseTransport) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        base_url=credentials.server,
        transport=transport,
        headers=DEFAULT_HEADERS,
        follow_redirects=False,
        trust_env=False,
    )


async def _chunks(response: httpx.Response, what: str) -> AsyncGenerator[bytes, None]:
    try:
        async for chunk in response.aiter_bytes():
            yield chunk
    except TRANSPORT_FAILURES as error:
        raise transport_error(error, what) from error
