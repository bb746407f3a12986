"""Connections over real sockets: peers, smuggling, bounds. Case B005 on the wire."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest
from cryptography.x509.oid import ExtendedKeyUsageOID

from apiserver.authn.authenticator import Authenticator
from apiserver.authn.token_review import TokenReviews
from apiserver.rest.request_info import parse
from apiserver.rest.responses import read_body, send_refusal, start_stream
from apiserver.rest.status import Refusal
from apiserver.serving import connection
from apiserver.serving.connection import why_refused
from kube.clock import SystemClock
from tests.apiserver.serving.https import Server, answer, read, run
from tests.builders.front_proxy import ALLOWED, CLIENTS, PROXY, PROXY_2, trust
from tests.builders.pki import Certificate, authority, make
from tests.kube.wire import answer as review
from tests.kube.wire import client_over

B005 = json.loads((Path(__file__).parents[2] / "cases" / "B005-forged-identity.json").read_text("utf-8"))
TRUST = trust()
DAYS = timedelta(days=1)


async def whoami(scope: Any, receive: Any, send: Any) -> None:
    """Answer who the request is from, and what of its head is left."""
    clock = SystemClock()
    tokens = TokenReviews(client_over(review({"status": {}}, 201)), clock, ttl_s=10)
    await read(receive)
    try:
        user = await Authenticator(lambda: TRUST, tokens, clock)(scope)
    except Refusal as refusal:
        await send_refusal(send, refusal)
        return
    extra = {key: list(values) for key, values in user.extra.items()}
    shown = {"name": user.name, "groups": list(user.groups), "extra": extra}
    left = [name.decode() for name, _ in scope["headers"]]
    await answer(send, orjson.dumps({**shown, "headers": left}))


CERTIFICATES: Mapping[str, Certificate | None] = {
    "none": None,
    "self-signed, CN=front-proxy-client": make(ALLOWED),
    "request-header CA, CN=not-allowed": make("not-allowed", by=PROXY),
    "request-header CA, CN=allowed": make(ALLOWED, by=PROXY),
    "cluster client CA, CN=alice": make("alice", by=CLIENTS),
}
ANONYMOUS = {"name": "system:anonymous", "groups": ["system:unauthenticated"], "extra": {}}
WANTED: Mapping[str, dict[str, Any] | None] = {
    "system:anonymous": ANONYMOUS,
    "system:anonymous or 401": None,
    "not admin": ANONYMOUS,
    "alice": {"name": "alice", "groups": ["system:authenticated"], "extra": {}},
    "bob, groups dev+ops+system:authenticated, extra acme.com/project=[p1]": {
        "name": "bob",
        "groups": ["dev", "ops", "system:authenticated"],
        "extra": {"acme.com/project": ["p1"]},
    },
    "no user header: next method, never masters": ANONYMOUS,
}


async def ask_as(certificate: Certificate | None, headers: Any, *shown: Certificate) -> Any:
    """Return whom the server takes a request to be from; None when the connection is refused, else a refusal's code."""
    given = headers.items() if isinstance(headers, Mapping) else headers
    async with Server(whoami, trusted=TRUST.bundle).running() as server:
        try:
            client = await server.connect(certificate, *shown)
            reply = await client.ask("GET", B005["path"], b"", *(f"{name}: {value}" for name, value in given))
        except OSError:
            return None
        if reply is None:
            return None
        if reply.code != 200:
            return reply.code
        found = json.loads(reply.body)
        assert not [name for name in found.pop("headers") if "remote" in name]
        return found


@pytest.mark.parametrize("row", B005["rows"], ids=[f"B005-{index}" for index in range(len(B005["rows"]))])
def test_forged_identity(row: dict[str, Any]) -> None:
    async def test() -> None:
        got = await ask_as(CERTIFICATES[row["clientCert"]], row["headers"])
        # A header name with a space is refused by the parser: nothing of such a request is served at all.
        want = 400 if any(" " in name for name, _ in _pairs(row["headers"])) else WANTED[row["identity"]]
        assert got == want

    run(test())


def _pairs(headers: Any) -> list[tuple[str, str]]:
    return [(name, value) for name, value in (headers.items() if isinstance(headers, Mapping) else headers)]


