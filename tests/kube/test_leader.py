"""The promises of kube.leader, and case B049."""

from __future__ import annotations

import asyncio
import random
import re
import threading
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from kube.clock import SystemClock, micro_time
from kube.errors import NotLeader, OperatorError
from kube.leader import LeaderElection, LeaderThread, LeaseTerms, Sighting
from nodefeature.kinds import NODE
from tests.builders.virtual_clock import VirtualClock, settle
from tests.kube.wire import FakeApi, client_over, hang

LEASES = "/apis/coordination.k8s.io/v1/namespaces/gpustack-system/leases"
MICRO = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$")


class Candidate:
    """One process that wants to lead; its line to the server can be cut."""

    def __init__(self, api: FakeApi, clock: VirtualClock, identity: str) -> None:
        self.cut: str = ""
        self.api = api
        self.clock = clock
        self.client = client_over(self.line, clock)
        terms = LeaseTerms(name="gpustack-controllers", namespace="gpustack-system", identity=identity)
        self.election = LeaderElection(self.client, terms, clock=clock, rng=random.Random(identity))
        self.lost: BaseException | None = None
        self.task: asyncio.Task[None] | None = None

    async def line(self, request: httpx.Request) -> httpx.Response:
        if self.cut == "hangs":
            return await hang(request)
        if self.cut == "hangs once written":
            await self.api(request)
            return await hang(request)
        if self.cut == "refused":
            raise httpx.ConnectError("refused")
        return await self.api(request)

    def start(self) -> None:
        async def lead() -> None:
            await self.election.acquire()
            await self.election.hold()

        self.task = asyncio.create_task(lead())

    @property
    def may_write(self) -> bool:
        return self.election.fence.remaining() > 0

    @property
    def over(self) -> bool:
        return self.task is not None and self.task.done()

    async def stop(self) -> None:
        """End as SIGTERM does."""
        if self.task is not None:
            self.task.cancel()
            await asyncio.wait({self.task})
        await self.election.release()


