"""One reconciler at work: its queue, its workers, what its answers mean.

For: `kube.runtime`. In: changes of caches. Out: runs of the reconciler, each with an id, a deadline and a counted
outcome.
Promises:
- it begins when every cache it declares has synced, and then asks for a run of every cached object;
- one run per key at a time; a change during a run leads to one more;
- a run that outlasts its deadline is cancelled and backed off;
- an error of any sort ends one run, never the worker; it is logged once;
- `Terminal` is not retried until something changes; the same one is not logged again;
- a refusal that carries Retry-After is not retried before;
- a change that cannot be mapped is logged with its object's name, the others go on;
- `drain` lets runs under way finish and starts none.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping

from kube.clock import Clock
from kube.errors import ApiError, Conflict, NotLeader, OperatorError, Terminal
from kube.logs import log_fields
from kube.metrics import RuntimeMetrics
from kube.pace import Pace
from kube.queue.dedup import QueueClosed
from kube.queue.delay import DelayQueue
from kube.queue.rate import Backoff
from kube.reconciler import After, Caches, Key, Reconciler, Watch
from kube.store import Change, Store, key_of
from nodefeature.kinds import Kind

log = logging.getLogger(__name__)


class Controller:
    """Runs one reconciler."""

    def __init__(
        self,
        reconciler: Reconciler,
        stores: Mapping[Kind, Store],
        caches: Caches,
        metrics: RuntimeMetrics,
        *,
        workers: int,
        deadline_s: float,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self.name = reconciler.NAME
        self.kinds = tuple(dict.fromkeys([*(watch.kind for watch in reconciler.WATCHES), *reconciler.READS]))
        self.watches = reconciler.WATCHES
        self._reconciler = reconciler
        self._stores = stores
        self._caches = caches
        self._metrics = metrics
        self._workers = workers
        self._deadline_s = deadline_s
        self._clock = clock
        self._rng = rng
        self._queue = DelayQueue(clock)
        self._backoff = Backoff(rng)
        self._terminal: dict[Key, str] = {}
        self._started = False
        self._draining = False

    def observe(self, watch: Watch, change: Change) -> None:
        """Turn a change into requests. Before the start nothing is lost: the start asks for everything."""
        if self._started:
            self._map(watch, change)

    async def run(self, synced: Callable[[Kind], asyncio.Event], on_start: Callable[[], None]) -> None:
        """Wait for the caches, then work until cancelled or drained."""
        for kind in self.kinds:
            await synced(kind).wait()
        self._started = True
        await self._ask_for_all()
        on_start()
        log.info("controller started", extra={"controller": self.name, "keys": len(self._queue)})
        async with asyncio.TaskGroup() as group:
            timer = group.create_task(self._queue.run(), name=f"{self.name} timer")
            workers = [group.create_task(self._work(), name=f"{self.name} worker") for _ in range(self._workers)]
            for worker in workers:
                await worker
            timer.cancel()

    def drain(self) -> None:
        """Start no further run; `run` returns when those under way have ended."""
        self._draining = True
        self._queue.close()

    @property
    def started(self) -> bool:
        """Say whether its caches have synced and its workers run."""
        return self._started

    @property
    def draining(self) -> bool:
        """Say whether it has been told to end."""
        return self._draining

    @property
    def idle(self) -> bool:
        """Say whether it has started and no key waits or runs (delayed ones aside)."""
        return self._started and self._queue.idle

    async def _ask_for_all(self) -> None:
        pace = Pace()
        for watch in self.watches:
            for obj in self._stores[watch.kind].list():
                self._map(watch, Change(None, obj))
                await pace.step()

    def _map(self, watch: Watch, change: Change) -> None:
        try:
            keys = tuple(watch.keys(change.old, change.new, self._caches))
        except Exception:  # one odd object must not stop the others
            obj = change.new or change.old or {}
            extra = {"controller": self.name, "kind": watch.kind.kind, "object": str(key_of(obj))}
            log.exception("change could not be mapped", extra=extra)
            return
        for key in keys:
            if watch.first_at_once:
                self._queue.add_spaced(key, watch.window_s)
            else:
                self._queue.add_after(key, watch.window_s)

    async def _work(self) -> None:
        while True:
            try:
                key = await self._queue.get()
            except QueueClosed:
                return
            try:
                await self._run_once(key)
            finally:
                self._queue.done(key)
                self._metrics.waiting.labels(self.name).set(len(self._queue))

    async def _run_once(self, key: Key) -> None:
        began = self._clock.now()
        with log_fields(controller=self.name, object=str(key), reconcile_id=f"{self._rng.getrandbits(32):08x}"):
            outcome, again_s = await self._attempt(key)
        if again_s is not None:
            self._queue.add_after(key, again_s)
        self._metrics.runs.labels(self.name, outcome).inc()
        self._metrics.seconds.labels(self.name).observe(self._clock.now() - began)

    async def _attempt(self, key: Key) -> tuple[str, float | None]:
        """Run the reconciler; return the outcome's name and the seconds until the next run, if one is due."""
        try:
            async with self._clock.timeout(self._deadline_s):
                answer = await self._reconciler.reconcile(key)
        except Terminal as error:
            return self._give_up(key, error)
        except NotLeader:
            return "not_leader", None  # the process is about to end
        except Conflict as error:
            log.debug("somebody wrote first", extra={"reason": str(error)})
            return "conflict", self._backoff.next_s(key)
        except TimeoutError:
            log.warning("reconcile outlasted its deadline", extra={"reason": f"{self._deadline_s:.0f} s"})
            return "deadline", self._backoff.next_s(key)
        except OperatorError as error:
            log.warning("reconcile failed", extra={"reason": f"{type(error).__name__}: {error}"})
            asked_s = error.retry_after if isinstance(error, ApiError) else None
            return "error", max(self._backoff.next_s(key), asked_s or 0.0)
        except Exception:  # the guard around a reconciler's own mistakes
            log.exception("reconcile broke")
            return "error", self._backoff.next_s(key)
        self._backoff.forget(key)
        self._terminal.pop(key, None)
        if isinstance(answer, After):
            return "after", answer.seconds
        return "done", None

    def _give_up(self, key: Key, error: Terminal) -> tuple[str, None]:
        self._backoff.forget(key)
        if self._terminal.get(key) != str(error):
            self._terminal[key] = str(error)
            log.error("reconcile cannot succeed", extra={"reason": str(error)})
        return "terminal", None
