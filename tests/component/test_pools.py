"""Hardware and nodes that change under a running chain."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from devicemanager.answers import Empty, Failed, Found
from nodefeature.fields import at, labels_of
from nodefeature.kinds import CLUSTER_QUEUE, DEVICES, NODE, NODE_FEATURE, POD
from nodefeature.labels import SYSTEM_NAMESPACE
from tests.builders.machines import a10g, l4, machine, t4
from tests.builders.rows import case_json
from tests.builders.running_chain import RunningChain, Written, scenario
from tests.component.walkthrough import (
    A10G_FLAVOR,
    A10G_IDLE,
    A10G_POOL,
    CPU_POOL,
    NODE_A10G,
    NODE_T4_B,
    NOTHING,
    T4_POOL,
)

EIGHT = machine("gpu-a", cores=16, cards=[t4()] * 8)
TWO = (machine("gpu-a", cards=[a10g()]), machine("gpu-b", cards=[a10g()] * 2))
CREDITS = "credits.gpustack.ai/nvidia"


def groups_of(chain: RunningChain, node: str) -> dict[str, int]:
    """Return cards by group."""
    return {g["id"]: len(g["accelerators"]) for g in chain.object(DEVICES, node)["spec"]["groups"]}


# Case B024: cordoned, dead, tainted.


@pytest.mark.parametrize(
    ("patch", "status"),
    [
        ({"spec": {"unschedulable": True}}, False),
        ({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}, True),
        ({"spec": {"taints": [{"key": "maintenance", "effect": "NoSchedule"}]}}, False),
    ],
    ids=["cordoned", "not ready", "tainted"],
)
def test_b024_an_unusable_node_is_out_of_the_promise(patch: dict[str, Any], *, status: bool) -> None:
    @scenario(*TWO)
    async def story(chain: RunningChain) -> None:
        await chain.settle()
        assert chain.row(A10G_POOL)[1] == "2/3 2/30 100/300 0/0"
        usual = chain.object(NODE, "gpu-b")["status"]["conditions"]
        await chain.edit(NODE, "gpu-b", patch, status=status)
        await chain.settle()
        assert chain.row(A10G_POOL)[1] == "1/1 1/10 100/100 0/0"
        assert chain.row(CPU_POOL)[2] == "4/4"
        assert chain.quotas(A10G_POOL)["gpustack-nvidia-a10g-linux-amd64-2d"] == "3200k", "nobody is drained"
        back = {"spec": {"unschedulable": None, "taints": None}, "status": {"conditions": usual}}
        await chain.edit(NODE, "gpu-b", {"spec": back["spec"]})
        await chain.edit(NODE, "gpu-b", {"status": back["status"]}, status=True)
        await chain.settle()
        assert chain.row(A10G_POOL)[1] == "2/3 2/30 100/300 0/0"
        assert chain.row(CPU_POOL)[2] == "4/8"

    story()


@scenario(*TWO)
async def test_b024_a_vendors_taint_is_tolerated(chain: RunningChain) -> None:
    await chain.settle()
    taint = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
    await chain.edit(NODE, "gpu-b", {"spec": {"taints": [taint]}})
    await chain.settle()
    assert chain.row(A10G_POOL)[1] == "2/3 2/30 100/300 0/0"


@scenario(TWO[0])
async def test_b024_a_cordoned_node_gets_no_new_pod(chain: RunningChain) -> None:
    await chain.settle()
    await chain.edit(NODE, "gpu-a", {"spec": {"unschedulable": True}})
    await chain.settle()
    await chain.submit("where", A10G_POOL, {"nvidia.com/gpu": "1"})
    await chain.settle()
    assert not at(chain.pod("where"), "spec", "nodeName")
    await chain.edit(NODE, "gpu-a", {"spec": {"unschedulable": None}})
    await chain.settle()
    assert at(chain.pod("where"), "spec", "nodeName") == "gpu-a"


# Case B025: many flavors in one queue.


def with_counts(counts: int) -> tuple[dict[str, Any], ...]:
    return tuple(machine(f"n-{n:02d}", cards=[t4()] * n) for n in range(1, counts + 1))


@pytest.mark.parametrize("run", case_json("B025-many-counts")["runs"][:2], ids=lambda run: str(len(run["counts"])))
def test_b025_sixteen_and_seventeen_flavors(run: dict[str, Any]) -> None:
    counts = run["counts"]

    @scenario(*with_counts(len(counts)), detect_mutations=False)
    async def story(chain: RunningChain) -> None:
        await chain.settle()
        (group,) = chain.queue(T4_POOL)["spec"]["resourceGroups"]
        assert group["coveredResources"] == [CREDITS]
        assert [flavor["name"].rpartition("-")[2] for flavor in group["flavors"]] == [f"{n}d" for n in counts]
        assert chain.row(T4_POOL)[1].partition(" ")[0] == f"{len(counts)}/{sum(counts)}"
        assert chain.row(T4_POOL)[3] == "Active"

    story()


@scenario(
    *(machine(f"n-{n:02d}", cores=n) for n in range(1, 65)), machine("gpu-a", cards=[a10g()]), detect_mutations=False
)
async def test_b025_sixty_five_flavors_are_refused_and_the_old_plan_stays(chain: RunningChain) -> None:
    await chain.settle()
    assert len(chain.quotas(CPU_POOL)) == 64
    before = chain.quotas(CPU_POOL)
    await chain.join(machine("n-65", cores=65), machine("gpu-b", cores=64, cards=[l4()]))
    await chain.settle()
    assert chain.quotas(CPU_POOL) == before
    told = chain.condition(CLUSTER_QUEUE, CPU_POOL, "TopologyReady")
    assert (told["status"], told["reason"]) == ("False", "TooManyFlavors")
    assert "64" in told["message"]
    assert chain.row("gpustack-nvidia-l4-linux-amd64")[3] == "Active", "other queues go on"
    assert chain.row(A10G_POOL) == A10G_IDLE
    assert chain.row(CPU_POOL)[3] == "Active", "the old plan works"


# Cases B029, B039, B015: cards that change.


@scenario(machine("gpu-a", cards=[t4()] * 4))
async def test_b029_a_card_swap_leaves_no_phantom_pool(chain: RunningChain) -> None:
    await chain.settle()
    assert chain.row(T4_POOL)[1] == "4/4 4/40 100/400 0/0"
    chain.cards["gpu-a"].put(machine("gpu-a", cards=[l4()] * 2))
    await chain.run(30)
    await chain.settle()
    said = chain.object(NODE_FEATURE, "gpu-a-gpustack-device-manager", SYSTEM_NAMESPACE)["spec"]["labels"]
    key = "acceleratable.feature.gpustack.ai/nvidia-l4"
    assert said[key + ".count"] == "2"
    for labels in (said, labels_of(chain.object(NODE, "gpu-a")), labels_of(chain.object(DEVICES, "gpu-a"))):
        assert not [key for key in labels if "tesla-t4" in key]
    assert chain.row(T4_POOL)[1:] == (NOTHING, "0/0", "Inactive")
    assert chain.quotas(T4_POOL) == {}
    assert chain.row("gpustack-nvidia-l4-linux-amd64")[1] == "2/2 2/20 100/200 0/0"
    await chain.run(90)
    capacity = chain.object(NODE, "gpu-a")["status"]["capacity"]
    assert capacity["nvidia.com/gpu.sliced.units"] == "3200k"


@scenario(EIGHT, NODE_A10G)
async def test_b039_a_card_goes_bad_and_good(chain: RunningChain) -> None:
    await chain.settle()
    assert chain.row(T4_POOL)[1] == "8/8 8/80 100/800 0/0"
    await chain.charge("gpu-a", {"index": 3, "mode": 3, "remaining": 1_280_000})
    bad = {"state": "unhealthy", "ecc_uncorrected": 7, "ecc_corrected": 0, "xid": [79]}
    sick = [{**card, "health": bad} if card["index"] in (3, 5) else card for card in EIGHT["accelerators"]]
    chain.cards["gpu-a"].put({**EIGHT, "accelerators": sick})
    await chain.run(30)
    await chain.settle()
    assert groups_of(chain, "gpu-a") == {"tesla-t4": 8}
    assert chain.row(T4_POOL)[1] == "6/6 6/60 100/600 0/0"
    assert chain.type(T4_POOL)["status"]["accelerator"]["capacity"] == "8"
    rows = chain.object(DEVICES, "gpu-a")["status"]["groups"][0]["accelerators"]
    assert (rows[3]["mode"], rows[3]["remaining"]) == (3, 1_280_000), "the charge is untouched"
    chain.cards["gpu-a"].put(EIGHT)
    await chain.run(30)
    await chain.settle()
    assert chain.row(T4_POOL)[1] == "7/7 7/70 100/780 0/0"
    assert chain.row(A10G_POOL) == A10G_IDLE


@scenario(machine("gpu-a", cards=[t4()] * 4), NODE_A10G)
async def test_b015_passes(chain: RunningChain) -> None:
    cards = chain.cards["gpu-a"]
    found = await cards.detect("nvidia", await cards.bus())
    assert isinstance(found, Found)
    broken = Failed("driver/library version mismatch")
    cards.answers["nvidia"] = broken
    await chain.settle()
    assert chain.find(DEVICES, "gpu-a") is None
    assert chain.agents["gpu-a"].unready or chain.said("node=gpu-a", "driver/library version mismatch")
    assert chain.row(A10G_POOL) == A10G_IDLE
    cards.answers["nvidia"] = found
    await chain.settle()
    assert groups_of(chain, "gpu-a") == {"tesla-t4": 4}
    labels = labels_of(chain.object(NODE, "gpu-a"))
    cards.answers["nvidia"] = broken
    await chain.run(600)
    assert groups_of(chain, "gpu-a") == {"tesla-t4": 4}
    assert labels_of(chain.object(NODE, "gpu-a")) == labels
    assert chain.detected("gpu-a")["reason"] == "NotMeasured"
    assert "driver/library version mismatch" in chain.detected("gpu-a")["message"]
    assert chain.row(T4_POOL)[1] == "4/4 4/40 100/400 0/0"
    cards.answers["nvidia"] = replace(found, cards=found.cards[:2] + found.cards[3:])
    await chain.settle()
    assert groups_of(chain, "gpu-a") == {"tesla-t4": 3}
    assert chain.row(T4_POOL)[1] == "3/3 3/30 100/300 0/0"
    cards.answers["nvidia"] = Empty("no card")
    await chain.settle()
    assert groups_of(chain, "gpu-a") == {}
    assert chain.row(T4_POOL)[1:] == (NOTHING, "0/0", "Inactive")
    cards.answers["nvidia"] = found
    await chain.settle()
    assert chain.row(T4_POOL)[1:] == ("4/4 4/40 100/400 0/0", "0/0", "Active")


# Case B056: NFD does not merge.


@scenario(NODE_A10G)
async def test_b056_nfd_that_never_merges_is_named_after_two_minutes(chain: RunningChain) -> None:
    await chain.kill("standins")
    await chain.run(110)
    assert not chain.condition(NODE, "node-a10g", "GPUStackLabelsMerged")
    await chain.run(20)
    told = chain.condition(NODE, "node-a10g", "GPUStackLabelsMerged")
    assert (told["status"], told["reason"]) == ("False", "LabelsNotMerged")
    assert "node-feature-discovery's master" in told["message"]
    version = chain.store.version
    await chain.run(600)
    assert chain.store.version == version, "said once"
    chain.start_standins()
    await chain.settle()
    assert chain.condition(NODE, "node-a10g", "GPUStackLabelsMerged")["status"] == "True"
    assert chain.row(A10G_POOL) == A10G_IDLE


# Case B013: the kubelet forgets what it does not know.


@scenario(machine("gpu-a", cards=[a10g()] * 2))
async def test_b013_the_kubelet_restarts(chain: RunningChain) -> None:
    await chain.settle()
    own = [f"nvidia.com/gpu.sliced.{name}" for name in ("units", "cores-percentage", "memory-percentage", "memory-mib")]
    steady = chain.object(NODE, "gpu-a")["status"]["capacity"]
    await chain.submit("hold", A10G_POOL, {"nvidia.com/gpu.sliced": "1", "nvidia.com/gpu.sliced.units": "800000"})
    await chain.settle()
    patch = Written("patch", "nodes/status", "gpustack-node-capacity", 200)
    for change, wanted in (
        ({"nvidia.com/gpu.sliced.units": "3200000"}, steady),
        (dict.fromkeys(own, "0"), steady),
        (dict.fromkeys(own), steady),
    ):
        before = chain.written()[patch]
        await chain.edit(NODE, "gpu-a", {"status": {"capacity": change}}, status=True)
        await chain.run(30)
        capacity = chain.object(NODE, "gpu-a")["status"]["capacity"]
        assert {key: capacity[key] for key in own if key != own[0]} == {k: wanted[k] for k in own if k != own[0]}
        assert chain.written()[patch] - before <= 1
    before = chain.written()[patch]
    await chain.run(600)
    assert chain.written()[patch] == before


# The last node leaves, plans change under load.


@pytest.mark.parametrize("drain", ["true", "false"])
def test_the_last_node_leaves_under_load(drain: str) -> None:
    @scenario(NODE_A10G, NODE_T4_B, settings={"instance_type_drain_when_no_flavors": drain})
    async def story(chain: RunningChain) -> None:
        await chain.settle()
        await chain.submit("train", A10G_POOL, {"nvidia.com/gpu": "1"})
        await chain.settle()
        assert chain.pod("train")["status"]["phase"] == "Running"
        await chain.label("node-a10g", **{"gpustack.ai/managed": "false"})
        await chain.run(300)
        queue = chain.queue(A10G_POOL)
        if drain == "true":
            assert chain.pod("train") == {}
            assert queue["spec"]["stopPolicy"] == "HoldAndDrain"
            assert not queue["spec"]["resourceGroups"]
        else:
            assert chain.pod("train")["status"]["phase"] == "Running", "nobody is evicted"
            assert chain.quotas(A10G_POOL) == {A10G_FLAVOR: "1600k"}, "the groups stay while somebody holds them"
            await chain.delete(POD, "train", "default")
            await chain.run(300)
            assert not chain.queue(A10G_POOL)["spec"]["resourceGroups"]
            assert chain.queue(A10G_POOL)["spec"]["stopPolicy"] != "None"
        assert chain.row(A10G_POOL)[1:] == (NOTHING, "0/0", "Inactive")
        assert chain.row(T4_POOL)[1] == "4/4 4/40 100/400 0/0"
        await chain.label("node-a10g", **{"gpustack.ai/managed": "true"})
        await chain.run(300)
        assert chain.row(A10G_POOL) == A10G_IDLE
        assert chain.queue(A10G_POOL)["spec"]["stopPolicy"] == "None"
        await chain.submit("again", A10G_POOL, {"nvidia.com/gpu": "1"})
        await chain.settle()
        assert chain.pod("again")["status"]["phase"] == "Running"

    story()


@scenario(NODE_A10G, NODE_T4_B)
async def test_a_plan_changes_under_load_migrates_and_comes_back(chain: RunningChain) -> None:
    await chain.settle()
    uid = chain.queue(A10G_POOL)["metadata"]["uid"]
    await chain.submit("train", A10G_POOL, {"nvidia.com/gpu": "1"})
    await chain.submit("other", T4_POOL, {"nvidia.com/gpu": "1"})
    await chain.settle()
    await chain.set(instance_type_aware_cpu_manufacturer="true")
    await chain.run(300)
    assert chain.pod("train") == {}, "drained before its flavor left the queue"
    aware = "gpustack-amd-epyc-7r32--nvidia-a10g-linux-amd64-1d"
    assert chain.quotas(A10G_POOL) == {aware: "1600k"}
    assert chain.queue(A10G_POOL)["spec"]["stopPolicy"] == "None"
    assert chain.queue(A10G_POOL)["metadata"]["uid"] == uid
    assert not at(chain.type(A10G_POOL), "spec", "inactive")
    await chain.submit("again", A10G_POOL, {"nvidia.com/gpu": "1"})
    await chain.settle()
    assert chain.pod("again")["status"]["phase"] == "Running"
    await chain.set(instance_type_aware_cpu_manufacturer="false")
    await chain.run(300)
    assert chain.quotas(A10G_POOL) == {A10G_FLAVOR: "1600k"}
    assert chain.row(A10G_POOL)[3] == "Active"
    assert A10G_FLAVOR in chain.flavors()
    assert aware not in chain.flavors()


@scenario(machine("gpu-a", cards=[a10g()]), machine("gpu-b", cards=[a10g()] * 2))
async def test_one_of_two_flavors_leaves_under_load(chain: RunningChain) -> None:
    await chain.settle()
    for name in ("one", "two", "three"):
        await chain.submit(name, A10G_POOL, {"nvidia.com/gpu": "1"})
    await chain.settle()
    assert {chain.pod(name)["status"]["phase"] for name in ("one", "two", "three")} == {"Running"}
    await chain.label("gpu-a", **{"gpustack.ai/managed": "false"})
    await chain.run(300)
    assert chain.quotas(A10G_POOL) == {"gpustack-nvidia-a10g-linux-amd64-2d": "3200k"}
    assert chain.queue(A10G_POOL)["spec"]["stopPolicy"] == "None"
    assert chain.row(A10G_POOL)[3] == "Active"
