"""Time as an argument.

For: everything that waits, measures or writes a time. Tests pass `tests.builders.virtual_clock.VirtualClock`.
In/Out: seconds as float on a clock that only goes forward (`now`), aware UTC datetimes (`time`).
Promises: `now` never goes back and goes on while the machine is suspended; nothing but `time` follows the wall clock.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """What our code knows of time."""

    def now(self) -> float:
        """Return seconds of a clock that only goes forward; only differences mean something."""

    def time(self) -> datetime:
        """Return the wall clock in UTC."""

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds`."""

    def timeout(self, seconds: float) -> AbstractAsyncContextManager[object]:
        """Raise TimeoutError out of the block when it lasts longer than `seconds`."""


class SystemClock:
    """The machine's clock."""

    # A lease keeps running while a machine sleeps; CLOCK_MONOTONIC would not notice.
    _ID = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

    def now(self) -> float:
        """Return seconds since boot, suspended time included."""
        return time.clock_gettime(self._ID)

    def time(self) -> datetime:
        """Return the wall clock in UTC."""
        return datetime.now(UTC)

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds` of the event loop's time."""
        await asyncio.sleep(seconds)

    def timeout(self, seconds: float) -> AbstractAsyncContextManager[object]:
        """Raise TimeoutError out of the block after `seconds` of the event loop's time."""
        return asyncio.timeout(max(0.0, seconds))


def micro_time(moment: datetime) -> str:
    """Write a moment as Kubernetes' MicroTime: UTC, always six digits (`isoformat` drops them when they are zero)."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def second_time(moment: datetime) -> str:
    """Write a moment as Kubernetes' Time: UTC, whole seconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
