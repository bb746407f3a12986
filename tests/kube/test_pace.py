"""Large work in small steps."""

from __future__ import annotations

import asyncio

import pytest

from kube.pace import STEP, in_steps


@pytest.mark.parametrize(
    ("items", "want"),
    [(0, []), (1, [1]), (STEP, [STEP]), (STEP + 1, [STEP, 1]), (3 * STEP, [STEP] * 3)],
    ids=["none", "one", "one step", "one more", "three steps"],
)
def test_in_steps_lets_others_run_between_two_steps(items: int, want: list[int]) -> None:
    async def scenario() -> None:
        turns, seen = 0, []

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(other())
        async for part in in_steps(range(items)):
            seen.append(part)
        assert [len(part) for part in seen] == want
        assert [item for part in seen for item in part] == list(range(items))
        assert turns == max(0, len(want) - 1)
        task.cancel()

    asyncio.run(scenario())
