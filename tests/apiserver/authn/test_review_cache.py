"""The promises of the cache of reviews."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from apiserver.authn.review_cache import ReviewCache
from tests.builders.virtual_clock import VirtualClock


class Asked:
    """Answers with a serial number and counts."""

    def __init__(self) -> None:
        self.times = 0
        self.gate: asyncio.Event | None = None
        self.error: Exception | None = None

    async def __call__(self) -> int:
        self.times += 1
        if self.gate is not None:
            await self.gate.wait()
        if self.error is not None:
            raise self.error
        return self.times


def run(test: Callable[[ReviewCache[str, int], Asked, VirtualClock], Awaitable[None]], capacity: int = 4096) -> None:
    async def body() -> None:
        clock = VirtualClock()
        await test(ReviewCache(clock, lambda answer: 10.0 if answer % 2 else 1.0, capacity=capacity), Asked(), clock)

    asyncio.run(body())


def test_an_answer_lives_as_long_as_it_was_given() -> None:
    async def test(cache: ReviewCache[str, int], asked: Asked, clock: VirtualClock) -> None:
        assert [await cache.get("a", asked), await cache.get("a", asked)] == [1, 1]
        await clock.advance(9.9)
        assert await cache.get("a", asked) == 1
        await clock.advance(0.2)
        assert await cache.get("a", asked) == 2
        await clock.advance(1.1)
        assert await cache.get("a", asked) == 3
        clock.jump_wall(-3600)
        assert await cache.get("a", asked) == 3

    run(test)


def test_at_most_so_many_answers_the_least_used_goes() -> None:
    async def test(cache: ReviewCache[str, int], asked: Asked, clock: VirtualClock) -> None:
        asked.times = 0
        for key in ("a", "b", "a", "c"):
            await cache.get(key, _odd)
        assert len(cache) == 2
        assert await cache.get("a", asked) == 7
        assert asked.times == 0
        assert await cache.get("b", asked) == 1

    async def _odd() -> int:
        return 7

    run(test, capacity=2)


def test_those_who_wait_share_one_question() -> None:
    async def test(cache: ReviewCache[str, int], asked: Asked, clock: VirtualClock) -> None:
        asked.gate = asyncio.Event()
        waiting = [asyncio.create_task(cache.get("a", asked)) for _ in range(50)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        await asyncio.sleep(0)
        asked.gate.set()
        assert await asyncio.gather(*waiting[1:]) == [1] * 49
        assert asked.times == 1

    run(test)


def test_an_error_is_told_to_all_and_remembered_for_none() -> None:
    async def test(cache: ReviewCache[str, int], asked: Asked, clock: VirtualClock) -> None:
        asked.error = ValueError("away")
        answers = await asyncio.gather(cache.get("a", asked), cache.get("a", asked), return_exceptions=True)
        assert [type(answer) for answer in answers] == [ValueError, ValueError]
        asked.error = None
        assert await cache.get("a", asked) == 2
        assert asked.times == 2

    run(test)


def test_an_error_that_nobody_waits_for_is_no_noise(caplog: pytest.LogCaptureFixture) -> None:
    async def test(cache: ReviewCache[str, int], asked: Asked, clock: VirtualClock) -> None:
        asked.gate, asked.error = asyncio.Event(), ValueError("away")
        waiting = asyncio.create_task(cache.get("a", asked))
        await asyncio.sleep(0)
        waiting.cancel()
        asked.gate.set()
        for _ in range(5):
            await asyncio.sleep(0)

    run(test)
    assert not caplog.records
