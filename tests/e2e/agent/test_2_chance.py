"""A node's life by chance, for long: all families, kubelet restarts, kills."""

from __future__ import annotations

import asyncio
import random
import tempfile
from pathlib import Path

import pytest

from tests.bench.random_node import RandomNode, node_groups
from tests.bench.random_process import measure_kills
from tests.builders.agent_world import AgentWorld, play

pytestmark = pytest.mark.timeout(3600)


@pytest.fixture(autouse=True)
def processes_live() -> None:
    """Need no control plane."""


def test_ten_thousand_allocations() -> None:
    async def story(world: AgentWorld) -> None:
        figures = await RandomNode(world, random.Random(1)).run(10_000)
        assert figures["Running"] > 3_000
        assert figures["killed under an allocation"] > 100
        assert figures["kubelet restarts"] > 100

    play(node_groups(), story)


def test_allocations_of_a_process_that_is_killed() -> None:
    with tempfile.TemporaryDirectory(prefix="k") as root:  # short, as names of sockets must be
        figures = asyncio.run(measure_kills(Path(root), 200, 1))
    assert figures["Running"] > 50
    assert figures["SIGKILL under an allocation"] > 5
