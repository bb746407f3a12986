"""Processes under measurement: start, CPU seconds, peak memory, stop.

For: the benches. In: command lines. Out: figures of the operating system, per process.
Promises: a process that dies is named with its last lines; everything is stopped when the block ends.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

CHECKOUT = Path(__file__).resolve().parents[2]
_TICKS = os.sysconf("SC_CLK_TCK")
_GRACE_S = 20.0


def cpu_seconds(pid: int) -> float:
    """Return the CPU seconds a process has used, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


class ProcessDied(RuntimeError):
    """A measured process ended although nobody stopped it."""


class Measured:
    """One running process."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], log: Path) -> None:
        self.name = name
        self._process = process
        self._log = log

    def check(self) -> None:
        """Raise ProcessDied when it has ended."""
        if self._process.poll() is not None:
            lines = "\n".join(self._log.read_text(errors="replace").splitlines()[-15:])
            raise ProcessDied(f"{self.name} ended with exit code {self._process.returncode}:\n{lines}")

    def cpu_s(self) -> float:
        """Return the CPU seconds it has used, user and system."""
        return cpu_seconds(self._process.pid)

    def peak_mib(self) -> float:
        """Return the most memory it ever held resident."""
        for line in Path(f"/proc/{self._process.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
        return 0.0

    def stop(self) -> None:
        """Ask it to end, then insist."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(_GRACE_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()


class Processes:
    """`with Processes(folder, environ) as started:` keeps all processes of one bench."""

    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        self._folder = folder
        self._environ = dict(environ)
        self._all: list[Measured] = []

    def __enter__(self) -> Processes:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in reversed(self._all):
            process.stop()

    def start(self, name: str, module: str, *flags: str) -> Measured:
        """Start `python -m module flags...`."""
        log = self._folder / f"{name}.log"
        with log.open("ab") as out:
            process = subprocess.Popen(
                (sys.executable, "-m", module, *flags),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=self._environ,
                start_new_session=True,
            )
        measured = Measured(name, process, log)
        self._all.append(measured)
        return measured

    def stop(self, process: Measured) -> None:
        """Stop one process before the others."""
        process.stop()
        self._all.remove(process)

    def check(self) -> None:
        """Raise ProcessDied when one of them has ended."""
        for process in self._all:
            process.check()
