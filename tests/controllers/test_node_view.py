"""What we believe about a node: design §8.4, §8.5, case B024."""

from __future__ import annotations

from typing import Any

import pytest

from controllers.node_view import cpu_key, effective_labels, is_ready, is_usable, node_of_feature, stored_key, tolerates
from kube.reconciler import Object
from nodefeature.fields import labels_of
from nodefeature.labels import CPU_VENDOR, GENERAL_PREFIX, MANAGED
from tests.builders.node_features import card_feature, worker_feature_of
from tests.builders.node_labels import cpu_pool_labels
from tests.builders.nodes import amd_labels, cpu_node, node
from tests.builders.rows import case_yaml

VENDOR = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("name", "node_name"),
    [
        ("gpu-a-gpustack-worker", "gpu-a"),
        ("gpu-a-gpustack-device-manager", "gpu-a"),
        ("gpu-a", ""),
        ("", ""),
        ("-gpustack-worker", ""),
    ],
)
def test_node_of_feature(name: str, node_name: str) -> None:
    assert node_of_feature({"metadata": {"name": name}}) == node_name


def test_effective_labels_add_what_is_missing_and_the_node_wins() -> None:
    shown = node("n", labels={MANAGED: "false"})
    features = [worker_feature_of("n", {MANAGED: "true", "a": "1"}), card_feature("n", "nvidia-t4", 1)]
    found = effective_labels(shown, features)
    assert (found[MANAGED], found["a"]) == ("false", "1")
    assert found["acceleratable.feature.gpustack.ai/nvidia-t4"] == "true"
    assert "a" not in labels_of(shown), "the node itself is not changed"


def test_a_complete_node_costs_no_copy() -> None:
    shown = cpu_node("n")
    assert effective_labels(shown, [worker_feature_of("n", {MANAGED: "true"})]) is labels_of(shown)


@pytest.mark.parametrize(
    ("labels", "key"),
    [
        ({}, "generic"),
        (amd_labels("25", "1"), "amd-25-1"),
        ({**amd_labels("25", "1"), **cpu_pool_labels("amd-25-1", "4"), **cpu_pool_labels("generic", "4")}, "amd-25-1"),
        (cpu_pool_labels("amd-epyc-7763", "4"), "amd-epyc-7763"),
        ({**amd_labels("25", "1"), **cpu_pool_labels("amd-epyc-7763", "4")}, "amd-epyc-7763"),
        (cpu_pool_labels("generic", "4"), "generic"),
        ({**cpu_pool_labels("generic-31-53264", "4"), GENERAL_PREFIX + "generic": "true"}, "generic-31-53264"),
        ({CPU_VENDOR: "AMD", **cpu_pool_labels("amd-25-1", "4"), GENERAL_PREFIX + "amd": "true"}, "amd-25-1"),
    ],
    ids=[
        "nothing",
        "NFD alone",
        "both, and a stale one",
        "NFD silent",
        "NFD half silent",
        "really generic",
        "B003: NFD silent, of a maker nobody knows",
        "B003: NFD says the maker alone",
    ],
)
def test_cpu_key(labels: dict[str, str], key: str) -> None:
    assert cpu_key(labels, {}) == key


def test_stored_key_ignores_values_that_are_not_true() -> None:
    assert stored_key({GENERAL_PREFIX + "amd": "true", GENERAL_PREFIX + "amd-25-1": "maybe"}) == "amd"


@pytest.mark.parametrize(
    ("toleration", "taint", "want"),
    [
        ({"operator": "Exists"}, {"key": "a", "effect": "NoExecute"}, True),
        ({"key": "a", "operator": "Exists"}, {"key": "a", "effect": "NoSchedule"}, True),
        ({"key": "a", "operator": "Exists", "effect": "NoSchedule"}, {"key": "a", "effect": "NoExecute"}, False),
        ({"key": "b", "operator": "Exists"}, {"key": "a", "effect": "NoSchedule"}, False),
        ({"key": "a", "value": "1"}, {"key": "a", "value": "1", "effect": "NoSchedule"}, True),
        ({"key": "a", "operator": "Equal", "value": "1"}, {"key": "a", "value": "2", "effect": "NoSchedule"}, False),
        ({"value": "1"}, {"key": "a", "value": "1", "effect": "NoSchedule"}, False),
    ],
)
def test_tolerates(toleration: dict[str, str], taint: dict[str, str], want: bool) -> None:
    assert tolerates(toleration, taint) is want


USABLE: dict[str, tuple[Object, bool]] = {
    "plain": (cpu_node("n"), True),
    "ready": (cpu_node("n", ready="True"), True),
    "not ready": (cpu_node("n", ready="False"), False),
    "unknown": (cpu_node("n", ready="Unknown"), False),
    "cordoned": (cpu_node("n", unschedulable=True), False),
    "vendor taint": (cpu_node("n", taints=[{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]), True),
    "vendor taint that evicts": (cpu_node("n", taints=[{"key": "nvidia.com/gpu", "effect": "NoExecute"}]), False),
    "soft taint": (cpu_node("n", taints=[{"key": "a", "effect": "PreferNoSchedule"}]), True),
    "foreign taint": (cpu_node("n", taints=[{"key": "a", "effect": "NoSchedule"}]), False),
    "deleting": ({"metadata": {"name": "n", "deletionTimestamp": "2026-01-01T00:00:00Z"}}, False),
}


@pytest.mark.parametrize(("shown", "want"), USABLE.values(), ids=USABLE.keys())
def test_usable(shown: Object, want: bool) -> None:
    assert is_usable(shown, [VENDOR]) is want


def test_b024_the_cordoned_and_the_dead_node_are_unusable() -> None:
    nodes = [doc for doc in case_yaml("B024-cordoned") if doc["kind"] == "Node"]
    assert [is_usable(shown, [VENDOR]) for shown in nodes] == [False, False]


@pytest.mark.parametrize("conditions", [None, [], [None], ["x"], [{"type": "Ready", "status": None}]])
def test_b019_broken_conditions_are_no_bad_news(conditions: Any) -> None:
    assert is_ready({"status": {"conditions": conditions}})
