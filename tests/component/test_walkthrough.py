"""The walk-through of spec 07 §10, out of the running chain."""

from __future__ import annotations

from typing import Any

from nodefeature.fields import annotations_of, as_maps, at, labels_of
from nodefeature.kinds import (
    ADMISSION_CHECK,
    CLUSTER_QUEUE,
    DEVICES,
    INSTANCE_TYPE,
    NODE_FEATURE,
    RESOURCE_FLAVOR,
    TOPOLOGY,
)
from nodefeature.labels import MANAGED, SYSTEM_NAMESPACE
from nodefeature.queue_names import NODE_DEVICES_CHECK, local_queue_name
from tests.builders.running_chain import RunningChain, scenario
from tests.component.walkthrough import (
    A10G_CPU_FLAVOR,
    A10G_FLAVOR,
    A10G_IDLE,
    A10G_POOL,
    CPU_FLAVORS,
    CPU_POOL,
    FLEET,
    FREE,
    NOTHING,
    SLICE_20,
    T4_FLAVORS,
    T4_IDLE,
    T4_POOL,
    WHOLE,
)

MINE = "a10g-12c128g"


@scenario(*FLEET)
async def test_10_1_initial(chain: RunningChain) -> None:
    await chain.settle()
    assert chain.flavors() == sorted([*CPU_FLAVORS, A10G_FLAVOR, *T4_FLAVORS])
    assert chain.types() == chain.names(CLUSTER_QUEUE) == [CPU_POOL, A10G_POOL, T4_POOL]
    assert chain.names(TOPOLOGY) == ["gpustack-fnv64-87bf574bea2a4f23"]
    assert chain.names(DEVICES) == ["node-a10g", "node-t4-a", "node-t4-b"]
    assert chain.row(CPU_POOL) == ("1/2Gi/100Gi", NOTHING, "48/72", "Active")
    assert chain.row(A10G_POOL) == A10G_IDLE
    assert chain.row(T4_POOL) == T4_IDLE
    entrances = {pool: chain.type(pool)["status"]["entrance"] for pool in chain.types()}
    assert entrances == {
        CPU_POOL: "gpustack-fnv64-7aa0010633cb3725",
        A10G_POOL: "gpustack-fnv64-7bc37bef52624161",
        T4_POOL: "gpustack-fnv64-199cb01104a7efc8",
    }
    assert chain.entrances() == sorted(entrances.values())
    assert not chain.entrances("kube-system")
    assert not chain.entrances(SYSTEM_NAMESPACE)


@scenario(*FLEET)
async def test_10_1_the_a10g_queue_and_flavor(chain: RunningChain) -> None:
    await chain.settle()
    await answer_gate_3(chain)
    queue = chain.queue(A10G_POOL)
    assert labels_of(queue)["resource.gpustack.ai/type"] == "instancetypes"
    assert [g["coveredResources"] for g in queue["spec"]["resourceGroups"]] == [["credits.gpustack.ai/nvidia"]]
    assert chain.quotas(A10G_POOL) == {A10G_FLAVOR: "1600k"}
    assert chain.quotas(T4_POOL) == {T4_FLAVORS[0]: "1600k", T4_FLAVORS[1]: "6400k"}
    assert "cohortName" not in queue["spec"]
    for pool, checks in ((A10G_POOL, [NODE_DEVICES_CHECK]), (CPU_POOL, [])):
        found = as_maps(at(chain.queue(pool), "spec", "admissionChecksStrategy", "admissionChecks"))
        assert [check["name"] for check in found] == checks
        assert chain.row(pool)[3] == "Active"
    flavor = chain.object(RESOURCE_FLAVOR, A10G_FLAVOR)
    key = "acceleratable.feature.gpustack.ai/nvidia-a10g"
    labels = labels_of(flavor)
    assert (labels[key + ".count"], labels[key + ".capacity"]) == ("1", "1")
    assert labels["resource.gpustack.ai/type"] == "nodes"
    assert flavor["spec"]["nodeLabels"] == {
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        MANAGED: "true",
        key: "true",
        key + ".count": "1",
        "topology.gpustack.ai/profile": "fnv64-87bf574bea2a4f23",
    }
    assert annotations_of(flavor)["note.gpustack.ai/memory"] == "24Gi"


@scenario(*FLEET)
async def test_10_2_unmanage_and_manage(chain: RunningChain) -> None:
    await chain.settle()
    policy = chain.queue(A10G_POOL)["spec"]["stopPolicy"]
    gone = {A10G_FLAVOR, A10G_CPU_FLAVOR}
    await say_managed(chain, "false")
    await chain.settle()
    assert not gone & set(chain.flavors())
    assert chain.row(A10G_POOL)[1:] == (NOTHING, "0/0", "Inactive")
    assert "no resource flavor offers this hardware" in chain.type(A10G_POOL)["status"]["phaseMessage"]
    assert not at(chain.type(A10G_POOL), "spec", "inactive")
    assert chain.row(CPU_POOL)[2:] == ("48/68", "Active")
    assert not chain.queue(A10G_POOL)["spec"].get("resourceGroups")
    assert chain.queue(A10G_POOL)["spec"]["stopPolicy"] != "None"
    assert chain.row(T4_POOL) == T4_IDLE
    await say_managed(chain, "true")
    await chain.settle()
    assert gone <= set(chain.flavors())
    assert chain.row(A10G_POOL) == A10G_IDLE
    assert chain.quotas(A10G_POOL) == {A10G_FLAVOR: "1600k"}
    assert chain.queue(A10G_POOL)["spec"]["stopPolicy"] == policy
    assert chain.row(CPU_POOL)[2:] == ("48/72", "Active")


