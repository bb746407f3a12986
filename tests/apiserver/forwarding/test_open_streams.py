"""How a stream ends, and that the task it ran in goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest

from apiserver.forwarding.open_streams import OpenStreams, until_ended

Scenario = Callable[[OpenStreams, asyncio.Event], Coroutine[Any, Any, None]]


async def for_ever() -> dict[str, Any]:
    await asyncio.Event().wait()
    raise AssertionError("nobody sets it")


def cancels_left() -> int:
    """Return how often the task that runs is said to be cancelled: a time-out within it reads that."""
    task = asyncio.current_task()
    assert task is not None
    return task.cancelling()


async def waits(_streams: OpenStreams, gone: asyncio.Event) -> None:
    await asyncio.Event().wait()


async def ends(_streams: OpenStreams, gone: asyncio.Event) -> None:
    await asyncio.sleep(0)


async def ends_at_once(_streams: OpenStreams, gone: asyncio.Event) -> None:
    return


async def closes_itself_at_its_end(streams: OpenStreams, gone: asyncio.Event) -> None:
    streams.close_all()


async def fails_in_the_step_that_closes_it(streams: OpenStreams, gone: asyncio.Event) -> None:
    streams.close_all()
    raise ConnectionError("it broke")


async def goes_on_although_it_is_ended(streams: OpenStreams, gone: asyncio.Event) -> None:
    streams.close_all()
    with suppress(asyncio.CancelledError):
        await asyncio.Event().wait()


async def is_closed_twice(streams: OpenStreams, gone: asyncio.Event) -> None:
    streams.close_all()
    streams.close_all()
    await asyncio.Event().wait()


async def loses_its_client(_streams: OpenStreams, gone: asyncio.Event) -> None:
    gone.set()
    await asyncio.Event().wait()


ENDS: dict[str, Scenario] = {
    "by itself": ends,
    "without ever waiting": ends_at_once,
    "closed in its last step": closes_itself_at_its_end,
    "closed in the step in which it fails": fails_in_the_step_that_closes_it,
    "closed, and ending as if it were not": goes_on_although_it_is_ended,
    "closed twice": is_closed_twice,
    "its client gone": loses_its_client,
}


@pytest.mark.parametrize("scenario", ENDS.values(), ids=ENDS.keys())
def test_after_its_end_the_answer_can_be_finished(scenario: Scenario) -> None:
    async def run() -> None:
        streams, gone, later = OpenStreams(), asyncio.Event(), []

        async def receive() -> dict[str, Any]:
            await gone.wait()
            return {"type": "http.disconnect"}

        async def serve() -> None:
            await until_ended(scenario(streams, gone), receive, streams)
            for _ in range(3):
                await asyncio.sleep(0)  # the end of the answer is sent
            later.append(cancels_left())

        async with asyncio.timeout(5):
            await asyncio.create_task(serve())
        assert later == [0]
        assert len(streams) == 0

    asyncio.run(run())


def test_one_that_a_shutdown_closes_after_its_end_sends_its_last_bytes() -> None:
    async def run() -> None:
        streams, ended, drained = OpenStreams(), asyncio.Event(), asyncio.Event()

        async def serve() -> str:
            await until_ended(ends(streams, asyncio.Event()), for_ever, streams)
            ended.set()
            await drained.wait()  # a client that reads slowly
            return "sent"

        async with asyncio.timeout(5):
            task = asyncio.create_task(serve())
            await asyncio.sleep(0)
            (seen_before,) = streams.all()
            await ended.wait()
            seen_before.close()
            await asyncio.sleep(0)
            drained.set()
            assert await task == "sent"

    asyncio.run(run())


async def fails_while_it_is_ended(streams: OpenStreams, gone: asyncio.Event) -> None:
    try:
        streams.close_all()
        await asyncio.Event().wait()
    finally:
        raise ConnectionError("it broke")


async def fails(streams: OpenStreams, gone: asyncio.Event) -> None:
    await asyncio.sleep(0)
    raise ConnectionError("it broke")


@pytest.mark.parametrize("scenario", [fails, fails_while_it_is_ended])
def test_a_fault_is_raised_and_leaves_the_task_as_it_was(scenario: Scenario) -> None:
    async def run() -> None:
        streams = OpenStreams()

        async def serve() -> int:
            with pytest.raises(ConnectionError):
                await until_ended(scenario(streams, asyncio.Event()), for_ever, streams)
            await asyncio.sleep(0)
            return cancels_left()

        async with asyncio.timeout(5):
            assert await asyncio.create_task(serve()) == 0
        assert len(streams) == 0

    asyncio.run(run())


def test_one_that_comes_when_none_may_begin_ends_at_once() -> None:
    async def run() -> None:
        streams = OpenStreams()
        streams.refuse_new()
        async with asyncio.timeout(5):
            await until_ended(waits(streams, asyncio.Event()), for_ever, streams)

    asyncio.run(run())


@pytest.mark.parametrize("closed_too", [False, True], ids=["cancelled", "closed and cancelled"])
def test_a_task_that_somebody_else_cancels_is_cancelled(closed_too: bool) -> None:
    async def run() -> None:
        streams = OpenStreams()
        task = asyncio.create_task(until_ended(waits(streams, asyncio.Event()), for_ever, streams))
        await asyncio.sleep(0)
        if closed_too:
            streams.close_all()
        task.cancel()
        await asyncio.wait({task}, timeout=5)
        assert task.cancelled()
        assert len(streams) == 0

    asyncio.run(run())
