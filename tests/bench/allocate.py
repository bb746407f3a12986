"""Allocate and ListAndWatch of a full node, as its kubelet sees them.

For: `make bench-agent`. In: a folder. Out: figures.
The node: 16 cards of 128 slices, 200 Pods that hold one slice each; the kubelet lists all of them at every question.
The API server is in memory and the kubelet a process of its own, so what is measured is the agent and its sockets.
The peer: an Allocate that answers nothing, on a socket of its own in the agent's process, called in turn with ours:
what gRPC costs here and now.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator
from pathlib import Path

import grpc

from devicemanager.kubelet.methods import Context, plugin_handler
from devicemanager.proto import deviceplugin_pb2 as messages
from hack.kubelet.wire import serve
from kube.reconciler import Object
from nodefeature.fields import name_of, namespace_of, uid_of
from nodefeature.kinds import DEVICES, POD
from tests.bench.far_kubelet import FarKubelet, far_kubelet
from tests.bench.figures import Figure, p50, p99, times
from tests.builders.agent_cards import T4, sliceable
from tests.builders.agent_world import NODE_NAME, AgentWorld, claiming, pod

PODS = 200
CARDS = 16
_SLICED = "nvidia.com/gpu.sliced"
_PLUGINS = 5
_CLAIM = claiming(sliced=1, sliced_units=16_000)
_APART_S = 0.03
"""Lone changes are measured: a second one inside the plugin's window waits for its end."""


async def measure(root: Path, rounds: int = 300) -> list[Figure]:
    """Return the figures of one node."""
    async with far_kubelet(root / "kubelet") as kubelet:
        world = AgentWorld(root, sliceable(CARDS, slices=128))
        await world.start_agent(registered=False)
        try:
            await kubelet.served(_PLUGINS)
            for number in range(PODS):
                await _run(world, kubelet, pod(f"held-{number}", _CLAIM, age=number))
            await world.settled()
            gc.collect()
            gc.freeze()  # as the agent does once its caches have synced
            return [*await _allocations(world, kubelet, rounds), *await _lists(world, kubelet, rounds)]
        finally:
            await world.kill_agent()


async def _run(world: AgentWorld, kubelet: FarKubelet, raw: Object) -> None:
    world.api.add(POD, raw)
    status = await kubelet.admit(raw)
    assert status["phase"] == "Running", status
    world.api.edit(POD, name_of(raw), {"status": status}, namespace_of(raw))


async def _allocations(world: AgentWorld, kubelet: FarKubelet, rounds: int) -> list[Figure]:
    assert world.agent is not None
    plugin, empty = world.kubelet.devices.folder / "nvidia.sliced.sock", world.root / "peer.sock"
    server = await serve(empty, _empty_plugin())
    ours: list[float] = []
    busy: list[float] = []
    peer: list[float] = []
    writes = world.agent.publisher.writes
    for number in range(rounds):
        raw = pod(f"new-{number}", _CLAIM, age=1000 + number)
        world.api.add(POD, raw)
        await kubelet.know(raw)
        await world.settled()
        token = await kubelet.free_token(_SLICED, f"{T4}:GPU-{2 + number % (CARDS - 2)}:")
        peer.append(1000 * await kubelet.allocate(empty, token))
        began = time.process_time()
        ours.append(1000 * await kubelet.allocate(plugin, token))
        busy.append(1000 * (time.process_time() - began))
        await world.settled()
        await kubelet.forget(uid_of(raw))
        world.api.remove(POD, f"new-{number}", "default")
        await world.settled()
    writes = world.agent.publisher.writes - writes
    await server.stop(None)
    return [
        times(f"Allocate, {CARDS} cards, {PODS} Pods", ours, at_most_ms=10),
        times("  of it processor time of the agent", busy),
        times("  beside it: an empty Allocate", peer),
        Figure("  ratio", f"p50 {p50(ours) / p50(peer):.1f}, p99 {p99(ours) / p99(peer):.1f}"),
        _at_most("status writes for one Pod's coming and going", writes / rounds, 2),
    ]


async def _lists(world: AgentWorld, kubelet: FarKubelet, rounds: int) -> list[Figure]:
    """Turn a card unhealthy and well again; each time its plugin must say so."""
    found = []
    for number in range(rounds):
        spec = (world.api.get(DEVICES, NODE_NAME) or {})["spec"]
        healthy = number % 2 == 1
        spec["groups"][0]["accelerators"][0]["status"]["unhealthy"] = not healthy
        await asyncio.sleep(_APART_S)
        started = time.monotonic()
        world.api.edit(DEVICES, NODE_NAME, {"spec": spec})
        found.append(1000 * (await kubelet.hears(_SLICED, f"{T4}:GPU-0:0000", healthy=healthy) - started))
        await world.settled()
    return [times("device list at the kubelet after a change", found, at_most_ms=50)]


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
