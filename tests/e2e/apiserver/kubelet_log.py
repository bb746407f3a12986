"""The one thing of a kubelet that a Pod's log needs: an HTTPS server which kube-apiserver asks for it.

For: the tests of `instances/log`; kwok serves no logs. In: lines. Out: a Node's address and port.
Promises: with `follow=true` the stream stays open and gives each line when it is said, until `end`.
"""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import trustme


class KubeletLog:
    """The log of every container of one node."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._changed = threading.Condition()
        self._ended = False
        self.port = 0

    def say(self, line: str) -> None:
        """Add a line; streams that follow get it at once."""
        with self._changed:
            self._lines.append(line)
            self._changed.notify_all()

    def end(self) -> None:
        """End the streams that follow: the container is gone."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def lines(self, *, follow: bool, tail: int) -> Iterator[str]:
        """Yield the log as the kubelet would."""
        at = max(0, len(self._lines) - tail) if tail >= 0 else 0
        while True:
            with self._changed:
                if follow and at >= len(self._lines) and not self._ended:
                    self._changed.wait(30)
                fresh, at = self._lines[at:], len(self._lines)
            yield from fresh
            if not follow or (self._ended and not fresh):
                return


@contextmanager
def kubelet_log() -> Iterator[KubeletLog]:
    """Serve on loopback while the block runs."""
    log = KubeletLog()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            query = parse_qs(urlsplit(self.path).query)
            self.send_response(200)
            self.send_header("Content-Type", "text/plain")
            self.end_headers()
            tail = int(query.get("tailLines", ["-1"])[0])
            for line in log.lines(follow=query.get("follow") == ["true"], tail=tail):
                self.wfile.write(f"{line}\n".encode())
                self.wfile.flush()

        def log_message(self, format: str, *arguments: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.daemon_threads = True
    log.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, name="kubelet-log")
    thread.start()
    try:
        yield log
    finally:
        log.end()
        server.shutdown()
        server.server_close()
        thread.join()
