"""The tables of spec 04 §14.2, §14.5 and §14.6, those rows that the whole chain can play."""

from __future__ import annotations

from typing import Any

import pytest

from nodefeature.fields import annotations_of, at
from nodefeature.kinds import CLUSTER_QUEUE, INSTANCE_TYPE, NODE
from nodefeature.labels import EMPTY_PLAN_HOLD, MANAGED
from nodefeature.quantity import quantity_or_zero
from tests.builders.machines import a10g, machine, t4
from tests.builders.running_chain import RunningChain, scenario
from tests.builders.virtual_loop import run_virtually
from tests.component.test_worked_examples import ASCEND, IN_MIG
from tests.component.walkthrough import A10G_POOL, CPU_POOL

A100_POOL = "gpustack-nvidia-a100-sxm4-80gb-linux-amd64"
VIEWS = ("accelerator", "acceleratorShared", "acceleratorSliced", "acceleratorPartitioned")
EIGHT = machine("gpu-a", cards=[a10g()] * 8)
OF_TWO, OF_FOUR = machine("gpu-2", cards=[a10g()] * 2), machine("gpu-4", cards=[a10g()] * 4)
FLAVOR_2, FLAVOR_4 = "gpustack-nvidia-a10g-linux-amd64-2d", "gpustack-nvidia-a10g-linux-amd64-4d"
HELD, DRAINED = "Hold", "HoldAndDrain"

FREE = {"mode": 0, "remaining": 1_600_000}
WHOLE = {"mode": 1, "remaining": 0}
NINE_SHARES = {"mode": 2, "remaining": 1_440_000}


def sliced(percent: int) -> dict[str, int]:
    return {"mode": 3, "remaining": percent * 16_000}


def views(chain: RunningChain, pool: str) -> list[str]:
    """Return the four views of a pool as `once/remaining/capacity`."""
    status = chain.type(pool)["status"]
    return ["/".join(status[view][part] for part in ("onceMaxRequest", "remaining", "capacity")) for view in VIEWS]


# §14.5: ledgers of one node with eight cards.

LEDGERS: dict[str, tuple[list[dict[str, int]], list[str]]] = {
    "8 free": ([FREE] * 8, ["8/8/8", "10/80/80", "100/800/800"]),
    "2 exclusive and 6 free": ([WHOLE] * 2 + [FREE] * 6, ["6/6/8", "6/60/80", "100/600/800"]),
    "2 shared, 9 shares left": ([WHOLE] * 2 + [NINE_SHARES] * 2 + [FREE] * 4, ["4/4/8", "6/58/80", "100/400/800"]),
    "2 sliced at 80 %": (
        [WHOLE] * 2 + [NINE_SHARES] * 2 + [sliced(80)] * 2 + [FREE] * 2,
        ["2/2/8", "4/38/80", "100/360/800"],
    ),
    "2 sliced at 78 %": (
        [WHOLE] * 2 + [NINE_SHARES] * 2 + [sliced(78)] * 2 + [FREE] * 2,
        ["2/2/8", "4/38/80", "100/356/800"],
    ),
    "3 exclusive, 1 free": (
        [WHOLE] * 3 + [NINE_SHARES] * 2 + [sliced(78)] * 2 + [FREE],
        ["1/1/8", "3/28/80", "100/256/800"],
    ),
}


@scenario(EIGHT)
async def test_14_5_ledgers(chain: RunningChain) -> None:
    await chain.settle()
    for name, (cards, want) in LEDGERS.items():
        await chain.charge("gpu-a", *({"index": index, **card} for index, card in enumerate(cards)))
        await chain.run(5)
        shown = views(chain, A10G_POOL)
        assert [shown[0], shown[1].split("/", 1)[1], shown[2]] == [want[0], want[1].split("/", 1)[1], want[2]], name
        assert shown[3] == "0/0/0"


@scenario(OF_FOUR, OF_TWO)
async def test_14_5_nodes_of_4_and_2_free(chain: RunningChain) -> None:
    await chain.settle()
    assert views(chain, A10G_POOL) == ["4/6/6", "4/60/60", "100/600/600", "0/0/0"]


@scenario(machine("gpu-a", cards=[IN_MIG] * 2))
async def test_14_5_two_mig_cards_of_ceiling_7(chain: RunningChain) -> None:
    await chain.settle()
    assert views(chain, A100_POOL) == ["0/0/0", "0/0/0", "0/0/0", "1/14/14"]


@scenario(machine("gpu-a", cards=[a10g()] * 2), machine("cpu-a", cores=16), machine("cpu-b", cores=16))
async def test_14_5_cpu_queue(chain: RunningChain) -> None:
    await chain.settle()
    assert chain.row(CPU_POOL)[2] == "16/36"
    await chain.edit(NODE, "cpu-b", {"spec": {"unschedulable": True}})
    await chain.run(5)
    assert chain.row(CPU_POOL)[2] == "16/20"


@scenario(EIGHT)
async def test_14_5_queue_deleted_and_group_changed(chain: RunningChain) -> None:
    await chain.settle()
    uid = chain.queue(A10G_POOL)["metadata"]["uid"]
    await chain.delete(CLUSTER_QUEUE, A10G_POOL)
    await chain.settle()
    assert chain.queue(A10G_POOL)["metadata"]["uid"] != uid
    assert views(chain, A10G_POOL)[0] == "8/8/8"
    await chain.delete(INSTANCE_TYPE, A10G_POOL)
    await chain.settle()
    assert views(chain, A10G_POOL)[0] == "8/8/8", "authored again from the node"


