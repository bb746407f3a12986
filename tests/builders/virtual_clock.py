"""A clock that stands still until a test advances it."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime, timedelta


class VirtualClock:
    """Time for tests: `await clock.advance(90)` wakes, in order, everything that is due within 90 seconds.

    After each waker everything that can run without waiting runs. `jump_wall` moves the wall clock alone.
    """

    def __init__(self, wall: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._now = 1000.0
        self._wall = wall
        self._serial = itertools.count()
        self._due: list[tuple[float, int, Callable[[], object]]] = []

    def now(self) -> float:
        """Return virtual seconds."""
        return self._now

    def time(self) -> datetime:
        """Return the virtual wall clock."""
        return self._wall

    def jump_wall(self, seconds: float) -> None:
        """Move the wall clock alone, as an administrator or NTP would."""
        self._wall += timedelta(seconds=seconds)

    async def sleep(self, seconds: float) -> None:
        """Return once the test has advanced by `seconds`."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._call_at(self._now + seconds, lambda: None if woken.done() else woken.set_result(None))
        await woken

    def timeout(self, seconds: float) -> AbstractAsyncContextManager[object]:
        """Raise TimeoutError out of the block once the test has advanced by `seconds`."""
        return self._timeout(seconds)

    @asynccontextmanager
    async def _timeout(self, seconds: float) -> AsyncIterator[None]:
        inside = True
        async with asyncio.timeout(None) as limit:

            def expire() -> None:
                if inside:
                    limit.reschedule(asyncio.get_running_loop().time())

            self._call_at(self._now + max(0.0, seconds), expire)
            try:
                yield
            finally:
                inside = False

    async def advance(self, seconds: float) -> None:
        """Let `seconds` pass."""
        end = self._now + seconds
        await settle()
        while self._due and self._due[0][0] <= end:
            moment, _, wake = heapq.heappop(self._due)
            self._move(max(moment, self._now))
            wake()
            await settle()
        self._move(end)
        await settle()

    def _move(self, moment: float) -> None:
        self._wall += timedelta(seconds=moment - self._now)
        self._now = moment

    def _call_at(self, moment: float, wake: Callable[[], object]) -> None:
        heapq.heappush(self._due, (moment, next(self._serial), lambda: wake() and None))


async def settle() -> None:
    """Let every task run until all of them wait."""
    loop = asyncio.get_running_loop()
    ready = getattr(loop, "_ready", ())
    await asyncio.sleep(0)
    while ready:  # noqa: ASYNC110 - waits for the loop to run dry, which no event tells
        await asyncio.sleep(0)
