"""The promises of kube.runtime and kube.controller."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, ClassVar

import httpx
import pytest

from kube.errors import InvalidRequest, NotFound, Terminal, TooManyRequests, status_error
from kube.reconciler import DONE, After, Caches, Index, Key, Object, Outcome, Rule, Watch
from kube.runtime import Manager
from kube.store import CacheMutated
from nodefeature.fields import labels_of, name_of
from nodefeature.kinds import CLUSTER_QUEUE, NODE, POD, Kind
from tests.builders.virtual_clock import VirtualClock, settle
from tests.kube.wire import FakeApi, client_over

NODES = "/api/v1/nodes"


def own_key(old: Object | None, new: Object | None, _caches: Caches) -> Iterable[Key]:
    obj = new or old or {}
    return [Key(name_of(obj))]


def zones(obj: Object) -> Iterable[str]:
    return [value for key, value in labels_of(obj).items() if key == "zone"]


class Recorder:
    """A reconciler that notes its runs and answers what the test says."""

    NAME: ClassVar[str] = "recorder"
    WATCHES: ClassVar[tuple[Watch, ...]] = (Watch(NODE, own_key),)
    READS: ClassVar[tuple[Kind, ...]] = ()
    INDEXES: ClassVar[tuple[Index, ...]] = (Index(NODE, "zone", zones),)
    RBAC: ClassVar[tuple[Rule, ...]] = ()

    def __init__(self, act: Callable[[Key], Coroutine[Any, Any, Outcome]] | None = None) -> None:
        self.runs: list[str] = []
        self.act = act

    async def reconcile(self, key: Key) -> Outcome:
        self.runs.append(str(key))
        return await self.act(key) if self.act else DONE


def node(name: str, **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels}}


class World:
    """A manager over a fake server in virtual time."""

    def __init__(self, *, detect_mutations: bool = False) -> None:
        self.clock = VirtualClock()
        self.api = FakeApi()
        self.client = client_over(self.api, self.clock)
        self.frozen: list[float] = []
        self.manager = Manager(
            self.client, freeze=lambda: self.frozen.append(self.clock.now()), detect_mutations=detect_mutations
        )

    async def __aenter__(self) -> World:
        self.task = asyncio.create_task(self.manager.run())
        await settle()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.manager.stop()
        await self.clock.advance(30)
        await self.task


def test_a_reconciler_waits_for_its_caches_then_runs_every_object() -> None:
    async def scenario() -> None:
        world, recorder = World(), Recorder()
        world.api.seed(NODES, node("a"), node("b"))
        world.manager.add(recorder)
        assert world.manager.health.ready_faults() == []
        async with world:
            assert sorted(recorder.runs) == ["a", "b"]
            assert len(world.frozen) == 1
            world.api.seed(NODES, node("c"))
            await settle()
            assert recorder.runs[-1] == "c"
            assert world.manager.idle

    asyncio.run(scenario())


def test_a_kind_not_served_yet_holds_up_nobody_else() -> None:
    class Waiting(Recorder):
        NAME = "waiting"
        READS: ClassVar[tuple[Kind, ...]] = (CLUSTER_QUEUE,)

    async def scenario() -> None:
        world, recorder, waiting = World(), Recorder(), Waiting()
        served = False

        async def before(request: httpx.Request) -> httpx.Response | None:
            if "clusterqueues" in request.url.path and not served:
                return httpx.Response(404, text="404 page not found")
            return None

        world.api.before = before
        world.api.seed(NODES, node("a"))
        world.manager.add(recorder)
        world.manager.add(waiting)
        async with world:
            assert recorder.runs == ["a"]
            assert waiting.runs == []
            assert world.manager.health.ready_faults() == ["caches: not synced: clusterqueues.kueue.x-k8s.io"]
            served = True
            await world.clock.advance(9)
            assert waiting.runs == ["a"]
            assert world.manager.health.ready_faults() == []

    asyncio.run(scenario())


def test_a_key_runs_once_at_a_time_and_once_more_after_a_change_during_its_run() -> None:
    async def scenario() -> None:
        gate = asyncio.Event()

        async def act(_key: Key) -> Outcome:
            await gate.wait()
            return DONE

        world, recorder = World(), Recorder(act)
        world.api.seed(NODES, node("a"))
        world.manager.add(recorder)
        async with world:
            for turn in range(5):
                world.api.seed(NODES, node("a", turn=str(turn)))
            await settle()
            assert recorder.runs == ["a"]
            gate.set()
            await settle()
            assert recorder.runs == ["a", "a"]

    asyncio.run(scenario())


def test_after_runs_again_unless_a_change_comes_first() -> None:
    async def scenario() -> None:
        async def act(_key: Key) -> Outcome:
            return After(60)

        world, recorder = World(), Recorder(act)
        world.api.seed(NODES, node("a"))
        world.manager.add(recorder)
        async with world:
            await world.clock.advance(59)
            assert recorder.runs == ["a"]
            world.api.seed(NODES, node("a", x="1"))
            await settle()
            assert recorder.runs == ["a"] * 2
            await world.clock.advance(59)
            assert recorder.runs == ["a"] * 2
            await world.clock.advance(1)
            assert recorder.runs == ["a"] * 3

    asyncio.run(scenario())


def test_requests_inside_a_window_run_once_at_its_end() -> None:
    class Windowed(Recorder):
        WATCHES: ClassVar[tuple[Watch, ...]] = (Watch(NODE, own_key, window_s=2.0),)

    async def scenario() -> None:
        world, recorder = World(), Windowed()
        world.manager.add(recorder)
        async with world:
            for turn in range(4):
                world.api.seed(NODES, node("a", turn=str(turn)))
                await world.clock.advance(0.4)
            assert recorder.runs == []
            await world.clock.advance(0.5)
            assert recorder.runs == ["a"]

    asyncio.run(scenario())


def test_a_failing_key_backs_off_and_others_go_on(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async def act(key: Key) -> Outcome:
            if key.name == "bad":
                raise ValueError("broken")
            return DONE

        world, recorder = World(), Recorder(act)
        world.api.seed(NODES, node("bad"), node("good"))
        world.manager.add(recorder, workers=1)
        async with world:
            await world.clock.advance(10)
            assert recorder.runs.count("good") == 1
            assert 5 <= recorder.runs.count("bad") <= 9
            before = recorder.runs.count("bad")
            await world.clock.advance(3600)
            assert 60 <= recorder.runs.count("bad") - before <= 125  # at most one a half minute

    asyncio.run(scenario())
    assert "reconcile broke" in caplog.text


@pytest.mark.parametrize(
    "error",
    [Terminal("Node a: label .count is not a number; fix the label"), InvalidRequest("nodes '' is not a path segment")],
    ids=["a decision", "a request that cannot be made"],
)
def test_terminal_is_logged_once_and_retried_only_after_a_change(
    error: Terminal, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async def act(_key: Key) -> Outcome:
            raise error

        world, recorder = World(), Recorder(act)
        world.api.seed(NODES, node("a"))
        world.manager.add(recorder)
        async with world:
            await world.clock.advance(3600)
            assert recorder.runs == ["a"]
            world.api.seed(NODES, node("a", x="1"))
            await settle()
            assert recorder.runs == ["a", "a"]

    asyncio.run(scenario())
    assert caplog.text.count("reconcile cannot succeed") == 1


def test_a_refusal_with_retry_after_is_not_retried_before() -> None:
    async def scenario() -> None:
        async def act(_key: Key) -> Outcome:
            raise TooManyRequests({}, 429, retry_after=30.0)

        world, recorder = World(), Recorder(act)
        world.api.seed(NODES, node("a"))
        world.manager.add(recorder)
        async with world:
            await world.clock.advance(29)
            assert recorder.runs == ["a"]
            await world.clock.advance(2)
            assert recorder.runs == ["a", "a"]

    asyncio.run(scenario())


def test_a_run_that_outlasts_its_deadline_is_cancelled_and_backed_off(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async def act(_key: Key) -> Outcome:
            await asyncio.Event().wait()
            return DONE

        world, recorder = World(), Recorder(act)
        world.api.seed(NODES, node("a"))
        world.manager.add(recorder, deadline_s=5)
        async with world:
            await world.clock.advance(5.5)
            assert recorder.runs == ["a", "a"]

    asyncio.run(scenario())
    assert "reconcile outlasted its deadline" in caplog.text


def test_stop_in_the_middle_of_a_write_lets_it_finish_and_starts_no_run() -> None:
    async def scenario() -> None:
        arrived = asyncio.Event()
        finish = asyncio.Event()
        done: list[str] = []
        world = World()

        async def before(request: httpx.Request) -> httpx.Response | None:
            if request.method == "PUT":
                arrived.set()
                await finish.wait()
            return None

        async def act(key: Key) -> Outcome:
            await world.client.update(NODE, node(key.name, done="yes"))
            done.append(key.name)
            return DONE

        recorder = Recorder(act)
        world.api.before = before
        world.api.seed(NODES, node("a"), node("b"))
        world.manager.add(recorder, workers=1)
        task = asyncio.create_task(world.manager.run())
        await settle()
        assert arrived.is_set()
        world.manager.stop()
        await world.clock.advance(5)
        assert not task.done()
        finish.set()
        await settle()
        await task
        assert done == ["a"]
        assert recorder.runs == ["a"]
        assert world.api.objects[f"{NODES}/a"]["metadata"]["labels"] == {"done": "yes"}
        assert world.manager.health.live_faults() == []

    asyncio.run(scenario())


def test_sigterm_stops_the_manager() -> None:
    async def scenario() -> None:
        world = World()
        world.manager.add(Recorder())
        world.manager.stop_on_signals()
        async with asyncio.timeout(5):
            task = asyncio.create_task(world.manager.run())
            await settle()
            signal.raise_signal(signal.SIGTERM)
            await task

    asyncio.run(scenario())


def test_a_run_still_under_way_after_the_grace_is_cut_off() -> None:
    async def scenario() -> None:
        async def act(_key: Key) -> Outcome:
            await asyncio.Event().wait()
            return DONE

        world, recorder = World(), Recorder(act)
        world.api.seed(NODES, node("a"))
        world.manager.add(recorder, deadline_s=600)
        async with world:
            pass

    asyncio.run(scenario())


def test_an_informer_that_is_gone_turns_livez_red(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        world, recorder = World(), Recorder()
        world.manager.add(recorder)

        def broken(_watch: Watch, _change: object) -> None:
            raise RuntimeError("a mistake of ours")

        for controller, _ in world.manager._routes[NODE]:
            monkeypatch.setattr(controller, "observe", broken)
        async with world:
            world.api.seed(NODES, node("a"))
            await settle()
            assert world.manager.health.live_faults() == ["informer nodes: ended with RuntimeError"]

    asyncio.run(scenario())


def test_a_change_that_cannot_be_mapped_is_logged_by_name_and_others_go_on(caplog: pytest.LogCaptureFixture) -> None:
    def fragile(old: Object | None, new: Object | None, _caches: Caches) -> Iterable[Key]:
        obj = new or old or {}
        return [Key(obj["metadata"]["labels"]["zone"])]

    class Fragile(Recorder):
        WATCHES: ClassVar[tuple[Watch, ...]] = (Watch(NODE, fragile),)

    async def scenario() -> None:
        world, recorder = World(), Fragile()
        world.api.seed(NODES, {"metadata": {"name": "odd", "labels": None}}, node("a", zone="z1"))
        world.manager.add(recorder)
        async with world:
            assert recorder.runs == ["z1"]

    asyncio.run(scenario())
    assert [r for r in caplog.records if r.message == "change could not be mapped" and vars(r)["object"] == "odd"]


def test_one_informer_per_kind_and_one_object_for_all() -> None:
    class Other(Recorder):
        NAME = "other"

    async def scenario() -> None:
        world = World()
        world.api.seed(NODES, node("a"))
        world.manager.add(Recorder())
        world.manager.add(Other())
        async with world:
            assert len(world.api.streams) == 1
            assert world.manager.caches[NODE].get(Key("a")) is world.manager.caches[NODE].get(Key("a"))
            with pytest.raises(KeyError, match="pods is in no WATCHES"):
                world.manager.caches[POD]

    asyncio.run(scenario())


def test_writing_to_a_cached_object_is_found_out() -> None:
    async def scenario() -> None:
        world = World(detect_mutations=True)

        async def act(key: Key) -> Outcome:
            obj = world.manager.caches[NODE].get(key)
            assert obj is not None
            obj["metadata"]["labels"]["mine"] = "yes"
            return DONE

        world.api.seed(NODES, node("a"))
        world.manager.add(Recorder(act))
        with pytest.raises(CacheMutated, match="nodes a"):
            async with world:
                pass

    asyncio.run(scenario())


def test_each_run_has_an_id_in_its_logs_and_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> Manager:
        async def act(key: Key) -> Outcome:
            if key.name == "b":
                raise NotFound({}, 404)
            return DONE

        world = World()
        world.api.seed(NODES, node("a"), node("b"))
        world.manager.add(Recorder(act))
        async with world:
            pass
        return world.manager

    with caplog.at_level(logging.INFO):
        registry = asyncio.run(scenario()).metrics.registry
    assert registry.get_sample_value("gpustack_reconcile_total", {"controller": "recorder", "outcome": "done"}) == 1
    errors = registry.get_sample_value("gpustack_reconcile_total", {"controller": "recorder", "outcome": "error"})
    assert errors is not None
    assert errors >= 1


def test_status_error_keeps_the_class_of_its_code() -> None:
    assert type(status_error({"code": 404, "reason": "NotFound"})) is NotFound
