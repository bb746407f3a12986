"""Sockets, registration, ListAndWatch: the kubelet restarts, agents replace each other (spec 06 §4.1, §5, §16)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import grpc
import pytest

from api.ledger.modes import Mode
from devicemanager.kubelet.grant import Injection
from devicemanager.kubelet.identification import Waiting
from devicemanager.kubelet.methods import register
from devicemanager.kubelet.offer import numa_nodes, offer_of
from devicemanager.kubelet.plugin import Plugin, Resource
from devicemanager.proto import deviceplugin_pb2 as messages
from devicemanager.tokens import MESSAGE_BUDGET, VISIBILITY_TOKENS, Token, TokenInvalid, card_indexes, parse_token
from hack.kubelet.wire import registration_handler, serve
from nodefeature.kinds import DEVICES, POD
from tests.builders.agent_cards import T4, carved, hygon, sliceable
from tests.builders.agent_world import NODE_NAME, AgentWorld, claiming, partition, play, pod
from tests.builders.ledgers import card
from tests.builders.virtual_clock import VirtualClock

GPU = "nvidia.com/gpu"


@pytest.mark.parametrize(
    ("mode", "made", "want"),
    [
        (Mode.EXCLUSIVE, card("GPU-1"), ["t:GPU-1:0000"]),
        (Mode.SHARED, card("GPU-1"), [f"t:GPU-1:{n:04d}" for n in range(0, 1_600_000, 160_000)]),
        (Mode.SLICED, card("GPU-1", slices=4), [f"t:GPU-1:000{n}" for n in range(4)]),
        (Mode.SLICED, card("GPU-1"), []),
        (Mode.PARTITIONED, carved()[0]["accelerators"][0], [f"t:PART-0:000{n}" for n in range(7)]),
        (Mode.EXCLUSIVE, carved()[0]["accelerators"][0], []),
    ],
)
def test_tokens_of_a_card(mode: Mode, made: Any, want: list[str]) -> None:
    assert [str(Token("t", made["id"], n)) for n in card_indexes(made, mode)] == want


def test_parse_token() -> None:
    assert parse_token("a:b:0001") == Token("a", "b", 1)
    for text in ("a:b", ":b:0", "a:b:x", "a:b:c:0", "a:b:-1", "a:b:٣", "a:b:" + "9" * 99, ""):
        with pytest.raises(TokenInvalid):
            parse_token(text)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("0", (0,)),
        ("0-1,3", (0, 1, 3)),
        ("0-1,1,0", (0, 1)),
        ("0-7", tuple(range(8))),
        ("", ()),
        ("x", ()),
        ("9999999", ()),
        ("0-9999", ()),
        ("0-7,8", ()),
        ("3-1", ()),
        (",".join(["0-9999"] * 1000), ()),
    ],
)
def test_numa_nodes(text: str, want: tuple[int, ...]) -> None:
    assert numa_nodes(text) == want


@pytest.mark.parametrize("cards", [8, 64, 128])
def test_b055_visibility_tokens_fit_one_message(cards: int) -> None:
    groups = [{"id": "a" * 40, "manufacturer": "nvidia", "accelerators": [card(f"{n:040d}", n) for n in range(cards)]}]
    offer = offer_of(groups, Mode.VISIBILITY, {})
    assert len(offer.message()) <= MESSAGE_BUDGET
    per_card = {len(offered.indexes) for offered in offer.cards}
    assert len(per_card) == 1
    assert (offer.thinned_to == 0) == (per_card == {VISIBILITY_TOKENS})


def test_token_of_a_card_held_otherwise_stays_and_turns_unhealthy() -> None:
    async def story(world: AgentWorld) -> None:
        await world.run_pod(pod("a", claiming(shared=1)))
        endpoints = world.kubelet.devices.endpoints
        await world.until(lambda: bool(endpoints[GPU].unhealthy))
        [held] = endpoints[GPU].unhealthy
        assert len(endpoints[GPU].healthy) == 1
        assert len(endpoints["nvidia.com/gpu.shared"].healthy) == 20
        assert not endpoints["device.gpustack.ai/nvidia.visibility"].unhealthy
        world.delete_pod("a")
        await world.until(lambda: held in endpoints[GPU].healthy)

    play(sliceable(2), story)


def test_b039_card_marked_bad_and_good_again_keeps_its_charge() -> None:
    def groups(*, bad: bool) -> list[dict[str, Any]]:
        made = sliceable(2)
        made[0]["accelerators"][0]["status"]["unhealthy"] = bad
        return made

    async def story(world: AgentWorld) -> None:
        await world.run_pod(pod("a", claiming(exclusive=2)))
        await world.settled()
        before = dict(world.rows())
        endpoint = world.kubelet.devices.endpoints[GPU]
        world.api.edit(DEVICES, NODE_NAME, {"spec": {"groups": groups(bad=True)}})
        await world.until(lambda: endpoint.unhealthy == {f"{T4}:GPU-0:0000"})
        await world.settled()
        assert world.rows() == before
        world.api.edit(DEVICES, NODE_NAME, {"spec": {"groups": groups(bad=False)}})
        await world.until(lambda: not endpoint.unhealthy)
        assert world.rows() == before

    play(groups(bad=False), story)


def test_partitions_are_healthy_as_far_as_instances_fit() -> None:
    async def story(world: AgentWorld) -> None:
        endpoint = world.kubelet.devices.endpoints["nvidia.com/gpu.partitioned"]
        assert (len(endpoint.healthy), len(endpoint.unhealthy)) == (7, 0)
        await world.run_pod(pod("a", partition("3g.40gb")))
        await world.until(lambda: len(endpoint.healthy) == 4)
        held = world.kubelet.devices.given["uid-a", "main", "nvidia.com/gpu.partitioned"]
        assert set(held) <= endpoint.healthy

    play(carved(), story)


def test_row_11_folder_wiped_means_a_new_generation() -> None:
    async def story(world: AgentWorld) -> None:
        assert world.agent is not None
        generations = {r: s.generation for r, s in world.agent.plugins.servings.items()}
        await world.kubelet.restart()
        async with asyncio.timeout(2):
            await world.until(world.agent.ready)
        assert {r: s.generation for r, s in world.agent.plugins.servings.items()} == {
            r: g + 1 for r, g in generations.items()
        }

    play(sliceable(1), story)


def test_b035_kubelet_restart_with_running_and_ended_pods() -> None:
    async def story(world: AgentWorld) -> None:
        assert world.agent is not None
        for number, name in enumerate(("runs", "done", "broke")):
            assert await world.run_pod(pod(name, claiming(exclusive=1), age=number)) == "Running"
        await world.kubelet.end("uid-done")
        await world.kubelet.end("uid-broke", "Failed")
        await world.kubelet.restart()
        async with asyncio.timeout(2):
            await world.until(world.agent.ready)
        assert await world.run_pod(pod("next", claiming(exclusive=2), age=9)) == "Running", world.kubelet.reasons
        await world.settled()
        assert [row["mode"] for row in world.rows().values()] == [Mode.EXCLUSIVE] * 3
        assert "LedgerTrusted" not in world.conditions()

    play(sliceable(3), story)


def test_kubelet_that_comes_late_is_registered_with() -> None:
    async def story(world: AgentWorld) -> None:
        assert world.agent is not None
        await world.kubelet.stop()
        world.kubelet.socket.unlink(missing_ok=True)
        await asyncio.sleep(0.2)
        assert "is not there" in world.agent.plugins.unready or "not registered" in world.agent.plugins.unready
        await world.kubelet.start()
        async with asyncio.timeout(2):
            await world.until(world.agent.ready)

    play(sliceable(1), story)


def test_row_12_registration_refused_five_times() -> None:
    async def story(world: AgentWorld) -> None:
        assert world.agent is not None
        await world.kubelet.stop()
        refusals = {"left": 5}
        taken = asyncio.Event()

        async def refuse(request: messages.RegisterRequest, context: Any) -> messages.Empty:
            assert request.version == "v1beta1"
            if refusals["left"]:
                refusals["left"] -= 1
                await context.abort(grpc.StatusCode.UNKNOWN, "not yet")
            taken.set()
            return messages.Empty()

        server = await serve(world.kubelet.socket, registration_handler(refuse))
        try:
            async with asyncio.timeout(5):
                await taken.wait()
        finally:
            await server.stop(None)

    play(sliceable(1), story)


def test_b017_old_agent_stops_after_its_successor_registered() -> None:
    async def story(world: AgentWorld) -> None:
        for _ in range(10):
            old = world.agent
            assert old is not None
            await world.start_agent(registered=False)
            await world.until(lambda: world.agent is not None and world.agent.ready())
            await old.kill()
            path = world.kubelet.devices.folder / "nvidia.exclusive.sock"
            assert path.exists()
            endpoint = world.kubelet.devices.endpoints[GPU]
            await world.until(lambda e=endpoint: len(e.healthy | e.unhealthy) == 2)  # type: ignore[misc]  # a bound value
        assert await world.run_pod(pod("a", claiming(exclusive=1))) == "Running"
        assert len(world.kubelet.devices.endpoints[GPU].healthy) == 2

    play(sliceable(2), story)


def test_several_manufacturers_in_one_process() -> None:
    async def story(world: AgentWorld) -> None:
        assert await world.run_pod(pod("n", claiming(exclusive=1))) == "Running"
        assert await world.run_pod(pod("h", claiming(manufacturer="hygon", shared=1), age=1)) == "Running"
        await world.settled()
        assert {card: row["mode"] for card, row in world.rows().items()} == {"GPU-0": 1, "DCU-0": 2}
        world.api.edit(DEVICES, NODE_NAME, {"spec": {"groups": sliceable(1)}})
        await world.until(lambda: world.kubelet.devices.endpoints["hygon.com/dcu"].client is None)
        assert await world.run_pod(pod("again", claiming(shared=1), age=2)) == "Failed"

    play(sliceable(1) + hygon(), story)


def test_list_and_watch_within_50_ms_and_bursts_as_one() -> None:
    async def story(world: AgentWorld) -> None:
        assert world.agent is not None
        endpoint = world.kubelet.devices.endpoints[GPU]
        loop = asyncio.get_running_loop()
        world.kubelet.devices.changed.clear()
        before, started = endpoint.lists, loop.time()
        await world.run_pod(pod("a", claiming(shared=1)))
        await world.until(lambda: bool(endpoint.unhealthy))
        assert loop.time() - started < 0.5  # the machine of a test is busy; the bench measures
        for _ in range(200):
            world.agent.ledger.wake()
        await asyncio.sleep(0.1)
        assert endpoint.lists == before + 1

    play(sliceable(1), story)


def test_first_change_is_told_soon_and_the_next_after_the_window() -> None:

    async def story(world: AgentWorld) -> None:
        assert world.agent is not None
        clock, ledger = VirtualClock(), world.agent.ledger
        shared = Resource("nvidia", Mode.SHARED, f"{GPU}.shared")
        plugin = Plugin(shared, ledger, clock, find=_nobody_waits, allocate=_nothing_given)
        told: list[bytes] = []

        async def listen() -> None:
            async for message in plugin.list_and_watch(messages.Empty(), cast(Any, None)):
                told.append(message)

        listening = asyncio.create_task(listen())
        await world.until(lambda: len(told) == 1)
        await clock.advance(1)
        assert await world.run_pod(pod("a", claiming(exclusive=1))) == "Running"
        await world.settled()
        assert len(told) == 1, "the Allocate is answered first"
        await clock.advance(0.01)
        assert len(told) == 2
        assert await world.run_pod(pod("b", claiming(exclusive=1), age=1)) == "Running"
        await world.settled()
        await clock.advance(0.015)
        assert len(told) == 2
        await clock.advance(0.005)
        assert len(told) == 3
        listening.cancel()

    play(sliceable(2), story)


async def _nobody_waits(_count: int) -> Waiting:
    raise AssertionError("not asked")


async def _nothing_given(_ids: Sequence[str]) -> Injection:
    raise AssertionError("not asked")


def test_kubelet_remembers_across_its_restart() -> None:
    async def story(world: AgentWorld) -> None:
        assert world.agent is not None
        await world.run_pod(pod("a", claiming(exclusive=1)))
        given = dict(world.kubelet.devices.given)
        await world.kubelet.restart()
        assert world.kubelet.devices.given == given
        await world.until(world.agent.ready)
        stored = world.api.get(POD, "a", "default")
        assert stored is not None
        assert await world.kubelet.admit(stored) == "Running"

    play(sliceable(1), story)


def test_kubelet_refuses_an_unknown_version() -> None:
    async def story(world: AgentWorld) -> None:
        request = messages.RegisterRequest(version="v1alpha1", endpoint="x.sock", resource_name=GPU)
        with pytest.raises(grpc.aio.AioRpcError, match="not supported by kubelet"):
            await register(world.kubelet.socket, request, timeout_s=5)

    play(sliceable(1), story)
