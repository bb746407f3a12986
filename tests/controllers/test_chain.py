"""The whole chain in memory: node data in, flavors, queues and types out.

Spec 04 §13, spec 07 §10, cases B003 and B027.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kube.reconciler import Object
from nodefeature.fields import annotations_of, as_maps, at, labels_of
from nodefeature.kinds import (
    CLUSTER_QUEUE,
    DEVICES,
    INSTANCE_TYPE,
    LOCAL_QUEUE,
    NAMESPACE,
    NODE,
    NODE_FEATURE,
    RESOURCE_FLAVOR,
    TOPOLOGY,
)
from nodefeature.labels import MANAGED, NOTE_PREFIX
from nodefeature.queue_names import NODE_DEVICES_CHECK, local_queue_name
from tests.builders.fleet import Chain, Machine
from tests.builders.instance_types import FREE, PARTITIONED, SLICED, TAKEN, Card, device_groups, instance_type, mig
from tests.builders.queues import namespace
from tests.builders.rows import case_json

A10G_LABEL = "acceleratable.feature.gpustack.ai/nvidia-a10g"

EPYC = Machine("cpu-1", 64, "AMD", "AMD EPYC 7571")
XEON = Machine("cpu-2", 16, "Intel", "Intel Xeon 8358")
A100_PROFILES = {"1g.10gb": 7, "1g.20gb": 4, "2g.20gb": 3, "3g.40gb": 2, "4g.40gb": 1, "7g.80gb": 1}
A100 = Machine(
    "gpu-1",
    128,
    "Intel",
    "Intel Xeon 8358",
    group="nvidia-a100-sxm4-80gb",
    cards=[FREE] * 7 + [mig(A100_PROFILES, left=A100_PROFILES)],
    product="NVIDIA-A100-SXM4-80GB",
    memory="80Gi",
    family="ampere",
    card_cores="6912",
)
ASCEND = Machine(
    "npu-1",
    192,
    group="ascend-910b",
    cards=[Card(slices=63)] * 8,
    product="910B",
    memory="64Gi",
    arch="arm64",
)
CPU_POOL = "gpustack-generic-linux-amd64"
A100_POOL = "gpustack-nvidia-a100-sxm4-80gb-linux-amd64"
ASCEND_POOL = "gpustack-ascend-910b-linux-arm64"


def local_queues(chain: Chain) -> list[str]:
    return sorted(key.name for key in chain.api.store[LOCAL_QUEUE] if key.namespace == "default")


def flavor(chain: Chain, name: str) -> Object:
    found = chain.api.get(RESOURCE_FLAVOR, name)
    assert found is not None
    return found


class TestCpuOnlyNode:
    """Spec 04 §13.1."""

    def test_flavor(self) -> None:
        chain = Chain(EPYC)
        chain.run()
        name = "gpustack-amd-epyc-7571-linux-amd64-64c"
        assert chain.flavors() == [name]
        labels = labels_of(flavor(chain, name))
        own = "general.feature.gpustack.ai/amd-epyc-7571"
        assert (labels[own], labels[f"{own}.count"], labels[f"{own}.capacity"]) == ("true", "64", "64")
        assert flavor(chain, name)["metadata"]["annotations"][NOTE_PREFIX + "product"] == "AMD EPYC 7571"
        assert chain.api.names(TOPOLOGY) == ["gpustack-fnv64-87bf574bea2a4f23"]

    @pytest.mark.parametrize(
        ("aware", "pool", "entrance", "display", "details"),
        [
            ("false", CPU_POOL, "gpustack-fnv64-7aa0010633cb3725", "CPU-only", {}),
            (
                "true",
                "gpustack-amd-epyc-7571-linux-amd64",
                "gpustack-fnv64-8cb298e5026f5b9f",
                "AMD EPYC 7571",
                {"manufacturer": "amd", "product": "AMD EPYC 7571"},
            ),
        ],
        ids=["aware=false", "aware=true"],
    )
    def test_pool(self, aware: str, pool: str, entrance: str, display: str, details: dict[str, str]) -> None:
        chain = Chain(EPYC, aware=aware)
        chain.run()
        assert chain.types() == chain.api.names(CLUSTER_QUEUE) == [pool]
        assert chain.quotas(pool) == {"gpustack-amd-epyc-7571-linux-amd64-64c": "64"}
        assert at(
            chain.queue(pool),
            "spec",
            "resourceGroups",
        )[0]["coveredResources"] == ["cpu"]
        assert at(chain.queue(pool), "spec", "admissionChecksStrategy") is None
        assert local_queues(chain) == [entrance]
        assert chain.type(pool)["spec"]["displayName"] == display
        assert chain.row(pool) == ("1/2Gi/100Gi", "0/0 0/0 0/0 0/0", "64/64", "Active")
        assert chain.view(pool, "cpu") == ("64", "64", "64")
        detail = chain.type(pool)["status"]["detail"]
        assert {key: detail[key] for key in ("manufacturer", "product") if key in detail} == details

    def test_identity_that_comes_late_moves_the_node(self) -> None:
        chain = Chain(replace(EPYC, vendor="", cpu=""))
        chain.run()
        assert chain.flavors() == ["gpustack-generic-linux-amd64-64c"]
        chain.join(EPYC)
        chain.run(120)
        assert chain.flavors() == ["gpustack-amd-epyc-7571-linux-amd64-64c"]
        assert chain.quotas(CPU_POOL) == {"gpustack-amd-epyc-7571-linux-amd64-64c": "64"}
        assert chain.row(CPU_POOL)[2:] == ("64/64", "Active")

    def test_another_cpu_joins_the_collapsed_queue(self) -> None:
        chain = Chain(EPYC, XEON)
        chain.run()
        assert list(chain.quotas(CPU_POOL).values()) == ["16", "64"]
        assert chain.view(CPU_POOL, "cpu") == ("64", "80", "80")

    def test_another_cpu_is_a_second_pool_when_aware(self) -> None:
        chain = Chain(EPYC, XEON, aware="true")
        chain.run()
        assert chain.types() == ["gpustack-amd-epyc-7571-linux-amd64", "gpustack-intel-xeon-8358-linux-amd64"]

    def test_two_more_nodes_raise_the_quota(self) -> None:
        chain = Chain(EPYC)
        chain.run()
        chain.join(replace(EPYC, name="cpu-3"))
        chain.join(replace(EPYC, name="cpu-4"))
        chain.run()
        assert chain.quotas(CPU_POOL) == {"gpustack-amd-epyc-7571-linux-amd64-64c": "192"}
        assert chain.view(CPU_POOL, "cpu") == ("64", "192", "192")


class TestA100WithOneCardInMig:
    """Spec 04 §13.2."""

    @pytest.mark.parametrize(
        ("aware", "name", "pool", "entrance"),
        [
            (
                "false",
                "gpustack-nvidia-a100-sxm4-80gb-linux-amd64-8d",
                A100_POOL,
                "gpustack-fnv64-7593aa9990f92889",
            ),
            (
                "true",
                "gpustack-intel-xeon-8358--nvidia-a100-sxm4-80gb-linux-amd64-8d",
                "gpustack-intel-xeon-8358--nvidia-a100-sxm4-80gb-linux-amd64",
                "gpustack-fnv64-ee942a16363c877b",
            ),
        ],
        ids=["aware=false", "aware=true"],
    )
    def test_idle(self, aware: str, name: str, pool: str, entrance: str) -> None:
        chain = Chain(A100, aware=aware)
        chain.run()
        assert chain.flavors() == sorted([name, "gpustack-intel-xeon-8358-linux-amd64-128c"])
        assert chain.quotas(pool) == {name: "12800k"}
        checks = as_maps(at(chain.queue(pool), "spec", "admissionChecksStrategy", "admissionChecks"))
        assert [check["name"] for check in checks] == [NODE_DEVICES_CHECK]
        assert entrance in local_queues(chain)
        assert chain.row(pool) == ("12/128Gi/100Gi", "7/7 7/70 100/700 1/7", "0/0", "Active")
        assert chain.view(pool, "acceleratorPartitioned") == ("1", "7", "7")
        profiles = chain.type(pool)["status"]["acceleratorPartitioned"]["remainingProfiles"]
        assert profiles == [{"name": n, "count": c} for n, c in A100_PROFILES.items()]
        assert ("general.feature.gpustack.ai/intel-xeon-8358" in labels_of(chain.queue(pool))) == (aware == "true")

    def test_a_slice_and_a_partition(self) -> None:
        chain = Chain(A100)
        chain.run()
        carved = Card(
            mode=PARTITIONED,
            slices=0,
            ceiling=7,
            profiles=A100_PROFILES,
            allocated={"3g.40gb": 1},
            left={"1g.10gb": 4, "3g.40gb": 1},
        )
        cards = [Card(SLICED, 1_120_000), *[FREE] * 6, carved]
        ledger = device_groups(cards, group="nvidia-a100-sxm4-80gb")["status"]
        chain.api.edit(DEVICES, "gpu-1", {"status": ledger})
        writes = chain.run()
        assert [w.kind for w in writes if w.kind != NODE] == [INSTANCE_TYPE]
        assert chain.view(A100_POOL, "accelerator") == ("6", "6", "7")
        assert chain.view(A100_POOL, "acceleratorShared")[1] == "60"
        assert chain.view(A100_POOL, "acceleratorSliced") == ("100", "670", "700")
        partitioned = chain.type(A100_POOL)["status"]["acceleratorPartitioned"]
        assert (partitioned["onceMaxRequest"], partitioned["remaining"], partitioned["capacity"]) == ("1", "4", "7")
        assert partitioned["allocatedProfiles"] == [{"name": "3g.40gb", "count": 1}]
        assert {p["name"]: p.get("count", 0) for p in partitioned["remainingProfiles"]} == {
            "1g.10gb": 4,
            "1g.20gb": 0,
            "2g.20gb": 0,
            "3g.40gb": 1,
            "4g.40gb": 0,
            "7g.80gb": 0,
        }

    def test_mixing_off_leaves_the_cpu_pool_out(self) -> None:
        chain = Chain(A100, EPYC, instance_type_mixed_on_node="false")
        chain.run()
        assert chain.quotas(CPU_POOL) == {"gpustack-amd-epyc-7571-linux-amd64-64c": "64"}
        assert chain.row(CPU_POOL)[3] == "Active"

    def test_nothing_derived_and_an_admin_type(self) -> None:
        chain = Chain(A100, instance_type_derived_from_node="false")
        chain.run()
        assert chain.types() == []
        chain.api.add(INSTANCE_TYPE, instance_type("mine", group="nvidia-a100-sxm4-80gb", derived=False, finalizers=()))
        chain.run()
        assert chain.quotas("mine") == {"gpustack-nvidia-a100-sxm4-80gb-linux-amd64-8d": "12800k"}
        assert at(chain.queue("mine"), "spec", "admissionChecksStrategy") is None


class TestArm64Ascend:
    """Spec 04 §13.3."""

    @pytest.mark.parametrize(
        ("aware", "name", "pool", "entrance"),
        [
            ("false", "gpustack-ascend-910b-linux-arm64-8d", ASCEND_POOL, "gpustack-fnv64-6f6c3bb35df85e85"),
            (
                "true",
                "gpustack-generic--ascend-910b-linux-arm64-8d",
                "gpustack-generic--ascend-910b-linux-arm64",
                "gpustack-fnv64-4d8b846004208114",
            ),
        ],
        ids=["aware=false", "aware=true"],
    )
    def test_idle(self, aware: str, name: str, pool: str, entrance: str) -> None:
        chain = Chain(ASCEND, aware=aware)
        chain.run()
        assert chain.flavors() == sorted([name, "gpustack-generic-linux-arm64-192c"])
        assert chain.quotas(pool) == {name: "12800k"}
        assert at(chain.queue(pool), "spec", "resourceGroups")[0]["coveredResources"] == ["credits.gpustack.ai/ascend"]
        assert sorted([entrance, "gpustack-fnv64-fa718fcaa467d489"]) == local_queues(chain)
        assert chain.row(pool) == ("8/64Gi/100Gi", "8/8 8/80 100/800 0/0", "0/0", "Active")

    def test_another_arch_never_joins(self) -> None:
        chain = Chain(ASCEND, replace(ASCEND, name="npu-2", arch="amd64"))
        chain.run()
        assert chain.row(ASCEND_POOL)[1] == "8/8 8/80 100/800 0/0"
        assert "gpustack-ascend-910b-linux-amd64" in chain.types()


class TestManualManagement:
    """Spec 04 §13.4."""

    def test_a_node_joins_only_when_the_administrator_says_so(self) -> None:
        chain = Chain(EPYC, seeds={"node-management-manual": "true"})
        chain.run()
        assert (chain.flavors(), chain.types()) == ([], [])
        chain.api.edit(NODE, "cpu-1", {"metadata": {"labels": {MANAGED: "true"}}})
        chain.run()
        assert chain.row(CPU_POOL)[2:] == ("64/64", "Active")


A10G = Machine(
    "node-a10g", 4, "AMD", "AMD EPYC 7R32", group="nvidia-a10g", cards=[FREE], product="NVIDIA-A10G", memory="24Gi"
)
T4 = Machine(
    "node-t4-a",
    4,
    "Intel",
    "Intel Xeon Platinum 8259CL",
    group="nvidia-tesla-t4",
    cards=[FREE],
    product="Tesla-T4",
    memory="15Gi",
)
FLEET = (
    Machine("node-cpu", 16, "AMD", "AMD EPYC 7R13"),
    A10G,
    T4,
    replace(T4, name="node-t4-b", cores=48, cards=[FREE] * 4),
)
A10G_POOL, T4_POOL = "gpustack-nvidia-a10g-linux-amd64", "gpustack-nvidia-tesla-t4-linux-amd64"
CPU_FLAVORS = [
    "gpustack-amd-epyc-7r13-linux-amd64-16c",
    "gpustack-amd-epyc-7r32-linux-amd64-4c",
    "gpustack-intel-xeon-platinum-8259cl-linux-amd64-48c",
    "gpustack-intel-xeon-platinum-8259cl-linux-amd64-4c",
]


class TestFleetOfFour:
    """Spec 07 §10."""

    def test_10_1_initial(self) -> None:
        chain = Chain(*FLEET)
        chain.run()
        assert chain.flavors() == sorted(
            [
                *CPU_FLAVORS,
                "gpustack-nvidia-a10g-linux-amd64-1d",
                "gpustack-nvidia-tesla-t4-linux-amd64-1d",
                "gpustack-nvidia-tesla-t4-linux-amd64-4d",
            ]
        )
        assert chain.types() == chain.api.names(CLUSTER_QUEUE) == [CPU_POOL, A10G_POOL, T4_POOL]
        assert chain.row(CPU_POOL) == ("1/2Gi/100Gi", "0/0 0/0 0/0 0/0", "48/72", "Active")
        assert chain.row(A10G_POOL) == ("8/64Gi/100Gi", "1/1 1/10 100/100 0/0", "0/0", "Active")
        assert chain.row(T4_POOL) == ("8/32Gi/100Gi", "4/5 4/50 100/500 0/0", "0/0", "Active")
        entrances = {pool: chain.type(pool)["status"]["entrance"] for pool in chain.types()}
        assert entrances == {
            CPU_POOL: "gpustack-fnv64-7aa0010633cb3725",
            A10G_POOL: "gpustack-fnv64-7bc37bef52624161",
            T4_POOL: "gpustack-fnv64-199cb01104a7efc8",
        }
        assert local_queues(chain) == sorted(entrances.values())
        assert chain.quotas(A10G_POOL) == {"gpustack-nvidia-a10g-linux-amd64-1d": "1600k"}
        assert chain.bench.errors == []

    def test_10_2_unmanage_and_back(self) -> None:
        chain = Chain(*FLEET)
        chain.run()
        chain.api.edit(
            NODE_FEATURE, "node-a10g-gpustack-worker", {"spec": {"labels": {MANAGED: "false"}}}, "gpustack-system"
        )
        chain.run(120)
        gone = {"gpustack-nvidia-a10g-linux-amd64-1d", "gpustack-amd-epyc-7r32-linux-amd64-4c"}
        assert not gone & set(chain.flavors())
        assert chain.row(A10G_POOL)[1] == "0/0 0/0 0/0 0/0"
        assert chain.row(A10G_POOL)[3] == "Inactive"
        assert "no resource flavor offers this hardware" in chain.type(A10G_POOL)["status"]["phaseMessage"]
        assert not at(chain.type(A10G_POOL), "spec", "inactive")
        assert chain.row(CPU_POOL)[2] == "48/68"
        assert chain.quotas(A10G_POOL) == {}
        assert chain.queue(A10G_POOL)["spec"]["stopPolicy"] != "None"
        chain.api.edit(NODE, "node-a10g", {"metadata": {"labels": {MANAGED: "true"}}})
        chain.run(120)
        assert gone <= set(chain.flavors())
        assert chain.row(A10G_POOL) == ("8/64Gi/100Gi", "1/1 1/10 100/100 0/0", "0/0", "Active")
        assert chain.queue(A10G_POOL)["spec"]["stopPolicy"] == "None"
        assert chain.row(CPU_POOL)[2] == "48/72"

    def test_10_3_slice(self) -> None:
        chain = Chain(*FLEET)
        chain.run()
        for cards, want in (([Card(SLICED, 1_280_000)], "0/0 0/0 80/80 0/0"), ([FREE], "1/1 1/10 100/100 0/0")):
            chain.api.edit(DEVICES, "node-a10g", {"status": device_groups(cards)["status"]})
            chain.run()
            assert chain.row(A10G_POOL)[1] == want

    def test_10_4_admin_type(self) -> None:
        chain = Chain(*FLEET)
        mine = instance_type("a10g-12c128g", derived=False, finalizers=())
        mine["spec"] |= {"unitResources": {"cpu": "12", "ram": "128Gi"}, "localStorage": "200Gi"}
        chain.api.add(INSTANCE_TYPE, mine)
        chain.run()
        assert chain.row("a10g-12c128g") == ("12/128Gi/200Gi", "1/1 1/10 100/100 0/0", "0/0", "Active")
        assert chain.type("a10g-12c128g")["status"]["entrance"] == local_queue_name("a10g-12c128g")
        chain.kueue.hold("a10g-12c128g", "gpustack-nvidia-a10g-linux-amd64-1d", "1600k")
        chain.api.edit(DEVICES, "node-a10g", {"status": device_groups([TAKEN])["status"]})
        chain.run()
        assert {chain.row(pool)[1] for pool in ("a10g-12c128g", A10G_POOL)} == {"0/0 0/0 0/0 0/0"}
        chain.api.edit(INSTANCE_TYPE, "a10g-12c128g", {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})
        chain.run(60)
        assert chain.kueue.evicted == ["a10g-12c128g"], "drained before it went"
        assert "a10g-12c128g" not in chain.types()
        assert chain.api.get(CLUSTER_QUEUE, "a10g-12c128g") is None
        chain.api.edit(DEVICES, "node-a10g", {"status": device_groups([FREE])["status"]})
        chain.run()
        assert chain.row(A10G_POOL)[1] == "1/1 1/10 100/100 0/0"

    def test_10_5_awareness_on(self) -> None:
        chain = Chain(*FLEET)
        chain.run()
        old_types = chain.types()
        chain.set(aware="true")
        chain.run(120)
        assert set(CPU_FLAVORS) <= set(chain.flavors())
        assert [name for name in chain.flavors() if name not in CPU_FLAVORS] == [
            "gpustack-amd-epyc-7r32--nvidia-a10g-linux-amd64-1d",
            "gpustack-intel-xeon-platinum-8259cl--nvidia-tesla-t4-linux-amd64-1d",
            "gpustack-intel-xeon-platinum-8259cl--nvidia-tesla-t4-linux-amd64-4d",
        ]
        cpu = {pool: chain.row(pool)[2] for pool in chain.types() if "--" not in pool and pool not in old_types}
        assert cpu == {
            "gpustack-amd-epyc-7r13-linux-amd64": "16/16",
            "gpustack-amd-epyc-7r32-linux-amd64": "4/4",
            "gpustack-intel-xeon-platinum-8259cl-linux-amd64": "48/52",
        }
        devices = {pool: chain.row(pool)[1] for pool in chain.types() if "--" in pool}
        assert devices == {
            "gpustack-amd-epyc-7r32--nvidia-a10g-linux-amd64": "1/1 1/10 100/100 0/0",
            "gpustack-intel-xeon-platinum-8259cl--nvidia-tesla-t4-linux-amd64": "4/5 4/50 100/500 0/0",
        }
        assert set(old_types) <= set(chain.types())
        aware = chain.queue("gpustack-amd-epyc-7r32--nvidia-a10g-linux-amd64")
        assert labels_of(aware)["general.feature.gpustack.ai/amd-epyc-7r32"] == "true"
        assert {chain.row(pool)[3] for pool in chain.types()} == {"Active"}


def test_awareness_flip_migrates_a_device_queue_in_use() -> None:
    chain = Chain(*FLEET)
    chain.run()
    uid = chain.queue(A10G_POOL)["metadata"]["uid"]
    chain.kueue.hold(A10G_POOL, "gpustack-nvidia-a10g-linux-amd64-1d", "1600k")
    chain.api.edit(CLUSTER_QUEUE, A10G_POOL, {"status": {"reservingWorkloads": 9}})
    chain.run()
    chain.set(aware="true")
    chain.run(120)
    assert chain.kueue.evicted == [A10G_POOL]
    assert chain.quotas(A10G_POOL) == {"gpustack-amd-epyc-7r32--nvidia-a10g-linux-amd64-1d": "1600k"}
    assert chain.queue(A10G_POOL)["spec"]["stopPolicy"] == "None"
    assert chain.queue(A10G_POOL)["metadata"]["uid"] == uid
    assert not at(chain.type(A10G_POOL), "spec", "inactive")


class TestSettled:
    """Case B027."""

    def test_no_write_for_ten_minutes_nor_after_a_restart(self) -> None:
        chain = Chain(EPYC, A100, ASCEND, *FLEET)
        chain.run(120)
        assert [str(w) for w in chain.run(600)] == []
        chain.restart()
        assert [str(w) for w in chain.run(600)] == []

    @pytest.mark.parametrize("kind", [NODE, RESOURCE_FLAVOR, CLUSTER_QUEUE, INSTANCE_TYPE, LOCAL_QUEUE, DEVICES])
    def test_one_annotation_by_hand_costs_nothing(self, kind: Any) -> None:
        chain = Chain(A100)
        chain.run(120)
        key = sorted(chain.api.store[kind])[0]
        chain.api.edit(kind, key.name, {"metadata": {"annotations": {"touched": "by hand"}}}, key.namespace)
        assert [str(w) for w in chain.run(600)] == []

    @pytest.mark.parametrize(
        ("kind", "edit"),
        [
            (CLUSTER_QUEUE, {"spec": {"resourceGroups": []}}),
            (CLUSTER_QUEUE, {"metadata": {"annotations": {"topology.gpustack.ai/tas-queue": None}}}),
            (CLUSTER_QUEUE, {"metadata": {"labels": {"feature.gpustack.ai/acceleratable": None}}}),
            (CLUSTER_QUEUE, {"spec": {"admissionChecksStrategy": {"admissionChecks": [{"name": "x"}]}}}),
            (CLUSTER_QUEUE, {"spec": {"stopPolicy": "Hold"}}),
            (RESOURCE_FLAVOR, {"metadata": {"labels": {f"{A10G_LABEL}.capacity": "9"}}}),
            (RESOURCE_FLAVOR, {"metadata": {"annotations": {NOTE_PREFIX + "product": None}}}),
            (INSTANCE_TYPE, {"metadata": {"finalizers": []}}),
        ],
    )
    def test_ours_edited_by_hand_converges(self, kind: Any, edit: dict[str, Any]) -> None:
        chain = Chain(A10G)
        chain.run(120)
        name = next(n for n in chain.api.names(kind) if "nvidia" in n)
        before = chain.api.get(kind, name)
        assert before is not None
        chain.api.edit(kind, name, edit)
        writes = chain.run(600)
        assert 1 <= len(writes) <= 6, [str(w) for w in writes]
        after = chain.api.get(kind, name)
        assert after is not None
        assert (labels_of(after), after["spec"]) == (labels_of(before), before["spec"])
        assert annotations_of(after) == annotations_of(before)
        assert after["metadata"].get("finalizers") == before["metadata"].get("finalizers")
        assert chain.row(A10G_POOL)[3] == "Active"


class TestLabelsThatVanish:
    """Case B003: NFD restarts; nothing is drained or stopped while our NodeFeatures carry the labels."""

    @pytest.mark.parametrize("silence", [45.0, 210.0])
    @pytest.mark.parametrize("back", ["all", "half"])
    def test_nobody_is_drained(self, silence: float, back: str) -> None:
        machines = [replace(A10G, name="gpu-a"), replace(A10G, name="gpu-b")]
        chain = Chain(*machines)
        chain.run()
        flavors, quotas, row = chain.flavors(), chain.quotas(A10G_POOL), chain.row(A10G_POOL)
        chain.kueue.hold(A10G_POOL, flavors[0], "1600k")
        chain.nfd.up = False
        nodes = {m.name: chain.api.get(NODE, m.name) for m in machines}
        before = {name: dict(labels_of(node)) for name, node in nodes.items()}
        steps = case_json("B003-label-flap")["steps"]
        prefixes = {label.partition("/")[0] for label in steps[0]["body"]["metadata"]["labels"]}
        for name, labels in before.items():
            bare = {k: None for k in labels if k.partition("/")[0] in {*prefixes, "topology.gpustack.ai"}}
            bare |= {k: None for k in labels if k.startswith("feature.node.kubernetes.io/")}
            # NFD takes its annotations away in the same patch.
            chain.api.edit(NODE, name, {"metadata": {"labels": bare, "annotations": None}})
        chain.run(silence)
        self.unharmed(chain, flavors, quotas)
        returning = machines if back == "all" else machines[:1]
        for machine in returning:
            metadata = {"labels": before[machine.name], "annotations": annotations_of(nodes[machine.name])}
            chain.api.edit(NODE, machine.name, {"metadata": metadata})
        chain.run(120)
        self.unharmed(chain, flavors, quotas)
        assert chain.row(A10G_POOL) == row
        chain.join(replace(A10G, name="gpu-c"))
        chain.nfd.up = True
        chain.run(120)
        assert chain.quotas(A10G_POOL) == {"gpustack-nvidia-a10g-linux-amd64-1d": "4800k"}

    def unharmed(self, chain: Chain, flavors: list[str], quotas: dict[str, str]) -> None:
        assert chain.flavors() == flavors
        assert chain.quotas(A10G_POOL) == quotas
        assert chain.queue(A10G_POOL)["spec"]["stopPolicy"] == "None"
        assert not at(chain.type(A10G_POOL), "spec", "inactive")
        assert chain.kueue.evicted == []

    def test_somebodys_word_still_drains(self) -> None:
        chain = Chain(A10G)
        chain.run()
        chain.kueue.hold(A10G_POOL, "gpustack-nvidia-a10g-linux-amd64-1d", "1600k")
        chain.api.edit(NODE, "node-a10g", {"metadata": {"labels": {MANAGED: "false"}}})
        chain.run(120)
        assert chain.kueue.evicted == [A10G_POOL]
        assert chain.quotas(A10G_POOL) == {}


def test_derived_type_deleted_is_authored_again() -> None:
    chain = Chain(A10G)
    chain.run()
    chain.api.edit(INSTANCE_TYPE, A10G_POOL, {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})
    chain.run(120)
    assert "deletionTimestamp" not in chain.type(A10G_POOL)["metadata"]
    assert chain.row(A10G_POOL)[3] == "Active"


def test_queue_deleted_under_a_live_type_comes_back_filled_and_opened() -> None:
    chain = Chain(A10G)
    chain.run()
    chain.api.edit(CLUSTER_QUEUE, A10G_POOL, {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})
    chain.run(60)
    assert chain.row(A10G_POOL)[3] == "Active"
    assert chain.quotas(A10G_POOL) == {"gpustack-nvidia-a10g-linux-amd64-1d": "1600k"}
    owner = chain.queue(A10G_POOL)["metadata"]["uid"]
    entrance = chain.api.get(LOCAL_QUEUE, "gpustack-fnv64-7bc37bef52624161", "default")
    assert at(entrance, "metadata", "ownerReferences")[0]["uid"] == owner


def test_a_new_namespace_gets_every_entrance() -> None:
    chain = Chain(*FLEET)
    chain.run()
    chain.api.add(NAMESPACE, namespace("team-a"))
    chain.run(10)
    assert len([key for key in chain.api.store[LOCAL_QUEUE] if key.namespace == "team-a"]) == 3


def test_a_node_that_flaps_managed_ends_where_the_last_word_says() -> None:
    chain = Chain(A10G)
    chain.run()
    for flip in range(50):
        chain.api.edit(NODE, "node-a10g", {"metadata": {"labels": {MANAGED: "true" if flip % 2 else "false"}}})
        if flip % 6 == 0:
            chain.run(1.2)
    chain.run(300)
    assert chain.row(A10G_POOL) == ("8/64Gi/100Gi", "1/1 1/10 100/100 0/0", "0/0", "Active")
    assert [str(w) for w in chain.run(600)] == []
