"""Disruptions drawn by chance, one upon another: whatever happened, the chain ends where the machines say."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from hack.devcluster.standins.nfd_master import HOLD
from nodefeature.kinds import CLUSTER_QUEUE, DEVICES, INSTANCE_TYPE, NODE, RESOURCE_FLAVOR
from nodefeature.labels import MANAGED
from tests.builders.running_chain import RunningChain, scenario
from tests.component.walkthrough import (
    A10G_FLAVOR,
    A10G_IDLE,
    A10G_POOL,
    CPU_FLAVORS,
    CPU_POOL,
    FLEET,
    FREE,
    SLICE_20,
    T4_FLAVORS,
    T4_IDLE,
    T4_POOL,
    WHOLE,
)

NODES = tuple(machine["name"] for machine in FLEET)
CARDED = NODES[1:]


async def restart_server(chain: RunningChain, rng: random.Random) -> None:
    await chain.restart_server(kill=rng.random() < 0.7, away_s=rng.choice((0.5, 3.0, 40.0)))


async def restart_controllers(chain: RunningChain, rng: random.Random) -> None:
    await (chain.kill if rng.random() < 0.7 else chain.stop)("controllers")
    await chain.run(rng.choice((0.0, 2.0, 30.0)))
    chain.start_controllers()


async def restart_standins(chain: RunningChain, rng: random.Random) -> None:
    await chain.kill("standins")
    await chain.run(rng.choice((0.0, 2.0, 30.0)))
    chain.start_standins()


async def restart_agent(chain: RunningChain, rng: random.Random) -> None:
    node = rng.choice(NODES)
    await chain.kill(f"agent {node}")
    chain.start_agent(node, next(machine for machine in FLEET if machine["name"] == node))


async def flip_managed(chain: RunningChain, rng: random.Random) -> None:
    await chain.label(rng.choice(NODES), **{MANAGED: rng.choice(("true", "false"))})


async def hold_labels(chain: RunningChain, rng: random.Random) -> None:
    hold = {"metadata": {"annotations": {HOLD: rng.choice(("5s", "45s", "210s"))}}}
    await chain.edit(NODE, rng.choice(NODES), hold)


async def charge(chain: RunningChain, rng: random.Random) -> None:
    node = rng.choice(CARDED)
    if chain.find(DEVICES, node) is not None and chain.object(DEVICES, node).get("status"):
        await chain.charge(node, {"index": 0, **rng.choice((WHOLE, SLICE_20, FREE))})


async def flip_awareness(chain: RunningChain, rng: random.Random) -> None:
    await chain.set(instance_type_aware_cpu_manufacturer=rng.choice(("true", "false")))


async def delete_something(chain: RunningChain, rng: random.Random) -> None:
    kind = rng.choice((RESOURCE_FLAVOR, CLUSTER_QUEUE, INSTANCE_TYPE, DEVICES))
    names = chain.names(kind)
    if names:
        await chain.delete(kind, rng.choice(names))


async def submit(chain: RunningChain, rng: random.Random) -> None:
    pool, request = rng.choice(((A10G_POOL, {"nvidia.com/gpu": "1"}), (T4_POOL, {"nvidia.com/gpu": "1"})))
    await chain.submit(f"pod-{rng.getrandbits(32):08x}", pool, request)


DISRUPTIONS = (
    restart_server,
    restart_controllers,
    restart_standins,
    restart_agent,
    flip_managed,
    hold_labels,
    charge,
    flip_awareness,
    delete_something,
    submit,
)


@pytest.mark.parametrize("seed", [0, 3, 5])
def test_the_chain_ends_where_the_machines_say(seed: int, tmp_path: Path) -> None:
    @scenario(*FLEET, store_file=tmp_path / "store.sqlite")
    async def story(chain: RunningChain) -> None:
        rng = random.Random(seed)
        await chain.run(rng.choice((0.0, 1.0, 30.0)))
        for _ in range(25):
            await rng.choice(DISRUPTIONS)(chain, rng)
            await chain.run(rng.choice((0.0, 0.1, 3.0, 6.0, 20.0)))
        for node in NODES:
            await chain.label(node, **{MANAGED: "true"})
        await chain.set(instance_type_aware_cpu_manufacturer="false")
        await chain.run(900)
        for node in CARDED:
            await chain.charge(node, {"index": 0, **FREE})
        await chain.settle()
        assert chain.flavors() == sorted([*CPU_FLAVORS, A10G_FLAVOR, *T4_FLAVORS])
        assert chain.quotas(A10G_POOL) == {A10G_FLAVOR: "1600k"}
        assert chain.row(A10G_POOL) == A10G_IDLE
        assert chain.row(T4_POOL) == T4_IDLE
        assert chain.row(CPU_POOL)[2:] == ("48/72", "Active")
        version = chain.store.version
        await chain.run(700)
        await chain.restart_controllers()
        await chain.run(60)
        assert chain.store.version == version, chain.last_changes()

    story()
