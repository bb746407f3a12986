"""Live progress of the demo: one line that moves on a terminal, a line per change elsewhere.

For: `run.py`. In: readings of the world. Out: text on a stream.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TextIO

from gpustack_operator.demo.fleet import DemoFleet
from gpustack_operator.demo.world import World
from nodefeature.kinds import CLUSTER_QUEUE, INSTANCE_TYPE, RESOURCE_FLAVOR


class Progress:
    """Says how far the chain has come."""

    def __init__(self, stream: TextIO, now: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._now = now
        self._start = now()
        self._last = ""

    def show(self, world: World, fleet: DemoFleet) -> None:
        """Show one reading."""
        text = (
            f"nodes {len(world.managed_nodes())}/{len(fleet.machines)}   cards {world.cards()}/{fleet.cards}   "
            f"flavors {len(world[RESOURCE_FLAVOR])}   queues {len(world[CLUSTER_QUEUE])}   "
            f"types active {len(world.active_types())}/{len(world[INSTANCE_TYPE])}"
        )
        stamp = f"[{self._now() - self._start:4.0f} s] "
        if self._stream.isatty():
            self._stream.write(f"\r\x1b[K{stamp}{text}")
        elif text != self._last:
            self._stream.write(f"{stamp}{text}\n")
        self._last = text
        self._stream.flush()

    def end(self) -> None:
        """Leave the line."""
        if self._stream.isatty() and self._last:
            self._stream.write("\n")
        self._last = ""
