"""The promises of kube.clock, kept alike by the machine's clock and the tests' virtual one."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta, timezone

import pytest

from kube.clock import SystemClock, micro_time, second_time
from tests.builders.virtual_clock import VirtualClock, settle


def test_the_system_clock_goes_forward_and_times_out() -> None:
    async def scenario() -> None:
        clock = SystemClock()
        before = clock.now()
        await clock.sleep(0)
        with pytest.raises(TimeoutError):
            async with clock.timeout(-1):
                await asyncio.Event().wait()
        assert clock.now() >= before
        assert clock.time().tzinfo is UTC

    asyncio.run(scenario())


def test_times_are_written_in_utc() -> None:
    moment = datetime(2026, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))
    assert micro_time(moment) == "2026-01-01T00:00:00.000000Z"
    assert second_time(moment) == "2026-01-01T00:00:00Z"


def test_virtual_time_wakes_in_order_and_moves_both_clocks() -> None:
    async def scenario() -> None:
        clock, woken = VirtualClock(), list[tuple[float, float]]()
        start, wall = clock.now(), clock.time()

        async def sleeper(seconds: float) -> None:
            await clock.sleep(seconds)
            woken.append((seconds, clock.now() - start))

        tasks = {asyncio.create_task(sleeper(seconds)) for seconds in (3, 1, 2)}
        await clock.advance(2.5)
        assert len(woken) == 2
        await clock.advance(0.5)
        assert woken == [(1, 1), (2, 2), (3, 3)]
        assert clock.time() - wall == timedelta(seconds=3)
        await asyncio.wait(tasks)

    asyncio.run(scenario())


def test_a_virtual_timeout_fires_only_inside_its_block() -> None:
    async def scenario() -> None:
        clock, outcome = VirtualClock(), list[str]()

        async def work(seconds: float) -> None:
            try:
                async with clock.timeout(5):
                    await clock.sleep(seconds)
            except TimeoutError:
                outcome.append("late")
            else:
                await clock.sleep(10)
                outcome.append("done")

        tasks = {asyncio.create_task(work(4)), asyncio.create_task(work(6))}
        await settle()
        await clock.advance(20)
        assert outcome == ["late", "done"]
        await asyncio.wait(tasks)

    asyncio.run(scenario())
