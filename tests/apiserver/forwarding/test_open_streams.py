"""How a stream ends, and that the task it ran in goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from apiserver.forwarding.open_streams import OpenStreams, until_ended

Scenario = Callable[[OpenStreams, asyncio.Event], Coroutine[Any, Any, None]]


async def for_ever() -> dict[str, Any]:
    await asyncio.Event().wait()
    raise AssertionError("nobody sets it")


async def waits(_streams: OpenStreams, gone: asyncio.Event) -> None:
    await asyncio.Event().wait()


async def ends(_streams: OpenStreams, gone: asyncio.Event) -> None:
    await asyncio.sleep(0)


async def ends_at_once(_streams: OpenStreams, gone: asyncio.Event) -> None:
    return


async def closes_itself_at_its_end(streams: OpenStreams, gone: asyncio.Event) -> None:
    streams.close_all()


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
            later.append("sent")

        async with asyncio.timeout(5):
            await asyncio.create_task(serve())
        assert later == ["sent"]
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
