"""Large work in small steps.

For: loops over many objects on the event loop.
In: items. Out: the same items, others having had their turn in between.
Promises: `Pace`: no step is longer than `STEP_S` plus one item; `in_steps`: no step has more than `STEP` items.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from itertools import islice
from typing import TypeVar

STEP_S = 0.005
"""A quarter of the 20 ms that nobody may hold the loop."""
STEP = 500
"""Items of some 10 µs each."""

T = TypeVar("T")


class Pace:
    """`await pace.step()` after each item gives the loop back when a step has lasted long enough."""

    def __init__(self) -> None:
        self._since = time.perf_counter()

    async def step(self) -> None:
        """Let others run if it is time."""
        if time.perf_counter() - self._since >= STEP_S:
            await asyncio.sleep(0)
            self._since = time.perf_counter()


async def in_steps(items: Iterable[T], size: int = STEP) -> AsyncIterator[list[T]]:
    """Yield the items in lists of at most `size`, and let others run between two of them.

    The items must not change meanwhile: give a tuple, or a view of what only the caller changes.
    """
    rest = iter(items)
    part = list(islice(rest, size))
    while part:
        yield part
        part = list(islice(rest, size))
        if part:
            await asyncio.sleep(0)
