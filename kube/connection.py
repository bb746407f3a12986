"""How requests travel: calls through an httpx client, streams and relays on a bare wire; deadlines, repetition.

For: `kube.client`, which knows kinds; this module knows none.
In: a `Request`, a deadline. Out: the body of a success, a stream of bytes, or an error of `kube.errors`.
Promises:
- watches and calls use separate pools, so that many watches never starve a call;
- every attempt has a deadline, and the repetitions of one call have one together;
- a connection that is closed opens nothing more, whoever still asks;
- changed trust (CA, client certificate) opens new connections; what is under way on old ones may end;
- no answer is followed anywhere else: a redirect is an error.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from types import TracebackType
from urllib.parse import quote, urlencode

import httpx
from httpx_aiohttp import AiohttpTransport

from kube.clock import Clock, SystemClock
from kube.credentials import Credentials, CredentialSource
from kube.errors import (
    ApiError,
    Closed,
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
from kube.socket_wire import SocketWire
from kube.wire import (
    TRANSPORT_FAILURES,
    Headers,
    Reply,
    TransportWire,
    Wire,
    client_context,
    extensions,
    open_session,
)

MAX_CALLS = 64
"""Calls in flight a process. An API server grants a client of our kind about this many seats."""
ATTEMPTS = 5
REPEAT_WITHIN_S = 60.0
FIRST_PAUSE_S = 0.25
MAX_PAUSE_S = 8.0
ERROR_BODY_LIMIT = 64 * 1024
MAX_TARGET = 64 * 1024
"""Characters of an address. httpx refuses a longer one; no proxy on the way would take it either."""
# identity: on one machine or in one cluster, packing costs both sides more than the bytes it saves
DEFAULT_HEADERS = {"user-agent": "gpustack-operator", "accept-encoding": "identity"}

REPEATED: tuple[type[OperatorError], ...] = (TooManyRequests, Unavailable, ServerTimeout, Unreachable)

OpenTransport = Callable[[Credentials, int], httpx.AsyncBaseTransport]
"""(credentials, most connections at a time, 0 for no bound) -> transport."""


class Answer:
    """An answer on its way; it may be read once."""

    __slots__ = ("_reply", "_what", "code")

    def __init__(self, reply: Reply, what: str) -> None:
        self._reply = reply
        self._what = what
        self.code = reply.code

    @property
    def pairs(self) -> Headers:
        """Return the headers, named in lower case; names may repeat."""
        return self._reply.pairs

    @property
    def headers(self) -> Mapping[str, str]:
        """Return the headers, named in lower case; of those that repeat the last."""
        return dict(self._reply.pairs)

    @property
    def is_success(self) -> bool:
        """Say whether the status is 2xx."""
        return 200 <= self.code < 300

    @property
    def chunks(self) -> AsyncIterator[bytes]:
        """Return what is left of the body, as it comes."""
        return self

    async def body(self) -> bytes:
        """Return what is left of the body."""
        return b"".join([chunk async for chunk in self])

    def __aiter__(self) -> Answer:
        return self

    async def __anext__(self) -> bytes:
        try:
            piece = await self._reply.read()
        except TRANSPORT_FAILURES as error:
            raise transport_error(error, self._what) from error
        if not piece:
            raise StopAsyncIteration
        return piece


class Pair:
    """Calls and streams over one trust. Closed when it is retired and its last user has left."""

    def __init__(self, credentials: Credentials, calls: httpx.AsyncClient, streams: Wire) -> None:
        self.credentials = credentials
        self.calls = calls
        self.streams = streams
        self._users = 0
        self._retired = False

    def enter(self) -> None:
        """Hold the pair open until `leave`."""
        self._users += 1

    async def leave(self) -> None:
        """Need it no more."""
        self._users -= 1
        if self._retired and self._users == 0:
            await self.close()

    async def retire(self) -> None:
        """Close now, or when the last user leaves."""
        self._retired = True
        if self._users == 0:
            await self.close()

    async def close(self) -> None:
        """Close both."""
        await self.calls.aclose()
        await self.streams.close()


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
        self._open_transport = open_transport
        self._pair: Pair | None = None
        self._closed = False

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
                useless = isinstance(error, Closed) or (isinstance(error, ApiError) and error.is_of_the_future)
                if not request.safe or attempt >= ATTEMPTS or late or useless:
                    raise
                await self.clock.sleep(pause_s)

    @asynccontextmanager
    async def stream(self, request: Request, *, first_s: float) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a stream; its head must come within `first_s`. Reading deadlines are the reader's."""
        async with self.exchange(request, first_s=first_s) as answer:
            if not answer.is_success:
                raise await self._refusal(answer, request, first_s)
            yield answer.chunks

    def exchange(self, request: Request, *, first_s: float) -> Exchange:
        """Send a request once and hand out the answer as it comes, whatever its status; the head within `first_s`.

        For relays: nothing is interpreted, repeated or decoded. An old token leads to one renewal, as elsewhere.
        """
        return Exchange(self, request, first_s)

    async def ask(self, request: Request, *, deadline_s: float) -> bytes:
        """Send a request once, on the wire of relays, and return the body of a success: for the paths that are hot."""
        try:
            async with self.clock.timeout(deadline_s), self.exchange(request, first_s=deadline_s) as answer:
                body = await answer.body()
        except TimeoutError as error:
            raise transport_error(error, request.what) from error
        if not answer.is_success:
            raise answer_error(answer.code, answer.headers, body)
        return body

    async def close(self) -> None:
        """Close all connections that are open, and open no more."""
        self._closed = True
        pair, self._pair = self._pair, None
        if pair is not None:
            await pair.close()

    async def renew(self) -> None:
        """Read the credentials again: the server just refused the last ones."""
        await self._source.renewed()

    async def entered(self) -> tuple[Pair, Credentials]:
        """Return the pair of this moment, held open for the caller until it leaves, and what to show with a request.

        Raises Closed.
        """
        while True:
            credentials = await self._source.current()
            # Nothing may wait between these looks and `enter`: another change, or `close`, could close the pair.
            if self._closed:
                raise Closed("the connection is closed")
            if self._pair is not None and self._pair.credentials.same_transport(credentials):
                self._pair.enter()
                return self._pair, credentials
            old, self._pair = self._pair, self._opened(credentials)
            if old is not None:
                await old.retire()

    def _opened(self, credentials: Credentials) -> Pair:
        opener = self._open_transport
        calls = _http_client(credentials, (opener or aiohttp_transport)(credentials, MAX_CALLS))
        streams = TransportWire(credentials, opener(credentials, 0)) if opener else SocketWire(credentials)
        return Pair(credentials, calls, streams)

    async def _attempt(self, request: Request, deadline_s: float) -> bytes:
        pair, credentials = await self.entered()
        try:
            async with self.clock.timeout(deadline_s):
                response = await pair.calls.send(_built(pair.calls, request, credentials))
                body = response.content
        except TRANSPORT_FAILURES as error:
            raise transport_error(error, request.what) from error
        finally:
            await pair.leave()
        if not response.is_success:
            raise answer_error(response.status_code, response.headers, body)
        return body

    async def _refusal(self, answer: Answer, request: Request, first_s: float) -> ApiError:
        body = b""
        try:
            async with self.clock.timeout(first_s):
                async for chunk in answer.chunks:
                    body += chunk
                    if len(body) > ERROR_BODY_LIMIT:
                        break
        except TimeoutError as error:
            raise transport_error(error, request.what) from error
        return answer_error(answer.code, answer.headers, body)

    def _pause(self, error: OperatorError, attempt: int) -> float:
        pause_s = min(MAX_PAUSE_S, FIRST_PAUSE_S * 2.0 ** (attempt - 1)) * self._rng.uniform(0.5, 1.0)
        asked_s = error.retry_after if isinstance(error, ApiError) else None
        return max(pause_s, asked_s or 0.0)


