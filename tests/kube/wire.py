"""The wire of an API server, faked: requests arrive as httpx sends them, answers are bytes.

`Wire` answers from a script (one handler per call), `FakeApi` keeps objects of any kind and serves list, watch and
writes, enough to run the runtime against it. Nothing of `kube` itself is replaced.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx
import orjson

from kube.client import Client
from kube.clock import Clock
from kube.connection import Connection
from kube.credentials import Credentials, CredentialSource, StaticCredentials
from tests.builders.virtual_clock import VirtualClock

SERVER = "https://api.test"
Handler = Callable[[httpx.Request], Awaitable[httpx.Response] | httpx.Response]


class Stream(httpx.AsyncByteStream):
    """A body that a test feeds: bytes, an exception, or the end. Without the end it hangs like a half-open socket."""

    def __init__(self, *chunks: bytes | Exception | None) -> None:
        self._queue: asyncio.Queue[bytes | Exception | None] = asyncio.Queue()
        self.closed = False
        for chunk in chunks:
            self.send(chunk)

    def send(self, chunk: bytes | Exception | None) -> None:
        """Send bytes, break with an exception, or end with None."""
        self._queue.put_nowait(chunk)

    def event(self, kind: str, obj: object) -> None:
        """Send one whole line."""
        self.send(line(kind, obj))

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            chunk = await self._queue.get()
            if chunk is None:
                return
            if isinstance(chunk, Exception):
                raise chunk
            yield chunk

    async def aclose(self) -> None:
        """Note that the reader has left."""
        self.closed = True


class Wire:
    """Answers each request with the next handler of its script; the last one answers for ever."""

    def __init__(self, *script: Handler) -> None:
        self.script = list(script)
        self.requests: list[httpx.Request] = []

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        handler = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        answer = handler(request)
        return answer if isinstance(answer, httpx.Response) else await answer

    def queries(self) -> list[dict[str, str]]:
        """Return the query of each request."""
        return [dict(request.url.params) for request in self.requests]


def client_over(
    wire: Handler,
    clock: Clock | None = None,
    *,
    source: CredentialSource | None = None,
    token: str = "",
) -> Client:
    """Return a client whose bytes go to `wire`."""
    connection = Connection(
        source or StaticCredentials(Credentials(server=SERVER, token=token)),
        clock=clock or VirtualClock(),
        rng=random.Random(1),
        open_transport=lambda _credentials, _limit: httpx.MockTransport(wire),  # type: ignore[arg-type] # async handler
    )
    return Client(connection)


def line(kind: str, obj: object) -> bytes:
    """Return a watch line."""
    return orjson.dumps({"type": kind, "object": obj}) + b"\n"


def end_mark(version: str) -> dict[str, Any]:
    """Return the object of the bookmark that ends a streaming list."""
    return {"metadata": {"resourceVersion": version, "annotations": {"k8s.io/initial-events-end": "true"}}}


def answer(body: object, code: int = 200, **headers: str) -> Handler:
    """Answer with JSON."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda _request: httpx.Response(code, content=orjson.dumps(body), headers=named)


def status(code: int, reason: str, message: str = "no", **fields: object) -> dict[str, Any]:
    """Return a failure Status."""
    return {"kind": "Status", "apiVersion": "v1", "code": code, "reason": reason, "message": message, **fields}


def refuse(code: int, reason: str, **headers: str) -> Handler:
    """Answer with a failure Status."""
    return answer(status(code, reason), code, **headers)


def fail(error: Exception) -> Handler:
    """Break the transport."""

    def handler(_request: httpx.Request) -> httpx.Response:
        raise error

    return handler


async def hang(_request: httpx.Request) -> httpx.Response:
    """Accept and never answer."""
    await asyncio.Event().wait()
    raise AssertionError("unreachable")


def stream(body: Stream) -> Handler:
    """Answer 200 with a fed body."""
    return lambda _request: httpx.Response(200, stream=body)


