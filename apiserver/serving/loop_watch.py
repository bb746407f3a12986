"""How long the event loop is held by one step: everybody else waits for it.

For: `process`; people who ask `/metrics`. In: a registry. Out: the longest step since the metric was last read, and how
many steps were longer than a few bounds.
Promises: what is counted is this process' own work: time in which the machine ran somebody else is not. A step that
ends between two looks is seen short by at most `LOOK_S`.
"""

from __future__ import annotations

import asyncio
import time

from prometheus_client import CollectorRegistry, Gauge, Histogram

LOOK_S = 0.01
BOUNDS_S = (0.001, 0.005, 0.01, 0.02, 0.05, 0.2, 1.0)


class LoopWatch:
    """Looks at the loop it runs on."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._longest_s = 0.0
        self._held = Histogram(
            "apiserver_loop_held_seconds",
            "How late the event loop was because of its own work, where it was late by a millisecond or more.",
            buckets=BOUNDS_S,
            registry=registry,
        )
        longest = Gauge(
            "apiserver_loop_held_longest_seconds", "The longest since this metric was last read.", registry=registry
        )
        longest.set_function(self._take_longest)

    async def run(self) -> None:
        """Look until cancelled."""
        loop = asyncio.get_running_loop()
        due = used = 0.0
        timer: asyncio.TimerHandle | None = None

        def look() -> None:
            # A timer, not a task that sleeps: a hundred looks a second cost a tenth of a percent of a core this way.
            nonlocal due, used, timer
            now, computed = loop.time(), time.thread_time()
            if due:
                self.note(late_s=now - due, used_s=computed - used)
            due, used = now + LOOK_S, computed
            timer = loop.call_at(due, look)

        look()
        try:
            await asyncio.Event().wait()
        finally:
            if timer is not None:
                timer.cancel()

    def note(self, *, late_s: float, used_s: float) -> None:
        """Take one look: `late_s` after it was due, having computed for `used_s`."""
        held_s = min(late_s, used_s)
        if held_s >= BOUNDS_S[0]:
            self._held.observe(held_s)
        self._longest_s = max(self._longest_s, held_s)

    def _take_longest(self) -> float:
        longest, self._longest_s = self._longest_s, 0.0
        return longest