@scenario(*FLEET)
async def test_10_3_slice(chain: RunningChain) -> None:
    await chain.settle()
    for row, want in ((SLICE_20, "0/0 0/0 80/80 0/0"), (FREE, A10G_IDLE[1])):
        await chain.charge("node-a10g", {"index": 0, **row})
        await chain.settle()
        assert chain.row(A10G_POOL)[1] == want
        assert chain.row(T4_POOL) == T4_IDLE


@scenario(*FLEET)
async def test_10_4_admin_type_and_its_deletion(chain: RunningChain) -> None:
    await chain.settle()
    await chain.create(INSTANCE_TYPE, admin_type())
    await chain.settle()
    assert chain.row(MINE) == ("12/128Gi/200Gi", "1/1 1/10 100/100 0/0", "0/0", "Active")
    # The table's `gpustack-fnv64-8cf5b3114035c84a` is of another name; the rule is what counts (spec 01 §8).
    assert chain.type(MINE)["status"]["entrance"] == local_queue_name(MINE)
    assert local_queue_name(MINE) in chain.entrances()
    await chain.submit("train", MINE, {"nvidia.com/gpu": "1"})
    await chain.settle()
    await chain.charge("node-a10g", {"index": 0, **WHOLE})
    await chain.settle()
    assert chain.pod("train")["status"]["phase"] == "Running"
    assert {chain.row(pool)[1] for pool in (MINE, A10G_POOL)} == {NOTHING}
    await chain.delete(INSTANCE_TYPE, MINE)
    await chain.settle()
    assert MINE not in chain.types()
    assert MINE not in chain.names(CLUSTER_QUEUE)
    assert local_queue_name(MINE) not in chain.entrances()
    assert chain.pod("train") == {}, "evicted before its queue went"
    await chain.charge("node-a10g", {"index": 0, **FREE})
    await chain.settle()
    assert chain.row(A10G_POOL) == A10G_IDLE


@scenario(*FLEET)
async def test_10_5_cpu_awareness_on(chain: RunningChain) -> None:
    await chain.settle()
    before = {name: chain.type(name)["metadata"]["uid"] for name in chain.types()}
    await chain.set(instance_type_aware_cpu_manufacturer="true")
    await chain.settle()
    assert [name for name in chain.flavors() if name not in CPU_FLAVORS] == [
        "gpustack-amd-epyc-7r32--nvidia-a10g-linux-amd64-1d",
        "gpustack-intel-xeon-platinum-8259cl--nvidia-tesla-t4-linux-amd64-1d",
        "gpustack-intel-xeon-platinum-8259cl--nvidia-tesla-t4-linux-amd64-4d",
    ]
    assert set(CPU_FLAVORS) <= set(chain.flavors())
    rows = {name: chain.row(name)[1:] for name in chain.types() if name not in before}
    assert rows == {
        "gpustack-amd-epyc-7r13-linux-amd64": (NOTHING, "16/16", "Active"),
        "gpustack-amd-epyc-7r32-linux-amd64": (NOTHING, "4/4", "Active"),
        "gpustack-intel-xeon-platinum-8259cl-linux-amd64": (NOTHING, "48/52", "Active"),
        "gpustack-amd-epyc-7r32--nvidia-a10g-linux-amd64": (A10G_IDLE[1], "0/0", "Active"),
        "gpustack-intel-xeon-platinum-8259cl--nvidia-tesla-t4-linux-amd64": (T4_IDLE[1], "0/0", "Active"),
    }
    assert {name: chain.type(name)["metadata"]["uid"] for name in before} == before, "none deleted, none made anew"
    assert {chain.row(name)[3] for name in before} == {"Active"}
    aware = chain.queue("gpustack-amd-epyc-7r32--nvidia-a10g-linux-amd64")
    assert labels_of(aware)["general.feature.gpustack.ai/amd-epyc-7r32"] == "true"


async def say_managed(chain: RunningChain, word: str) -> None:
    labels = {"spec": {"labels": {MANAGED: word}}}
    await chain.edit(NODE_FEATURE, "node-a10g-gpustack-worker", labels, SYSTEM_NAMESPACE)


async def answer_gate_3(chain: RunningChain) -> None:
    """Declare the per-card check usable, as the controller that answers it does."""
    condition = {"type": "Active", "status": "True", "reason": "Active", "message": "", "lastTransitionTime": None}
    await chain.edit(ADMISSION_CHECK, NODE_DEVICES_CHECK, {"status": {"conditions": [condition]}}, status=True)
    await chain.settle()


def admin_type() -> dict[str, Any]:
    return {
        "metadata": {"name": MINE},
        "spec": {
            "acceleratable": True,
            "generalGroup": "generic",
            "acceleratorGroup": "nvidia-a10g",
            "os": "linux",
            "arch": "amd64",
            "unitResources": {"cpu": "12", "ram": "128Gi"},
            "localStorage": "200Gi",
        },
    }
