"""Which nodes stand behind a flavor."""

from __future__ import annotations

import asyncio

import pytest

from controllers.contributors import Contributors, flavor_names, flavors_of
from kube.reconciler import Object
from nodefeature.fields import annotations_of, labels_of, name_of
from nodefeature.kinds import NODE, NODE_FEATURE
from nodefeature.labels import CPU_FAMILY, CPU_ID, CPU_VENDOR, GENERAL_PREFIX, MANAGED, TOPOLOGY_PROFILE
from tests.builders.chain import bench
from tests.builders.fake_api import FakeApi
from tests.builders.node_features import card_feature, worker_feature_of
from tests.builders.node_labels import cpu_pool_labels
from tests.builders.nodes import MERGED, amd_labels, cpu_node, gpu_node, node

OTHER = "fnv64-0123456789abcdef"


def names(shown: Object) -> set[str]:
    return set(flavor_names(labels_of(shown), annotations_of(shown)))


INDEX: dict[str, tuple[Object, set[str]]] = {
    "managed": (cpu_node("n"), {"gpustack-generic-linux-amd64-4c"}),
    "managed=false": (cpu_node("n", labels={MANAGED: "false"}), set()),
    "tainted": (
        cpu_node("n", taints=[{"key": "a", "effect": "NoSchedule"}]),
        {"gpustack-generic-linux-amd64-4c"},
    ),
    "deleting": (
        cpu_node("n") | {"metadata": cpu_node("n")["metadata"] | {"deletionTimestamp": "2026-01-01T00:00:00Z"}},
        {"gpustack-generic-linux-amd64-4c"},
    ),
    "no profile": (cpu_node("n", labels={TOPOLOGY_PROFILE: None}), set()),
    "another profile": (
        cpu_node("n", labels={TOPOLOGY_PROFILE: OTHER}),
        {f"gpustack-generic-linux-amd64-4c-{OTHER}"},
    ),
    "no os label": (cpu_node("n", labels={"kubernetes.io/os": None}), set()),
    "cards": (
        gpu_node("n"),
        {
            "gpustack-generic-linux-amd64-4c",
            "gpustack-nvidia-a10g-linux-amd64-2d",
            "gpustack-generic--nvidia-a10g-linux-amd64-2d",
        },
    ),
    "cards, both ways of grouping": (
        gpu_node("n", labels={**amd_labels(), **cpu_pool_labels("amd-23-1", "4")}),
        {
            "gpustack-amd-23-1-linux-amd64-4c",
            "gpustack-nvidia-a10g-linux-amd64-2d",
            "gpustack-amd-23-1--nvidia-a10g-linux-amd64-2d",
        },
    ),
}


@pytest.mark.parametrize(("shown", "want"), INDEX.values(), ids=INDEX.keys())
def test_index(shown: Object, want: set[str]) -> None:
    assert names(shown) == want


def found(name: str, *objects: Object, cpu_aware: bool = False) -> list[str]:
    async def scenario() -> list[str]:
        api = FakeApi()
        for obj in objects:
            api.add(NODE_FEATURE if "namespace" in obj["metadata"] else NODE, obj)
        caches = bench(api).caches
        return sorted(name_of(each.node) for each in await Contributors(caches).of(name, cpu_aware=cpu_aware))

    return asyncio.run(scenario())


A10G = "gpustack-nvidia-a10g-linux-amd64-2d"


def test_nodes_are_found_by_their_own_labels() -> None:
    assert found(A10G, gpu_node("a"), gpu_node("b"), gpu_node("c", count=1), cpu_node("d")) == ["a", "b"]


def test_b003_a_bare_node_is_found_through_our_node_features() -> None:
    features = [
        worker_feature_of("a", {**MERGED, **cpu_pool_labels("generic", "4")}),
        card_feature("a", "nvidia-a10g", 2),
    ]
    assert found(A10G, node("a"), *features) == ["a"]
    assert found("gpustack-generic-linux-amd64-4c", node("a"), *features) == ["a"]
    assert found(A10G, node("a", arch="arm64"), *features) == []


def test_the_nodes_own_word_wins_over_the_node_feature() -> None:
    feature = worker_feature_of("a", MERGED)
    assert found(A10G, gpu_node("a", labels={MANAGED: "false"}), feature, card_feature("a", "nvidia-a10g", 2)) == []


def test_b003_a_lost_cpu_model_keeps_the_key_of_the_node_feature() -> None:
    bare = node("a")
    feature = worker_feature_of("a", {**MERGED, **cpu_pool_labels("amd-23-1", "16")})
    assert found("gpustack-amd-23-1-linux-amd64-16c", bare, feature) == ["a"]
    assert found("gpustack-generic-linux-amd64-16c", bare, feature) == []


def test_a_node_feature_without_its_node_adds_nobody() -> None:
    assert found(A10G, worker_feature_of("a", MERGED), card_feature("a", "nvidia-a10g", 2)) == []


def test_a_name_of_the_other_grouping_has_nobody() -> None:
    shown = gpu_node("a", labels={**amd_labels(), **cpu_pool_labels("amd-23-1", "4")})
    aware = "gpustack-amd-23-1--nvidia-a10g-linux-amd64-2d"
    assert (found(A10G, shown), found(A10G, shown, cpu_aware=True)) == (["a"], [])
    assert (found(aware, shown), found(aware, shown, cpu_aware=True)) == ([], ["a"])


def test_bad_labels_of_one_node_leave_the_others() -> None:
    bad = gpu_node("bad", labels={"acceleratable.feature.gpustack.ai/nvidia-a10g.count": "eight"})
    assert found(A10G, bad, gpu_node("good")) == ["good"]
    assert list(flavors_of(labels_of(bad), {}, cpu_aware=False)) == ["gpustack-generic-linux-amd64-4c"]


def test_stale_general_keys_add_no_flavor() -> None:
    shown = cpu_node("a", "amd-23-1", labels={**amd_labels(), **cpu_pool_labels("generic", "4")})
    assert names(shown) == {"gpustack-amd-23-1-linux-amd64-4c"}
    assert {CPU_VENDOR, CPU_FAMILY, CPU_ID} <= labels_of(shown).keys()
    assert GENERAL_PREFIX + "generic" in labels_of(shown)
