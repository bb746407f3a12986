"""Gzip for large answers, when asked for (spec 03 B5).

For: the outermost layer of the application. In: ASGI messages. Out: the same, or packed.
Promises: watches, logs and small answers pass untouched; nothing is held back: each piece leaves packed before the next
is taken; packing runs in a thread, so the loop is never held.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Mapping
from typing import Any

from apiserver.rest.negotiation import wants_gzip
from apiserver.rest.responses import Headers, Receive, Scope, Send

SMALLEST = 128 * 1024
"""Bytes below which packing costs more than it saves; kube-apiserver draws the line here too."""
_LEVEL = 1
_GZIP = 16 + zlib.MAX_WBITS
_IN_PLACE = 8 * 1024


class Compression:
    """The middleware."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "http" and not is_stream(scope):
            accepted = next((value for name, value in scope["headers"] if name == b"accept-encoding"), b"")
            if wants_gzip(accepted):
                send = _Packer(send).send
        await self._app(scope, receive, send)


def is_stream(scope: Mapping[str, Any]) -> bool:
    """Say whether an answer may be closed at any moment: its pieces must leave at once, and none may be half packed."""
    query, path = scope["query_string"], scope["raw_path"]
    return b"watch=" in query or b"/watch/" in path or path.endswith(b"/log")


class _Packer:
    """The sending side of one answer."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._packer: Any = None

    async def send(self, message: Any) -> None:
        """Pass a message on, packed when its answer is."""
        if message["type"] == "http.response.start":
            headers = message.get("headers", ())
            if is_worth_it(message["status"], headers):
                self._packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
                kept = [(name, value) for name, value in headers if name != b"content-length"]
                kept += [(b"content-encoding", b"gzip"), (b"vary", b"Accept-Encoding")]
                message = {**message, "headers": kept}
            await self._send(message)
            return
        if self._packer is not None:
            more = bool(message.get("more_body"))
            message = {**message, "body": await self._pack(message.get("body", b""), last=not more)}
        await self._send(message)

    async def _pack(self, body: bytes, *, last: bool) -> bytes:
        def pack() -> bytes:
            packed: bytes = self._packer.compress(body)
            packed += self._packer.flush(zlib.Z_FINISH if last else zlib.Z_SYNC_FLUSH)
            return packed

        return pack() if len(body) < _IN_PLACE else await asyncio.to_thread(pack)


def is_worth_it(code: int, headers: Headers) -> bool:
    """Say whether an answer is packed: a success of unknown or large length that is not packed yet."""
    named = {name.lower(): value for name, value in headers}
    if code != 200 or b"content-encoding" in named:
        return False
    length = named.get(b"content-length")
    return length is None or int(length) >= SMALLEST
