"""Keys that become due later.

For: `kube.controller`. In: keys and seconds. Out: the keys, through `dedup`, when they are due.
Promises:
- of several times asked for one key the earliest counts;
- the run of a key answers everything asked before it began: later times of that key are forgotten then;
- `add_after` collects: requests of one key inside the time run once, at its end;
- `add_spaced` collects behind the first: that one runs at once, those that come within the time after its run began run
  once, at its end;
- when a key last ran is forgotten once it delays nothing any more: memory does not grow with keys that came and went.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections import OrderedDict

from kube.clock import Clock
from kube.queue.dedup import DedupQueue
from kube.reconciler import Key


class DelayQueue(DedupQueue):
    """A deduplicating queue with a clock. `run` must be running for delayed keys to become due."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self._due: dict[Key, float] = {}
        self._spaced: set[Key] = set()
        """Keys whose next run is to be remembered."""
        self._began: OrderedDict[Key, float] = OrderedDict()
        """When the newest run of a spaced key began; the newest stands last, none is older than `_widest_s`."""
        self._widest_s = 0.0
        self._heap: list[tuple[float, int, Key]] = []
        self._serial = itertools.count()
        self._earlier = asyncio.Event()

    def add_after(self, key: Key, seconds: float) -> None:
        """Ask for a run of `key` in `seconds`, unless one comes before."""
        if seconds <= 0:
            self.add(key)
            return
        due = self._clock.now() + seconds
        if self._due.get(key, float("inf")) <= due:
            return
        self._due[key] = due
        if not self._heap or due < self._heap[0][0]:
            self._earlier.set()
        heapq.heappush(self._heap, (due, next(self._serial), key))

    def add_spaced(self, key: Key, seconds: float) -> None:
        """Ask for a run of `key` at once, but not before `seconds` after the last one began."""
        self._widest_s = max(self._widest_s, seconds)
        self._spaced.add(key)
        self.add_after(key, self._began.get(key, float("-inf")) + seconds - self._clock.now())

    @property
    def remembered(self) -> int:
        """Return of how many keys the newest run is kept."""
        return len(self._began)

    async def get(self) -> Key:
        """Wait for a key; what was asked for later is answered by this run."""
        key = await super().get()
        self._due.pop(key, None)
        now = self._clock.now()
        if key in self._spaced or key in self._began:
            self._spaced.discard(key)
            self._began[key] = now
            self._began.move_to_end(key)
        while self._began and next(iter(self._began.values())) + self._widest_s <= now:
            self._began.popitem(last=False)
        return key

    async def run(self) -> None:
        """Make delayed keys due, until cancelled."""
        while True:
            self._release()
            self._earlier.clear()
            if not self._heap:
                await self._earlier.wait()
                continue
            try:
                async with self._clock.timeout(self._heap[0][0] - self._clock.now()):
                    await self._earlier.wait()
            except TimeoutError:
                continue

    def _release(self) -> None:
        now = self._clock.now()
        while self._heap and self._heap[0][0] <= now:
            due, _, key = heapq.heappop(self._heap)
            if self._due.get(key) == due:
                del self._due[key]
                self.add(key)
