"""The NodeFeature: which labels come, stay and go (spec 06 §3.1, §16 row 8; cases B015, B029)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from devicemanager.answers import Bus, Failed
from devicemanager.detection import NOTHING_YET, Detection, Look, next_detection
from devicemanager.publisher.node_feature import (
    PART_OF,
    PART_OF_VALUE,
    device_labels,
    maker_of_key,
    node_feature_name,
    plan_node_feature,
)
from nodefeature.destinations import NameInvalid
from tests.builders.cards import NVIDIA_ONLY, T4, cards, detected, node
from tests.builders.rows import case_json, case_yaml

P = "acceleratable.feature.gpustack.ai/"
UMBRELLA = "feature.gpustack.ai/acceleratable"
L4 = replace(T4, product="NVIDIA L4", memory_mib=23034, cores=7424, compute_capability="8.9")


def stored(labels: dict[str, str], **metadata: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "name": "gpu-a-gpustack-device-manager",
            "namespace": "gpustack-system",
            "resourceVersion": "7",
            "labels": {"nfd.node.kubernetes.io/node-name": "gpu-a", PART_OF: PART_OF_VALUE},
            "ownerReferences": [owner()],
            **metadata,
        },
        "spec": {"labels": labels},
    }


def owner(uid: str = "uid-1", **changes: Any) -> dict[str, Any]:
    reference = {"apiVersion": "v1", "kind": "Node", "name": "gpu-a", "uid": uid, "controller": True}
    return {**reference, "blockOwnerDeletion": False, **changes}


def plan(before: dict[str, Any] | None, believed: Detection, **options: Any) -> Any:
    return plan_node_feature(before, node(), believed, namespace="gpustack-system", **options)


def labels_after(before: dict[str, str], believed: Detection) -> dict[str, str]:
    decided = plan(stored(before), believed)
    changed = (decided.patch or {}).get("spec", {}).get("labels", {})
    return {key: value for key, value in (before | changed).items() if value is not None}


def test_spec_01_5_1_labels_of_a_group() -> None:
    labels, problems = device_labels(detected(nvidia=cards(4)))
    assert labels == {
        UMBRELLA: "true",
        f"{P}nvidia": "true",
        f"{P}nvidia.driver-version": "580.126.09",
        f"{P}nvidia.runtime-version": "13.0",
        f"{P}nvidia-tesla-t4": "true",
        f"{P}nvidia-tesla-t4.product": "Tesla-T4",
        f"{P}nvidia-tesla-t4.memory": "15Gi",
        f"{P}nvidia-tesla-t4.cores": "2560",
        f"{P}nvidia-tesla-t4.count": "4",
        f"{P}nvidia-tesla-t4.family": "Turing",
        f"{P}nvidia-tesla-t4.comcap": "7.5",
    }
    assert problems == ()


def test_a_new_object_is_owned_by_the_node_and_labelled_for_nfd() -> None:
    created = plan(None, detected(nvidia=cards(1))).create
    assert created["metadata"] == {
        "name": "gpu-a-gpustack-device-manager",
        "namespace": "gpustack-system",
        "labels": {"nfd.node.kubernetes.io/node-name": "gpu-a", PART_OF: PART_OF_VALUE},
        "ownerReferences": [owner()],
    }
    assert created["spec"]["labels"][UMBRELLA] == "true"


def test_a_node_without_cards_gets_no_object() -> None:
    assert plan(None, detected(nvidia=())).idle
    assert plan(None, detected(nvidia=()), create_empty=True).create["spec"]["labels"] == {}


def test_no_difference_no_write() -> None:
    believed = detected(nvidia=cards(2))
    assert plan(stored(device_labels(believed)[0]), believed).idle


def test_b029_a_swapped_card_takes_its_labels_along() -> None:
    (case,) = case_yaml("B029-card-swap")
    before = case["spec"]["labels"]
    after = labels_after(before, detected(nvidia=cards(2, L4)))
    assert not [key for key in after if "tesla-t4" in key]
    assert after[f"{P}nvidia-l4.count"] == "2"
    assert after[UMBRELLA] == "true"


def test_b029_an_erroneous_pass_removes_nothing() -> None:
    (case,) = case_yaml("B029-card-swap")
    before = case["spec"]["labels"]
    failed = next_detection(NOTHING_YET, Look({"nvidia": Failed("mismatch")}, Bus()), NVIDIA_ONLY)
    assert labels_after(before, failed) == before


def test_all_cards_gone_takes_the_umbrella_along() -> None:
    before = device_labels(detected(nvidia=cards(2)))[0]
    assert labels_after(before, detected(nvidia=())) == {}


def test_labels_of_other_agents_and_people_stay() -> None:
    others = {
        UMBRELLA: "true",
        f"{P}hygon": "true",
        f"{P}hygon-k100-ai": "true",
        f"{P}hygon-k100-ai.count": "8",
        f"{P}hygon.driver-version": "6.3",
        "example.com/mine": "yes",
    }
    assert labels_after(others | {f"{P}nvidia-l4": "true"}, detected(nvidia=())) == others


def test_labels_in_an_older_spelling_go() -> None:
    before = {f"{P}hygon-k100_ai": "true", f"{P}hygon-k100_ai.count": "8", UMBRELLA: "true"}
    after = labels_after(before, detected(hygon=cards(1, replace(T4, manufacturer="hygon", product="K100_AI"))))
    assert f"{P}hygon-k100_ai" not in after
    assert after[f"{P}hygon-k100-ai"] == "true"


def test_b036_unified_memory_is_labelled_zero() -> None:
    expect = case_json("B036-unified-memory")["expect"]["labels"]
    gb10 = replace(T4, product="NVIDIA GB10", memory_mib=None, uuid="GPU-gb10-0")
    assert expect.items() <= device_labels(detected(nvidia=(gb10,)))[0].items()


def test_a_namesake_takes_ownership() -> None:
    believed = detected(nvidia=cards(1))
    before = stored(device_labels(believed)[0], ownerReferences=[owner("uid-of-the-old-node")])
    assert plan(before, believed).patch["metadata"]["ownerReferences"] == [owner()]


def test_a_patch_is_bound_to_what_was_read() -> None:
    assert plan(stored({}), detected(nvidia=cards(1))).patch["metadata"]["resourceVersion"] == "7"


def test_null_fields_are_legal_input() -> None:
    hollow = {"metadata": {"name": "x", "labels": None, "ownerReferences": None, "resourceVersion": "1"}, "spec": None}
    assert plan(hollow, detected(nvidia=cards(1))).patch["spec"]["labels"][f"{P}nvidia-tesla-t4"] == "true"


@pytest.mark.parametrize(
    ("key", "want"),
    [
        (f"{P}nvidia", "nvidia"),
        (f"{P}nvidia.driver-version", "nvidia"),
        (f"{P}nvidia-h100.count", "nvidia"),
        (f"{P}somebody-else", "somebody"),
        (UMBRELLA, ""),
        ("feature.gpustack.ai/rdma.capable", ""),
    ],
)
def test_maker_of_key(key: str, want: str) -> None:
    assert maker_of_key(key) == want


def test_a_node_name_too_long_is_refused_by_name() -> None:
    with pytest.raises(NameInvalid, match="NodeFeature of node"):
        node_feature_name("n" * 240)
