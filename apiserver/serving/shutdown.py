"""The last minute of a replica (design §6): nobody's request fails because it leaves.

For: whoever assembles the server. In: the listener, the open streams, when it may end. Out: a process that may exit.
The order: not ready any more -> still serving, and telling each client to leave with its next answer, while the cluster
takes this replica out of its Service -> watches end one after the other with a clean EOF -> the socket closes, what is
under way finishes -> what is left is cut off.
Promises: a second signal changes nothing; the whole takes at most the sum of `Times`.
"""

from __future__ import annotations

import asyncio
import logging
import random
import signal
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from apiserver.serving.listener import Listener
from kube.clock import Clock

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Seconds of each step. A Pod needs a grace period longer than their sum."""

    serve_s: float = 10.0
    """Endpoints, kube-proxy and aggregator hear of a Pod that is not ready."""
    spread_s: float = 5.0
    """Thousands of watches that end at once would all come back at once."""
    finish_s: float = 15.0
    """Requests under way may end."""


class Stream(Protocol):
    """Something that goes on until it is closed; closing ends it cleanly."""

    def close(self) -> None:
        """End."""


class Shutdown:
    """Whether, and how far, this replica is leaving."""

    def __init__(self, times: Times, clock: Clock, rng: random.Random) -> None:
        self._times = times
        self._clock = clock
        self._rng = rng
        self._told = asyncio.Event()

    @property
    def begun(self) -> bool:
        """Say whether this replica is leaving."""
        return self._told.is_set()

    def begin(self) -> None:
        """Leave; called once or more."""
        if not self._told.is_set():
            log.info("leaving")
        self._told.set()

    async def told(self) -> None:
        """Return when this replica is to leave."""
        await self._told.wait()

    def on_signals(self) -> None:
        """Leave on SIGTERM and SIGINT."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.begin)

    async def run(
        self, listener: Listener, *, streams: Callable[[], Sequence[Stream]], refuse_streams: Callable[[], None]
    ) -> None:
        """Go through the steps; `streams` answers what is open now."""
        await self._clock.sleep(self._times.serve_s)
        refuse_streams()
        await self._end(streams())
        self._close(streams())
        listener.stop_accepting()
        await listener.finish(self._times.finish_s)
        log.info("left")

    async def _end(self, streams: Sequence[Stream]) -> None:
        left = list(streams)
        self._rng.shuffle(left)
        pause_s = self._times.spread_s / max(len(left), 1)
        for stream in left:
            stream.close()
            await self._clock.sleep(pause_s)

    @staticmethod
    def _close(streams: Iterable[Stream]) -> None:
        for stream in streams:
            stream.close()
