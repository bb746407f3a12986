"""Quota plans and the reasons against them (spec 04 §13.5, §14.6, case B025)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from controllers.pool_nodes import NodeFacts, pool_test, read_node
from controllers.queue_plan import (
    build_plan,
    pool_flavors,
    raw_groups,
    read_flavor,
    refuse_plan,
    sort_flavors,
)
from controllers.queue_state import TAS_QUEUE, read_queue
from kube.reconciler import Object
from nodefeature.fields import labels_of, name_of
from nodefeature.labels import CPU_ONLY, DEVICE_PREFIX, GENERAL_PREFIX, MANAGED, TOPOLOGY_PROFILE
from nodefeature.pool import pool_flavor_selector
from nodefeature.topology import DEFAULT_PROFILE, topology_name
from tests.builders.queues import cluster_queue, cpu_flavor, device_flavor, flavor_nodes, group, pool_labels

TOPOLOGIES = [topology_name(DEFAULT_PROFILE)]
A10G = pool_labels("nvidia-a10g")
CPU_POOL = pool_labels(acceleratable=False)


def facts(*flavors: Object, nodes: int = 1) -> list[NodeFacts]:
    return [read_node(name_of(n), labels_of(n)) for f in flavors for n in flavor_nodes(f, nodes)]


def quotas(flavors: Sequence[Object], labels: dict[str, str]) -> list[tuple[str, int]]:
    selector = pool_flavor_selector(labels) or {}
    read = (read_flavor(f) for f in pool_flavors(flavors, selector))
    return list(build_plan(sort_flavors(f for f in read if f is not None)).quotas)


def refused(
    flavors: Sequence[Object], nodes: Sequence[NodeFacts], queue: Object | None = None, *, in_transit: bool = False
) -> str:
    read = sort_flavors(f for f in map(read_flavor, flavors) if f is not None)
    refusal = asyncio.run(
        refuse_plan(read_queue(queue or cluster_queue()), read, TOPOLOGIES, nodes, in_transit=in_transit)
    )
    return refusal.reason if refusal else ""


def test_flavors_are_sorted_by_count() -> None:
    assert quotas([cpu_flavor(count=8), cpu_flavor(count=4)], CPU_POOL) == [
        ("gpustack-amd-epyc-7763-linux-amd64-4c", 4),
        ("gpustack-amd-epyc-7763-linux-amd64-8c", 8),
    ]


def test_credits_of_a10g_2d_of_2_nodes_and_1d_of_3() -> None:
    flavors = [device_flavor(count=2, nodes=2), device_flavor(count=1, nodes=3)]
    assert quotas(flavors, A10G) == [
        ("gpustack-nvidia-a10g-linux-amd64-1d", 4_800_000),
        ("gpustack-nvidia-a10g-linux-amd64-2d", 6_400_000),
    ]


def test_capacities_2_and_4_total_9600000_credits() -> None:
    flavors = [device_flavor(count=2), device_flavor(count=1, nodes=4)]
    assert sum(quota for _, quota in quotas(flavors, A10G)) == 9_600_000


def test_collapsed_cpu_queue_takes_every_cpu() -> None:
    flavors = [cpu_flavor("amd-epyc-7763", 8), cpu_flavor("intel-xeon-8358", 4), device_flavor()]
    assert [name for name, _ in quotas(flavors, CPU_POOL)] == [
        "gpustack-intel-xeon-8358-linux-amd64-4c",
        "gpustack-amd-epyc-7763-linux-amd64-8c",
    ]


def test_aware_cpu_queue_leaves_device_flavors_of_its_cpu_out() -> None:
    flavors = [cpu_flavor("amd-epyc-7763", 8), device_flavor(general="amd-epyc-7763")]
    labels = pool_labels(acceleratable=False, general="amd-epyc-7763")
    assert [name for name, _ in quotas(flavors, labels)] == ["gpustack-amd-epyc-7763-linux-amd64-8c"]


def test_credits_come_from_the_device_key_beside_a_cpu_key() -> None:
    flavor = read_flavor(device_flavor(general="amd-epyc-7r32", count=4))
    assert flavor is not None
    assert (flavor.own_key, flavor.quota) == (DEVICE_PREFIX + "nvidia-a10g", 6_400_000)


def test_groups_have_no_limits_and_canonical_quantities() -> None:
    flavor = read_flavor(device_flavor(count=8))
    assert flavor is not None
    assert raw_groups(build_plan([flavor])) == [
        {
            "coveredResources": ["credits.gpustack.ai/nvidia"],
            "flavors": [
                {
                    "name": "gpustack-nvidia-a10g-linux-amd64-8d",
                    "resources": [{"name": "credits.gpustack.ai/nvidia", "nominalQuota": "12800k"}],
                }
            ],
        }
    ]


@pytest.mark.parametrize("number", [0, 1, 16, 17, 64, 65])
@pytest.mark.parametrize("build", [device_flavor, cpu_flavor], ids=["devices", "cpus"])
def test_b025_flavor_counts(number: int, build: Callable[..., Object]) -> None:
    flavors = [build(count=count) for count in range(1, number + 1)]
    read = sort_flavors(f for f in map(read_flavor, flavors) if f is not None)
    plan = build_plan(read)
    refusal = asyncio.run(refuse_plan(read_queue(cluster_queue()), read, TOPOLOGIES, facts(*flavors)))
    groups = raw_groups(plan)
    assert len(groups) == (1 if number else 0)
    assert sum(len(g["flavors"]) for g in groups) == number
    if number == 65:
        assert refusal is not None
        assert refusal.reason == "TooManyFlavors"
        assert "64" in refusal.message
    else:
        assert refusal is None


def test_b025_seventeen_counts_hold_153_cards() -> None:
    plan = quotas([device_flavor("nvidia-tesla-t4", n) for n in range(1, 18)], pool_labels("nvidia-tesla-t4"))
    assert sum(quota for _, quota in plan) == 153 * 1_600_000


def test_two_groups_over_one_resource_are_refused() -> None:
    queue = cluster_queue(groups=[group("cpu", {"a": 1}), group("cpu", {"b": 1})])
    flavor = cpu_flavor()
    assert refused([flavor], facts(flavor), queue) == "DuplicateCoveredResource"


def test_existing_quota_without_tas_queue_is_refused() -> None:
    queue = cluster_queue(groups=[group("cpu", {"old-scheme": 1})])
    flavor = cpu_flavor()
    assert refused([flavor], facts(flavor), queue) == "UnsupportedExistingObject"
    queue["metadata"]["annotations"] = {TAS_QUEUE: "true"}
    assert refused([flavor], facts(flavor), queue) == ""


def test_annotation_lost_by_hand_is_no_reason_when_all_flavors_are_ours() -> None:
    flavor = cpu_flavor()
    queue = cluster_queue(groups=[group("cpu", {name_of(flavor): 8})])
    assert refused([flavor], facts(flavor), queue) == ""


def _without_profile(flavor: Object) -> None:
    del flavor["metadata"]["labels"][TOPOLOGY_PROFILE]


def _other_selector(flavor: Object) -> None:
    flavor["spec"]["nodeLabels"][TOPOLOGY_PROFILE] = "fnv64-0123456789abcdef"


def _wrong_topology(flavor: Object) -> None:
    flavor["spec"]["topologyName"] = "default"


def _absent_topology(flavor: Object) -> None:
    flavor["metadata"]["labels"][TOPOLOGY_PROFILE] = "fnv64-0123456789abcdef"
    flavor["spec"]["nodeLabels"][TOPOLOGY_PROFILE] = "fnv64-0123456789abcdef"
    flavor["spec"]["topologyName"] = "gpustack-fnv64-0123456789abcdef"


@pytest.mark.parametrize("break_it", [_without_profile, _other_selector, _wrong_topology, _absent_topology])
def test_missing_topology(break_it: Callable[[Object], None]) -> None:
    flavor = device_flavor()
    break_it(flavor)
    read = read_flavor(flavor)
    assert read is not None
    refusal = asyncio.run(refuse_plan(read_queue(cluster_queue()), [read], TOPOLOGIES, []))
    assert refusal is not None
    assert (refusal.reason, refusal.recheck_s) == ("MissingTopology", 30.0)
    assert name_of(flavor) in refusal.message


def test_overlapping_selectors() -> None:
    flavor, twin = device_flavor(), device_flavor()
    twin["metadata"]["name"] = "twin"
    assert refused([flavor, twin], facts(flavor)) == "OverlappingSelectors"


def test_capacity_8_against_nodes_of_4_is_not_conserved() -> None:
    flavor = device_flavor(count=4, nodes=2)
    assert refused([flavor], facts(flavor)) == "NonConservedQuota"
    assert refused([flavor], facts(flavor, nodes=2)) == ""


def test_cpu_only_label_removed_is_not_conserved() -> None:
    flavor = cpu_flavor()
    flavor["spec"]["nodeLabels"][CPU_ONLY] = "true"
    node = flavor_nodes(flavor)[0]
    assert refused([flavor], [read_node("n", labels_of(node))]) == ""
    del node["metadata"]["labels"][CPU_ONLY]
    assert refused([flavor], [read_node("n", labels_of(node))]) == "NonConservedQuota"


def test_accelerated_node_is_no_orphan_of_a_cpu_only_pool() -> None:
    flavor = cpu_flavor()
    flavor["spec"]["nodeLabels"][CPU_ONLY] = "true"
    mixed = flavor_nodes(cpu_flavor(count=16))[0]["metadata"]["labels"] | {"feature.gpustack.ai/acceleratable": "true"}
    assert refused([flavor], [*facts(flavor), read_node("mixed", mixed)]) == ""


def test_managed_pool_node_without_flavor_is_not_conserved() -> None:
    flavor = device_flavor()
    assert refused([flavor], facts(flavor, device_flavor(count=4))) == "NonConservedQuota"


def test_while_a_flavor_is_going_nodes_without_one_are_no_reason_and_wrong_counts_are() -> None:
    flavor = device_flavor()
    assert refused([flavor], facts(flavor, device_flavor(count=4)), in_transit=True) == ""
    assert refused([flavor], facts(flavor, nodes=2), in_transit=True) == "NonConservedQuota"


def _edit(**labels: str | None) -> dict[str, str]:
    own = flavor_nodes(device_flavor(count=4))[0]["metadata"]["labels"]
    return {k: v for k, v in {**own, **labels}.items() if v is not None}


@pytest.mark.parametrize(
    ("labels", "want"),
    [
        pytest.param(_edit(), True, id="managed"),
        pytest.param(_edit(**{MANAGED: "false"}), False, id="unmanaged pool node is ignored"),
        pytest.param(_edit(**{TOPOLOGY_PROFILE: None}), False, id="no profile yet"),
        pytest.param(_edit(**{DEVICE_PREFIX + "nvidia-a10g.count": "eight"}), False, id="unreadable count"),
        pytest.param(_edit(**{DEVICE_PREFIX + "nvidia-a10g.count": "0"}), False, id="no cards"),
        pytest.param(_edit(**{"kubernetes.io/arch": "arm64"}), False, id="other arch"),
        pytest.param(_edit(**{DEVICE_PREFIX + "nvidia-a10g": None}), False, id="other model"),
    ],
)
def test_in_pool(labels: dict[str, str], want: bool) -> None:
    assert pool_test(pool_flavor_selector(A10G) or {}).holds(read_node("n", labels)) is want


def test_aware_device_pool_asks_for_the_cpu_key_too() -> None:
    selector = pool_flavor_selector(pool_labels("nvidia-a10g", general="amd-epyc-7r32")) or {}
    assert not pool_test(selector).holds(read_node("n", _edit()))
    assert pool_test(selector).holds(read_node("n", _edit(**{GENERAL_PREFIX + "amd-epyc-7r32": "true"})))


def test_terminating_and_foreign_flavors_are_left_out() -> None:
    live, going, foreign = device_flavor(count=1), device_flavor(count=2), device_flavor(count=4)
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    del foreign["metadata"]["labels"]["resource.gpustack.ai/type"]
    assert [name for name, _ in quotas([live, going, foreign], A10G)] == [name_of(live)]


@pytest.mark.parametrize(
    "flavor",
    [
        {"metadata": {"name": "f0"}, "spec": None},
        {"metadata": {"name": "f0", "labels": None, "annotations": None}, "spec": {"nodeLabels": None}},
        {"metadata": {"name": "f0", "labels": {DEVICE_PREFIX + "x": "true", DEVICE_PREFIX + "x.capacity": "1e3"}}},
        {},
    ],
)
def test_b019_flavors_with_nulls_offer_nothing(flavor: dict[str, Any]) -> None:
    read = read_flavor(flavor)
    assert read is None or read.quota == 0
