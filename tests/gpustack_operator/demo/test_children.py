"""Children die and are stopped."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from gpustack_operator.demo import children as module
from gpustack_operator.demo.children import Child, ChildDied, Children

pytestmark = pytest.mark.component
WAITS = "import time; print('ready', flush=True); time.sleep(600)"
DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(600)"


def python(code: str) -> tuple[str, ...]:
    return (sys.executable, "-c", code)


async def until_ready(child: Child) -> None:
    async with asyncio.timeout(20):
        while "ready" not in child.last_lines():  # noqa: ASYNC110 - another process writes it
            await asyncio.sleep(0.01)


def test_a_death_is_reported_with_its_last_lines(tmp_path: Path) -> None:
    async def run() -> str:
        children = Children(tmp_path, os.environ)
        await children.start("calm", python(WAITS))
        code = "import sys; [print('line', n, flush=True) for n in range(40)]; sys.exit('out of cards')"
        await children.start("sick", python(code))
        try:
            await children.first_death()
        except ChildDied as death:
            return str(death)
        finally:
            await children.stop()
        return ""

    told = asyncio.run(run())
    assert told.startswith("process 'sick' ended with exit code 1; its last lines:\n")
    lines = told.splitlines()[1:]
    assert len(lines) == 15
    assert lines[-1] == "    out of cards"


def test_one_that_wrote_nothing_and_ended_well_is_a_death_too(tmp_path: Path) -> None:
    async def run() -> None:
        children = Children(tmp_path, os.environ)
        await children.start("quiet", python("pass"))
        with pytest.raises(
            ChildDied, match=r"'quiet' ended with exit code 0; its last lines:\n    \(it wrote nothing\)"
        ):
            await children.first_death()
        await children.stop()

    asyncio.run(run())


def test_stop_ends_all_the_youngest_first_and_kills_the_deaf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_GRACE_S", 0.3)

    async def run() -> list[int | None]:
        children = Children(tmp_path, os.environ)
        started = [await children.start("calm", python(WAITS)), await children.start("deaf", python(DEAF))]
        for child in started:
            await until_ready(child)
        await children.stop()
        return [child.process.returncode for child in started]

    assert asyncio.run(run()) == [-signal.SIGTERM, -signal.SIGKILL]


def test_stopping_is_no_death(tmp_path: Path) -> None:
    async def run() -> bool:
        children = Children(tmp_path, os.environ)
        await children.start("calm", python(WAITS))
        death = asyncio.create_task(children.first_death())
        await children.stop()
        await asyncio.sleep(0)
        reported = death.done()
        death.cancel()
        return reported

    assert asyncio.run(run()) is False


def test_environment_and_log(tmp_path: Path) -> None:
    async def run() -> None:
        children = Children(tmp_path, {**os.environ, "COMMON": "c"})
        code = "import os, sys; print(os.environ['COMMON'], os.environ['OWN'], file=sys.stderr)"
        child = await children.start("one", python(code), {"OWN": "o"})
        await child.process.wait()
        assert child.last_lines() == "    c o"
        await children.stop()

    asyncio.run(run())
