"""The listening socket and its connections.

For: whoever assembles the server, `shutdown`. In: an ASGI application, a TLS context, an address. Out: served requests.
Promises: HTTP/1.1 with keep-alive of two minutes (a shorter one loses requests of Go clients to a race); dead peers are
found by TCP keep-alive and user time-out; handshakes and goodbyes have deadlines; the number of connections is bounded;
after `stop_accepting` who has asked still gets a whole answer, until `finish` gives up, and idle connections stay until
nobody has asked anything on any of them for `QUIET_S`: a client that asks often empties its pool of them meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Any

from uvicorn.config import Config
from uvicorn.server import ServerState

from apiserver.serving.connection import Connection, Idle
from kube.errors import OperatorError
from kube.wire import watch_over

KEEP_ALIVE_S = 120
HANDSHAKE_S = 10.0
GOODBYE_S = 5.0
MOST_CONNECTIONS = 4096
QUIET_S = 1.0
_BACKLOG = 4096
_LOOK_S = 0.02


def bind(address: str, port: int) -> socket.socket:
    """Return a bound socket; accepted connections inherit its options."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    watch_over(bound)
    try:
        bound.bind((address, port))
    except OSError as error:
        bound.close()
        reason = error.strerror or type(error).__name__
        raise OperatorError(f"cannot listen on {address}:{port}: {reason}; choose another --secure-port") from error
    bound.setblocking(False)
    return bound


class Listener:
    """Serves `app` on a bound socket. `closing` makes answers tell their clients to leave."""

    def __init__(
        self,
        app: Any,
        bound: socket.socket,
        tls: ssl.SSLContext,
        *,
        closing: Callable[[], bool] = lambda: False,
        most_connections: int = MOST_CONNECTIONS,
        keep_alive_s: int = KEEP_ALIVE_S,
        quiet_s: float = QUIET_S,
    ) -> None:
        self._config = Config(
            app,
            http=Connection,
            ws="none",
            loop="none",
            lifespan="off",
            interface="asgi3",
            access_log=False,
            log_config=None,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            timeout_keep_alive=keep_alive_s,
        )
        self._config.load()
        # One warning for each malformed request: strangers would write our log.
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
        self._bound = bound
        self._tls = tls
        self._closing = closing
        self._quiet_s = quiet_s
        self._stopped = False
        self._state = ServerState()
        self._idle = Idle(most_connections)
        self._server: asyncio.Server | None = None

    @property
    def port(self) -> int:
        """Return the port that is listened on."""
        return int(self._bound.getsockname()[1])

    @property
    def address(self) -> tuple[str, int]:
        """Return where this machine reaches the listener."""
        host, port = self._bound.getsockname()[:2]
        if ipaddress.ip_address(host).is_unspecified:
            host = "::1" if ":" in host else "127.0.0.1"
        return host, int(port)

    @property
    def connections(self) -> int:
        """Return how many connections are open."""
        return len(self._state.connections)

    @property
    def busy(self) -> int:
        """Return how many requests are under way."""
        return len(self._state.tasks)

    async def open(self) -> None:
        """Begin to accept."""
        self._server = await asyncio.get_running_loop().create_server(
            lambda: Connection(self._config, self._state, idle=self._idle, closing=self._is_closing),
            sock=self._bound,
            ssl=self._tls,
            backlog=_BACKLOG,
            ssl_handshake_timeout=HANDSHAKE_S,
            ssl_shutdown_timeout=GOODBYE_S,
        )

    def _is_closing(self) -> bool:
        return self._stopped or self._closing()

    def stop_accepting(self) -> None:
        """Close the listening socket; connections end after their answer, idle ones when it has grown quiet."""
        self._stopped = True
        if self._server is not None:
            self._server.close()
        self._end_idle()

    def _end_idle(self) -> None:
        if asyncio.get_running_loop().time() < self._idle.asked_at + self._quiet_s:
            return
        for connection in tuple(self._state.connections):
            connection.shutdown()

    async def finish(self, within_s: float) -> None:
        """Wait until everybody has the whole answer and is gone; cut off what is left."""
        loop = asyncio.get_running_loop()
        until = loop.time() + within_s
        while self._state.connections and loop.time() < until:
            await asyncio.sleep(_LOOK_S)
            self._end_idle()
        for task in tuple(self._state.tasks):
            task.cancel()
        for connection in tuple(self._state.connections):
            connection.transport.abort()
        if self._state.tasks:
            await asyncio.wait(set(self._state.tasks), timeout=1)
        if self._server is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1):
                    await self._server.wait_closed()