MASTERS = [("X-Remote-User", "admin"), ("X-Remote-Group", "system:masters")]
ADMIN = {"name": "admin", "groups": ["system:masters", "system:authenticated"], "extra": {}}
MIDDLE = make("middle", by=PROXY, ca=True)
PEERS: dict[str, tuple[Certificate, tuple[Certificate, ...], Any]] = {
    "believed": (make(ALLOWED, by=PROXY), (), ADMIN),
    "through an intermediate": (make(ALLOWED, by=MIDDLE), (MIDDLE,), ADMIN),
    "its name signed by the wrong CA": (
        make(ALLOWED, by=CLIENTS),
        (),
        {"name": ALLOWED, "groups": ["system:authenticated"], "extra": {}},
    ),
    "its name signed by a CA nobody knows": (make(ALLOWED, by=authority("stranger")), (), None),
    "signed by a namesake of its CA": (make(ALLOWED, by=make("proxy-ca", ca=True)), (), None),
    "expired": (make(ALLOWED, by=PROXY, valid=(-9 * DAYS, -DAYS)), (), None),
    "of tomorrow": (make(ALLOWED, by=PROXY, valid=(DAYS, 2 * DAYS)), (), None),
    "for servers only": (make(ALLOWED, by=PROXY, usage=ExtendedKeyUsageOID.SERVER_AUTH), (), None),
}


@pytest.mark.parametrize("row", PEERS.values(), ids=PEERS.keys())
def test_certificates_of_a_front_proxy(row: tuple[Certificate, tuple[Certificate, ...], Any]) -> None:
    certificate, shown, want = row

    async def test() -> None:
        assert await ask_as(certificate, MASTERS, *shown) == want

    run(test())


def test_b022_trust_changes_without_a_dropped_connection() -> None:
    async def test() -> None:
        async with Server(whoami, trusted=TRUST.bundle).running() as server:
            old = await server.connect(make(ALLOWED, by=PROXY))
            assert (await old.ask()) is not None
            server.tls.trust(trust(requestheader_client_ca_file=PROXY_2.pem).bundle)
            new = await server.connect(make(ALLOWED, by=PROXY_2))
            assert (await new.ask()) is not None
            assert (await old.ask()) is not None
            refused = await server.connect(make(ALLOWED, by=PROXY))
            assert (await refused.ask()) is None
            server.tls.trust("")
            nobody = await server.connect(make(ALLOWED, by=PROXY_2))
            assert (await nobody.ask()) is None
            without = await server.connect()
            assert (await without.ask()) is not None

    run(test())


HOST = b"Host: a\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"
FORMS: dict[str, bytes] = {
    "length and chunks": b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 5\r\n" + CHUNKED + b"\r\n0\r\n\r\n",
    "chunks and length": b"POST / HTTP/1.1\r\n" + HOST + CHUNKED + b"Content-Length: 5\r\n\r\n0\r\n\r\n",
    "two lengths": b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
    "one length twice": b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
    "a list of lengths": b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 5, 5\r\n\r\nhello",
    "a signed length": b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: +5\r\n\r\nhello",
    "another coding": b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "packed chunks": b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "two codings": b"POST / HTTP/1.1\r\n" + HOST + CHUNKED + b"Transfer-Encoding: identity\r\n\r\n0\r\n\r\n",
    "space before the colon": b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "folded header": b"GET / HTTP/1.1\r\n" + HOST + b"X: a\r\n b\r\n\r\n",
    "bare line feeds": b"GET / HTTP/1.1\nHost: a\n\n",
    "NUL in a header": b"GET / HTTP/1.1\r\n" + HOST + b"X: a\x00b\r\n\r\n",
    "chunk size in another notation": b"POST / HTTP/1.1\r\n" + HOST + CHUNKED + b"\r\n0x5\r\nhello\r\n0\r\n\r\n",
    "chunks in HTTP/1.0": b"POST / HTTP/1.0\r\n" + HOST + CHUNKED + b"\r\n0\r\n\r\n",
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "two hosts": b"GET / HTTP/1.1\r\n" + HOST + b"Host: b\r\n\r\n",
    "HTTP/2 by name": b"GET / HTTP/2.0\r\n" + HOST + b"\r\n",
    "HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "HTTP/0.9": b"GET /\r\n\r\n",
    "upgrade": b"POST / HTTP/1.1\r\n"
    + HOST
    + b"Connection: upgrade\r\nUpgrade: h2c\r\nContent-Length: 5\r\n\r\nhelloGET /x HTTP/1.1\r\nHost: a\r\n\r\n",
    "tunnel": b"CONNECT a:1 HTTP/1.1\r\n" + HOST + b"\r\n",
    "no HTTP": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
}


@pytest.mark.parametrize("sent", FORMS.values(), ids=FORMS.keys())
def test_two_readings_of_one_message_are_refused(sent: bytes) -> None:
    async def test() -> None:
        seen: list[str] = []

        async def app(scope: Any, receive: Any, send: Any) -> None:
            seen.append(scope["path"])
            await read(receive)
            await answer(send)

        async with Server(app).running() as server:
            client = await server.connect()
            client.send(sent)
            reply = await client.reply()
            assert reply is not None
            assert (reply.code, reply.headers["connection"]) == (400, "close")
            status = json.loads(reply.body)
            assert (status["kind"], status["reason"]) == ("Status", "BadRequest")
            assert await client.ended()
            assert "/x" not in seen

    run(test())


