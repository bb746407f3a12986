"""The small listener: health and metrics.

For: processes that serve no API (`controllers`, agents). In: a `Health`, a registry, an address. Out: `/livez`,
`/readyz` (200 `ok`, or 503 with one fault a line), `/metrics`, and the JSON pages the process declares.
Promises:
- `/livez` is red when a guarded task is gone, and names it;
- `/readyz` is red while a declared check says why;
- it listens where it is told, on loopback by default, and shows no object.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

import orjson
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from kube.errors import OperatorError
from kube.tasks import Health

Page = Callable[[], Mapping[str, Any] | None]
"""Answers what a page shows, without waiting for anything; None while there is nothing yet."""


class HealthServer:
    """`async with HealthServer(health, registry):` serves for the length of the block. Port 0 takes a free one."""

    def __init__(
        self,
        health: Health,
        registry: CollectorRegistry,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        pages: Mapping[str, Page] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._pages = dict(pages or {})
        self._tls = tls
        self._health = health
        self._registry = registry
        self._host = host
        self._port = port
        self._runner: web.AppRunner | None = None

    @property
    def port(self) -> int:
        """Return the port that is listened on."""
        addresses = self._runner.addresses if self._runner else []
        return int(addresses[0][1]) if addresses else self._port

    async def __aenter__(self) -> HealthServer:
        app = web.Application()
        app.router.add_get("/livez", self._livez)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._metrics)
        for path in self._pages:
            app.router.add_get(path, self._page)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, self._host, self._port, ssl_context=self._tls).start()
        except OSError as error:
            await self._runner.cleanup()
            reason = error.strerror or type(error).__name__
            raise OperatorError(
                f"health listener {self._host}:{self._port}: {reason}; choose another address"
            ) from error
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _livez(self, _request: web.Request) -> web.Response:
        return _verdict(self._health.live_faults())

    async def _readyz(self, _request: web.Request) -> web.Response:
        return _verdict(self._health.ready_faults())

    async def _metrics(self, _request: web.Request) -> web.Response:
        return web.Response(body=generate_latest(self._registry), headers={"content-type": CONTENT_TYPE_LATEST})

    async def _page(self, request: web.Request) -> web.Response:
        body = self._pages[request.path]()
        if body is None:
            return web.Response(status=503, text="there is nothing to show yet")
        return web.Response(body=orjson.dumps(body), content_type="application/json")


def _verdict(faults: list[str]) -> web.Response:
    return web.Response(status=503 if faults else 200, text="\n".join(faults) if faults else "ok")
