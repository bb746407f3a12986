"""Helper processes: one a manufacturer, each with a vendor's library in it.

For: `HostDetector`. In: a command that starts a helper. Out: answers.
Promises:
  - a helper that crashes, hangs past its deadline or writes nonsense is killed, answers Failed, and is started anew the
    next time: a library's cached failure never outlives one pass;
  - helpers end with this process, also when it is killed.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence

from devicemanager.answers import Answer, Failed, Found
from devicemanager.detectors.wire import load_answer
from devicemanager.usage import Measured, load_usage
from kube.clock import Clock

ASK = b"detect\n"
MEASURE = b"measure\n"
# A node of sixteen cards with all their partition profiles stays below 200 KiB.
_LINE_LIMIT = 4 * 1024 * 1024
_MODULE = "devicemanager.detectors.probe"


def probe_command(manufacturer: str) -> tuple[str, ...]:
    """Return the command of a manufacturer's helper."""
    return (sys.executable, "-m", _MODULE, manufacturer)


class HelperProbes:
    """Starts, asks and ends helpers."""

    def __init__(
        self,
        clock: Clock,
        *,
        deadline_s: float = 30.0,
        command: Callable[[str], Sequence[str]] = probe_command,
        no_pci_check: bool = False,
    ) -> None:
        self._clock = clock
        self._deadline_s = deadline_s
        self._command = command
        self._no_pci_check = no_pci_check
        self._running: dict[str, asyncio.subprocess.Process] = {}
        # One question at a time: a helper answers in the order it is asked.
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def ask(self, manufacturer: str) -> Answer:
        """Return the answer of a manufacturer's helper, started when it is not running."""
        async with self._locks[manufacturer]:
            line = await self._line(manufacturer, ASK)
            answer = line if isinstance(line, Failed) else load_answer(line, manufacturer)
            if not isinstance(answer, Found):
                # Libraries remember for ever that they could not start; a new process forgets.
                await self._end(manufacturer)
            return answer

    async def measure(self, manufacturer: str) -> Measured | Failed:
        """Return how busy a manufacturer's cards are, from the same helper."""
        async with self._locks[manufacturer]:
            line = await self._line(manufacturer, MEASURE)
            answer = line if isinstance(line, Failed) else load_usage(line)
            if isinstance(answer, Failed):
                await self._end(manufacturer)
            return answer

    async def close(self) -> None:
        """End all helpers."""
        for manufacturer in list(self._running):
            await self._end(manufacturer)

    async def _line(self, manufacturer: str, question: bytes) -> bytes | Failed:
        try:
            process = self._running.get(manufacturer) or await self._start(manufacturer)
        except OSError as error:
            return Failed(f"the helper process could not be started: {error}")
        try:
            async with self._clock.timeout(self._deadline_s):
                line = await _exchange(process, question)
        except TimeoutError:
            await self._end(manufacturer)
            return Failed(f"the library did not answer within {self._deadline_s:g} s; its process was killed")
        except asyncio.CancelledError:
            await self._end(manufacturer)
            raise
        except (OSError, ValueError) as error:
            await self._end(manufacturer)
            return Failed(f"the helper process could not be asked: {error}")
        if not line.endswith(b"\n"):
            return Failed(f"the library's process ended: {_how(await self._end(manufacturer))}")
        return line

    async def _start(self, manufacturer: str) -> asyncio.subprocess.Process:
        environment = {
            **os.environ,
            "GPUSTACK_RUNTIME_DETECT": manufacturer,
            # The library's own default is "always healthy".
            "GPUSTACK_RUNTIME_DETECT_NO_HEALTH_CHECK": "0",
            "GPUSTACK_RUNTIME_DETECT_NO_PCI_CHECK": "1" if self._no_pci_check else "0",
        }
        process = await asyncio.create_subprocess_exec(
            *self._command(manufacturer),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env=environment,
            limit=_LINE_LIMIT,
        )
        self._running[manufacturer] = process
        return process

    async def _end(self, manufacturer: str) -> int | None:
        process = self._running.pop(manufacturer, None)
        if process is None:
            return None
        if process.stdin is not None:
            process.stdin.close()
        if process.returncode is None:
            # A process that is ending by itself gets a moment, so that its own exit status is what we report.
            try:
                async with asyncio.timeout(0.1):
                    return await process.wait()
            except TimeoutError:
                process.kill()
        return await process.wait()


async def _exchange(process: asyncio.subprocess.Process, question: bytes) -> bytes:
    if process.stdin is None or process.stdout is None:
        raise ValueError("the helper process has no pipes")
    process.stdin.write(question)
    await process.stdin.drain()
    return await process.stdout.readline()


def _how(status: int | None) -> str:
    if status is None or status >= 0:
        return f"exit status {status}"
    return signal.Signals(-status).name if -status in set(signal.Signals) else f"signal {-status}"