def test_a_trailer_is_no_header() -> None:
    async def test() -> None:
        async with Server(whoami, trusted=TRUST.bundle).running() as server:
            client = await server.connect(make(ALLOWED, by=PROXY))
            client.send(
                b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nX-Remote-User: bob\r\n"
                b"Trailer: X-Remote-Group\r\n\r\n2\r\nhi\r\n0\r\nX-Remote-Group: system:masters\r\n\r\n"
            )
            reply = await client.reply()
            assert reply is not None
            assert json.loads(reply.body)["groups"] == ["system:authenticated"]

    run(test())


def test_requests_follow_each_other_and_pipelined_ones_keep_their_order() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(0.02 if scope["path"] == "/1" else 0)
        await answer(send, scope["path"].encode())

    async def test() -> None:
        async with Server(app).running() as server:
            client = await server.connect()
            client.send(b"".join(b"GET /%d HTTP/1.1\r\nHost: a\r\n\r\n" % number for number in range(1, 4)))
            replies = [await client.reply() for _ in range(3)]
            assert [reply.body for reply in replies if reply is not None] == [b"/1", b"/2", b"/3"]

    run(test())


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_head_and_body_leave_in_one_write(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[bytes] = []
    outlet: Any = connection._Outlet

    class Noting:
        def __init__(self, transport: asyncio.Transport) -> None:
            self.transport = transport

        def write(self, data: bytes) -> None:
            written.append(data)
            self.transport.write(data)

    async def test() -> None:
        monkeypatch.setattr(connection, "_Outlet", lambda transport: outlet(Noting(transport)))
        async with Server(lambda scope, receive, send: answer(send)).running() as server:
            client = await server.connect()
            client.send(f"{method} / HTTP/1.1\r\nHost: a\r\n\r\n".encode())
            assert await client.reader.readuntil(b"\r\n\r\n")
            if method == "GET":
                assert await client.reader.readexactly(2) == b"ok"
        assert len(written) == 1

    run(test())


def test_the_head_of_a_stream_leaves_before_there_is_a_piece() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await start_stream(send)
        while (await receive())["type"] != "http.disconnect":
            pass

    async def test() -> None:
        async with Server(app).running() as server:
            client = await server.connect()
            client.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            async with asyncio.timeout(2):
                head = await client.reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 OK")
            assert b"transfer-encoding: chunked" in head

    run(test())


def test_rubbish_behind_a_good_request_does_not_spoil_its_answer() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(0.02)
        await answer(send, b"good")

    async def test() -> None:
        async with Server(app).running() as server:
            client = await server.connect()
            client.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\nrubbish\r\n\r\n")
            reply = await client.reply()
            assert reply is not None
            assert (reply.code, reply.body) == (200, b"good")
            assert await client.ended()

    run(test())


async def limited(scope: Any, receive: Any, send: Any) -> None:
    """Refuse a large body as the engine does."""
    headers = dict(scope["headers"])
    try:
        await read_body(receive, announced=headers.get(b"content-length", b""))
    except Refusal as refusal:
        await send_refusal(send, refusal)
        return
    await answer(send)


def test_a_body_of_10_mb_is_413_and_the_answer_arrives() -> None:
    async def test() -> None:
        async with Server(limited).running() as server:
            for chunked in (False, True):
                client = await server.connect()
                size = 10 * 1024 * 1024
                coding = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: %d" % size
                client.send(b"POST / HTTP/1.1\r\nHost: a\r\n" + coding + b"\r\n\r\n")
                sending = asyncio.create_task(_pour(client, size, chunked=chunked))
                reply = await client.reply()
                assert reply is not None
                assert (reply.code, reply.headers["connection"]) == (413, "close")
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)

    run(test())


