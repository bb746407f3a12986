"""The streams that are open through this server.

For: forwarders and connectors, which register; the server's shutdown, which ends them one after the other.
In/Out: things that can be closed.
Promises: after `refuse_new`, a stream that registers is closed at once; closing a stream ends its answer with a clean
EOF.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Stream(Protocol):
    """Something that goes on until it is closed."""

    def close(self) -> None:
        """End with a clean EOF."""


class OpenStreams:
    """A set of open streams."""

    def __init__(self) -> None:
        self._open: set[Stream] = set()
        self.refusing = False

    def __len__(self) -> int:
        return len(self._open)

    def all(self) -> tuple[Stream, ...]:
        """Return the streams that are open now, for a shutdown that spreads their ends."""
        return tuple(self._open)

    def refuse_new(self) -> None:
        """Let no further stream begin."""
        self.refusing = True

    def close_all(self) -> None:
        """End every stream now, and every later one at once."""
        self.refuse_new()
        for stream in self.all():
            stream.close()

    @contextmanager
    def holding(self, stream: Stream) -> Iterator[None]:
        """Keep a stream registered for the length of the block."""
        self._open.add(stream)
        if self.refusing:
            stream.close()
        try:
            yield
        finally:
            self._open.discard(stream)
