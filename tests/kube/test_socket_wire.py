"""The wire of production: real sockets, a server that answers byte for byte what a row says."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
import uvloop

from kube.credentials import Credentials
from kube.errors import InvalidRequest
from kube.http1 import BUFFER_BYTES, MOST_HEAD_BYTES, PIECE_BYTES, BrokenAnswer, ConnectionClosed
from kube.socket_wire import SocketWire
from kube.wire import Headers, Reply

OK = b"HTTP/1.1 200 OK\r\n"
EMPTY = OK + b"content-length: 0\r\n\r\n"
Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Seen:
    """What a server was asked, and on how many connections."""

    heads: list[bytes] = field(default_factory=list)
    connections: int = 0


@asynccontextmanager
async def served(*answers: bytes | Talk, path: str = "") -> AsyncIterator[tuple[SocketWire, Seen]]:
    """A server whose n-th request gets the n-th answer; nothing ends the connection without one."""
    seen, left = Seen(), list(answers)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.connections += 1
        try:
            while left:
                seen.heads.append(await reader.readuntil(b"\r\n\r\n"))
                answer = left.pop(0)
                if not answer:
                    break
                if isinstance(answer, bytes):
                    writer.write(answer)
                    await writer.drain()
                else:
                    await answer(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    wire = SocketWire(Credentials(server=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}{path}"))
    try:
        yield wire, seen
    finally:
        await wire.close()
        server.close()
        await server.wait_closed()


async def asked(wire: SocketWire, method: str = "GET", target: str = "/a") -> tuple[int, bytes, Headers]:
    """Ask and read to the end."""
    reply = await wire.send(method, target, [], b"{}" if method == "POST" else None)
    body = b""
    while piece := await reply.read():
        body += piece
    await reply.close()
    return reply.code, body, reply.pairs


WHOLE = {
    "of a length": (OK + b"content-length: 2\r\n\r\nab", 200, b"ab"),
    "in chunks": (OK + b"transfer-encoding: chunked\r\n\r\n1\r\na\r\n1\r\nb\r\n0\r\n\r\n", 200, b"ab"),
    "in chunks with a trailer": (OK + b"transfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\nx: y\r\n\r\n", 200, b"a"),
    "nothing": (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b""),
    "after going on": (b"HTTP/1.1 100 Continue\r\nx: y\r\n\r\n" + OK + b"content-length: 1\r\n\r\na", 200, b"a"),
    "a refusal": (b"HTTP/1.1 409 Conflict\r\ncontent-length: 1\r\n\r\na", 409, b"a"),
}


@pytest.mark.parametrize("row", WHOLE)
def test_a_whole_answer_leaves_its_connection_for_the_next(row: str) -> None:
    answer, code, body = WHOLE[row]

    async def test() -> None:
        async with served(answer, EMPTY) as (wire, seen):
            assert (await asked(wire))[:2] == (code, body)
            assert (await asked(wire))[0] == 200
            assert seen.connections == 1

    asyncio.run(test())


ENDING = {
    "told to": OK + b"connection: close\r\ncontent-length: 1\r\n\r\na",
    "HTTP/1.0": b"HTTP/1.0 200 OK\r\ncontent-length: 1\r\n\r\na",
}


@pytest.mark.parametrize("row", ENDING)
def test_a_connection_that_is_to_end_is_not_used_again(row: str) -> None:
    async def test() -> None:
        async with served(ENDING[row], EMPTY) as (wire, seen):
            assert (await asked(wire))[1] == b"a"
            await asked(wire)
            assert seen.connections == 2

    asyncio.run(test())


def test_a_body_without_a_length_ends_with_its_connection() -> None:
    async def talk(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(OK + b"\r\nab")
        writer.close()

    async def test() -> None:
        async with served(talk) as (wire, _):
            assert (await asked(wire))[:2] == (200, b"ab")

    asyncio.run(test())


BROKEN = {
    "no answer": (b"", ConnectionClosed),
    "half a head": (b"HTTP/1.1 20", BrokenAnswer),
    "half a body": (OK + b"content-length: 9\r\n\r\nab", BrokenAnswer),
    "half of the chunks": (OK + b"transfer-encoding: chunked\r\n\r\n1\r\na\r\n", BrokenAnswer),
    "another protocol": (b"SSH-2.0-OpenSSH\r\n\r\n", BrokenAnswer),
    "an upgrade": (b"HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n", BrokenAnswer),
    "two lengths": (OK + b"content-length: 1\r\ncontent-length: 2\r\n\r\na", BrokenAnswer),
    "length and chunks": (OK + b"content-length: 1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", BrokenAnswer),
}


@pytest.mark.parametrize("row", BROKEN)
def test_a_broken_answer_is_an_error_and_ends_its_connection(row: str) -> None:
    answer, error = BROKEN[row]

    async def test() -> None:
        async with served(answer) as (wire, _):
            with pytest.raises(error):
                await asyncio.wait_for(asked(wire), 5)
            assert wire.open_connections == 0

    asyncio.run(test())


CHUNKED = OK + b"transfer-encoding: chunked\r\n\r\n1\r\na\r\n"
ENDLESS = {
    "a head": (OK, b"x: y\r\n"),
    "a line of a head": (OK + b"x: ", b"y"),
    "what says to go on": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "a trailer": (CHUNKED + b"0\r\n", b"x: y\r\n"),
    "a line of a trailer": (CHUNKED + b"0\r\nx: ", b"y"),
    "what is said of a chunk": (CHUNKED + b"1;x=", b"y"),
}


@pytest.mark.parametrize("row", ENDLESS)
def test_what_is_no_body_is_bounded(row: str) -> None:
    begin, rest = ENDLESS[row]
    gone = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(begin)
        try:
            while True:  # never ends by itself
                writer.write(rest * 1024)
                await writer.drain()
        finally:
            gone.set()

    async def test() -> None:
        async with served(talk) as (wire, _):
            with pytest.raises(BrokenAnswer, match="too long"):
                await asyncio.wait_for(asked(wire), 5)
            assert wire.open_connections == 0
            await asyncio.wait_for(gone.wait(), 5)

    asyncio.run(test())


def test_a_body_may_have_more_beside_it_than_a_head() -> None:
    said = b"1;x=%b\r\na\r\n" % (b"y" * 1024)
    chunks = MOST_HEAD_BYTES // 64

    async def test() -> None:
        answer = OK + b"transfer-encoding: chunked\r\n\r\n" + said * chunks + b"0\r\n\r\n"
        async with served(answer) as (wire, _):
            assert (await asked(wire))[1] == b"a" * chunks

    asyncio.run(test())


@pytest.mark.parametrize(("method", "answered"), [("GET", True), ("POST", False)])
def test_a_kept_connection_that_ends_unanswered_costs_a_get_nothing(method: str, *, answered: bool) -> None:
    async def test() -> None:
        async with served(EMPTY, b"", EMPTY) as (wire, seen):
            await asked(wire)
            if answered:
                assert (await asked(wire, method))[0] == 200
            else:
                with pytest.raises(ConnectionClosed):
                    await asked(wire, method)
            assert len(seen.heads) == (3 if answered else 2)

    asyncio.run(test())


def test_a_reply_let_go_of_before_its_end_ends_its_connection() -> None:
    async def test() -> None:
        async with served(OK + b"content-length: 9\r\n\r\na", EMPTY) as (wire, seen):
            reply = await wire.send("GET", "/a", [], None)
            assert await reply.read() == b"a"
            await reply.close()
            await asked(wire)
            assert seen.connections == 2

    asyncio.run(test())


def test_an_end_names_its_cause() -> None:
    async def talk(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        opened = writer.get_extra_info("socket")
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset instead of an end
        writer.transport.abort()

    async def test() -> None:
        async with served(talk) as (wire, _):
            with pytest.raises(ConnectionClosed) as closed:
                await asked(wire)
            assert isinstance(closed.value.__cause__, ConnectionResetError)

    asyncio.run(test())


def test_a_request_given_up_ends_its_connection() -> None:
    async def talk(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async def test() -> None:
        async with served(talk) as (wire, _):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(wire.send("GET", "/a", [], None), 0.05)
            assert wire.open_connections == 0

    asyncio.run(test())


UNDER_WAY = {
    "no answer yet": b"",
    "half a head": b"HTTP/1.1 20",
    "half a body": OK + b"content-length: 9\r\n\r\n",
}


@pytest.mark.parametrize("row", UNDER_WAY)
def test_closing_the_wire_ends_what_is_under_way(row: str) -> None:
    asked_for = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(UNDER_WAY[row])
        asked_for.set()
        await reader.read()

    async def test() -> None:
        async with served(talk, EMPTY) as (wire, seen):
            under_way = asyncio.create_task(asked(wire))
            await asked_for.wait()
            await asyncio.sleep(0.01)
            await wire.close()
            with pytest.raises(BrokenAnswer):
                await asyncio.wait_for(under_way, 5)
            assert seen.connections == 1  # nothing is asked again on a wire that is closed

    asyncio.run(test())


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_request_given_up_at_any_moment_leaves_nothing_open(loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def test() -> None:
        for turns in range(16):
            async with served(OK + b"content-length: 2\r\n\r\na") as (wire, _):
                request = asyncio.create_task(asked(wire))
                for _ in range(turns):
                    await asyncio.sleep(0)
                request.cancel()
                await asyncio.wait({request})
                for _ in range(4):  # the loop tells of an end a little later
                    await asyncio.sleep(0)
                assert wire.open_connections == 0

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(test())


def test_a_closed_wire_sends_nothing() -> None:
    async def test() -> None:
        async with served(EMPTY, EMPTY) as (wire, seen):
            connecting = asyncio.create_task(asked(wire))
            await asyncio.sleep(0)
            await wire.close()
            for request in (connecting, asked(wire)):
                with pytest.raises(ConnectionClosed):
                    await asyncio.wait_for(request, 5)
            assert (wire.open_connections, seen.heads) == (0, [])

    asyncio.run(test())


def test_a_reply_that_is_read_after_it_was_let_go_of_is_an_error() -> None:
    async def test() -> None:
        async with served(OK + b"content-length: 9\r\n\r\na") as (wire, _):
            reply = await wire.send("GET", "/a", [], None)
            assert await reply.read() == b"a"
            await reply.close()
            with pytest.raises(BrokenAnswer):
                await asyncio.wait_for(reply.read(), 5)

    asyncio.run(test())


UNASKED = {
    "an answer": OK + b"content-length: 1\r\n\r\nx",
    "the head of one": OK + b"content-length: 1\r\n\r\n",
    "the beginning of one": b"HTTP/1.1 2",
    "something else": b"x",
}


@pytest.mark.parametrize("row", UNASKED)
def test_what_follows_an_answer_unasked_is_never_the_next_answer(row: str) -> None:
    async def test() -> None:
        async with served(EMPTY + UNASKED[row], EMPTY) as (wire, seen):
            assert (await asked(wire))[:2] == (200, b"")
            assert wire.kept_connections == 0
            assert (await asked(wire))[:2] == (200, b"")
            assert seen.connections == 2

    asyncio.run(test())


def test_an_answer_earlier_than_the_end_of_its_request_ends_the_connection() -> None:
    async def talk(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 413 Too Large\r\ncontent-length: 1\r\n\r\na")
        await writer.drain()

    async def test() -> None:
        async with served(talk, EMPTY) as (wire, seen):
            reply = await wire.send("POST", "/a", [], b"x" * 16 * 1024 * 1024)
            assert (reply.code, await reply.read(), await reply.read()) == (413, b"a", b"")
            assert wire.kept_connections == 0
            assert (await asked(wire, "POST"))[0] == 200
            assert seen.connections == 2

    asyncio.run(test())


async def held_up(wire: SocketWire, sent: Callable[[], int]) -> Reply:
    """Ask, and read nothing until the server is held up by what the kernel keeps."""
    reply = await wire.send("GET", "/a", [], None)
    before = -1
    while before != sent():
        before = sent()
        await asyncio.sleep(0.05)
    return reply


def test_a_slow_reader_stops_the_server() -> None:
    length, sent = 16 * 1024 * 1024, 0

    async def talk(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(OK + b"content-length: %d\r\n\r\n" % length)
        while sent < length:
            writer.write(b"x" * 65536)
            await writer.drain()
            sent += 65536

    async def test() -> None:
        async with served(talk) as (wire, _):
            reply = await held_up(wire, lambda: sent)
            assert sent < length
            taken = len(await reply.read())
            assert taken < BUFFER_BYTES * 4
            while piece := await reply.read():
                taken += len(piece)
            assert taken == length

    asyncio.run(test())


def test_the_smallest_chunks_stop_the_server_too() -> None:
    sent = 0

    async def talk(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(OK + b"transfer-encoding: chunked\r\n\r\n")
        while True:
            writer.write(b"1\r\nx\r\n" * 4096)
            await writer.drain()
            sent += 4096

    async def test() -> None:
        async with served(talk) as (wire, _):
            reply = await held_up(wire, lambda: sent)
            # as many pieces as one read of the event loop holds, beside those that were there before it
            assert len(await reply.read()) * PIECE_BYTES < BUFFER_BYTES * 16
            await reply.close()

    asyncio.run(test())


def test_an_answer_whose_end_nobody_reads_leaves_a_connection_that_reads_on() -> None:
    body = b"x" * (BUFFER_BYTES + 1)

    async def test() -> None:
        async with served(OK + b"content-length: %d\r\n\r\n" % len(body) + body, EMPTY) as (wire, seen):
            reply = await wire.send("GET", "/a", [], None)
            for _ in range(5000):
                if wire.kept_connections:
                    break
                await asyncio.sleep(0.001)
            await reply.close()
            assert (await asyncio.wait_for(asked(wire), 5))[0] == 200
            assert seen.connections == 1

    asyncio.run(test())


def test_what_is_sent() -> None:
    async def test() -> None:
        async with served(EMPTY, EMPTY, path="/k8s/clusters/c") as (wire, seen):
            await wire.send("GET", "/a%2e?b=%41", [("accept", "x"), ("impersonate-group", "a")], None)
            get = seen.heads[0].decode().split("\r\n")
            assert get[0] == "GET /k8s/clusters/c/a%2e?b=%41 HTTP/1.1"
            assert get[1].startswith("host: 127.0.0.1:")
            assert get[2:] == ["accept: x", "impersonate-group: a", "", ""]
            await wire.send("DELETE", "/a", [], None)
            assert seen.heads[1].endswith(b"\r\ncontent-length: 0\r\n\r\n")

    asyncio.run(test())


ENDS_A_LINE = {
    "header": ("/a", [("a", "b\r\nc: d")]),
    "name": ("/a", [("a\n", "b")]),
    "nul": ("/a", [("a", "\0")]),
    "target": ("/a HTTP/1.1\r\nx: y", []),
    "blank": ("/a b", []),
    "target beyond ASCII": ("/\xe4", []),
    "fragment": ("/a#b", []),
    "value beyond Latin-1": ("/a", [("a", "\u2028")]),
    "name that holds its end": ("/a", [("a: b", "c")]),
    "no name": ("/a", [("", "c")]),
}


@pytest.mark.parametrize("row", ENDS_A_LINE)
def test_what_could_end_a_line_is_never_sent(row: str) -> None:
    target, headers = ENDS_A_LINE[row]

    async def test() -> None:
        async with served(EMPTY) as (wire, seen):
            with pytest.raises(InvalidRequest):
                await wire.send("GET", target, headers, None)
            assert seen.connections == 0

    asyncio.run(test())


def test_headers_may_repeat() -> None:
    answer = OK + b'Warning: 299 - "\xc3\xa4"\r\nWARNING: b\r\ncontent-length: 0\r\n\r\n'

    async def test() -> None:
        async with served(answer) as (wire, _):
            said = [value for name, value in (await asked(wire))[2] if name == "warning"]
            assert [value.encode("latin-1") for value in said] == [b'299 - "\xc3\xa4"', b"b"]

    asyncio.run(test())


def test_kept_connections_grow_old() -> None:
    async def test() -> None:
        async with served(EMPTY) as (wire, _):
            await asked(wire)
            assert wire.kept_connections == 1
            wire.prune(asyncio.get_running_loop().time() + 29)
            assert wire.kept_connections == 1
            wire.prune(asyncio.get_running_loop().time() + 31)
            assert (wire.kept_connections, wire.open_connections) == (0, 0)

    asyncio.run(test())
