"""One owner of a state folder at a time.

For: `ControlPlane`, whose start empties the folder and stops what runs there: two at once would end each other.
In: the folder. Out: nothing; the folder itself is what is locked, so that no file has to outlive its emptying.
Promises: the lock ends with the process that holds it, however it ends; processes that were started do not inherit it.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from hack.controlplane.errors import BusyError, ControlPlaneError


class Lock:
    """The right to start a control plane in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: int | None = None

    def take(self) -> bool:
        """Take the right and say whether that was needed; BusyError when another has it."""
        if self._held is not None:
            return False
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        except (FileExistsError, NotADirectoryError) as error:
            raise ControlPlaneError(f"{self._folder}: not a folder; name another with --state-dir") from error
        except OSError as error:
            raise ControlPlaneError(
                f"{self._folder}: cannot hold a control plane: {error.strerror}; name another with --state-dir"
            ) from error
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(folder)
            raise BusyError(
                f"{self._folder}: another process starts or uses a control plane here; wait for its end, "
                "or name another folder with --state-dir"
            ) from error
        self._held = folder
        return True

    def release(self) -> None:
        """Give the right back."""
        if self._held is not None:
            os.close(self._held)
            self._held = None
