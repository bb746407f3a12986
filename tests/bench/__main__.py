"""`python -m tests.bench [--allocations N] [--seed N] [--only PART]`: what `make bench-agent` runs."""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import uvloop

from tests.bench import allocate, process
from tests.bench.figures import Figure, show
from tests.bench.random_node import RandomNode, node_groups
from tests.bench.random_process import measure_kills
from tests.builders.agent_world import AgentWorld

Measure = Callable[[Path], Awaitable[list[Figure]]]
_PARTS: dict[str, Measure] = {"allocate": allocate.measure, "process": process.measure}


def main() -> int:
    """Read the command line and measure; 1 when something does not hold."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--allocations", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kills", type=int, default=200, help="allocations of an agent's process that is killed")
    parser.add_argument("--only", choices=[*_PARTS, "chance", "kills"], help="measure one part alone")
    asked = parser.parse_args()
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # a killed process is no news here
    held = True
    for name, part in _PARTS.items():
        if asked.only in {None, name}:
            with tempfile.TemporaryDirectory(prefix="bench") as root:
                figures = uvloop.run(_part(part, Path(root)))  # as in the agent
            show(figures)
            held = held and all(figure.holds for figure in figures)
    if asked.only in {None, "chance"}:
        with tempfile.TemporaryDirectory(prefix="bench") as root:
            asyncio.run(measure_chance(Path(root), asked.allocations, asked.seed))
    if asked.only in {None, "kills"}:
        with tempfile.TemporaryDirectory(prefix="bench") as root:
            found = asyncio.run(measure_kills(Path(root), asked.kills, asked.seed))
        _show_counts(f"{asked.kills} allocations of a process that is killed, seed {asked.seed}", found)
    return 0 if held else 1


async def _part(part: Measure, root: Path) -> list[Figure]:
    return await part(root)


async def measure_chance(root: Path, allocations: int, seed: int) -> None:
    """Print what a node's life by chance came to."""
    async with AgentWorld(root, node_groups()) as world:
        started = time.perf_counter()
        figures = await RandomNode(world, random.Random(seed)).run(allocations)
        _show_counts(
            f"{allocations} allocations by chance, seed {seed}: {time.perf_counter() - started:.0f} s", figures
        )


def _show_counts(title: str, counts: Mapping[str, int]) -> None:
    sys.stdout.write(f"{title}\n")
    for name, count in sorted(counts.items()):
        sys.stdout.write(f"  {name:<40} {count:>8}\n")


if __name__ == "__main__":
    sys.exit(main())
