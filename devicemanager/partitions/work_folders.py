"""Removes the working folders of Pods that are gone (spec 06 §11).

For: `binder`. In: the live Pods. Out: folders removed.
Promises: a folder goes after three passes in a row that missed its Pod, and never while it holds a marker: what a
marker names must be given back first; a folder that cannot be removed is tried again in every pass.
"""

from __future__ import annotations

import logging
import shutil
from collections import Counter
from pathlib import Path

from devicemanager.injection import cambricon, metax
from devicemanager.partitions.markers import is_marker

log = logging.getLogger(__name__)

MISSES = 3
_SLICE_MARKERS = frozenset({metax.MARKER, cambricon.MARKER})


class WorkFolders:
    """The folders under one root."""

    def __init__(self, pods_root: Path) -> None:
        self._root = pods_root
        self._missed: Counter[str] = Counter()

    def pass_over(self, live_pods: frozenset[str]) -> None:
        """Run one pass."""
        try:
            names = [entry.name for entry in self._root.iterdir() if entry.is_dir() and not entry.is_symlink()]
        except FileNotFoundError:
            return
        except OSError as error:
            log.warning("working folders not cleaned", extra={"reason": f"{self._root}: {error.strerror}"})
            return
        gone = [name for name in names if name not in live_pods]
        self._missed = Counter({name: self._missed[name] + 1 for name in gone})
        for name in gone:
            if self._missed[name] >= MISSES:
                self._remove(self._root / name)

    def _remove(self, folder: Path) -> None:
        try:
            if any(_is_marker(path.name) for path in folder.glob("*/*")):
                return
            shutil.rmtree(folder)
        except OSError as error:
            log.warning("working folder not removed", extra={"reason": f"{folder}: {error.strerror}"})
            return
        self._missed.pop(folder.name, None)
        log.info("working folder removed", extra={"reason": folder.name})


def _is_marker(name: str) -> bool:
    return name in _SLICE_MARKERS or is_marker(name)
