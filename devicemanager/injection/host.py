"""The node's file tree, as far as injection reads and writes it.

For: `entrance`, `partitions`, preflight.
In: host paths. Out: texts, facts of device nodes; files and folders.
Promises:
  - a file appears whole or not at all: written beside its place, synced, renamed; what a failed write left is removed;
  - a full disk, a read-only path or a missing right is a refusal that names the path and what to do;
  - absent and unreadable are two answers.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp, mkstemp

from devicemanager.injection.request import HostFile, InjectionRefused

_FOLDER_MODE = 0o777
_REMEDIES = {
    errno.ENOSPC: "free space on that file system",
    errno.EDQUOT: "raise the quota of that file system",
    errno.EROFS: "mount that path writable into the agent's Pod",
    errno.EACCES: "give the agent the right to that path",
    errno.EPERM: "give the agent the right to that path",
}


class HostFault(InjectionRefused):
    """A host path that could not be read or written."""

    def __init__(self, path: str, doing: str, error: OSError) -> None:
        what = _REMEDIES.get(error.errno or 0, "look at that path on the node")
        super().__init__(f"{path}: cannot be {doing}: {error.strerror or error}; {what}")


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What stands at a path under /dev. `minor` is None for what is no device."""

    character: bool
    minor: int | None


class Host:
    """The file tree under `root`."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root

    def exists(self, path: str) -> bool:
        """Say whether anything stands at a path."""
        return self._at(path).exists()

    def is_link(self, path: str) -> bool:
        """Say whether a path is a symbolic link."""
        return self._at(path).is_symlink()

    def node(self, path: str) -> NodeFacts | None:
        """Return the facts of a device node, None where nothing stands."""
        try:
            facts = self._at(path).stat()
        except OSError:
            return None
        device = stat.S_ISCHR(facts.st_mode) or stat.S_ISBLK(facts.st_mode)
        return NodeFacts(stat.S_ISCHR(facts.st_mode), os.minor(facts.st_rdev) if device else None)

    def read(self, path: str) -> str | None:
        """Return a file's text, None where there is none; HostFault when it cannot be read."""
        try:
            return self._at(path).read_text(encoding="utf-8", errors="replace")
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise HostFault(path, "read", error) from error

    def read_or_none(self, path: str) -> str | None:
        """Return a file's text, None also where it cannot be read."""
        try:
            return self.read(path)
        except HostFault:
            return None

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder, sorted; none where there is no folder; HostFault when it cannot be read."""
        try:
            return sorted(os.listdir(self._at(folder)))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise HostFault(folder, "read", error) from error

    def work_folders(self, pods_root: str) -> Iterator[str]:
        """Yield the working folder of every container of every Pod."""
        for pod in self.names(pods_root):
            for container in self.names(f"{pods_root}/{pod}"):
                yield f"{pods_root}/{pod}/{container}"

    def make_folder(self, path: str) -> None:
        """Make a folder that every container may write to, whatever the process' mask is."""
        place = self._at(path)
        missing = [folder for folder in (place, *place.parents) if not folder.exists()]
        try:
            place.mkdir(parents=True, exist_ok=True)
            for folder in missing:
                folder.chmod(_FOLDER_MODE)
        except OSError as error:
            raise HostFault(path, "made", error) from error

    def try_folder(self, path: str) -> None:
        """Find out whether a folder is there, or could be made, and takes something; nothing of the trial is left."""
        place = self._at(path)
        # Tried where it would be made: a folder of its own name may at any moment become an agent's.
        there = next(folder for folder in (place, *place.parents) if os.path.lexists(folder))
        try:
            os.rmdir(mkdtemp(prefix=".gpustack-", dir=there))
        except OSError as error:
            raise HostFault(path, "made", error) from error

    def write(self, file: HostFile) -> None:
        """Write a file so that it survives a crash whole, or not at all."""
        place = self._at(file.path)
        self.make_folder(os.path.dirname(file.path))
        temporary = ""
        try:
            descriptor, temporary = mkstemp(prefix=f".{place.name}.", dir=place.parent)
            with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
                stream.write(file.text)
                stream.flush()
                os.fchmod(stream.fileno(), file.mode)
                os.fsync(stream.fileno())
            os.replace(temporary, place)
            _sync_folder(place.parent)
        except OSError as error:
            if temporary:
                Path(temporary).unlink(missing_ok=True)
            raise HostFault(file.path, "written", error) from error

    def remove(self, path: str) -> None:
        """Remove a file; one that is gone is done."""
        try:
            self._at(path).unlink(missing_ok=True)
        except OSError as error:
            raise HostFault(path, "removed", error) from error

    def _at(self, path: str) -> Path:
        return self._root / path.lstrip("/")


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
