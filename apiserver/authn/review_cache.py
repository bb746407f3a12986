"""Remembers answers of the API server for a few seconds.

For: `token_review`, `access_review`. In: a key and how to ask. Out: the answer, asked once for all who wait.
Promises: at most `capacity` answers, the least recently used goes first; an answer lives as long as it was given, on a
clock that only goes forward; an error is told to everybody who waits and remembered for nobody; a caller who leaves
takes nobody else's answer away.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from kube.clock import Clock

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

CAPACITY = 4096


class ReviewCache(Generic[K, V]):
    """Answers by key; `life_s` says how long one is believed."""

    def __init__(self, clock: Clock, life_s: Callable[[V], float], *, capacity: int = CAPACITY) -> None:
        self._clock = clock
        self._life_s = life_s
        self._capacity = capacity
        self._answers: OrderedDict[K, tuple[float, V]] = OrderedDict()
        self._asking: dict[K, asyncio.Task[V]] = {}

    def __len__(self) -> int:
        return len(self._answers)

    async def get(self, key: K, ask: Callable[[], Awaitable[V]]) -> V:
        """Return the remembered answer, or ask."""
        known = self._answers.get(key)
        if known is not None and self._clock.now() < known[0]:
            self._answers.move_to_end(key)
            return known[1]
        task = self._asking.get(key)
        if task is None:
            task = self._asking[key] = asyncio.create_task(self._ask(key, ask), name="review")
            task.add_done_callback(_seen)
        return await asyncio.shield(task)

    async def _ask(self, key: K, ask: Callable[[], Awaitable[V]]) -> V:
        try:
            answer = await ask()
        finally:
            del self._asking[key]
        self._answers[key] = (self._clock.now() + self._life_s(answer), answer)
        self._answers.move_to_end(key)
        while len(self._answers) > self._capacity:
            self._answers.popitem(last=False)
        return answer


def _seen(task: asyncio.Task[V]) -> None:
    """Look at the error of a task that nobody waits for any more: its callers have left."""
    if not task.cancelled():
        task.exception()
