"""Connections to one server, opened when needed and kept for a while: the wire of production (decision 0524).

For: `kube.connection`. In: a method, a target, headers, a body. Out: a `Reply` as it arrives.
Promises:
- what was asked goes out byte for byte, and is never followed or remembered; see `http1` for what comes back;
- connections are kept for another request for `KEEP_ALIVE_S`; one that the server ended in that time costs a GET
  nothing, since nobody answered it: it is asked again; a write is never sent twice;
- a wire that is closed ends what is under way on it with an error, and sends nothing more.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any
from urllib.parse import urlsplit

from kube.credentials import Credentials
from kube.http1 import Channel, ConnectionClosed, request_message
from kube.wire import KEEP_ALIVE_S, Headers, Reply, client_context

CONNECT_S = 10.0
"""For the connection and its TLS."""
MOST_IDLE = 64


class SocketWire:
    """The connections to one server."""

    def __init__(self, credentials: Credentials) -> None:
        at = urlsplit(credentials.server)
        secure = at.scheme == "https"
        self._host = at.hostname or ""
        self._port = at.port or (443 if secure else 80)
        self._prefix = at.path.rstrip("/")
        self._authority = at.netloc.rpartition("@")[2]
        self._context = client_context(credentials) if secure else None
        self._server_name = credentials.server_name or self._host
        self._open: set[Channel] = set()
        self._idle: deque[Channel] = deque()  # the longest idle first
        self._pruning: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def open_connections(self) -> int:
        """Return how many connections are open."""
        return len(self._open)

    @property
    def kept_connections(self) -> int:
        """Return how many of them wait for a request."""
        return len(self._idle)

    async def send(self, method: str, target: str, headers: Headers, content: bytes | None) -> Reply:
        """Send a request; return when the head of its answer has come."""
        message = request_message(method, f"{self._prefix}{target}", self._authority, headers, content)
        while True:
            if self._closed:
                raise ConnectionClosed("the wire is closed")
            kept = self._kept()
            channel = kept or await self._connected()
            try:
                return await channel.ask(message)
            except ConnectionClosed:
                if kept is None or method != "GET":
                    raise

    async def close(self) -> None:
        """Close all connections, and open no more."""
        self._closed = True
        if self._pruning is not None:
            self._pruning.cancel()
            self._pruning = None
        for channel in tuple(self._open):
            channel.drop()

    def keep(self, channel: Channel) -> None:
        """Take back a connection whose answer was read to its end."""
        if len(self._idle) >= MOST_IDLE:
            self._idle.popleft().drop()
        self._idle.append(channel)
        if self._pruning is None:
            self._pruning = asyncio.get_running_loop().call_later(KEEP_ALIVE_S, self._prune_now)

    def opened(self, channel: Channel) -> None:
        """Note a connection."""
        self._open.add(channel)

    def gone(self, channel: Channel) -> None:
        """Forget a connection."""
        self._open.discard(channel)
        if channel in self._idle:
            self._idle.remove(channel)

    def _kept(self) -> Channel | None:
        while self._idle:
            channel = self._idle.pop()  # the youngest: what is not needed grows old and goes
            if channel.is_usable:
                return channel
        return None

    async def _connected(self) -> Channel:
        loop = asyncio.get_running_loop()
        channel = Channel(self, loop)
        secure: dict[str, Any] = {"ssl": self._context, "server_hostname": self._server_name} if self._context else {}
        try:
            async with asyncio.timeout(CONNECT_S):
                await loop.create_connection(lambda: channel, self._host, self._port, **secure)
            if self._closed:
                raise ConnectionClosed("the wire is closed")
        except BaseException:
            channel.drop()  # it may be open already; not every event loop tells of its end then
            raise
        return channel

    def prune(self, now: float) -> None:
        """End the connections that nobody has needed for long; `now` is the loop's time."""
        while self._idle and self._idle[0].idle_since <= now - KEEP_ALIVE_S:
            self._idle.popleft().drop()

    def _prune_now(self) -> None:
        loop = asyncio.get_running_loop()
        self.prune(loop.time())
        self._pruning = None
        if self._idle:
            self._pruning = loop.call_at(self._idle[0].idle_since + KEEP_ALIVE_S, self._prune_now)
