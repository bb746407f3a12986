"""Runs commands of the host, with a deadline.

In: a command, the host's root. Out: how it ended. Promises: never raises for what a command does; output is cut.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from devicemanager.preflight.probe import Ran

_NOT_FOUND = 127
_TIMED_OUT = 124
_MOST = 64 * 1024


class HostCommands:
    """Commands of the tree under `root`; anything but `/` is entered by chroot."""

    def __init__(self, root: Path = Path("/"), *, deadline_s: float = 120.0) -> None:
        self._prefix = [] if root == Path("/") else ["chroot", str(root)]
        self._deadline_s = deadline_s

    def run(self, command: Sequence[str]) -> Ran:
        """Return how a command ended."""
        try:
            done = subprocess.run(  # noqa: S603 - the words are ours, no shell reads them
                [*self._prefix, *command],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=self._deadline_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Ran(_TIMED_OUT, f"no end within {self._deadline_s:g} s")
        except OSError as error:
            return Ran(_NOT_FOUND, error.strerror or str(error))
        return Ran(done.returncode, (done.stdout + done.stderr)[:_MOST])
