"""Processes of one control plane: started, found again by a later command, named when they die.

For: `ControlPlane`. In: what to run. Out: a log a process and `processes.json`, which the next command reads.
Promises: a process is signalled only while its id still belongs to the program we started (a start time read from
/proc, so a recycled id is left alone); a process that ended on its own is named with its last log lines.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from hack.controlplane.errors import ControlPlaneError, NotReadyError, ProcessDiedError
from hack.controlplane.layout import Layout

_LAST_LINES = 12
_TERMINATE_S = 20.0
_KILL_S = 5.0
_POLL_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What to run: the command, and variables added to a bare environment."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """One started process, as `processes.json` keeps it."""

    name: str
    pid: int
    start_time: int
    """Clock ticks between boot and start: together with the id it names one process for good."""

    def is_alive(self) -> bool:
        """Say whether this very process still runs; a zombie has ended."""
        return _start_time(self.pid) == self.start_time


class Supervisor:
    """Starts, stops and watches the processes of one state folder."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._running = _read(layout.processes)

    def read(self) -> None:
        """Learn what another command has started or stopped meanwhile."""
        self._running = _read(self._layout.processes)

    @property
    def running(self) -> Mapping[str, Running]:
        """Return the processes that should run, by name, in the order of their start."""
        return self._running

    def start(self, program: Program) -> None:
        """Start a program in a session of its own; its output is appended to its log."""
        if (known := self._running.get(program.name)) and known.is_alive():
            raise NotReadyError(f"{program.name}: already runs with process id {known.pid}")
        child = self._spawn(program)
        self._children[program.name] = child
        self._running[program.name] = Running(name=program.name, pid=child.pid, start_time=_start_time(child.pid) or 0)
        self._save()

    def _spawn(self, program: Program) -> subprocess.Popen[bytes]:
        with self._layout.log(program.name).open("ab") as log:
            try:
                return subprocess.Popen(
                    program.command,
                    env={"PATH": "/usr/bin:/bin", "HOME": str(self._layout.root), **program.environment},
                    cwd=self._layout.root,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as error:
                binary = Path(program.command[0])
                raise ControlPlaneError(
                    f"{program.name}: cannot run {binary}: {error.strerror}; "
                    f"if {binary.parent.parent} is a broken build, remove it and build again"
                ) from error

    def check(self) -> None:
        """Raise ProcessDiedError when a process that should run does not."""
        dead = [running for running in self._running.values() if not self._is_alive(running)]
        if dead:
            raise ProcessDiedError("\n".join(self.obituary(running.name) for running in dead))

    def obituary(self, name: str) -> str:
        """Return a process's name, how it ended where that is known, and its last log lines."""
        child, code = self._children.get(name), None
        if child is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = child.wait(_KILL_S)  # its first thread may be gone before its last
        how = "ended" if code is None else (f"was ended by signal {-code}" if code < 0 else f"ended with {code}")
        return f"{name} {how}; last lines of {self._layout.log(name)}:\n{self.tail(name)}"

    def tail(self, name: str, lines: int = _LAST_LINES) -> str:
        """Return the last lines of a process's log."""
        return last_lines(self._layout.log(name), lines)

    def stop(self, name: str, *, with_signal: signal.Signals = signal.SIGTERM) -> None:
        """Stop a process and wait for its end; one that ignores SIGTERM for 20 s is killed."""
        running = self._running.get(name)
        if running is None:
            return
        self._signal(running, with_signal)
        if not self._wait(running, _TERMINATE_S):
            self._signal(running, signal.SIGKILL)
            if not self._wait(running, _KILL_S):
                raise NotReadyError(f"{name}: process {running.pid} survived SIGKILL for {_KILL_S:.0f} s")
        del self._running[name]
        if child := self._children.pop(name, None):
            child.wait()  # it has ended; an unreaped child would stay a zombie
        self._save()

    def stop_all(self, *, last: Sequence[str] = ()) -> None:
        """Stop every process, those that others lean on `last`, in that order; one that survives holds up no other."""
        early = [name for name in self._running if name not in last]
        survivors = []
        for name in (*early, *last):
            try:
                self.stop(name)
            except NotReadyError as error:
                survivors.append(str(error))
        if survivors:
            raise NotReadyError("\n".join(survivors))

    def _is_alive(self, running: Running) -> bool:
        if child := self._children.get(running.name):
            child.poll()  # reaps, so that an ended child does not stay a zombie
        return running.is_alive()

    def _signal(self, running: Running, number: signal.Signals) -> None:
        if self._is_alive(running):
            with contextlib.suppress(ProcessLookupError):
                os.kill(running.pid, number)

    def _wait(self, running: Running, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while self._is_alive(running):
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_S)
        return True

    def _save(self) -> None:
        scratch = self._layout.processes.with_suffix(".new")
        scratch.write_text(json.dumps([asdict(running) for running in self._running.values()], indent=1))
        scratch.replace(self._layout.processes)


def last_lines(path: Path, lines: int) -> str:
    """Return the last lines of a file; the empty string when there is none."""
    if not path.exists():
        return ""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 64 * 1024))
        text = file.read().decode(errors="replace")
    return "\n".join(text.splitlines()[-lines:])


def _read(file: Path) -> dict[str, Running]:
    if not file.exists():
        return {}
    try:
        return {entry["name"]: Running(**entry) for entry in json.loads(file.read_text())}
    except (ValueError, TypeError, KeyError) as error:
        raise ControlPlaneError(
            f"{file}: not a list of processes ({error}); end those whose command lines name {file.parent}, "
            "then remove that folder"
        ) from error


def _start_time(pid: int) -> int | None:
    """Return when a process started, in ticks since boot; None when it has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    after_name = stat.rpartition(")")[2].split()  # the name may hold blanks and brackets
    return None if after_name[0] in "ZX" else int(after_name[19])
