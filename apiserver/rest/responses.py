"""Writing answers on an ASGI connection.

For: `app`, `listing`, `watching` and connectors. In: bytes. Out: ASGI messages.
Promises: a body is never collected twice; long answers go out in pieces; headers of a stream leave at once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping, Sequence
from typing import Any

from apiserver.rest import status
from apiserver.rest.negotiation import encode

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = Sequence[tuple[bytes, bytes]]

JSON_TYPE = "application/json"
NO_CACHE = (b"cache-control", b"no-cache, private")


async def send_bytes(
    send: Send, body: bytes, *, code: int = 200, content_type: str = JSON_TYPE, headers: Headers = (NO_CACHE,)
) -> None:
    """Send a complete answer."""
    length = (b"content-length", str(len(body)).encode())
    kind = (b"content-type", content_type.encode("latin-1"))
    await send({"type": "http.response.start", "status": code, "headers": [kind, length, *headers]})
    await send({"type": "http.response.body", "body": body})


async def start_stream(send: Send, *, content_type: str = JSON_TYPE, headers: Headers = (NO_CACHE,)) -> None:
    """Send the head of a chunked answer, now: a client waits for it before it waits for the first piece."""
    kind = (b"content-type", content_type.encode("latin-1"))
    await send({"type": "http.response.start", "status": 200, "headers": [kind, *headers]})
    await send_piece(send, b"")


async def send_piece(send: Send, piece: bytes) -> None:
    """Send one chunk now."""
    await send({"type": "http.response.body", "body": piece, "more_body": True})


async def end_stream(send: Send) -> None:
    """End a chunked answer cleanly."""
    await send({"type": "http.response.body", "body": b""})


async def send_pieces(send: Send, pieces: AsyncIterator[bytes], *, content_type: str = JSON_TYPE) -> None:
    """Send an answer whose length is not known beforehand."""
    kind = (b"content-type", content_type.encode("latin-1"))
    await send({"type": "http.response.start", "status": 200, "headers": [kind, NO_CACHE]})
    async for piece in pieces:
        await send_piece(send, piece)
    await end_stream(send)


async def send_refusal(send: Send, refusal: status.Refusal) -> None:
    """Send a Status."""
    headers = [NO_CACHE]
    if refusal.retry_after_s:
        headers.append((b"retry-after", str(refusal.retry_after_s).encode()))
    await send_bytes(send, encode(refusal.document()), code=refusal.code, headers=headers)


async def read_body(receive: Receive, *, limit: int = status.MAX_BODY_BYTES, announced: bytes = b"") -> bytes:
    """Collect a request body; raises Refusal 413 as soon as it is too long, also by its `content-length` alone."""
    if announced.isdigit() and int(announced) > limit:
        raise status.too_large()
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise status.bad_request("the client went away before the body was complete")
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > limit:
            raise status.too_large()
        chunks.append(chunk)
        if not message.get("more_body", False):
            return chunks[0] if len(chunks) == 1 else b"".join(chunks)
