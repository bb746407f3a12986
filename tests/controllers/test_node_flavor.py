"""node_flavor on an API in memory: spec 04 §6, §13.1-13.4, §14.4; cases B001, B003, B013, B024, B025, B027, B029."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from kube.reconciler import Object
from nodefeature.kinds import EVENT, INSTANCE_TYPE, NODE, NODE_FEATURE, RESOURCE_FLAVOR, TOPOLOGY
from nodefeature.labels import (
    DERIVED_FROM_NODE,
    DEVICE_PREFIX,
    MANAGED,
    NOTE_PREFIX,
    SYSTEM_NAMESPACE,
    TOPOLOGY_PROFILE,
)
from tests.builders.chain import bench, ours, set_settings
from tests.builders.fake_api import Bench, FakeApi, Write
from tests.builders.node_features import NfdMaster, card_feature, worker_feature_of
from tests.builders.node_labels import card_labels, cpu_pool_labels
from tests.builders.nodes import MERGED, amd_labels, cpu_node, epyc_node, gpu_node, node

TOPOLOGY_NAME = "gpustack-fnv64-87bf574bea2a4f23"
A10G = "gpustack-nvidia-a10g-linux-amd64-2d"
GENERIC = "gpustack-generic-linux-amd64-4c"

Scenario = Callable[[FakeApi, Bench], Coroutine[Any, Any, None]]


def run(scenario: Scenario, *nodes: Object, features: list[Object] | None = None, **settings: str) -> Bench:
    """Settle a cluster, then play a scenario on it."""

    async def play() -> Bench:
        api = FakeApi()
        if settings:
            set_settings(api, **settings)
        api.add(NODE, *nodes)
        api.add(NODE_FEATURE, *(features or []))
        chain = bench(api, ["node_flavor"])
        await chain.settle()
        await scenario(api, chain)
        return chain

    return asyncio.run(play())


def capacity(api: FakeApi, flavor: str, key: str) -> str | None:
    stored = api.get(RESOURCE_FLAVOR, flavor)
    return None if stored is None else stored["metadata"]["labels"][f"{key}.capacity"]


def test_created_with_topology_and_type_then_nothing() -> None:
    async def scenario(api: FakeApi, chain: Bench) -> None:
        assert api.names(RESOURCE_FLAVOR) == [GENERIC, A10G]
        assert api.names(TOPOLOGY) == [TOPOLOGY_NAME]
        assert api.names(INSTANCE_TYPE) == ["gpustack-generic-linux-amd64", "gpustack-nvidia-a10g-linux-amd64"]
        topology = api.get(TOPOLOGY, TOPOLOGY_NAME)
        assert topology is not None
        assert topology["spec"] == {"levels": [{"nodeLabel": "kubernetes.io/hostname"}]}
        assert topology["metadata"]["labels"] == {"resource.gpustack.ai/type": "topology"}
        assert await chain.settle() == []
        assert await chain.advance(3600) == []
        assert await bench(api, ["node_flavor"]).settle() == [], "a restart writes nothing"

    assert run(scenario, gpu_node("a"), gpu_node("b")).errors == []


def test_no_node_and_no_flavor_is_no_op() -> None:
    async def scenario(api: FakeApi, chain: Bench) -> None:
        assert api.writes == []

    run(scenario)


def test_a_flavor_without_a_node_is_deleted_and_its_topology_with_it() -> None:
    async def scenario(api: FakeApi, chain: Bench) -> None:
        api.remove(NODE, "a")
        await chain.settle()
        assert (api.names(RESOURCE_FLAVOR), api.names(TOPOLOGY)) == ([], [])
        assert len(api.names(INSTANCE_TYPE)) == 2, "types are never removed"

    run(scenario, gpu_node("a"))


def test_an_orphan_of_an_old_scheme_is_cleaned_at_start_and_foreign_flavors_stay() -> None:
    async def scenario(api: FakeApi, chain: Bench) -> None:
        ours_then = {"resource.gpustack.ai/type": "nodes", "feature.gpustack.ai/nvidia-t4": "true"}
        api.add(RESOURCE_FLAVOR, {"metadata": {"name": "gpustack-nvidia-t4-1d", "labels": ours_then}, "spec": {}})
        api.add(RESOURCE_FLAVOR, {"metadata": {"name": "gpustack-spot"}, "spec": {"nodeLabels": {"a": "b"}}})
        again = bench(api, ["node_flavor"])
        await again.settle()
        assert api.names(RESOURCE_FLAVOR) == [GENERIC, "gpustack-spot"]

    run(scenario, cpu_node("a"))


def test_one_nodes_change_touches_its_own_flavors_only() -> None:
    async def scenario(api: FakeApi, chain: Bench) -> None:
        api.remove(NODE, "b")
        writes = await chain.settle()
        assert {write.key.name for write in writes} == {A10G, GENERIC}
        assert capacity(api, A10G, DEVICE_PREFIX + "nvidia-a10g") == "2"
        assert {write.verb for write in writes} == {"patch"}

    run(scenario, gpu_node("a"), gpu_node("b"), gpu_node("c", "nvidia-t4", 1, cpu=8))


def test_mixing_off_makes_no_cpu_flavor_of_an_accelerated_node() -> None:
    async def scenario(api: FakeApi, chain: Bench) -> None:
        assert api.names(RESOURCE_FLAVOR) == [A10G]

    run(scenario, gpu_node("a"), instance_type_mixed_on_node="false")


def test_mixing_flips_at_run_time() -> None:
    async def scenario(api: FakeApi, chain: Bench) -> None:
        set_settings(api, instance_type_mixed_on_node="false")
        await chain.settle()
        stored = api.get(RESOURCE_FLAVOR, GENERIC)
        assert stored is not None
        assert stored["spec"]["nodeLabels"]["feature.gpustack.ai/cpu-only"] == "true", "deleted and made again"
        assert capacity(api, GENERIC, "general.feature.gpustack.ai/generic") == "4", "the accelerated node left"
        set_settings(api)
        await chain.settle()
        assert capacity(api, GENERIC, "general.feature.gpustack.ai/generic") == "8"
        assert await chain.settle() == []

    run(scenario, gpu_node("a"), cpu_node("b"))


def aware_node(name: str) -> Object:
    return gpu_node(name, labels={**amd_labels(), **cpu_pool_labels("amd-23-1", "4"), **dict.fromkeys(())})


def test_awareness_flips_by_itself() -> None:
    async def scenario(api: FakeApi, chain: Bench) -> None:
        cpu = "gpustack-amd-23-1-linux-amd64-4c"
        aware = "gpustack-amd-23-1--nvidia-a10g-linux-amd64-2d"
        before = api.get(RESOURCE_FLAVOR, cpu)
        set_settings(api, instance_type_aware_cpu_manufacturer="true")
        await chain.settle()
        assert api.names(RESOURCE_FLAVOR) == [aware, cpu]
        assert api.get(RESOURCE_FLAVOR, cpu) == before, "CPU flavors do not change"
        assert api.names(INSTANCE_TYPE) == [
            "gpustack-amd-23-1--nvidia-a10g-linux-amd64",
            "gpustack-amd-23-1-linux-amd64",
            "gpustack-generic-linux-amd64",
            "gpustack-nvidia-a10g-linux-amd64",
        ], "create only: the old types stay"
        set_settings(api, instance_type_aware_cpu_manufacturer="false")
        await chain.settle()
        assert api.names(RESOURCE_FLAVOR) == [cpu, A10G]
        assert await chain.settle() == []

    run(scenario, aware_node("a"), aware_node("b"))


def test_a_flavor_in_use_waits_for_its_finalizer() -> None:
    async def scenario(api: FakeApi, chain: Bench) -> None:
        api.edit(RESOURCE_FLAVOR, A10G, {"metadata": {"finalizers": ["kueue.x-k8s.io/resource-in-use"]}})
        set_settings(api, workload_tolerations="example.com/maintenance")
        await chain.settle()
        held = api.get(RESOURCE_FLAVOR, A10G)
        assert held is not None
        assert held["metadata"]["deletionTimestamp"]
        assert await chain.settle() == []
        api.remove(RESOURCE_FLAVOR, A10G)
        await chain.settle()
        made = api.get(RESOURCE_FLAVOR, A10G)
        assert made is not None
        assert {"key": "example.com/maintenance", "operator": "Exists"} in made["spec"]["tolerations"]

    run(scenario, gpu_node("a"))


def test_an_admin_type_is_untouched() -> None:
    async def scenario() -> None:
        api = FakeApi()
        spec = {"unitResources": {"cpu": "2", "ram": "16Gi"}, "localStorage": "128Gi"}
        api.add(INSTANCE_TYPE, {"metadata": {"name": "gpustack-nvidia-a10g-linux-amd64"}, "spec": spec})
        api.add(NODE, gpu_node("a"))
        await bench(api, ["node_flavor"]).settle()
        stored = api.get(INSTANCE_TYPE, "gpustack-nvidia-a10g-linux-amd64")
        assert stored is not None
        assert stored["spec"] == spec
        assert DERIVED_FROM_NODE not in stored["metadata"].get("labels", {})

    asyncio.run(scenario())


def test_a_derived_type_is_not_resized_and_is_authored_again_when_deleted() -> None:
    async def scenario(api: FakeApi, chain: Bench) -> None:
        name = "gpustack-nvidia-a10g-linux-amd64"
        api.edit(INSTANCE_TYPE, name, {"spec": {"unitResources": {"cpu": "4", "ram": "16Gi"}}})
        assert await chain.settle() == []
        api.remove(INSTANCE_TYPE, name)
        await chain.settle()
        again = api.get(INSTANCE_TYPE, name)
        assert again is not None
        assert again["spec"]["unitResources"] == {"cpu": "8", "ram": "64Gi"}

    run(scenario, gpu_node("a"))


def test_derived_from_node_off_authors_nothing_until_it_is_on() -> None:
    async def scenario(api: FakeApi, chain: Bench) -> None:
        assert api.names(INSTANCE_TYPE) == []
        set_settings(api, instance_type_derived_from_node="true")
        await chain.settle()
        assert len(api.names(INSTANCE_TYPE)) == 2

    run(scenario, gpu_node("a"), instance_type_derived_from_node="false")


def bare(name: str) -> dict[str, Any]:
    shown = gpu_node(name)["metadata"]["labels"]
    return {"metadata": {"labels": dict.fromkeys(key for key in shown if "gpustack.ai/" in key)}}


FEATURES = [worker_feature_of("a", {**MERGED, **cpu_pool_labels("generic", "4")}), card_feature("a", "nvidia-a10g", 2)]


@pytest.mark.parametrize("seconds", [45, 210, 7200])
def test_b003_labels_that_vanish_and_return_write_nothing(seconds: int) -> None:
    async def scenario(api: FakeApi, chain: Bench) -> None:
        full = api.get(NODE, "a")
        assert full is not None
        api.edit(NODE, "a", bare("a"))
        assert await chain.settle() == []
        assert await chain.advance(seconds) == []
        assert await bench(api, ["node_flavor"]).settle() == [], "nor after a restart in between"
        api.edit(NODE, "a", {"metadata": {"labels": full["metadata"]["labels"]}})
        assert await chain.settle() == []

    details = {"product": "NVIDIA-A10G", "memory": "24Gi", "cores": "9216", "family": "ampere"}
    features = [FEATURES[0], card_feature("a", "nvidia-a10g", 2, **details)]
    run(scenario, gpu_node("a"), features=features)


def test_a_node_that_nfd_relabels_late_leaves_the_flavor_it_began_with() -> None:
    """Between our NodeFeature's new labels and NFD's copy of them the Node alone still says the old flavor."""
    began, became = cpu_pool_labels("generic", "4"), cpu_pool_labels("amd-23-1", "4")
    moved = {**{key: None for key in began if key not in became}, **became}

    async def scenario(api: FakeApi, chain: Bench) -> None:
        assert api.names(RESOURCE_FLAVOR) == [GENERIC]
        api.edit(NODE_FEATURE, "a-gpustack-worker", {"spec": {"labels": moved}}, SYSTEM_NAMESPACE)
        await chain.settle()
        api.edit(NODE, "a", {"metadata": {"labels": moved}})
        await chain.settle()
        assert api.names(RESOURCE_FLAVOR) == ["gpustack-amd-23-1-linux-amd64-4c"]

    run(scenario, cpu_node("a", labels=amd_labels()), features=[worker_feature_of("a", {**MERGED, **began})])


def test_b003_a_real_false_still_leaves() -> None:
    async def scenario(api: FakeApi, chain: Bench) -> None:
        api.edit(NODE, "a", {"metadata": {"labels": {MANAGED: "false"}}})
        await chain.settle()
        assert api.names(RESOURCE_FLAVOR) == []

    run(scenario, gpu_node("a"), features=FEATURES)


def test_b029_a_swapped_card_leaves_its_pool() -> None:
    async def scenario(api: FakeApi, chain: Bench) -> None:
        api.remove(NODE_FEATURE, "a-gpustack-device-manager", SYSTEM_NAMESPACE)
        api.add(NODE_FEATURE, card_feature("a", "nvidia-l4", 2))
        gone = dict.fromkeys(key for key in card_labels("nvidia-a10g", "2") if "a10g" in key)
        gone |= {f"{DEVICE_PREFIX}nvidia-a10g.{part}": None for part in ("product", "memory", "cores", "family")}
        api.edit(NODE, "a", {"metadata": {"labels": {**gone, **card_labels("nvidia-l4", "2")}}})
        await chain.settle()
        assert api.names(RESOURCE_FLAVOR) == [GENERIC, "gpustack-nvidia-l4-linux-amd64-2d"]

    run(scenario, gpu_node("a"), features=FEATURES)


def test_b024_a_cordon_rewrites_nothing() -> None:
    async def scenario(api: FakeApi, chain: Bench) -> None:
        taint = [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]
        api.edit(NODE, "a", {"spec": {"unschedulable": True, "taints": taint}})
        assert await chain.settle() == []

    run(scenario, gpu_node("a"), gpu_node("b"))


def test_b001_old_spellings_get_legal_names() -> None:
    async def scenario(api: FakeApi, chain: Bench) -> None:
        assert api.names(RESOURCE_FLAVOR) == ["gpustack-hygon-k100-ai-linux-amd64-8d"]
        stored = api.get(RESOURCE_FLAVOR, "gpustack-hygon-k100-ai-linux-amd64-8d")
        assert stored is not None
        assert stored["spec"]["nodeLabels"][DEVICE_PREFIX + "hygon-k100_ai.count"] == "8"

    run(scenario, node("dcu-a", labels={**MERGED, **card_labels("hygon-k100_ai", "8", product="K100_AI")}))


def test_b001_two_products_of_one_key_are_reported_once() -> None:
    async def scenario(api: FakeApi, chain: Bench) -> None:
        events = [event for event in api.store[EVENT].values() if event["reason"] == "KeyCollision"]
        assert len(events) == 1
        assert "'K100-AI', 'K100_AI'" in events[0]["message"]
        assert await bench(api, ["node_flavor"]).settle() == []

    key = "hygon-k100-ai"
    nodes = [
        node(name, labels={**MERGED, **card_labels(key, "8", product=product)})
        for name, product in (("a", "K100_AI"), ("b", "K100-AI"))
    ]
    run(scenario, *nodes)


def test_b025_every_count_is_a_flavor() -> None:
    async def scenario(api: FakeApi, chain: Bench) -> None:
        assert len([name for name in api.names(RESOURCE_FLAVOR) if name.endswith("d")]) == 65

    run(scenario, *(gpu_node(f"n{count}", "nvidia-tesla-t4", count) for count in range(1, 66)))


def test_b027_a_flavor_edited_by_hand_is_set_right_in_one_write() -> None:
    async def scenario(api: FakeApi, chain: Bench) -> None:
        label = f"{DEVICE_PREFIX}nvidia-a10g.capacity"
        edit = {"labels": {label: "99"}, "annotations": {NOTE_PREFIX + "product": "x", "example.com/a": "b"}}
        api.edit(RESOURCE_FLAVOR, A10G, {"metadata": edit})
        assert [write.verb for write in await chain.settle()] == ["patch"]
        assert capacity(api, A10G, DEVICE_PREFIX + "nvidia-a10g") == "2"
        api.edit(RESOURCE_FLAVOR, A10G, {"metadata": {"annotations": {"example.com/a": "c"}}})
        assert await chain.settle() == []

    run(scenario, gpu_node("a"))


def test_a_flavor_deleted_by_an_admin_is_made_again() -> None:
    async def scenario(api: FakeApi, chain: Bench) -> None:
        api.remove(RESOURCE_FLAVOR, A10G)
        await chain.settle()
        assert A10G in api.names(RESOURCE_FLAVOR)

    run(scenario, gpu_node("a"))


def test_a_foreign_spec_is_reported_and_stops_no_other(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(api: FakeApi, chain: Bench) -> None:
        api.edit(RESOURCE_FLAVOR, A10G, {"spec": {"nodeTaints": [{"key": "a", "effect": "NoSchedule"}]}})
        api.add(NODE, gpu_node("b", "nvidia-t4", 1))
        writes = await chain.settle()
        assert {write.key.name for write in writes if write.kind is RESOURCE_FLAVOR} == {
            "gpustack-nvidia-t4-linux-amd64-1d",
            GENERIC,
        }
        assert [event["reason"] for event in api.store[EVENT].values()] == ["ImmutableDrift"]
        assert [type(error).__name__ for _, _, error in chain.errors] == ["Terminal"]

    run(scenario, gpu_node("a"))


def test_a_changed_setting_runs_flavors_one_by_one_and_a_hopeless_one_once() -> None:
    async def scenario(api: FakeApi, chain: Bench) -> None:
        api.edit(RESOURCE_FLAVOR, A10G, {"spec": {"nodeTaints": [{"key": "a", "effect": "NoSchedule"}]}})
        await chain.settle()
        chain.errors.clear()
        set_settings(api, workload_tolerations="example.com/maintenance")
        await chain.settle()
        assert await chain.advance(3600) == []
        assert [(key.name, type(error).__name__) for _, key, error in chain.errors] == [(A10G, "Terminal")]
        generic = api.get(RESOURCE_FLAVOR, GENERIC)
        assert generic is not None
        assert {"key": "example.com/maintenance", "operator": "Exists"} in generic["spec"]["tolerations"]

    run(scenario, gpu_node("a"))


def test_a_changed_setting_leaves_no_node_out_whose_labels_vanished() -> None:
    async def scenario(api: FakeApi, chain: Bench) -> None:
        api.edit(NODE, "a", bare("a"))
        await chain.settle()
        set_settings(api, instance_type_aware_cpu_manufacturer="true")
        await chain.settle()
        assert api.names(RESOURCE_FLAVOR) == ["gpustack-generic--nvidia-a10g-linux-amd64-2d", GENERIC]

    run(scenario, gpu_node("a"), features=[FEATURES[0], card_feature("a", "nvidia-a10g", 2)])


def test_a_namesake_of_somebody_else_is_named_and_left_alone() -> None:
    async def scenario() -> None:
        api = FakeApi()
        foreign: Object = {"metadata": {"name": A10G, "labels": {"team": "x"}}, "spec": {"nodeLabels": {"team": "x"}}}
        api.add(RESOURCE_FLAVOR, foreign)
        api.add(NODE, gpu_node("a"))
        chain = bench(api, ["node_flavor"])
        await chain.settle()
        await chain.advance(3600)
        kept = api.get(RESOURCE_FLAVOR, A10G)
        assert kept is not None
        assert (kept["metadata"]["labels"], kept["spec"]) == (foreign["metadata"]["labels"], foreign["spec"])
        assert [event["reason"] for event in api.store[EVENT].values()] == ["ForeignFlavor"]
        assert GENERIC in api.names(RESOURCE_FLAVOR), "its neighbours go on"
        api.remove(RESOURCE_FLAVOR, A10G)
        await chain.settle()
        made = api.get(RESOURCE_FLAVOR, A10G)
        assert made is not None
        assert made["metadata"]["labels"][f"{DEVICE_PREFIX}nvidia-a10g.capacity"] == "2"

    asyncio.run(scenario())


def test_a_flavor_whose_labels_were_taken_away_gets_them_back() -> None:
    async def scenario(api: FakeApi, chain: Bench) -> None:
        stored = api.get(RESOURCE_FLAVOR, A10G)
        assert stored is not None
        labels = stored["metadata"]["labels"]
        api.edit(RESOURCE_FLAVOR, A10G, {"metadata": {"labels": dict.fromkeys(labels)}})
        await chain.settle()
        mended = api.get(RESOURCE_FLAVOR, A10G)
        assert mended is not None
        assert mended["metadata"]["labels"] == labels

    run(scenario, gpu_node("a"))


def test_a_base_flavor_gets_its_topology_in_place() -> None:
    async def scenario() -> None:
        api = FakeApi()
        api.add(NODE, gpu_node("a"))
        chain = bench(api, ["node_flavor"])
        await chain.settle()
        stored = api.get(RESOURCE_FLAVOR, A10G)
        assert stored is not None
        old = {
            **stored,
            "spec": {
                "nodeLabels": {"gpustack.ai/managed": "true", "gpustack.ai/of-an-older-scheme": "x"},
                "nodeTaints": [{"key": "old", "effect": "NoSchedule"}],
                "tolerations": [{"operator": "Exists"}],
            },
        }
        api.add(RESOURCE_FLAVOR, old)
        await chain.settle()
        now = api.get(RESOURCE_FLAVOR, A10G)
        assert now is not None
        assert now["spec"] == stored["spec"]

    asyncio.run(scenario())


def test_a_topology_deleted_by_hand_comes_back() -> None:
    async def scenario(api: FakeApi, chain: Bench) -> None:
        api.remove(TOPOLOGY, TOPOLOGY_NAME)
        await chain.settle()
        assert api.names(TOPOLOGY) == [TOPOLOGY_NAME]

    run(scenario, gpu_node("a"))


def test_a_node_without_a_profile_yet_keeps_its_flavor() -> None:
    async def scenario(api: FakeApi, chain: Bench) -> None:
        api.edit(NODE, "a", {"metadata": {"labels": {TOPOLOGY_PROFILE: None}}})
        assert await chain.settle() == []
        api.edit(NODE, "a", {"metadata": {"labels": {TOPOLOGY_PROFILE: MERGED[TOPOLOGY_PROFILE]}}})
        assert await chain.advance(11) == []
        assert A10G in api.names(RESOURCE_FLAVOR)

    run(scenario, gpu_node("a"))


def test_a_refused_flavor_stops_no_other() -> None:
    async def scenario() -> None:
        api = FakeApi()
        api.add(NODE, gpu_node("a"))
        api.faults.append(
            lambda request: OSError("down") if request.method == "POST" and A10G in str(request.content) else None
        )
        chain = bench(api, ["node_flavor"])
        await chain.settle()
        assert api.names(RESOURCE_FLAVOR) == [GENERIC]
        api.faults.clear()
        await chain.advance(2)
        assert api.names(RESOURCE_FLAVOR) == [GENERIC, A10G]

    asyncio.run(scenario())


class TestWholeFront:
    """From a bare node to its pool, with NFD's part played: spec 04 §13.1-13.4."""

    async def settled(self, api: FakeApi) -> tuple[Bench, list[Write]]:
        chain = bench(api, others=[NfdMaster])
        return chain, ours(await chain.settle())

    def test_13_1(self) -> None:
        async def scenario() -> None:
            api = FakeApi()
            api.add(NODE, epyc_node("cpu-1"))
            chain, writes = await self.settled(api)
            assert api.names(RESOURCE_FLAVOR) == ["gpustack-amd-epyc-7571-linux-amd64-64c"]
            assert api.names(INSTANCE_TYPE) == ["gpustack-generic-linux-amd64"]
            assert len(writes) <= 5, [str(write) for write in writes]
            assert chain.errors == []

        asyncio.run(scenario())

    def test_13_1_three_shapes_feed_two_flavors(self) -> None:
        async def scenario() -> None:
            api = FakeApi()
            intel = node(
                "i",
                labels={"feature.node.kubernetes.io/cpu-model.vendor_id": "Intel"},
                cpu="16",
                annotations={"feature.gpustack.ai/cpu-name": "Intel(R) Xeon(R) 8358 CPU @ 2.60GHz"},
            )
            api.add(NODE, intel, *(epyc_node(f"cpu-{number}") for number in range(3)))
            await self.settled(api)
            assert api.names(RESOURCE_FLAVOR) == [
                "gpustack-amd-epyc-7571-linux-amd64-64c",
                "gpustack-intel-xeon-8358-linux-amd64-16c",
            ]
            key = "general.feature.gpustack.ai/amd-epyc-7571"
            assert capacity(api, "gpustack-amd-epyc-7571-linux-amd64-64c", key) == "192"

        asyncio.run(scenario())

    def test_13_3(self) -> None:
        async def scenario() -> None:
            api = FakeApi()
            api.add(NODE, node("npu", arch="arm64", cpu="192"))
            api.add(NODE_FEATURE, card_feature("npu", "ascend-910b", 8, product="910B", memory="64Gi"))
            await self.settled(api)
            assert api.names(RESOURCE_FLAVOR) == [
                "gpustack-ascend-910b-linux-arm64-8d",
                "gpustack-generic-linux-arm64-192c",
            ]
            stored = api.get(INSTANCE_TYPE, "gpustack-ascend-910b-linux-arm64")
            assert stored is not None
            assert stored["spec"]["unitResources"] == {"cpu": "8", "ram": "64Gi"}

        asyncio.run(scenario())

    def test_13_3_aware(self) -> None:
        async def scenario() -> None:
            api = FakeApi()
            set_settings(api, instance_type_aware_cpu_manufacturer="true")
            api.add(NODE, node("npu", arch="arm64", cpu="192"))
            api.add(NODE_FEATURE, card_feature("npu", "ascend-910b", 8, product="910B", memory="64Gi"))
            await self.settled(api)
            assert "gpustack-generic--ascend-910b-linux-arm64-8d" in api.names(RESOURCE_FLAVOR)
            assert "gpustack-generic--ascend-910b-linux-arm64" in api.names(INSTANCE_TYPE)

        asyncio.run(scenario())

    def test_13_4(self) -> None:
        async def scenario() -> None:
            api = FakeApi()
            set_settings(api, node_management_manual="true")
            api.add(NODE, epyc_node("cpu-1"))
            chain, _ = await self.settled(api)
            assert api.names(RESOURCE_FLAVOR) == []
            for word, flavors in (("true", 1), ("false", 0)):
                api.edit(NODE, "cpu-1", {"metadata": {"labels": {MANAGED: word}}})
                await chain.settle()
                assert len(api.names(RESOURCE_FLAVOR)) == flavors

        asyncio.run(scenario())

    def test_settled_means_zero_writes_also_after_a_restart(self) -> None:
        async def scenario() -> None:
            api = FakeApi()
            api.add(NODE, *(epyc_node(f"n{number}") for number in range(4)), node("npu", arch="arm64"))
            api.add(NODE_FEATURE, card_feature("npu", "ascend-910b", 8, product="910B", memory="64Gi"))
            chain, _ = await self.settled(api)
            assert await chain.advance(3600) == []
            again, writes = await self.settled(api)
            assert writes == []
            assert await again.advance(3600) == []

        asyncio.run(scenario())