class Pair:
    """Two candidates at one server."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.api = FakeApi()
        self.a = Candidate(self.api, self.clock, "a")
        self.b = Candidate(self.api, self.clock, "b")

    async def __aenter__(self) -> Pair:
        self.a.start()
        await self.clock.advance(1)
        self.b.start()
        await self.clock.advance(5)
        assert (self.a.may_write, self.b.may_write) == (True, False)
        return self

    async def __aexit__(self, *_: object) -> None:
        for candidate in (self.a, self.b):
            if candidate.task is not None:
                candidate.task.cancel()
                await asyncio.wait({candidate.task})
                if not candidate.task.cancelled():
                    assert isinstance(candidate.task.exception(), NotLeader)

    def writers(self) -> str:
        return "".join(name for name, one in (("a", self.a), ("b", self.b)) if one.may_write)

    def holder(self) -> str:
        return str(self.lease()["holderIdentity"])

    def lease(self) -> dict[str, Any]:
        spec: dict[str, Any] = self.api.objects[f"{LEASES}/gpustack-controllers"]["spec"]
        return spec

    async def tick(self, seconds: float) -> None:
        """Let time pass in small steps; never may both write."""
        for _ in range(int(seconds * 4)):
            await self.clock.advance(0.25)
            assert not (self.a.may_write and self.b.may_write), "two leaders"


def play(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scenario())


def test_one_leads_and_goes_on_leading() -> None:
    async def scenario() -> None:
        async with Pair() as pair:
            await pair.tick(120)
            assert pair.holder() == "a"
            assert pair.a.may_write
            assert pair.lease()["leaseTransitions"] == 0

    play(scenario)


def test_a_renewal_that_hangs_while_the_store_restarts_is_sent_again() -> None:
    async def scenario() -> None:
        async with Pair() as pair:
            pair.a.cut = "hangs"
            await pair.tick(6)
            pair.a.cut = ""  # a request that hangs goes on hanging
            await pair.tick(30)
            assert pair.writers() == "a"
            assert pair.lease()["leaseTransitions"] == 0

    play(scenario)


@pytest.mark.parametrize("cut", ["hangs", "refused"])
def test_b049_a_leader_cut_off_stops_writing_before_the_lease_can_be_taken(cut: str) -> None:
    async def scenario() -> None:
        async with Pair() as pair:
            pair.a.cut = cut
            await pair.tick(10.5)
            assert pair.writers() == ""
            assert pair.a.over, "losing the lease ends the leader"
            with pytest.raises(NotLeader):
                await pair.a.client.fenced(pair.a.election.fence).update(NODE, {"metadata": {"name": "n"}})
            await pair.tick(30)
            pair.a.cut = ""
            await pair.tick(5)
            assert pair.writers() == "b"
            assert pair.holder() == "b"
            assert pair.lease()["leaseTransitions"] == 1

    play(scenario)


def test_b049_sigterm_releases_the_lease_and_it_is_taken_within_3_seconds() -> None:
    async def scenario() -> None:
        async with Pair() as pair:
            await pair.a.stop()
            assert pair.writers() == ""
            assert pair.holder() == ""
            await pair.tick(3)
            assert pair.writers() == "b"
            pair.a.task = None

    play(scenario)


def test_b049_a_renewal_under_way_does_not_keep_a_leaver_from_handing_over() -> None:
    """Its answer never came, so the version that the leaver knows is old."""

    async def scenario() -> None:
        async with Pair() as pair:
            pair.a.cut = "hangs once written"
            await pair.tick(3)
            pair.a.cut = ""
            await pair.a.stop()
            assert pair.holder() == ""
            await pair.tick(3)
            assert pair.writers() == "b"
            pair.a.task = None

    play(scenario)


@pytest.mark.parametrize("after_s", [0.0, 0.5, 1.0, 1.5, 2.0])
def test_b049_a_dead_leaders_lease_is_taken_as_soon_as_it_has_run_out(after_s: float) -> None:
    async def scenario() -> None:
        async with Pair() as pair:
            await pair.tick(after_s)
            pair.a.cut = "refused"
            await pair.tick(14)
            sighting = pair.b.election._sighting
            assert sighting is not None
            while pair.writers() != "b":
                await pair.tick(0.25)
            assert pair.clock.now() - sighting.seen_at <= 15 + 0.25

    play(scenario)


@pytest.mark.parametrize("jump_s", [3600, -3600])
def test_b049_clock_jumps_of_an_hour_elect_nobody(jump_s: float) -> None:
    async def scenario() -> None:
        async with Pair() as pair:
            pair.clock.jump_wall(jump_s)
            await pair.tick(60)
            assert pair.a.may_write
            pair.clock.jump_wall(-2 * jump_s)
            await pair.tick(60)
            assert pair.holder() == "a"
            assert pair.lease()["leaseTransitions"] == 0

    play(scenario)


def test_b049_a_conflict_on_renewal_is_read_again() -> None:
    async def scenario() -> None:
        async with Pair() as pair:
            lease = pair.api.objects[f"{LEASES}/gpustack-controllers"]
            labelled = {**lease, "metadata": {**lease["metadata"], "labels": {"touched": "yes"}}}
            pair.api.seed(LEASES, labelled)
            await pair.tick(10)
            assert pair.a.may_write
            assert pair.api.objects[f"{LEASES}/gpustack-controllers"]["metadata"]["labels"] == {"touched": "yes"}

    play(scenario)


def test_a_lease_taken_by_somebody_closes_the_fence_at_once() -> None:
    async def scenario() -> None:
        async with Pair() as pair:
            lease = pair.api.objects[f"{LEASES}/gpustack-controllers"]
            pair.api.seed(LEASES, {**lease, "spec": {**lease["spec"], "holderIdentity": "intruder"}})
            await pair.tick(2.5)
            assert not pair.a.may_write
            assert pair.a.over

    play(scenario)


def test_a_deleted_lease_is_left_to_its_holder() -> None:
    async def scenario() -> None:
        async with Pair() as pair:
            pair.api.drop(LEASES, "gpustack-controllers")
            await pair.tick(20)
            assert pair.holder() == "a"
            assert pair.a.may_write

    play(scenario)


def test_two_who_find_no_lease_do_not_both_lead() -> None:
    async def scenario() -> None:
        pair = Pair()
        pair.a.start()
        pair.b.start()
        await pair.tick(5)
        assert pair.a.may_write != pair.b.may_write
        await pair.__aexit__()

    play(scenario)


def test_micro_time_always_has_six_digits() -> None:
    async def scenario() -> None:
        async with Pair() as pair:
            assert MICRO.match(pair.lease()["renewTime"])
            assert MICRO.match(pair.lease()["acquireTime"])

    assert micro_time(datetime(2026, 1, 1, tzinfo=UTC)) == "2026-01-01T00:00:00.000000Z"
    assert MICRO.match(micro_time(datetime(2026, 1, 1, tzinfo=UTC) + timedelta(microseconds=5)))
    play(scenario)


@pytest.mark.parametrize(
    ("spec", "age_s", "want"),
    [
        ({}, 0, "free"),
        ({"holderIdentity": None}, 0, "free"),
        ({"holderIdentity": "me"}, 99, "mine"),
        ({"holderIdentity": "x", "leaseDurationSeconds": 15}, 14.9, "held"),
        ({"holderIdentity": "x", "leaseDurationSeconds": 15}, 15, "free"),
        ({"holderIdentity": "x", "leaseDurationSeconds": "odd"}, 16, "held"),
        ({"holderIdentity": "x", "leaseDurationSeconds": 15, "renewTime": "1999-01-01T00:00:00.000000Z"}, 1, "held"),
    ],
)
def test_judge(spec: dict[str, Any], age_s: float, want: str) -> None:
    assert Sighting(spec, 100.0).judge("me", 100.0 + age_s, 20.0) == want


def test_terms_that_cannot_work_are_refused() -> None:
    with pytest.raises(OperatorError, match="retry_s < renew_s < lease_s"):
        LeaseTerms(name="l", namespace="n", identity="i", renew_s=15)


def test_a_thread_leads_releases_and_ends() -> None:
    async def scenario() -> None:
        api, clock = FakeApi(), SystemClock()
        terms = LeaseTerms(name="l", namespace="gpustack-system", identity="a")
        names: list[str] = []

        async def line(request: httpx.Request) -> httpx.Response:
            names.append(threading.current_thread().name)
            return await api(request)

        thread = LeaderThread(
            lambda: LeaderElection(client_over(line, clock), terms, clock=clock, rng=random.Random(1))
        )
        await thread.acquire()
        assert thread.fence.remaining() > 9
        await thread.release()
        assert thread.fence.remaining() < 0
        assert api.objects[f"{LEASES}/l"]["spec"]["holderIdentity"] == ""
        assert set(names) == {"leader"}

    play(scenario)


def test_losing_the_lease_in_a_thread_ends_the_process() -> None:
    async def scenario() -> None:
        api, clock, ended = FakeApi(), SystemClock(), threading.Event()
        terms = LeaseTerms(name="l", namespace="gpustack-system", identity="a", lease_s=0.4, renew_s=0.2, retry_s=0.02)
        cut = threading.Event()

        async def line(request: httpx.Request) -> httpx.Response:
            if cut.is_set():
                raise httpx.ConnectError("refused")
            return await api(request)

        thread = LeaderThread(
            lambda: LeaderElection(client_over(line, clock), terms, clock=clock, rng=random.Random(1)),
            on_lost=ended.set,
        )
        await thread.acquire()
        cut.set()
        assert await asyncio.to_thread(ended.wait, 5)
        assert thread.fence.remaining() < 0
        await settle()

    play(scenario)
