"""A listener on loopback and a client that sends bytes as they are."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import uvloop

from apiserver.serving.certificates import ServingTls
from apiserver.serving.listener import Listener, bind
from kube.tls import load_pair
from tests.builders.pki import NOW, Certificate

NAME = "server.test"


def run(test: Coroutine[Any, Any, None]) -> None:
    """Run on the loop that the product uses."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(test)


@dataclass
class Reply:
    """One answer as it came."""

    code: int
    headers: dict[str, str]
    body: bytes


class Client:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def reply(self) -> Reply | None:
        """Read one answer with a length or in chunks; None when the connection ended instead."""
        async with asyncio.timeout(10):
            try:
                head = await self.reader.readuntil(b"\r\n\r\n")
            except (asyncio.IncompleteReadError, ConnectionError):
                return None
            first, *lines = head.decode("latin-1").strip().split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            if headers.get("transfer-encoding") == "chunked":
                body = await self._chunks()
            else:
                body = await self.reader.readexactly(int(headers.get("content-length", "0")))
            return Reply(int(first.split()[1]), headers, body)

    async def _chunks(self) -> bytes:
        body = b""
        while size := int(await self.reader.readline(), 16):
            body += (await self.reader.readexactly(size + 2))[:-2]
        await self.reader.readline()
        return body

    async def ended(self) -> bool:
        """Say whether the server ends the connection within two seconds without a further byte."""
        try:
            async with asyncio.timeout(2):
                return not await self.reader.read(1)
        except ConnectionError:
            return True
        except TimeoutError:
            return False

    async def ask(self, method: str = "GET", path: str = "/", body: bytes = b"", *headers: str) -> Reply | None:
        lines = [f"{method} {path} HTTP/1.1", "Host: server.test", *headers]
        if body:
            lines.append(f"Content-Length: {len(body)}")
        self.send("\r\n".join([*lines, "", ""]).encode() + body)
        return await self.reply()


class Server:
    """A listener and what it trusts."""

    def __init__(self, app: Any, *, trusted: str = "", quiet_s: float = 0.0, **more: Any) -> None:
        self.tls = ServingTls((NAME,), NOW)
        self.tls.trust(trusted)
        self.listener = Listener(app, bind("127.0.0.1", 0), self.tls.context, quiet_s=quiet_s, **more)
        self._clients: list[Client] = []

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Server]:
        await self.listener.open()
        try:
            yield self
        finally:
            self.listener.stop_accepting()
            await self.listener.finish(0)
            for client in self._clients:
                client.writer.transport.abort()
            await asyncio.sleep(0.01)

    def context(self, certificate: Certificate | None = None, *shown: Certificate) -> ssl.SSLContext:
        context = ssl.create_default_context(cadata=self.tls.bundle)
        if certificate is not None:
            chain = "".join(each.pem for each in (certificate, *shown))
            load_pair(context, chain, certificate.key_pem)
        return context

    async def connect(self, certificate: Certificate | None = None, *shown: Certificate) -> Client:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1",
            self.listener.port,
            ssl=self.context(certificate, *shown),
            server_hostname=NAME,
        )
        self._clients.append(Client(reader, writer))
        return self._clients[-1]


App = Callable[[Any, Any, Any], Awaitable[None]]


async def read(receive: Any) -> bytes:
    """Read a request's body."""
    body = b""
    while True:
        message: dict[str, Any] = await receive()
        if message["type"] == "http.disconnect":
            raise ConnectionError("the client left")
        body += bytes(message["body"])
        if not message["more_body"]:
            return body


async def answer(send: Any, body: bytes = b"ok", code: int = 200) -> None:
    """Send an answer."""
    await send({"type": "http.response.start", "status": code, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})