async def _pour(client: Any, size: int, *, chunked: bool) -> None:
    piece = b"x" * 65536
    for _ in range(size // len(piece)):
        client.send(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
        await client.writer.drain()


def test_a_client_that_asks_before_it_sends_is_told_at_once() -> None:
    async def test() -> None:
        async with Server(limited).running() as server:
            client = await server.connect()
            client.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10485760\r\nExpect: 100-continue\r\n\r\n")
            reply = await client.reply()
            assert reply is not None
            assert reply.code == 413

    run(test())


def test_an_endless_head_is_refused() -> None:
    async def test() -> None:
        async with Server(limited).running() as server:
            for tail in (b"X: " + b"a" * 300_000, b"".join(b"X%d: a\r\n" % number for number in range(40_000))):
                client = await server.connect()
                client.send(b"GET / HTTP/1.1\r\nHost: a\r\n")
                for start in range(0, len(tail), 32768):
                    client.send(tail[start : start + 32768])
                    await asyncio.sleep(0.005)
                reply = await client.reply()
                assert reply is None or reply.code == 400
                assert await client.ended()

    run(test())


def test_one_byte_a_second_loses_to_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "HEAD_S", 0.2)

    async def test() -> None:
        async with Server(limited).running() as server:
            slow, other = await server.connect(), await server.connect()
            for byte in b"GET / HT":
                slow.send(bytes([byte]))
                await asyncio.sleep(0.05)
            assert await slow.ended()
            reply = await other.ask()
            assert reply is not None
            assert reply.code == 200

    run(test())


def test_an_idle_connection_ends_and_blank_lines_buy_no_time() -> None:
    async def test() -> None:
        async with Server(limited, keep_alive_s=1).running() as server:
            silent, blank = await server.connect(), await server.connect()
            assert (await blank.ask()) is not None
            for _ in range(12):
                blank.send(b"\r\n")
                await asyncio.sleep(0.1)
            assert await blank.ended()
            assert await silent.ended()

    run(test())


def test_thousands_of_idle_connections_give_way() -> None:
    async def test() -> None:
        async with Server(limited, most_connections=20).running() as server:
            busy = await server.connect()
            busy.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nh")
            idle = [await server.connect() for _ in range(100)]
            await asyncio.sleep(0.05)
            assert server.listener.connections <= 21
            assert await idle[0].ended()
            for client in (idle[-1], await server.connect()):
                reply = await client.ask()
                assert reply is not None
                assert reply.code == 200
            busy.send(b"i")
            reply = await busy.reply()
            assert reply is not None
            assert reply.code == 200

    run(test())


def test_half_open_connections_are_found_by_the_kernel() -> None:
    async def test() -> None:
        async with Server(limited).running() as server:
            bound = server.listener._bound
            assert bound.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert bound.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 15
            assert bound.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 30_000
            client = await server.connect()
            assert (await client.ask()) is not None
            accepted = next(iter(server.listener._state.connections))
            inherited = accepted.transport.get_extra_info("socket")
            assert inherited.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert inherited.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 30_000

    run(test())


def test_a_client_without_tls_gets_nothing() -> None:
    async def test() -> None:
        async with Server(limited).running() as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.listener.port)
            writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            async with asyncio.timeout(5):
                answered = b""
                with contextlib.suppress(ConnectionError):
                    answered = await reader.read()
            assert b"HTTP" not in answered
            writer.close()

    run(test())


def test_a_leaving_server_tells_its_clients() -> None:
    leaving: list[bool] = []

    async def test() -> None:
        async with Server(limited, closing=lambda: bool(leaving)).running() as server:
            client = await server.connect()
            reply = await client.ask()
            assert reply is not None
            assert "connection" not in reply.headers
            leaving.append(True)
            reply = await client.ask()
            assert reply is not None
            assert (reply.code, reply.headers["connection"]) == (200, "close")
            assert await client.ended()

    run(test())


WHY: dict[str, tuple[bytes, str, list[tuple[bytes, bytes]], bool]] = {
    "plain": (b"GET", "1.1", [(b"host", b"a")], False),
    "HTTP/1.0 needs no host": (b"GET", "1.0", [], False),
    "chunked in any case": (b"POST", "1.1", [(b"host", b"a"), (b"transfer-encoding", b" Chunked ")], False),
    "chunked twice": (
        b"POST",
        "1.1",
        [(b"host", b"a"), (b"transfer-encoding", b"chunked"), (b"transfer-encoding", b"chunked")],
        True,
    ),
    "connection words alone": (b"GET", "1.1", [(b"host", b"a"), (b"connection", b"upgrade")], False),
}


@pytest.mark.parametrize("row", WHY.values(), ids=WHY.keys())
def test_why_refused(row: tuple[bytes, str, list[tuple[bytes, bytes]], bool]) -> None:
    method, version, headers, refused = row
    assert bool(why_refused(method, version, headers)) is refused


def test_an_encoded_path_arrives_as_it_was_sent() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await answer(send, scope["raw_path"])

    async def test() -> None:
        async with Server(app).running() as server:
            client = await server.connect()
            reply = await client.ask("GET", "/apis/a%2f..%2fb/%00")
            assert reply is not None
            assert reply.body == b"/apis/a%2f..%2fb/%00"
            with pytest.raises(Refusal):
                parse("GET", reply.body, b"")

    run(test())
