"""The promises of kube.queue."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from kube.queue.dedup import DedupQueue, QueueClosed
from kube.queue.delay import DelayQueue
from kube.queue.rate import Backoff
from kube.reconciler import Key
from tests.builders.virtual_clock import VirtualClock, settle

A, B, C = Key("a"), Key("b"), Key("c")


def play(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scenario())


def test_a_key_added_many_times_is_handed_out_once_and_in_order() -> None:
    async def scenario() -> None:
        queue = DedupQueue()
        for key in (B, A, B, B, C, A):
            queue.add(key)
        assert [await queue.get() for _ in range(3)] == [B, A, C]
        assert len(queue) == 0

    play(scenario)


def test_a_key_added_during_its_run_is_due_again_afterwards() -> None:
    async def scenario() -> None:
        queue = DedupQueue()
        queue.add(A)
        assert await queue.get() == A
        queue.add(A)
        queue.add(A)
        assert len(queue) == 0
        assert not queue.idle
        queue.done(A)
        assert await queue.get() == A
        queue.done(A)
        assert queue.idle

    play(scenario)


def test_a_waiter_that_is_cancelled_loses_no_key() -> None:
    async def scenario() -> None:
        queue = DedupQueue()
        first, second = asyncio.create_task(queue.get()), asyncio.create_task(queue.get())
        await settle()
        queue.add(A)
        first.cancel()
        await settle()
        assert await second == A

    play(scenario)


def test_a_closed_queue_wakes_all_and_hands_out_nothing() -> None:
    async def scenario() -> None:
        queue = DedupQueue()
        waiters = [asyncio.create_task(queue.get()) for _ in range(3)]
        await settle()
        queue.close()
        queue.add(A)
        for waiter in waiters:
            with pytest.raises(QueueClosed):
                await waiter

    play(scenario)


class Delayed:
    """A delay queue with its timer and a worker that notes when keys come."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.queue = DelayQueue(self.clock)
        self.start = self.clock.now()
        self.got: list[tuple[str, float]] = []

    async def work(self) -> None:
        while True:
            key = await self.queue.get()
            self.got.append((key.name, round(self.clock.now() - self.start, 3)))
            self.queue.done(key)

    async def __aenter__(self) -> Delayed:
        self.tasks = {asyncio.create_task(self.queue.run()), asyncio.create_task(self.work())}
        await settle()
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.wait(self.tasks)


def test_delayed_keys_come_when_they_are_due() -> None:
    async def scenario() -> None:
        async with Delayed() as delayed:
            delayed.queue.add_after(C, 30)
            await delayed.clock.advance(1)
            delayed.queue.add_after(A, 10)
            delayed.queue.add_after(B, 5)
            delayed.queue.add_after(Key("now"), 0)
            await delayed.clock.advance(60)
            assert delayed.got == [("now", 1), ("b", 6), ("a", 11), ("c", 30)]

    play(scenario)


def test_of_several_times_the_earliest_counts_once() -> None:
    async def scenario() -> None:
        async with Delayed() as delayed:
            delayed.queue.add_after(A, 20)
            delayed.queue.add_after(A, 10)
            delayed.queue.add_after(A, 30)
            await delayed.clock.advance(100)
            assert delayed.got == [("a", 10)]

    play(scenario)


def test_a_run_answers_what_was_asked_for_later() -> None:
    async def scenario() -> None:
        async with Delayed() as delayed:
            delayed.queue.add_after(A, 20)
            delayed.queue.add(A)
            await delayed.clock.advance(100)
            assert delayed.got == [("a", 0)]
            delayed.queue.add_after(A, 5)
            await delayed.clock.advance(5)
            assert delayed.got[1:] == [("a", 105)]

    play(scenario)


def test_spaced_keys_run_at_once_and_then_once_a_window() -> None:
    async def scenario() -> None:
        async with Delayed() as delayed:
            for pause in (0.0, 0.1, 0.1, 0.1, 5.0):
                await delayed.clock.advance(pause)
                delayed.queue.add_spaced(A, 0.5)
                await settle()
            assert delayed.got == [("a", 0), ("a", 0.5), ("a", 5.3)]

    play(scenario)


def test_runs_that_delay_nothing_any_more_are_forgotten() -> None:
    async def scenario() -> None:
        async with Delayed() as delayed:
            for number in range(100):
                delayed.queue.add_spaced(Key(f"pod-{number}"), 0.5)
                await delayed.clock.advance(0.1)
            assert len(delayed.got) == 100
            assert delayed.queue.remembered <= 6
            delayed.queue.add_spaced(A, 0.2)
            await settle()
            delayed.queue.add_spaced(A, 0.5)
            await delayed.clock.advance(10)
            assert [when for name, when in delayed.got if name == "a"] == pytest.approx([10.0, 10.5])

    play(scenario)


def test_failures_in_a_row_double_the_pause_up_to_its_limit() -> None:
    backoff = Backoff(random.Random(1), first_s=0.1, max_s=60)
    pauses = [backoff.next_s(A) for _ in range(40)]
    for number, pause in enumerate(pauses):
        full = min(60.0, 0.1 * 2**number)
        assert full / 2 <= pause <= full
    assert backoff.next_s(B) <= 0.1
    backoff.forget(A)
    assert backoff.next_s(A) <= 0.1
