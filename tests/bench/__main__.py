"""`python -m tests.bench [--allocations N] [--seed N]`: what `make bench-agent` runs."""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from nodefeature.fields import uid_of
from nodefeature.kinds import POD
from tests.bench.random_node import RandomNode, node_groups
from tests.builders.agent_cards import T4, sliceable
from tests.builders.agent_world import AgentWorld, claiming, pod

_PODS = 200
_CARDS = 16
_TIMES = 300


def main() -> None:
    """Read the command line and measure."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--allocations", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench") as root:
        asyncio.run(measure_allocate(Path(root)))
    with tempfile.TemporaryDirectory(prefix="bench") as root:
        asyncio.run(measure_chance(Path(root), asked.allocations, asked.seed))


async def measure_allocate(root: Path) -> None:
    """Print how long Allocate, and the device list after it, take on a full node as its kubelet sees them."""
    async with AgentWorld(root, sliceable(_CARDS, slices=128)) as world:
        for number in range(_PODS):
            await world.run_pod(pod(f"held-{number}", claiming(sliced=1, sliced_units=16_000), age=number))
        await world.settled()
        answers, lists = [], []
        resource = "nvidia.com/gpu.sliced"
        endpoint, exclusive = (
            world.kubelet.devices.endpoints[resource],
            world.kubelet.devices.endpoints["nvidia.com/gpu"],
        )
        assert endpoint.client is not None
        for number in range(_TIMES):
            raw = pod(f"new-{number}", claiming(sliced=1, sliced_units=16_000), age=1000 + number)
            world.api.add(POD, raw)
            world.kubelet.pods[uid_of(raw)] = world.api.get(POD, f"new-{number}", "default") or {}
            used = {text for ids in world.kubelet.devices.given.values() for text in ids}
            free = sorted(endpoint.healthy - used)
            card = f"{T4}:GPU-{2 + number % (_CARDS - 2)}:"
            token = next(text for text in free if text.startswith(card))
            before, started = exclusive.lists, time.perf_counter()
            await endpoint.client.allocate([token])
            answers.append((time.perf_counter() - started) * 1000)
            if exclusive.lists != before:
                lists.append((time.perf_counter() - started) * 1000)
            world.kubelet.remove(uid_of(raw))
            world.api.remove(POD, f"new-{number}", "default")
            await world.settled()
        _print(f"Allocate, {_CARDS} cards, {_PODS} Pods", answers)
        await _measure_lists(world)


async def _measure_lists(world: AgentWorld) -> None:
    endpoint = world.kubelet.devices.endpoints["nvidia.com/gpu.shared"]
    found = []
    for number in range(_PODS):
        world.delete_pod(f"held-{number}")
    await world.settled()
    for number in range(50):
        await world.until(lambda: not endpoint.unhealthy)
        started = time.perf_counter()
        phase = await world.run_pod(pod(f"l-{number}", claiming(exclusive=1), age=number))
        assert phase == "Running", world.kubelet.reasons
        await world.until(lambda: bool(endpoint.unhealthy))
        found.append((time.perf_counter() - started) * 1000)
        world.delete_pod(f"l-{number}")
        await world.settled()
    _print("Allocate until the next device list", found)


async def measure_chance(root: Path, allocations: int, seed: int) -> None:
    """Print what a node's life by chance came to."""
    async with AgentWorld(root, node_groups()) as world:
        started = time.perf_counter()
        figures = await RandomNode(world, random.Random(seed)).run(allocations)
        sys.stdout.write(f"{allocations} allocations by chance, seed {seed}: {time.perf_counter() - started:.0f} s\n")
        for name, count in sorted(figures.items()):
            sys.stdout.write(f"  {name:<40} {count:>8}\n")


def _print(what: str, milliseconds: Sequence[float]) -> None:
    cuts = statistics.quantiles(milliseconds, n=100)
    sys.stdout.write(f"{what}: p50 {cuts[49]:.1f} ms, p99 {cuts[98]:.1f} ms, n {len(milliseconds)}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
