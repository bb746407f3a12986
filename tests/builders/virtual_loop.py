"""An event loop whose time moves only when nothing else can happen.

For: tests that run many real parts together: hours of windows, pauses and bookmarks cost no waiting, and no part needs
to be told. `asyncio.sleep`, `asyncio.timeout` and `loop.call_later` all follow it; `LoopClock` hands it to our code.
Promises: deterministic for one thread; a program in which nothing will ever happen again fails instead of hanging.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

T = TypeVar("T")

START = 1000.0
WALL_START = datetime(2026, 1, 1, tzinfo=UTC)


class VirtualLoop(asyncio.SelectorEventLoop):
    """Where a real loop would wait, this one moves its clock to the next timer."""

    def __init__(self) -> None:
        self.virtual_s = START
        super().__init__(_Skipping(self))

    def time(self) -> float:
        """Return virtual seconds."""
        return self.virtual_s


class _Skipping(selectors.DefaultSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout is None:
            raise RuntimeError("every task waits for another one: nothing will ever happen")
        if not ready and timeout:
            self._loop.virtual_s += timeout
        return ready


class LoopClock:
    """The loop's time as a `kube.clock.Clock`."""

    def now(self) -> float:
        """Return the running loop's seconds."""
        return asyncio.get_running_loop().time()

    def time(self) -> datetime:
        """Return the wall clock, which goes with the loop."""
        return WALL_START + timedelta(seconds=self.now() - START)

    async def sleep(self, seconds: float) -> None:
        """Return after virtual `seconds`."""
        await asyncio.sleep(seconds)

    def timeout(self, seconds: float) -> AbstractAsyncContextManager[object]:
        """Raise TimeoutError out of the block after virtual `seconds`."""
        return asyncio.timeout(max(0.0, seconds))


def run_virtually(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a loop of its own."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)
