"""Drives an ASGI application without sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import orjson

App = Callable[[Any, Any, Any], Any]


@dataclass
class Answer:
    """One complete answer."""

    code: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return orjson.loads(self.body)


def _scope(method: str, target: str, headers: Mapping[str, str]) -> dict[str, Any]:
    path, _, query = target.partition("?")
    pairs = [(key.lower().encode(), value.encode("latin-1")) for key, value in headers.items()]
    return {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode("latin-1"),
        "query_string": query.encode("latin-1"),
        "headers": pairs,
    }


@dataclass
class Browser:
    """Sends requests to an application; `headers` go with each of them."""

    app: App
    headers: dict[str, str] = field(default_factory=lambda: {"user-agent": "test/1.0"})

    async def __call__(
        self,
        method: str,
        target: str,
        body: Any = b"",
        *,
        content_type: str = "application/json",
        accept: str = "",
        headers: Mapping[str, str] | None = None,
        chunks: int = 1,
    ) -> Answer:
        raw = body if isinstance(body, bytes) else orjson.dumps(body)
        size = max(1, -(-len(raw) // chunks))
        pending = [raw[start : start + size] for start in range(0, len(raw), size)] or [b""]
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            if not pending:
                await asyncio.Event().wait()
            return {"type": "http.request", "body": pending.pop(0), "more_body": bool(pending)}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        extra = {"content-type": content_type, **({"accept": accept} if accept else {}), **(headers or {})}
        await self.app(_scope(method, target, {**self.headers, **extra}), receive, send)
        names: dict[str, str] = {}
        for key, value in sent[0]["headers"]:
            name, text = key.decode().lower(), value.decode("latin-1")
            names[name] = f"{names[name]}, {text}" if name in names else text
        return Answer(sent[0]["status"], names, b"".join(message.get("body", b"") for message in sent[1:]))

    @asynccontextmanager
    async def watch(self, target: str, *, accept: str = "") -> AsyncIterator[Watch]:
        """Open a stream; leaving the block closes the connection."""
        watch = Watch()
        extra = {"accept": accept} if accept else {}
        scope = _scope("GET", target, {**self.headers, **extra})
        task = asyncio.create_task(self.app(scope, watch.receive, watch.send))
        try:
            await watch.started.wait()
            yield watch
        finally:
            watch.gone.set()
            async with asyncio.timeout(5):
                await task


class Watch:
    """The client's side of one open stream."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.gone = asyncio.Event()
        self.code = 0
        self._asked = False
        self._lines: asyncio.Queue[Any] = asyncio.Queue()
        self._rest = b""

    async def receive(self) -> dict[str, Any]:
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.code = message["status"]
            self.started.set()
            return
        *lines, self._rest = (self._rest + message.get("body", b"")).split(b"\n")
        for line in lines:
            self._lines.put_nowait(orjson.loads(line))
        if not message.get("more_body"):
            self._lines.put_nowait(None)

    async def next(self) -> Any:
        """Return the next event, None at the end of the stream."""
        async with asyncio.timeout(5):
            return await self._lines.get()

    async def take(self, count: int) -> list[Any]:
        return [await self.next() for _ in range(count)]

    def quiet(self) -> bool:
        """Say whether nothing is waiting to be read."""
        return self._lines.empty()
