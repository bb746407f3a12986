"""Our v1 views over one of the other servers, for the same tests.

For: `conftest`. In: a running server and who we are towards it. Out: a `Server` whose requests for our kinds go through
the views.
Promises: the tests stay as they are: on the wire their v1alpha1 becomes v1 and back. An object that the view forgot to
rename comes back under a version no test expects.
"""

from __future__ import annotations

import asyncio
import random
import re
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager

import httpx
import uvicorn

from apiserver.context import Context
from apiserver.resources import build_resources
from apiserver.rest.app import App
from apiserver.rest.request_info import RequestInfo
from apiserver.rest.responses import Scope
from apiserver.rest.storage import Catalog, User
from hack.devcluster.__main__ import Server as Listener
from hack.devcluster.__main__ import listen
from kube.client import Client
from kube.clock import SystemClock
from kube.connection import Connection
from kube.credentials import Credentials, StaticCredentials
from tests.protocol.differences import Backend
from tests.protocol.wire import Server

_START_S = 20.0
_STORED, _SHOWN = b"worker.gpustack.ai/v1alpha1", b"worker.gpustack.ai/v1"
_PATH = b"/apis/worker.gpustack.ai/v1alpha1/"
_SETTINGS = b"/apis/gpustack.ai/v1/"
_FORGOTTEN = re.compile(rb'\{"apiVersion":"worker\.gpustack\.ai/v1alpha1","(kind|items)":(?=[\["](?:\[|\{|Inst|\]))')


@contextmanager
def view(name: Backend, below: Server, credentials: Credentials, context: ssl.SSLContext) -> Iterator[Server]:
    """Run the views over a server."""
    with _listening(credentials) as port:
        transport = ViewTransport(httpx.HTTPTransport(verify=context), httpx.HTTPTransport(), port)
        http = httpx.Client(
            base_url=str(below.http.base_url),
            headers=below.http.headers,
            timeout=below.http.timeout,
            transport=transport,
        )
        with http:
            yield Server(name, http, forget=below.forget, below=below)


class ViewTransport(httpx.BaseTransport):
    """Sends requests for our kinds to the views under v1, all others below."""

    def __init__(self, below: httpx.BaseTransport, views: httpx.BaseTransport, port: int) -> None:
        self._below = below
        self._views = views
        self._port = port

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Carry one request."""
        if not request.url.raw_path.startswith((_PATH, _SETTINGS)):
            return self._below.handle_request(request)
        path = request.url.raw_path.replace(_STORED, _SHOWN, 1)
        url = request.url.copy_with(scheme="http", host="127.0.0.1", port=self._port, raw_path=path)
        content = request.read().replace(_STORED, _SHOWN, 1)  # the root's; managedFields keep the stored version
        headers = {key: value for key, value in request.headers.items() if key not in ("host", "content-length")}
        sent = httpx.Request(request.method, url, headers=headers, content=content, extensions=request.extensions)
        answer = self._views.handle_request(sent)
        kept = [
            (key, value) for key, value in answer.headers.items() if key not in ("content-length", "transfer-encoding")
        ]
        assert isinstance(answer.stream, httpx.SyncByteStream)
        return httpx.Response(answer.status_code, headers=kept, stream=_Back(answer.stream))

    def close(self) -> None:
        """Close both ways."""
        self._below.close()
        self._views.close()


class _Back(httpx.SyncByteStream):
    """An answer, line by line under the version that the tests speak."""

    def __init__(self, stream: httpx.SyncByteStream) -> None:
        self._stream = stream

    def __iter__(self) -> Iterator[bytes]:
        rest = b""
        for chunk in self._stream:
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                yield _renamed(line) + b"\n"
        yield _renamed(rest)

    def close(self) -> None:
        self._stream.close()


def _renamed(text: bytes) -> bytes:
    marked = _FORGOTTEN.sub(rb'{"apiVersion":"forgotten","\1":', text)
    return re.sub(rb"worker\.gpustack\.ai/v1(?!alpha1)", _STORED, marked)


@contextmanager
def _listening(credentials: Credentials) -> Iterator[int]:
    socket = listen(0)
    socket.listen(128)
    started: Future[Listener] = Future()

    async def authenticate(scope: Scope) -> User:
        return User("tester", groups=("system:masters",))

    async def authorize(user: User, info: RequestInfo) -> None:
        return

    async def serve() -> None:
        clock = SystemClock()
        connection = Connection(StaticCredentials(credentials))
        context = Context(client=Client(connection), authorize=authorize, clock=clock)
        app = App(
            Catalog(build_resources(context)),
            authenticate=authenticate,
            authorize=authorize,
            clock=clock,
            rng=random.Random(),
        )
        config = uvicorn.Config(app, http="httptools", ws="none", lifespan="off", log_config=None)
        config.timeout_graceful_shutdown = 1
        listener = Listener(config)
        started.set_result(listener)
        await listener.serve(sockets=[socket])
        await connection.close()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), name="views")
    thread.start()
    listener = started.result(_START_S)
    try:
        yield int(socket.getsockname()[1])
    finally:
        listener.should_exit = True
        thread.join(_START_S)
