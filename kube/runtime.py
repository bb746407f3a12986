"""Runs reconcilers over shared caches.

For: the processes `controllers` and `device-manager`, the stand-ins, tests.
In: a client, declared selections, reconcilers. Out: their runs, logs and counters.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

from kube.client import Client
from kube.clock import Clock
from kube.reconciler import Caches, Reconciler, Selection
from nodefeature.kinds import Kind


class Manager:
    """Owns the informers, queues and workers of one process."""

    caches: Caches

    def __init__(
        self,
        client: Client,
        *,
        selections: Mapping[Kind, Selection] | None = None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        freeze: Callable[[], None] | None = None,
    ) -> None: ...

    def add(self, reconciler: Reconciler, *, workers: int = 4, deadline_s: float = 60.0) -> None:
        """Take a reconciler; before `run`. Its kinds are watched, its indexes kept."""

    async def run(self) -> None:
        """Follow all kinds and run all reconcilers until `stop`."""

    def stop(self) -> None:
        """End `run`: no new run begins, runs under way may finish within the grace period."""
