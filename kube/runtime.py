"""Runs reconcilers over shared caches.

For: the processes `controllers` and `device-manager`, the stand-ins, tests.
In: a client, declared selections, reconcilers. Out: their runs, logs, counters and the health of their tasks.
Promises:
- one informer per kind, however many reconcilers read it; all of them share its objects;
- a reconciler waits for the caches it declares and for no other;
- an informer or controller that is gone turns `/livez` red;
- after `stop` no run begins; runs under way may finish within `grace_s`, so a write is not cut off;
- `freeze` is called when a reconciler has its caches: objects that stay are then no longer walked by the collector.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import signal
from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry

from kube.client import Client
from kube.clock import Clock
from kube.controller import Controller
from kube.informer import Informer, OnChange
from kube.metrics import RuntimeMetrics
from kube.reconciler import Lister, Reconciler, Selection, Watch
from kube.store import Change, Store
from kube.tasks import Health, guard
from nodefeature.kinds import Kind

log = logging.getLogger(__name__)


class SharedCaches(Mapping[Kind, Store]):
    """The caches of all declared kinds; a kind nobody declared is a KeyError that says so."""

    def __init__(self) -> None:
        self._stores: dict[Kind, Store] = {}

    def __getitem__(self, kind: Kind) -> Store:
        try:
            return self._stores[kind]
        except KeyError:
            raise KeyError(f"{kind} is in no WATCHES and no READS") from None

    def __iter__(self) -> Iterator[Kind]:
        return iter(self._stores)

    def __len__(self) -> int:
        return len(self._stores)

    def declare(self, store: Store) -> None:
        """Add the cache of a kind."""
        self._stores[store.kind] = store


def freeze_caches() -> None:
    """Take what is cached out of the collector's walks: a full collection over a large fleet would hold the loop."""
    gc.collect()
    gc.freeze()


class Manager:
    """Owns the informers, queues and workers of one process."""

    def __init__(
        self,
        client: Client,
        *,
        selections: Mapping[Kind, Selection] | None = None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        freeze: Callable[[], None] | None = None,
        grace_s: float = 10.0,
        detect_mutations: bool = False,
        registry: CollectorRegistry | None = None,
    ) -> None:
        self.client = client
        self.caches = SharedCaches()
        self.health = Health()
        self.metrics = RuntimeMetrics(registry)
        self._selections = selections or {}
        self._clock = clock or client.connection.clock
        self._rng = rng or random.Random()  # noqa: S311 - spreads retries; no secret depends on it
        self._freeze = freeze or (lambda: None)
        self._grace_s = grace_s
        self._detect_mutations = detect_mutations
        self._informers: dict[Kind, Informer] = {}
        self._routes: dict[Kind, list[tuple[Controller, Watch]]] = {}
        self._controllers: list[Controller] = []
        self._stopping = asyncio.Event()

    def add(self, reconciler: Reconciler, *, workers: int = 4, deadline_s: float = 60.0) -> None:
        """Take a reconciler; before `run`. Its kinds are followed, its indexes kept."""
        controller = Controller(
            reconciler,
            self.caches,
            self.caches,
            self.metrics,
            workers=workers,
            deadline_s=deadline_s,
            clock=self._clock,
            rng=self._rng,
        )
        for kind in (*controller.kinds, *(index.kind for index in reconciler.INDEXES)):
            self.follow(kind)
        for index in reconciler.INDEXES:
            self.caches[index.kind].add_index(index)
        for watch in controller.watches:
            self._routes[watch.kind].append((controller, watch))
        self._controllers.append(controller)

    def follow(self, kind: Kind) -> Lister:
        """Cache a kind, also when no reconciler asks for it; before `run`."""
        if kind not in self._informers:
            selection = self._selections.get(kind, Selection())
            store = Store(kind, project=selection.project, detect_mutations=self._detect_mutations)
            self.caches.declare(store)
            self._informers[kind] = Informer(
                self.client, store, self._dispatcher(store), selection=selection, clock=self._clock, rng=self._rng
            )
        return self.caches[kind]

    def synced(self, kind: Kind) -> asyncio.Event:
        """Return the event that is set once the cache of `kind` is complete."""
        return self._informers[kind].synced

    async def run(self) -> None:
        """Follow all kinds and run all reconcilers until `stop` or cancellation."""
        self.health.add_check("caches", self._unsynced)
        async with asyncio.TaskGroup() as group:
            informers = [
                group.create_task(guard(f"informer {kind}", informer.run(), self.health), name=f"informer {kind}")
                for kind, informer in self._informers.items()
            ]
            controllers = [
                group.create_task(self._control(controller), name=f"controller {controller.name}")
                for controller in self._controllers
            ]
            await self._stopping.wait()
            await self._drain(controllers)
            for task in informers:
                task.cancel()
        for store in self.caches.values():
            store.check()

    def stop(self) -> None:
        """End `run`: no new run begins, runs under way may finish."""
        self._stopping.set()

    async def stopped(self) -> None:
        """Return when `stop` has been called."""
        await self._stopping.wait()

    def stop_on_signals(self) -> None:
        """Let SIGTERM and SIGINT stop this manager. Called on the event loop's thread."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)

    @property
    def idle(self) -> bool:
        """Say whether every controller has started and has nothing to do now."""
        return all(controller.idle for controller in self._controllers)

    async def _control(self, controller: Controller) -> None:
        name = f"controller {controller.name}"
        work = controller.run(self.synced, self._freeze)
        await guard(name, work, self.health, may_end=lambda: controller.draining)

    async def _drain(self, tasks: list[asyncio.Task[None]]) -> None:
        for controller, task in zip(self._controllers, tasks, strict=True):
            controller.drain()
            if not controller.started:
                task.cancel()
        log.info("stopping", extra={"reason": f"runs under way have {self._grace_s:.0f} s"})
        try:
            async with self._clock.timeout(self._grace_s):
                if tasks:
                    await asyncio.wait(tasks)
        except TimeoutError:
            log.warning("runs cut off", extra={"reason": f"still under way after {self._grace_s:.0f} s"})
        for task in tasks:
            task.cancel()

    def _dispatcher(self, store: Store) -> OnChange:
        routes = self._routes.setdefault(store.kind, [])
        changes = self.metrics.changes.labels(store.kind.kind)
        objects = self.metrics.objects.labels(store.kind.kind)

        def dispatch(change: Change) -> None:
            changes.inc()
            objects.set(len(store))
            for controller, watch in routes:
                controller.observe(watch, change)

        return dispatch

    def _unsynced(self) -> str:
        waiting = [str(kind) for kind, informer in self._informers.items() if not informer.synced.is_set()]
        return f"not synced: {', '.join(waiting)}" if waiting else ""
