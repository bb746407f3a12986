"""A node's life by chance, in short; `make bench-agent` runs 10,000 allocations."""

from __future__ import annotations

import random

import pytest

from tests.bench.random_node import RandomNode, node_groups
from tests.builders.agent_world import AgentWorld, play


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_no_card_is_ever_given_twice(seed: int) -> None:
    async def story(world: AgentWorld) -> None:
        figures = await RandomNode(world, random.Random(seed)).run(60)
        assert figures["Running"] > 20

    play(node_groups(), story)
