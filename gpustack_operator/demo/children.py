"""Child processes of the demo.

For: `run.py`. In: a name and a command line. Out: running processes, their logs, and the first that dies.
Promises:
- every child writes to a log of its own and is stopped with the supervisor: SIGTERM, then SIGKILL after a grace period;
- a child that ends on its own is reported with its last lines;
- children sit in sessions of their own, so that Ctrl-C reaches the supervisor first and the order of stopping is ours.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kube.errors import OperatorError

_LAST_LINES = 15
_GRACE_S = 8.0


class ChildDied(OperatorError):
    """A process of the demo ended although nobody stopped it."""


@dataclass(slots=True)
class Child:
    """One running process."""

    name: str
    process: asyncio.subprocess.Process
    log: Path

    def last_lines(self) -> str:
        """Return the end of the child's log, for a person to read."""
        lines = self.log.read_text(errors="replace").splitlines()[-_LAST_LINES:]
        return "\n".join(f"    {line}" for line in lines) or "    (it wrote nothing)"


class Children:
    """All processes of one run, in order of start."""

    def __init__(self, logs: Path, environ: Mapping[str, str]) -> None:
        self._logs = logs
        self._environ = dict(environ)
        self._children: list[Child] = []
        self._watchers: list[asyncio.Task[None]] = []
        self._dead: asyncio.Queue[Child] = asyncio.Queue()

    async def start(self, name: str, argv: Sequence[str], environ: Mapping[str, str] | None = None) -> Child:
        """Start one process; `environ` adds to the common environment."""
        log = self._logs / f"{name}.log"
        with log.open("wb") as out:
            starting = asyncio.ensure_future(
                asyncio.create_subprocess_exec(
                    *argv,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=out,
                    stderr=asyncio.subprocess.STDOUT,
                    env={**self._environ, **(environ or {})},
                    start_new_session=True,
                )
            )
            try:
                process = await asyncio.shield(starting)
            except asyncio.CancelledError:
                # It may have begun to run: it must be known, so that it is stopped with the others.
                self._own(Child(name, await starting, log))
                raise
        return self._own(Child(name, process, log))

    def _own(self, child: Child) -> Child:
        self._children.append(child)
        self._watchers.append(asyncio.create_task(self._watch(child), name=f"watch {child.name}"))
        return child

    async def _watch(self, child: Child) -> None:
        await child.process.wait()
        self._dead.put_nowait(child)

    async def first_death(self) -> None:
        """Wait until some child, also one started later, ends, then raise ChildDied with its last lines."""
        child = await self._dead.get()
        code = child.process.returncode
        raise ChildDied(f"process {child.name!r} ended with exit code {code}; its last lines:\n{child.last_lines()}")

    async def stop(self) -> None:
        """Stop everything, the youngest first; whoever does not listen is killed."""
        for watcher in self._watchers:
            watcher.cancel()
        for child in reversed(self._children):
            _signal(child, signal.SIGTERM)
        waits = [child.process.wait() for child in self._children]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GRACE_S):
                await asyncio.gather(*waits)
        for child in self._children:
            if child.process.returncode is None:
                _signal(child, signal.SIGKILL)
                await child.process.wait()


def _signal(child: Child, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        child.process.send_signal(number)
