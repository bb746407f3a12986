"""Devices: merging inventories, keeping charges, saying what is missing (spec 06 §3.2, §16 rows 1-8)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from devicemanager.answers import Bus, Empty, Failed, Found
from devicemanager.detection import Detection, DetectionOptions, Look, next_detection
from devicemanager.publisher.devices import (
    canonical_groups,
    devices_labels,
    ledger_groups,
    merge_groups,
    plan_devices,
    plan_status,
)
from devicemanager.publisher.node_feature import device_labels
from nodefeature.fields import as_maps
from tests.builders.cards import NVIDIA_ONLY, ONE_SLICE, T4, cards, detected, node

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER = datetime(2026, 1, 2, tzinfo=UTC)
P = "acceleratable.feature.gpustack.ai/"
OTHERS: list[dict[str, Any]] = [
    {
        "id": "k100-ai",
        "manufacturer": "hygon",
        "name": "K100_AI",
        "memory": 1,
        "accelerators": [{"id": "h", "index": 0}],
    }
]


def labels(believed: Detection) -> dict[str, str]:
    return device_labels(believed)[0]


def stored(believed: Detection, groups: Sequence[Any] | None = None, **parts: Any) -> dict[str, Any]:
    """Return the object as the API server would hold it after a create."""
    created = plan_devices(None, node(), labels(believed), believed, create_empty=True).create
    assert created is not None
    created["metadata"] |= {"resourceVersion": "7", "uid": "u"}
    if groups is not None:
        created["spec"]["groups"] = list(groups)
    return {**created, **parts}


def plan(before: dict[str, Any] | None, believed: Detection, **options: Any) -> Any:
    return plan_devices(before, node(), labels(believed), believed, **options)


def groups_of(decided: Any) -> list[Any]:
    written = decided.create or decided.patch
    found: list[Any] = written["spec"]["groups"]
    return found


FOUR = detected(nvidia=cards(4))


def test_a_new_object() -> None:
    created = plan(None, FOUR).create
    assert created["metadata"]["name"] == "gpu-a"
    assert [card["id"] for card in groups_of(plan(None, FOUR))[0]["accelerators"]] == [f"GPU-{n}" for n in range(4)]
    assert created["metadata"]["ownerReferences"][0]["uid"] == "uid-1"
    assert "status" not in created


def test_a_node_without_cards_gets_no_object() -> None:
    assert plan(None, detected(nvidia=())).idle
    assert plan(None, detected(nvidia=()), create_empty=True).create["spec"] == {"groups": []}


def test_a_node_whose_cards_were_all_left_out_gets_an_object_that_says_so() -> None:
    believed = detected(amd=(replace(T4, manufacturer="amd", uuid="GPU-XX"),))
    assert groups_of(plan(None, believed)) == []


def test_row_2_an_empty_pass_drops_the_group() -> None:
    assert groups_of(plan(stored(FOUR), detected(nvidia=()))) == []


def test_row_1_an_error_keeps_the_group() -> None:
    failed = next_detection(FOUR, Look({"nvidia": Failed("x")}, Bus()), NVIDIA_ONLY)
    assert plan(stored(FOUR), failed).idle


def test_an_error_after_a_restart_keeps_what_is_stored() -> None:
    """The agent remembers nothing, the object does: no answer is no reason to drop a group."""
    both = DetectionOptions(manufacturers=("amd", "nvidia"))
    failed = next_detection(Detection(), Look({"nvidia": Failed("x"), "amd": Empty("none")}, Bus()), both)
    decided = plan_devices(stored(FOUR), node(), labels(FOUR), failed)
    assert decided.idle


def test_row_3_groups_of_other_manufacturers_stay() -> None:
    before = stored(FOUR, OTHERS)
    assert [g["manufacturer"] for g in groups_of(plan(before, FOUR))] == ["hygon", "nvidia"]
    assert "spec" not in plan(stored(FOUR, OTHERS), detected(nvidia=())).patch


def test_row_4_another_order_of_cards_is_no_change() -> None:
    listed = tuple(reversed(cards(4)))
    assert plan(stored(FOUR), detected(nvidia=listed)).idle


def test_row_5_a_stored_order_that_is_wrong_is_one_change() -> None:
    two = detected(nvidia=cards(2), amd=cards(1, replace(T4, manufacturer="amd")))
    right = groups_of(plan(None, two))
    before = stored(two, right[::-1])
    decided = plan(before, two)
    assert groups_of(decided) == right
    assert set(decided.patch) == {"metadata", "spec"}


def test_row_6_a_changed_slice_count_is_written() -> None:
    on = cards(1, replace(T4, manufacturer="hygon"), partition_mode=None)
    off = cards(1, replace(T4, manufacturer="hygon"), partition_mode="disabled")
    decided = plan(stored(detected(hygon=on)), detected(hygon=off))
    assert groups_of(decided)[0]["acceleratorSlicedDetail"]["logical"] == {"count": 4}


def test_row_7_another_controller_is_replaced_by_the_node() -> None:
    before = stored(FOUR)
    feature = {"apiVersion": "nfd.k8s-sigs.io/v1alpha1", "kind": "NodeFeature", "name": "x", "uid": "f"}
    before["metadata"]["ownerReferences"] = [{**feature, "controller": True}]
    references = plan(before, FOUR).patch["metadata"]["ownerReferences"]
    assert [(r["kind"], r["controller"]) for r in references] == [("Node", True)]


def test_an_owner_that_is_no_controller_stays() -> None:
    before = stored(FOUR)
    other = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "c"}
    before["metadata"]["ownerReferences"].append(other)
    assert plan(before, FOUR).idle


def test_a_lost_card_leaves_and_the_others_move_up() -> None:
    listed = tuple(card for card in cards(4) if card.uuid != "GPU-1")
    (group,) = groups_of(plan(stored(FOUR), detected(nvidia=listed)))
    assert [(card["id"], card["index"]) for card in group["accelerators"]] == [("GPU-0", 0), ("GPU-2", 1), ("GPU-3", 2)]


def test_b039_health_flips_both_ways() -> None:
    bad = tuple(replace(c, ecc_uncorrected=2) if c.uuid == "GPU-3" else c for c in cards(4))
    one_bad = detected(nvidia=bad)
    decided = plan(stored(FOUR), one_bad)
    assert [c["status"]["unhealthy"] for c in groups_of(decided)[0]["accelerators"]] == [False, False, False, True]
    decided = plan(stored(one_bad), FOUR)
    assert not any(c["status"]["unhealthy"] for c in groups_of(decided)[0]["accelerators"])


def test_canonical_order() -> None:
    groups: list[dict[str, Any]] = [
        {"manufacturer": "nvidia", "id": "b", "accelerators": [{"index": 3}, {"index": 1}]},
        {"manufacturer": "nvidia", "id": "c", "accelerators": []},
        {"manufacturer": "nvidia", "id": "a", "accelerators": [{"index": 2}]},
        {"manufacturer": "amd", "id": "z", "accelerators": [{"index": 9}]},
    ]
    ordered = canonical_groups(groups)
    assert [group["id"] for group in ordered] == ["z", "b", "a", "c"]
    assert ordered[1]["accelerators"] == [{"index": 1}, {"index": 3}]


def test_labels_leave_counts_and_foreign_keys_out() -> None:
    given = {**labels(FOUR), "example.com/x": "y", "gpustack.ai/managed": "true"}
    got = devices_labels(node(), given)
    assert got["kubernetes.io/arch"] == "amd64"
    assert got[f"{P}nvidia-tesla-t4"] == "true"
    assert got["feature.gpustack.ai/acceleratable"] == "true"
    assert not {key for key in got if key.endswith(".count")} | ({"example.com/x", "gpustack.ai/managed"} & set(got))


def test_b029_labels_of_a_swapped_card_leave_the_object_too() -> None:
    before = stored(FOUR)
    before["metadata"]["labels"] |= {"gpustack.ai/managed": "true", "general.feature.gpustack.ai/amd-25-1": "true"}
    changed = plan(before, detected(nvidia=cards(1, replace(T4, product="NVIDIA L4")))).patch["metadata"]["labels"]
    assert changed[f"{P}nvidia-tesla-t4"] is None
    assert changed[f"{P}nvidia-l4"] == "true"
    assert not {"gpustack.ai/managed", "general.feature.gpustack.ai/amd-25-1"} & set(changed)


# --- ledger -----------------------------------------------------------------------------------------------------


def test_a_new_ledger_is_free() -> None:
    status = plan_status(stored(FOUR), FOUR, NOW).patch
    assert status is not None
    (group,) = status["status"]["groups"]
    assert group["accelerators"][3] == {"id": "GPU-3", "index": 3, "mode": 0, "remaining": 1600000}


def test_a_partitioned_card_offers_its_whole_grid() -> None:
    card = replace(T4, partition_mode="enabled", profiles=(ONE_SLICE,))
    (row,) = ledger_groups(detected(nvidia=(card,)).all_groups(), [])[0]["accelerators"]
    assert row["remainingProfiles"] == [{"name": "1g.10gb", "count": 7}]


HELD = {"id": "GPU-2", "index": 9, "mode": 1}


def test_a_charge_survives_and_moves_with_its_card() -> None:
    before = [{"id": "tesla-t4", "manufacturer": "nvidia", "accelerators": [HELD, {"id": "GPU-0", "mode": 0}]}]
    (group,) = ledger_groups(FOUR.all_groups(), before)
    assert group["accelerators"][2] == {"id": "GPU-2", "index": 2, "mode": 1}
    assert group["accelerators"][0]["remaining"] == 1600000


def test_a_card_that_left_leaves_the_ledger() -> None:
    before = [{"id": "tesla-t4", "manufacturer": "nvidia", "accelerators": [{**HELD, "id": "GPU-gone"}]}]
    (group,) = ledger_groups(FOUR.all_groups(), before)
    assert [row["mode"] for row in group["accelerators"]] == [0, 0, 0, 0]


@pytest.mark.parametrize("junk", [None, [], [{"id": None}], [{"id": "tesla-t4", "accelerators": "x"}]])
def test_any_stored_ledger_is_legal_input(junk: Any) -> None:
    assert len(ledger_groups(FOUR.all_groups(), as_maps(junk))) == 1


# --- conditions -------------------------------------------------------------------------------------------------


def conditions(before: list[dict[str, Any]], believed: Detection, now: datetime = NOW) -> list[dict[str, Any]]:
    decided = plan_status({**stored(FOUR), "status": {"conditions": before}}, believed, now).patch or {}
    found: list[dict[str, Any]] = decided.get("status", {}).get("conditions", before)
    return found


def test_all_is_well() -> None:
    assert conditions([], FOUR) == [
        {
            "type": "Detected-nvidia",
            "status": "True",
            "reason": "Complete",
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
    ]


def test_what_was_left_out_is_a_condition() -> None:
    believed = detected(nvidia=(*cards(2), replace(T4, index=2, uuid="GPU-XX")))
    (condition,) = conditions(conditions([], FOUR), believed, LATER)
    assert (condition["status"], condition["reason"]) == ("False", "Incomplete")
    assert condition["message"].startswith("nvidia card 2: left out: its uuid 'GPU-XX'")
    assert condition["lastTransitionTime"] == "2026-01-02T00:00:00Z"


def test_a_time_stays_while_the_status_does() -> None:
    (condition,) = conditions(conditions([], FOUR), detected(nvidia=cards(3)), LATER)
    assert condition["lastTransitionTime"] == "2026-01-01T00:00:00Z"


def test_an_error_that_changes_its_words_is_one_condition() -> None:
    def failed(words: str) -> Detection:
        return next_detection(FOUR, Look({"nvidia": Failed(words)}, Bus()), NVIDIA_ONLY)

    first = conditions([], failed("pid 1"))
    assert first[0]["reason"] == "NotMeasured"
    assert conditions(first, failed("pid 2"), LATER) == first


def test_a_manufacturer_with_nothing_to_say_has_no_condition() -> None:
    both = DetectionOptions(manufacturers=("amd", "nvidia"))
    believed = next_detection(Detection(), Look({"nvidia": Found(cards(1)), "amd": Empty("none")}, Bus()), both)
    assert [c["type"] for c in conditions([], believed)] == ["Detected-nvidia"]


def test_a_condition_goes_with_its_cards_and_others_stay() -> None:
    before = [{"type": "Detected-hygon", "status": "True"}, *conditions([], FOUR)]
    gone = next_detection(FOUR, Look({"nvidia": Empty("none")}, Bus()), NVIDIA_ONLY)
    assert conditions(before, gone) == [{"type": "Detected-hygon", "status": "True"}]


def test_merging_keeps_what_nobody_answered_for() -> None:
    assert merge_groups(OTHERS, Detection()) == canonical_groups(OTHERS)
