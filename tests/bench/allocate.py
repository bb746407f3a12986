"""Allocate and ListAndWatch of a full node, as its kubelet sees them.

For: `make bench-agent`. In: a folder. Out: figures.
The node: 16 cards of 128 slices, 200 Pods that hold one slice each; the kubelet lists all of them at every question.
The API server is in memory, so what is measured is the agent and its sockets; kubelet and agent share one thread.
The peer: an Allocate that answers nothing, on a socket of its own in the same process, called in turn with ours: what
gRPC costs here and now.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path

import grpc

from devicemanager.kubelet.methods import Context, plugin_handler
from devicemanager.proto import deviceplugin_pb2 as messages
from hack.kubelet.wire import PluginClient, serve
from nodefeature.fields import uid_of
from nodefeature.kinds import DEVICES, POD
from tests.bench.figures import Figure, p50, p99, times
from tests.builders.agent_cards import T4, sliceable
from tests.builders.agent_world import NODE_NAME, AgentWorld, claiming, pod

PODS = 200
CARDS = 16
_SLICED = "nvidia.com/gpu.sliced"


async def measure(root: Path, rounds: int = 300) -> list[Figure]:
    """Return the figures of one node."""
    async with AgentWorld(root, sliceable(CARDS, slices=128)) as world:
        for number in range(PODS):
            await world.run_pod(pod(f"held-{number}", claiming(sliced=1, sliced_units=16_000), age=number))
        await world.settled()
        return [*await _allocations(world, rounds), *await _lists(world, rounds)]


async def _allocations(world: AgentWorld, rounds: int) -> list[Figure]:
    endpoint = world.kubelet.devices.endpoints[_SLICED]
    assert world.agent is not None
    assert endpoint.client is not None
    server = await serve(world.root / "peer.sock", _empty_plugin())
    peer = PluginClient(world.root / "peer.sock")
    ours: list[float] = []
    busy: list[float] = []
    empty: list[float] = []
    writes = world.agent.publisher.writes
    for number in range(rounds):
        raw = pod(f"new-{number}", claiming(sliced=1, sliced_units=16_000), age=1000 + number)
        world.api.add(POD, raw)
        world.kubelet.pods[uid_of(raw)] = world.api.get(POD, f"new-{number}", "default") or {}
        await world.settled()
        used = {text for ids in world.kubelet.devices.given.values() for text in ids}
        card = f"{T4}:GPU-{2 + number % (CARDS - 2)}:"
        token = next(text for text in sorted(endpoint.healthy - used) if text.startswith(card))
        empty.append(await _timed(peer, token))
        began = time.process_time()
        ours.append(await _timed(endpoint.client, token))
        busy.append((time.process_time() - began) * 1000)
        await world.settled()
        world.kubelet.remove(uid_of(raw))
        world.api.remove(POD, f"new-{number}", "default")
        await world.settled()
    writes = world.agent.publisher.writes - writes
    await peer.close()
    await server.stop(None)
    return [
        times(f"Allocate, {CARDS} cards, {PODS} Pods", ours, at_most_ms=10),
        times("  of it processor time, the kubelet's listing included", busy),
        times("  beside it: an empty Allocate", empty),
        Figure("  ratio", f"p50 {p50(ours) / p50(empty):.1f}, p99 {p99(ours) / p99(empty):.1f}"),
        _at_most("status writes for one Pod's coming and going", writes / rounds, 2),
    ]


async def _lists(world: AgentWorld, rounds: int) -> list[Figure]:
    """Turn a card unhealthy and well again; each time its plugin must say so."""
    endpoint = world.kubelet.devices.endpoints[_SLICED]
    found = []
    for number in range(rounds):
        spec = (world.api.get(DEVICES, NODE_NAME) or {})["spec"]
        ill = number % 2 == 0
        spec["groups"][0]["accelerators"][0]["status"]["unhealthy"] = ill
        world.kubelet.devices.changed.clear()
        started = time.perf_counter()
        world.api.edit(DEVICES, NODE_NAME, {"spec": spec})
        while (f"{T4}:GPU-0:0000" in endpoint.unhealthy) != ill:
            await world.kubelet.devices.changed.wait()
            world.kubelet.devices.changed.clear()
        found.append((time.perf_counter() - started) * 1000)
        await world.settled()
    return [times("device list at the kubelet after a change", found, at_most_ms=50)]


async def _timed(client: PluginClient, token: str) -> float:
    started = time.perf_counter()
    await client.allocate([token])
    return (time.perf_counter() - started) * 1000


def _at_most(what: str, found: float, most: float) -> Figure:
    return Figure(what, f"{found:.2f}", f"<= {most:g}", found <= most)


async def _nothing_listed(_request: messages.Empty, _context: Context) -> AsyncIterator[bytes]:
    yield b""


async def _nothing_preferred(
    _request: messages.PreferredAllocationRequest, _context: Context
) -> messages.PreferredAllocationResponse:
    return messages.PreferredAllocationResponse()


async def _nothing_allocated(_request: messages.AllocateRequest, _context: Context) -> messages.AllocateResponse:
    return messages.AllocateResponse(container_responses=[messages.ContainerAllocateResponse()])


def _empty_plugin() -> grpc.GenericRpcHandler:
    return plugin_handler(
        options=messages.DevicePluginOptions(),
        list_and_watch=_nothing_listed,
        preferred=_nothing_preferred,
        allocate=_nothing_allocated,
    )
