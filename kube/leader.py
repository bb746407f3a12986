"""One of several processes leads, by a Lease.

For: the process `controllers`. In: a client of its own, the lease's terms. Out: a fence that every write of the leader
passes (`client.fenced(election.fence)`).
Promises:
- a lease runs out by our own clock since its record last changed; times written by others are never compared, so a
  clock jump elects nobody;
- the fence closes `renew_s` after the last renewal that succeeded was *sent*, before anybody may take the lease
  (`lease_s` after the server saw it); a fenced write's deadline ends there too;
- a lease that somebody else holds closes the fence at once; a deleted one is left to its holder until it would have
  run out;
- MicroTime is always written with six digits;
- `release` closes the fence first, then gives the lease back, so that the next one need not wait it out;
- in a thread (`LeaderThread`) renewal does not depend on the main loop, and losing the lease ends the process.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Literal, TypeAlias

from kube.client import Client
from kube.clock import Clock, micro_time
from kube.errors import AlreadyExists, Conflict, NotFound, NotLeader, OperatorError
from kube.reconciler import Object, Rule
from nodefeature.fields import as_int, as_map, as_str, at
from nodefeature.kinds import LEASE

log = logging.getLogger(__name__)

RBAC = (Rule("coordination.k8s.io", "leases", ("get", "create", "update")),)
"""What an election needs, in the lease's namespace."""

