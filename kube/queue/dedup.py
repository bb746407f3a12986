"""Keys waiting for a worker.

For: `kube.controller`. In: keys, as often as anybody likes. Out: each key to one worker at a time.
Promises:
- a key added many times before its run is run once;
- a key added during its run is run once more afterwards, never at the same time;
- keys are handed out in the order in which they became due;
- a closed queue hands out nothing more and wakes all who wait.
"""

from __future__ import annotations

import asyncio
from collections import deque

from kube.reconciler import Key


class QueueClosed(Exception):
    """The queue hands out nothing more."""


class DedupQueue:
    """Deduplicating queue. Not thread-safe: it lives on the event loop."""

    def __init__(self) -> None:
        self._ready: deque[Key] = deque()
        self._dirty: set[Key] = set()
        self._running: set[Key] = set()
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._closed = False

    def __len__(self) -> int:
        return len(self._ready)

    def add(self, key: Key) -> None:
        """Ask for a run of `key`."""
        if key in self._dirty or self._closed:
            return
        self._dirty.add(key)
        if key not in self._running:
            self._ready.append(key)
            self._wake_one()

    async def get(self) -> Key:
        """Wait for a key; the caller says `done` after its run."""
        while not self._ready or self._closed:
            if self._closed:
                raise QueueClosed
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():
                    self._wake_one()  # the key this waiter was woken for belongs to another now
                raise
        key = self._ready.popleft()
        self._dirty.discard(key)
        self._running.add(key)
        return key

    def done(self, key: Key) -> None:
        """End the run of `key`; when it was added meanwhile it is due again."""
        self._running.discard(key)
        if key in self._dirty:
            self._ready.append(key)
            self._wake_one()

    def close(self) -> None:
        """Hand out nothing more."""
        self._closed = True
        while self._waiters:
            self._wake_one()

    @property
    def idle(self) -> bool:
        """Say whether no key waits or runs."""
        return not self._ready and not self._running

    def _wake_one(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
