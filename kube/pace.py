"""Large work in small steps.

For: loops over many objects on the event loop. Promises: no step is longer than `STEP_S` plus one item.
"""

from __future__ import annotations

import asyncio
import time

STEP_S = 0.005
"""A quarter of the 20 ms that nobody may hold the loop."""


class Pace:
    """`await pace.step()` after each item gives the loop back when a step has lasted long enough."""

    def __init__(self) -> None:
        self._since = time.perf_counter()

    async def step(self) -> None:
        """Let others run if it is time."""
        if time.perf_counter() - self._since >= STEP_S:
            await asyncio.sleep(0)
            self._since = time.perf_counter()