class FakeApi:
    """Objects of any kind in memory under one version counter, with list, streaming list, watch and writes."""

    def __init__(self) -> None:
        self.version = 100
        self.objects: dict[str, dict[str, Any]] = {}
        self.streams: list[tuple[str, Stream]] = []
        self.writes: list[tuple[str, str]] = []
        self.before: Callable[[httpx.Request], Awaitable[httpx.Response | None]] | None = None

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        if self.before is not None:
            early = await self.before(request)
            if early is not None:
                return early
        path, params = request.url.path, request.url.params
        if request.method == "GET":
            return self._read(path, params)
        self.writes.append((request.method, path))
        return self._change(request.method, path, orjson.loads(request.content))

    def seed(self, collection: str, *objects: dict[str, Any]) -> None:
        """Store objects and tell the watchers of their collection."""
        for obj in objects:
            name = obj["metadata"]["name"]
            known = f"{collection}/{name}" in self.objects
            self._store(f"{collection}/{name}", obj, "MODIFIED" if known else "ADDED")

    def drop(self, collection: str, name: str) -> None:
        """Delete an object and tell the watchers."""
        obj = self.objects.pop(f"{collection}/{name}")
        self.version += 1
        obj["metadata"]["resourceVersion"] = str(self.version)
        self._tell(f"{collection}/{name}", "DELETED", obj)

    def _read(self, path: str, params: httpx.QueryParams) -> httpx.Response:
        if path in self.objects:
            return httpx.Response(200, content=orjson.dumps(self.objects[path]))
        items = [obj for key, obj in self.objects.items() if key.rpartition("/")[0] == path]
        if params.get("watch") == "true":
            body = Stream()
            if params.get("sendInitialEvents") == "true":
                for obj in items:
                    body.event("ADDED", obj)
                body.event("BOOKMARK", end_mark(str(self.version)))
            self.streams.append((path, body))
            return httpx.Response(200, stream=body)
        if path.rpartition("/")[2].islower() and path.count("/") in {3, 4} and not path.endswith("/missing"):
            body_list = {"metadata": {"resourceVersion": str(self.version)}, "items": items}
            return httpx.Response(200, content=orjson.dumps(body_list))
        return httpx.Response(404, content=orjson.dumps(status(404, "NotFound")))

    def _change(self, method: str, path: str, body: dict[str, Any]) -> httpx.Response:
        if method == "POST":
            path = f"{path}/{body['metadata']['name']}"
            if path in self.objects:
                return httpx.Response(409, content=orjson.dumps(status(409, "AlreadyExists")))
            return httpx.Response(201, content=orjson.dumps(self._store(path, body, "ADDED")))
        old = self.objects.get(path)
        if old is None:
            return httpx.Response(404, content=orjson.dumps(status(404, "NotFound")))
        if method == "DELETE":
            collection, _, name = path.rpartition("/")
            self.drop(collection, name)
            return httpx.Response(200, content=orjson.dumps(old))
        asked = body.get("metadata", {}).get("resourceVersion")
        if asked and asked != old["metadata"]["resourceVersion"]:
            return httpx.Response(409, content=orjson.dumps(status(409, "Conflict")))
        return httpx.Response(200, content=orjson.dumps(self._store(path, body, "MODIFIED")))

    def _store(self, path: str, obj: dict[str, Any], kind: str) -> dict[str, Any]:
        self.version += 1
        old_uid = self.objects.get(path, {}).get("metadata", {}).get("uid")
        meta = {**obj.get("metadata", {}), "resourceVersion": str(self.version)}
        meta.setdefault("uid", old_uid or f"u{self.version}")
        self.objects[path] = {**obj, "metadata": meta}
        self._tell(path, kind, self.objects[path])
        return self.objects[path]

    def _tell(self, path: str, kind: str, obj: dict[str, Any]) -> None:
        for collection, body in self.streams:
            if path.rpartition("/")[0] == collection and not body.closed:
                body.event(kind, obj)
