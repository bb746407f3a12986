"""When answers are packed, and that nothing is held back."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import MutableMapping
from typing import Any

import pytest

from apiserver.serving.compression import SMALLEST, Compression, is_stream

BIG = b'{"a":1}' * 30_000


def exchange(
    pieces: list[bytes],
    *,
    accept: str = "gzip",
    query: bytes = b"",
    path: bytes = b"/apis/g/v1/things",
    code: int = 200,
    headers: tuple[tuple[bytes, bytes], ...] = (),
) -> list[dict[str, Any]]:
    """Return the messages that leave when the application sends `pieces`."""
    sent: list[dict[str, Any]] = []

    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": code, "headers": list(headers)})
        for piece in pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(dict(message))

    async def receive() -> dict[str, Any]:
        raise AssertionError("nothing is read here")

    given = [(b"accept-encoding", accept.encode())] if accept else []
    scope = {"type": "http", "headers": given, "query_string": query, "raw_path": path}
    asyncio.run(Compression(app)(scope, receive, send))
    return sent


def body_of(messages: list[dict[str, Any]]) -> bytes:
    return b"".join(message.get("body", b"") for message in messages[1:])


def encoding_of(messages: list[dict[str, Any]]) -> str:
    headers: dict[bytes, bytes] = dict(messages[0]["headers"])
    return headers.get(b"content-encoding", b"").decode()


LENGTH = (b"content-length", str(len(BIG)).encode())
SHORT = (b"content-length", str(SMALLEST - 1).encode())
LOG = b"/apis/g/v1/namespaces/a/things/b/log"
ROWS: dict[str, tuple[dict[str, Any], bool]] = {
    "a stream of unknown length": ({}, True),
    "a large answer": ({"headers": (LENGTH,)}, True),
    "a small answer": ({"headers": (SHORT,)}, False),
    "not asked for": ({"accept": ""}, False),
    "another coding": ({"accept": "br"}, False),
    "refused": ({"accept": "gzip;q=0"}, False),
    "a watch": ({"query": b"watch=1"}, False),
    "a followed log": ({"path": LOG, "query": b"follow=true"}, False),
    "a log that may be closed before its end": ({"path": LOG}, False),
    "what is called log": ({"path": b"/apis/g/v1/namespaces/a/things/catalog"}, True),
    "packed already": ({"headers": ((b"content-encoding", b"gzip"),)}, False),
    "no success": ({"code": 404}, False),
    "not modified": ({"code": 304}, False),
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
def test_what_is_packed(row: tuple[dict[str, Any], bool]) -> None:
    given, packed = row
    messages = exchange([BIG], **given)
    if packed:
        assert encoding_of(messages) == "gzip"
        assert (b"vary", b"Accept-Encoding") in messages[0]["headers"]
        assert b"content-length" not in dict(messages[0]["headers"])
        assert gzip.decompress(body_of(messages)) == BIG
        assert len(body_of(messages)) < len(BIG) / 10
    else:
        assert body_of(messages) == BIG
        assert messages[0]["headers"] == list(given.get("headers", ()))


def test_pieces_of_any_size_make_one_stream() -> None:
    pieces = [b"a", BIG, b"", b"b" * 10_000, BIG[:100]]
    messages = exchange(pieces)
    assert gzip.decompress(body_of(messages)) == b"".join(pieces)
    assert not messages[-1].get("more_body")


def test_an_answer_without_a_body_is_a_whole_stream() -> None:
    assert gzip.decompress(body_of(exchange([]))) == b""


def test_what_was_given_leaves_before_more_is_taken() -> None:
    unpacker = zlib.decompressobj(16 + zlib.MAX_WBITS)
    seen = b""
    for message in exchange([BIG, BIG])[1:2]:
        seen += unpacker.decompress(message["body"])
    assert seen == BIG


def test_streams() -> None:
    assert is_stream({"query_string": b"limit=1&watch=true", "raw_path": b"/a"})
    assert is_stream({"query_string": b"", "raw_path": b"/apis/g/v/watch/things"})
    assert not is_stream({"query_string": b"limit=1", "raw_path": b"/apis/g/v/things"})