Verdict: TypeAlias = Literal["mine", "free", "held"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTerms:
    """Who asks for which lease, and its times in seconds: `retry_s` < `renew_s` < `lease_s`."""

    name: str
    namespace: str
    identity: str
    lease_s: float = 15.0
    renew_s: float = 10.0
    retry_s: float = 2.0

    def __post_init__(self) -> None:
        if not self.retry_s < self.renew_s < self.lease_s:
            raise OperatorError(f"lease {self.name}: retry_s < renew_s < lease_s must hold")


class LeaseFence:
    """How long this process may write. Read from any thread: it is one float."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until = float("-inf")

    def remaining(self) -> float:
        """Return seconds of leadership left; zero or less when it is gone."""
        return self._until - self._clock.now()

    def open_until(self, until: float) -> None:
        """Let writes pass until a moment of the clock."""
        self._until = until

    def close(self) -> None:
        """Let nothing pass."""
        self._until = float("-inf")


@dataclass(frozen=True, slots=True)
class Sighting:
    """A lease record, and when we first saw it as it is."""

    spec: Object
    seen_at: float

    def judge(self, identity: str, now: float, lease_s: float) -> Verdict:
        """Say whose the lease is, by our own clock."""
        holder = as_str(self.spec.get("holderIdentity"))
        if holder == identity:
            return "mine"
        return "free" if not holder or self.left_s(now, lease_s) <= 0 else "held"

    def left_s(self, now: float, lease_s: float) -> float:
        """Return the seconds until the lease runs out if nobody renews it."""
        return self.seen_at + (as_int(self.spec.get("leaseDurationSeconds")) or lease_s) - now


class LeaderElection:
    """Takes, keeps and gives back one lease. `client` is not fenced."""

    def __init__(self, client: Client, terms: LeaseTerms, *, clock: Clock, rng: random.Random) -> None:
        self.fence = LeaseFence(clock)
        self._client = client
        self._terms = terms
        self._clock = clock
        self._rng = rng
        self._lease: Object | None = None
        self._sighting: Sighting | None = None

    async def acquire(self) -> None:
        """Return when this process leads."""
        log.info("waiting for the lease", extra={"object": self._name()})
        while not await self._try():
            await self._clock.sleep(self._pause_s())
        log.info("leading", extra={"object": self._name(), "reason": self._terms.identity})

    def _pause_s(self) -> float:
        """Return when to look again: by chance around `retry_s`, and the moment that the lease runs out."""
        pause_s = self._terms.retry_s * self._rng.uniform(0.8, 1.2)
        left_s = self._sighting.left_s(self._clock.now(), self._terms.lease_s) if self._sighting else 0.0
        return min(pause_s, left_s) if left_s > 0 else pause_s

    async def hold(self) -> None:
        """Renew until the lease is lost, then raise NotLeader."""
        while True:
            await self._clock.sleep(min(self._terms.retry_s, max(0.0, self.fence.remaining())))
            if self.fence.remaining() > 0:
                await self._try()
            if self.fence.remaining() <= 0:
                self.fence.close()
                raise NotLeader(f"lease {self._name()}: taken, or not renewed within {self._terms.renew_s:.0f} s")

    async def release(self) -> None:
        """Stop writing and let the next one lead at once."""
        led = self.fence.remaining() > 0
        self.fence.close()
        if not led or self._lease is None:
            return
        try:
            async with self._clock.timeout(self._terms.renew_s / 2):  # as long as one try
                await self._give_back(self._lease)
        except (OperatorError, TimeoutError) as error:
            log.warning("lease not released", extra={"object": self._name(), "reason": str(error)})
        else:
            log.info("lease released", extra={"object": self._name()})

    async def _give_back(self, lease: Object) -> None:
        """Write that nobody holds the lease; a renewal that was given up may have been written after all."""
        spec = {**self._spec(transitions=self._transitions()), "holderIdentity": "", "leaseDurationSeconds": 1}
        try:
            await self._client.update(LEASE, {**lease, "spec": spec})
        except Conflict:
            lease = await self._client.get(LEASE, self._terms.name, self._terms.namespace)
            if at(lease, "spec", "holderIdentity") != self._terms.identity:
                return  # somebody took it
            await self._client.update(LEASE, {**lease, "spec": spec})

    async def close(self) -> None:
        """Close the election's own connection."""
        await self._client.close()

    async def _try(self) -> bool:
        """Take or renew once. What fails is tried again; the fence alone decides when it is too late.

        One try ends after half of `renew_s`: what was sent while the server's store was away may hang for ever.
        """
        sent_at = self._clock.now()
        left_s = self.fence.remaining()
        patience_s = self._terms.renew_s / 2
        try:
            async with self._clock.timeout(min(left_s, patience_s) if left_s > 0 else patience_s):
                held = await self._renew() if left_s > 0 and self._lease is not None else await self._take()
        except (OperatorError, TimeoutError) as error:
            reason = f"{type(error).__name__}: {error}"
            log.warning("lease not reached", extra={"object": self._name(), "reason": reason})
            return False
        if held:
            self.fence.open_until(sent_at + self._terms.renew_s)
        else:
            self.fence.close()
        return held

    async def _renew(self) -> bool:
        try:
            return await self._write(self._lease or {}, transitions=self._transitions())
        except (Conflict, NotFound):
            return await self._take()

    async def _take(self) -> bool:
        try:
            lease = await self._client.get(LEASE, self._terms.name, self._terms.namespace)
        except NotFound:
            if self._judge() == "held":
                return False  # somebody deleted it: its holder may write until it would have run out
            return await self._create()
        now, spec = self._clock.now(), dict(as_map(lease.get("spec")))
        if self._sighting is None or self._sighting.spec != spec:
            self._sighting = Sighting(spec, now)
        verdict = self._judge()
        if verdict == "held":
            return False
        transitions = as_int(spec.get("leaseTransitions")) + (verdict == "free")
        try:
            return await self._write(lease, transitions=transitions, acquired=verdict == "free")
        except Conflict:
            return False  # another one was faster

    def _judge(self) -> Verdict:
        if self._sighting is None:
            return "free"
        return self._sighting.judge(self._terms.identity, self._clock.now(), self._terms.lease_s)

    async def _create(self) -> bool:
        metadata = {"name": self._terms.name, "namespace": self._terms.namespace}
        spec = {**self._spec(transitions=0), "acquireTime": micro_time(self._clock.time())}
        try:
            self._lease = await self._client.create(LEASE, {"metadata": metadata, "spec": spec})
        except AlreadyExists:
            return False
        return True

    async def _write(self, lease: Object, *, transitions: int, acquired: bool = False) -> bool:
        spec = {**as_map(lease.get("spec")), **self._spec(transitions=transitions)}
        if acquired:
            spec["acquireTime"] = micro_time(self._clock.time())
        self._lease = await self._client.update(LEASE, {**lease, "spec": spec})
        return True

    def _spec(self, *, transitions: int) -> Object:
        return {
            "holderIdentity": self._terms.identity,
            "leaseDurationSeconds": int(self._terms.lease_s),
            "leaseTransitions": transitions,
            "renewTime": micro_time(self._clock.time()),
        }

    def _transitions(self) -> int:
        return as_int(at(self._lease, "spec", "leaseTransitions"))

    def _name(self) -> str:
        return f"{self._terms.namespace}/{self._terms.name}"


def end_process() -> None:
    """End now: the process that lost its lease must not write on, and has nothing to clean up that matters more."""
    logging.shutdown()
    os._exit(1)


class LeaderThread:
    """An election in a thread and an event loop of its own."""

    def __init__(
        self, open_election: Callable[[], LeaderElection], *, on_lost: Callable[[], None] = end_process
    ) -> None:
        self._election = open_election()
        self._on_lost = on_lost
        self._led: Future[None] = Future()
        self._led.set_running_or_notify_cancel()  # whoever stops waiting must not break the thread's answer
        self._loop: asyncio.AbstractEventLoop | None = None
        self._leave: asyncio.Event | None = None
        self._begun = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="leader", daemon=True)

    @property
    def fence(self) -> LeaseFence:
        """Return the fence for `Client.fenced`."""
        return self._election.fence

    async def acquire(self) -> None:
        """Start the thread and return when this process leads."""
        self._thread.start()
        await asyncio.wrap_future(self._led)

    async def release(self) -> None:
        """Give the lease back and end the thread."""
        if not self._thread.is_alive():
            return
        await asyncio.to_thread(self._begun.wait)
        if self._loop is not None and self._leave is not None:
            self._loop.call_soon_threadsafe(self._leave.set)
        await asyncio.to_thread(self._thread.join)

    async def _run(self) -> None:
        self._loop, self._leave = asyncio.get_running_loop(), asyncio.Event()
        self._begun.set()
        work = asyncio.create_task(self._lead(), name="election")
        leave = asyncio.create_task(self._leave.wait(), name="leave")
        await asyncio.wait({work, leave}, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            leave.cancel()
            self._lost(work)
            return
        work.cancel()
        await asyncio.wait({work})
        await self._election.release()
        await self._election.close()

    async def _lead(self) -> None:
        await self._election.acquire()
        self._led.set_result(None)
        await self._election.hold()

    def _lost(self, work: asyncio.Task[None]) -> None:
        self.fence.close()
        error = work.exception()
        log.critical("leadership lost, ending the process", extra={"reason": str(error)})
        if not self._led.done():
            self._led.set_exception(error or NotLeader("the election ended"))
        self._on_lost()
