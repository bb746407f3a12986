"""The streams that are open through this server.

For: forwarders and connectors, which register; the server's shutdown, which ends them one after the other.
In/Out: things that can be closed.
Promises: after `refuse_new`, a stream that registers is closed at once; closing a stream ends its answer with a clean
EOF; closing one that has ended by itself changes nothing, however long the last of its answer takes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Protocol

from apiserver.rest.responses import Receive


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


class _Ending:
    """A stream that is the task it runs in; closing it cancels the task between two messages.

    Promises: whoever closes it after its block cancels nothing; of a cancellation by `close` nothing is left then.
    """

    def __init__(self, task: asyncio.Task[Any] | None) -> None:
        self._task = task
        self._is_closed = False

    def close(self) -> None:
        if self._task is not None and not self._is_closed:
            self._is_closed = True
            self._task.cancel()

    async def arrived(self) -> None:
        """Wait for the cancellation that was asked for in the step that runs now."""
        if self._is_closed:
            await asyncio.sleep(0)

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> bool:
        """Take the cancellation back, unless somebody else wants the task to end as well."""
        task, self._task = self._task, None  # a shutdown that saw it open may still close it
        left = task.uncancel() if task is not None and self._is_closed else 1
        return left == 0 and isinstance(error, asyncio.CancelledError)


async def until_ended(work: Coroutine[Any, Any, None], receive: Receive, open_streams: OpenStreams) -> None:
    """Run the sending side of a stream until it ends, is closed, or its client has gone."""
    # In the caller's own task: thousands of streams wait here, and a task takes memory.
    stream = _Ending(asyncio.current_task())

    async def leave() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        stream.close()

    gone = asyncio.create_task(leave(), name="relay-disconnect")
    try:
        with stream, open_streams.holding(stream):
            try:
                await work
            finally:
                await stream.arrived()
    finally:
        gone.cancel()