# §14.2: counting keys of a node.


@pytest.mark.parametrize(
    ("shown", "prefix", "want"),
    [
        pytest.param(EIGHT, "nvidia.com/gpu", ("12800000", "102400", "800"), id="a10g, 8 cards of 128 slices"),
        pytest.param(OF_FOUR, "nvidia.com/gpu", ("6400000", "51200", "400"), id="a10g, 4 cards"),
        pytest.param(
            machine("gpu-a", cards=[*[a10g()] * 4, *[t4()] * 2]),
            "nvidia.com/gpu",
            ("9600000", "76800", "600"),
            id="a10g x4 and t4 x2",
        ),
        pytest.param(ASCEND, "huawei.com/npu", ("12800000", "50400", "800"), id="910b, 8 cards of 63 slices"),
    ],
)
def test_14_2_counting_keys(shown: dict[str, Any], prefix: str, want: tuple[str, ...]) -> None:
    async def story() -> None:
        async with RunningChain().running(shown) as chain:
            await chain.settle()
            capacity = chain.object(NODE, shown["name"])["status"]["capacity"]
            keys = [f"{prefix}.sliced.{part}" for part in ("units", "cores-percentage", "memory-percentage")]
            assert {k: quantity_or_zero(capacity.get(k)) for k in keys} == {
                k: quantity_or_zero(v) for k, v in zip(keys, want, strict=True)
            }
            await chain.label(shown["name"], **{MANAGED: "false"})
            await chain.run(120)
            capacity = chain.object(NODE, shown["name"])["status"]["capacity"]
            assert not [key for key in capacity if key in keys], "unmanaged: taken away"
            assert "cpu" in capacity

    run_virtually(story())


# §14.6: quotas, holds and drains of one queue.


@scenario(OF_FOUR, OF_TWO)
async def test_14_6_capacities_2_and_4(chain: RunningChain) -> None:
    await chain.settle()
    assert chain.quotas(A10G_POOL) == {FLAVOR_2: "3200k", FLAVOR_4: "6400k"}
    uid = chain.queue(A10G_POOL)["metadata"]["uid"]
    await chain.join(machine("gpu-2b", cards=[a10g()] * 2))
    await chain.settle()
    assert chain.quotas(A10G_POOL) == {FLAVOR_2: "6400k", FLAVOR_4: "6400k"}, "in place"
    await chain.label("gpu-4", **{MANAGED: "false"})
    await chain.settle()
    assert chain.quotas(A10G_POOL) == {FLAVOR_2: "6400k"}, "an idle flavor goes in place"
    assert chain.queue(A10G_POOL)["spec"]["stopPolicy"] == "None"
    assert chain.queue(A10G_POOL)["metadata"]["uid"] == uid


@pytest.mark.parametrize("policy", [HELD, DRAINED])
def test_14_6_an_administrators_stop_outlives_new_plans(policy: str) -> None:
    @scenario(OF_TWO)
    async def story(chain: RunningChain) -> None:
        await chain.settle()
        await chain.edit(INSTANCE_TYPE, A10G_POOL, {"spec": {"inactive": True}})
        await chain.edit(CLUSTER_QUEUE, A10G_POOL, {"spec": {"stopPolicy": policy}})
        await chain.settle()
        await chain.join(OF_FOUR)
        await chain.settle()
        assert chain.quotas(A10G_POOL) == {FLAVOR_2: "3200k", FLAVOR_4: "6400k"}
        assert chain.queue(A10G_POOL)["spec"]["stopPolicy"] == policy

    story()


@scenario(OF_TWO)
async def test_14_6_no_flavors_empties_and_holds_then_a_flavor_returns(chain: RunningChain) -> None:
    await chain.settle()
    await chain.label("gpu-2", **{MANAGED: "false"})
    await chain.settle()
    queue = chain.queue(A10G_POOL)
    assert chain.quotas(A10G_POOL) == {}
    assert queue["spec"]["stopPolicy"] in (HELD, DRAINED)
    assert annotations_of(queue)["topology.gpustack.ai/migration-phase"] == "switched"
    await chain.label("gpu-2", **{MANAGED: "true"})
    await chain.settle()
    queue = chain.queue(A10G_POOL)
    assert chain.quotas(A10G_POOL) == {FLAVOR_2: "3200k"}
    assert queue["spec"]["stopPolicy"] == "None"
    assert EMPTY_PLAN_HOLD not in annotations_of(queue)
    assert at(queue, "metadata", "annotations", "topology.gpustack.ai/migration-phase") is None


@scenario(OF_TWO, OF_FOUR)
async def test_14_6_an_unmanaged_pool_node_is_ignored(chain: RunningChain) -> None:
    await chain.settle()
    await chain.label("gpu-4", **{MANAGED: "false"})
    await chain.settle()
    assert chain.condition(CLUSTER_QUEUE, A10G_POOL, "TopologyReady")["reason"] == "Ready"
    assert chain.quotas(A10G_POOL) == {FLAVOR_2: "3200k"}
    assert views(chain, A10G_POOL)[0] == "2/2/2"
