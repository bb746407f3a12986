"""The production transport over real sockets and TLS: what a mock cannot show.

Each row breaks a real connection the way a network does and asks what the layers above get to see.
"""

from __future__ import annotations

import asyncio
import gzip
import os
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import trustme
import uvloop

from kube.client import Client
from kube.clock import SystemClock
from kube.connection import Connection
from kube.credentials import Credentials, StaticCredentials
from kube.errors import Forbidden, NotFound, OperatorError, Unreachable
from kube.requests import ListOptions, Request
from kube.tls import server_context
from kube.watch import LineSplitter, decode_event
from nodefeature.kinds import NODE, SUBJECT_ACCESS_REVIEW
from tests.kube.wire import line

pytestmark = pytest.mark.component

Conversation = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"


@asynccontextmanager
async def served(
    talk: Conversation,
    *,
    name: str = "localhost",
    trust: trustme.CA | None = None,
    heads: list[bytes] | None = None,
) -> AsyncIterator[Client]:
    """A TLS server that talks as told, and a client that trusts it (or another CA); `heads` gets what was asked."""
    ca = trustme.CA()
    pair = ca.issue_cert("localhost")
    chain = "".join(part.bytes().decode() for part in pair.cert_chain_pems)
    context = server_context(certificate_pem=chain, key_pem=pair.private_key_pem.bytes().decode())

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            if heads is not None:
                heads.append(head)
            await talk(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
            return
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    source = StaticCredentials(
        Credentials(
            server=f"https://127.0.0.1:{port}",
            ca_pem=(trust or ca).cert_pem.bytes().decode(),
            server_name=name,
        )
    )
    client = Client(Connection(source, clock=SystemClock()), deadline_s=1.0)
    try:
        yield client
    finally:
        await client.close()
        server.close()
        await server.wait_closed()


LOG = Request(method="GET", path="/log", what="get a log")
ENDS = {"said": True, "cut off": False}


@pytest.mark.parametrize("row", ENDS)
@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_body_without_a_length_ends_where_tls_says_so(
    row: str, loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    async def talk(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + b"\r\nab")
        await writer.drain()
        if not ENDS[row]:  # as somebody on the way would do it
            with socket.socket(fileno=os.dup(writer.get_extra_info("socket").fileno())) as below:
                below.shutdown(socket.SHUT_RDWR)

    async def test() -> None:
        async with served(talk) as client, client.connection.exchange(LOG, first_s=5) as answer:
            if ENDS[row]:
                assert await answer.body() == b"ab"
            else:
                with pytest.raises(Unreachable):
                    await answer.body()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(test())


def answers(body: bytes, code: bytes = b"200 OK") -> Conversation:
    async def talk(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 " + code + b"\r\ncontent-length: " + str(len(body)).encode() + b"\r\n\r\n" + body)
        await writer.drain()

    return talk


@pytest.mark.parametrize("path", ["/api/v1/nodes/%2e%2e/x", "/api/v1/nodes/a%2Fb", "/api/v1/nodes/%41"])
def test_a_relay_asks_for_its_path_as_it_is(path: str) -> None:
    heads: list[bytes] = []

    async def test() -> None:
        request = Request(method="GET", path=path, what="a relay")
        told = served(answers(b"{}"), heads=heads)
        async with told as client, client.connection.exchange(request, first_s=5) as answer:
            assert await answer.body() == b"{}"

    asyncio.run(test())
    assert heads[0].startswith(f"GET {path} HTTP/1.1\r\n".encode())


def test_a_call_over_tls() -> None:
    async def scenario() -> None:
        async with served(answers(b'{"metadata":{"name":"n1"}}')) as client:
            assert (await client.get(NODE, "n1"))["metadata"]["name"] == "n1"
        async with served(answers(b"404 page not found", b"404 Not Found")) as client:
            with pytest.raises(NotFound):
                await client.get(NODE, "n1")

    asyncio.run(scenario())


async def closes(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    return


async def resets(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()


async def hangs(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    await reader.read()


async def cuts_the_body(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + b'content-length: 999\r\n\r\n{"metad')
    await writer.drain()


async def talks_nonsense(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"SSH-2.0-OpenSSH\r\n\r\n")
    await writer.drain()


@pytest.mark.parametrize(
    ("talk", "error"),
    [(answers(b"no", b"403 Forbidden"), Forbidden), (hangs, Unreachable), (closes, Unreachable), (resets, Unreachable)],
)
def test_a_review_that_gets_no_yes_is_an_error(talk: Conversation, error: type[OperatorError]) -> None:
    async def scenario() -> None:
        async with served(talk) as client:
            with pytest.raises(error):
                await client.review(SUBJECT_ACCESS_REVIEW, {"user": "ann"})

    asyncio.run(scenario())


def test_a_review_is_asked_and_read() -> None:
    heads: list[bytes] = []

    async def scenario() -> None:
        async with served(answers(b'{"status":{"allowed":true}}', b"201 Created"), heads=heads) as client:
            assert (await client.review(SUBJECT_ACCESS_REVIEW, {"user": "ann"}))["status"] == {"allowed": True}

    asyncio.run(scenario())
    assert heads[0].startswith(b"POST /apis/authorization.k8s.io/v1/subjectaccessreviews HTTP/1.1\r\n")


@pytest.mark.parametrize("talk", [closes, resets, hangs, cuts_the_body, talks_nonsense])
def test_a_write_that_gets_no_usable_answer_is_unreachable(talk: Conversation) -> None:
    async def scenario() -> None:
        async with served(talk) as client:
            with pytest.raises(Unreachable) as caught:
                await client.patch(NODE, "n1", {})
            assert str(caught.value).startswith("patch nodes n1: no answer (")

    asyncio.run(scenario())


def test_an_untrusted_server_is_unreachable() -> None:
    async def scenario() -> None:
        async with served(answers(b"{}"), trust=trustme.CA()) as client:
            with pytest.raises(Unreachable):
                await client.patch(NODE, "n1", {})
        async with served(answers(b"{}"), name="other.test") as client:
            with pytest.raises(Unreachable):
                await client.patch(NODE, "n1", {})

    asyncio.run(scenario())


async def streams_then_ends(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    whole = line("ADDED", {"metadata": {"name": "漢"}})
    writer.write(HEAD + b"transfer-encoding: chunked\r\n\r\n")
    for part in (whole[:-12], whole[-12:]):
        writer.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
        await writer.drain()
        await asyncio.sleep(0.01)
    writer.write(b"0\r\n\r\n")
    await writer.drain()


async def streams_then_breaks(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    whole = line("ADDED", {"metadata": {"name": "漢"}})
    writer.write(HEAD + b"transfer-encoding: chunked\r\n\r\n" + f"{len(whole):x}\r\n".encode() + whole + b"\r\n99\r\n{")
    await writer.drain()


@pytest.mark.parametrize(("talk", "breaks"), [(streams_then_ends, False), (streams_then_breaks, True)])
def test_a_stream_ends_cleanly_or_breaks_as_unreachable(talk: Conversation, *, breaks: bool) -> None:
    async def scenario() -> None:
        names: list[str] = []

        async def read(client: Client) -> None:
            splitter = LineSplitter()
            async with client.watch(NODE, "", ListOptions(), timeout_s=300, initial=False, first_s=2) as chunks:
                async for chunk in chunks:
                    names.extend(decode_event(each).object["metadata"]["name"] for each in splitter.feed(chunk))

        async with served(talk) as client:
            if breaks:
                with pytest.raises(Unreachable):
                    await read(client)
            else:
                await read(client)
        assert names == ["漢"]

    asyncio.run(scenario())


def test_a_stream_that_is_left_does_not_hold_up_the_close() -> None:
    async def floods(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + b"transfer-encoding: chunked\r\n\r\n")
        while True:
            writer.write(b"1000\r\n" + b"x" * 4096 + b"\r\n")
            await writer.drain()

    async def scenario() -> None:
        async with served(floods) as client:
            began = asyncio.get_running_loop().time()
            async with client.watch(NODE, "", ListOptions(), timeout_s=300, initial=False, first_s=2) as chunks:
                await anext(chunks)
            assert asyncio.get_running_loop().time() - began < 1

    asyncio.run(scenario())


def test_a_relay_passes_a_packed_body_as_it_is() -> None:
    packed = gzip.compress(b"{}")

    async def talk(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        length = f"content-encoding: gzip\r\ncontent-length: {len(packed)}\r\n\r\n"
        writer.write(HEAD + length.encode() + packed)
        await writer.drain()

    async def scenario() -> None:
        request = Request(method="GET", path="/a", what="get a", headers=(("accept-encoding", "gzip"),))
        async with served(talk) as client, client.connection.exchange(request, first_s=2) as answer:
            assert (answer.code, answer.headers["content-encoding"]) == (200, "gzip")
            assert await answer.body() == packed

    asyncio.run(scenario())


def test_an_answer_that_is_left_early_ends_its_connection() -> None:
    came_next: asyncio.Queue[bytes] = asyncio.Queue()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + b"content-length: 6\r\n\r\none")
        await writer.drain()
        came_next.put_nowait(await reader.read(1))

    async def scenario() -> None:
        request = Request(method="GET", path="/a", what="get a")
        async with served(talk) as client:
            for _ in range(2):
                async with client.connection.exchange(request, first_s=2) as answer:
                    assert await anext(answer.chunks) == b"one"
                async with asyncio.timeout(2):
                    assert await came_next.get() == b""

    asyncio.run(scenario())


def test_a_refused_connection_is_named_so() -> None:
    async def scenario() -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))  # bound and not listening: every connection is refused
            server = f"http://127.0.0.1:{taken.getsockname()[1]}"
            connection = Connection(StaticCredentials(Credentials(server=server)))
            try:
                with pytest.raises(Unreachable) as caught:
                    await Client(connection).patch(NODE, "n1", {})
            finally:
                await connection.close()
        assert str(caught.value) == "patch nodes n1: no answer (Connection refused)"

    asyncio.run(scenario())