class Exchange:
    """`async with` one: a request goes out, its answer is there for the length of the block."""

    __slots__ = ("_connection", "_first_s", "_pair", "_reply", "_request")
    _pair: Pair
    _reply: Reply

    def __init__(self, connection: Connection, request: Request, first_s: float) -> None:
        self._connection = connection
        self._request = request
        self._first_s = first_s

    async def __aenter__(self) -> Answer:
        await self._ask()
        if self._reply.code == 401:
            await self._let_go()
            await self._connection.renew()
            await self._ask()
        return Answer(self._reply, self._request.what)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._let_go()

    async def _ask(self) -> None:
        request = self._request
        self._pair, credentials = await self._connection.entered()
        try:
            async with self._connection.clock.timeout(self._first_s):
                self._reply = await self._pair.streams.send(
                    request.method, _target(request), _headers(request, credentials), request.content
                )
        except BaseException as error:
            await self._pair.leave()
            if isinstance(error, TRANSPORT_FAILURES):
                raise transport_error(error, request.what) from error
            raise

    async def _let_go(self) -> None:
        try:
            await self._reply.close()
        except TRANSPORT_FAILURES:
            return  # it was broken before we closed it
        finally:
            await self._pair.leave()


def _target(request: Request) -> str:
    """Return path and query; raises InvalidRequest when a selector is longer than an address may be."""
    target = f"{request.path}?{urlencode(request.query, quote_via=quote)}" if request.query else request.path
    if len(target) > MAX_TARGET:
        raise InvalidRequest(f"{request.what}: URL is too long")
    return target


def _headers(request: Request, credentials: Credentials) -> Headers:
    """Return all headers of a request; its own stand in for those that every request carries."""
    common = {**DEFAULT_HEADERS, "accept": "application/json"}
    if request.content is not None:
        common["content-type"] = request.content_type
    if credentials.token:
        common["authorization"] = f"Bearer {credentials.token}"
    for name, _ in request.headers:
        common.pop(name, None)
    return [*common.items(), *request.headers]


def _built(client: httpx.AsyncClient, request: Request, credentials: Credentials) -> httpx.Request:
    headers = _headers(request, credentials)
    with _sendable(request):
        built = client.build_request(
            request.method, request.path, params=request.query or None, content=request.content, headers=headers
        )
    built.extensions.update(extensions(credentials))
    return built


@contextmanager
def _sendable(request: Request) -> Iterator[None]:
    """Tell of a request that cannot be written down: a selector may be longer than an address may be."""
    try:
        yield
    except httpx.InvalidURL as error:
        raise InvalidRequest(f"{request.what}: {cut(str(error))}") from error


def aiohttp_transport(credentials: Credentials, limit: int) -> httpx.AsyncBaseTransport:
    """Open the transport of calls in production."""
    context = client_context(credentials)
    return AiohttpTransport(verify=context, client=lambda: open_session(context, limit=limit))


def _http_client(credentials: Credentials, transport: httpx.AsyncBaseTransport) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        base_url=credentials.server,
        transport=transport,
        headers=DEFAULT_HEADERS,
        follow_redirects=False,
        trust_env=False,
    )
