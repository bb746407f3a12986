"""Node capacity keys: spec 01 §10, spec 04 §4, design §8.4, case B013."""

from __future__ import annotations

from typing import Any

import pytest

from nodefeature.capacity import Card, capacity_patch, is_owned, plan_capacity
from nodefeature.manufacturers import build_manufacturers
from tests.builders.node_labels import card_labels
from tests.builders.rows import case_json

REGISTRY = build_manufacturers({})
NV, HY = "nvidia.com/gpu", "hygon.com/dcu"
T4 = card_labels("nvidia-t4", "2", memory="24Gi")
T4_CARDS = [Card("nvidia-t4", slices=128, overcommits_cores=True)] * 2
T4_KEYS = {
    f"{NV}.sliced.units": 3200000,
    f"{NV}.sliced.cores-percentage": 25600,
    f"{NV}.sliced.memory-percentage": 200,
    f"{NV}.sliced.memory-mib": 49152,
}
POOL = {f"{NV}.sliced": "256"}


def wanted(labels: dict[str, str], capacity: dict[str, Any], cards: list[Card]) -> dict[str, int]:
    return dict(plan_capacity(REGISTRY, labels=labels, capacity=capacity, cards=cards).wanted)


def patch(capacity: dict[str, Any], *, cards: list[Card], held: list[str] | None = None) -> dict[str, str | None]:
    plan = plan_capacity(REGISTRY, labels=T4, capacity=capacity, cards=cards, held=held or [])
    return capacity_patch(REGISTRY, capacity=capacity, plan=plan)


def test_two_nvidia_cards() -> None:
    assert wanted(T4, POOL, T4_CARDS) == T4_KEYS


def test_eight_hygon_cards_without_overcommit() -> None:
    labels = card_labels("hygon-k100-ai", "8", memory="64Gi")
    assert wanted(labels, {f"{HY}.sliced": 32}, [Card("hygon-k100-ai", slices=4)] * 8) == {
        f"{HY}.sliced.units": 12800000,
        f"{HY}.sliced.cores-percentage": 800,
        f"{HY}.sliced.memory-percentage": 800,
        f"{HY}.sliced.memory-mib": 524288,
    }


def test_a_partitioned_h100() -> None:
    labels = card_labels("nvidia-h100", "1", memory="80Gi")
    card = Card("nvidia-h100", slices=128, overcommits_cores=True, profiles={"3g.40gb": 2, "7g.80gb": 0})
    assert wanted(labels, {f"{NV}.partitioned": "7", f"{NV}.sliced": "128"}, [card]) == {
        f"{NV}.partitioned.units": 1600000,
        f"{NV}.partitioned.mig-3g.40gb": 2,
        f"{NV}.partitioned.mig-7g.80gb": 0,
    }


def test_a_profile_that_cannot_be_a_name_is_named_and_the_others_keep_their_counts() -> None:
    labels = card_labels("nvidia-h100", "2", memory="80Gi")
    card = Card("nvidia-h100", profiles={"1g.10gb": 7, "1g.10gb+me": 1})
    plan = plan_capacity(REGISTRY, labels=labels, capacity={f"{NV}.partitioned": 14}, cards=[card, card])
    assert plan.wanted == {f"{NV}.partitioned.units": 3200000, f"{NV}.partitioned.mig-1g.10gb": 14}
    (problem,) = plan.problems
    assert "'1g.10gb+me'" in problem


def test_two_spellings_of_a_profile_are_one_key() -> None:
    labels = card_labels("thead-ppu-zw810e", "2", memory="96Gi")
    cards = [Card("thead-ppu-zw810e", profiles={"4g48gb": 2}), Card("thead-ppu-zw810e", profiles={"4g.48gb": 1})]
    found = wanted(labels, {"alibabacloud.com/ppu.partitioned": 4}, cards)
    assert found["alibabacloud.com/ppu.partitioned.mig-4g.48gb"] == 3


@pytest.mark.parametrize(
    ("labels", "capacity", "cards"),
    [
        (T4, {}, T4_CARDS),
        (T4, {f"{NV}.sliced": "0"}, T4_CARDS),
        (T4, {f"{NV}.sliced": "many"}, T4_CARDS),
        (T4, {f"{NV}.sliced": None}, T4_CARDS),
        (T4, POOL, []),
        (T4, POOL, [Card("nvidia-t4")]),
        (T4, POOL, [Card("nvidia-a10", slices=128)]),
        ({}, POOL, T4_CARDS),
        (card_labels("amd-mi300x", "1"), {"amd.com/gpu.partitioned": 1}, [Card("amd-mi300x", profiles={"1g": 1})]),
    ],
    ids=[
        "no pool",
        "pool 0",
        "pool unreadable",
        "pool null",
        "no cards",
        "neither",
        "other model",
        "no labels",
        "no kind",
    ],
)
def test_no_keys(labels: dict[str, str], capacity: dict[str, Any], cards: list[Card]) -> None:
    assert wanted(labels, capacity, cards) == {}


@pytest.mark.parametrize(("memory", "mib"), [("24G", 22888), ("24576Mi", 24576), ("1.5Gi", 1536), ("", 0), ("x", 0)])
def test_memory_comes_from_the_label(memory: str, mib: int) -> None:
    labels = card_labels("nvidia-t4", "1", memory=memory)
    assert wanted(labels, POOL, T4_CARDS[:1])[f"{NV}.sliced.memory-mib"] == mib


@pytest.mark.parametrize(
    ("resource", "want"),
    [
        (f"{NV}.sliced.units", True),
        (f"{NV}.sliced.memory-mib", True),
        (f"{NV}.partitioned.units", True),
        (f"{NV}.partitioned.mig-1g.10gb", True),
        (NV, False),
        (f"{NV}.sliced", False),
        (f"{NV}.shared", False),
        (f"{NV}.partitioned", False),
        (f"{NV}.sliced.mig-1g.10gb", False),
        (f"{NV}.partitioned.mig-", False),
        ("example.com/foo.sliced.units", False),
        ("cpu", False),
    ],
)
def test_is_owned(resource: str, want: bool) -> None:
    assert is_owned(REGISTRY, resource) is want


def test_patch_sets_what_differs_and_nulls_what_nobody_wants() -> None:
    capacity = POOL | {
        "cpu": "16",
        f"{NV}.sliced.units": "1600k",
        f"{NV}.sliced.memory-percentage": "200",
        f"{NV}.partitioned.mig-1g.10gb": "7",
        f"{NV}.sliced.mig-1g.10gb": "7",
        "amd.com/gpu.sliced.units": "1",
        "example.com/foo.sliced.units": "1",
    }
    assert patch(capacity, cards=T4_CARDS) == {
        f"{NV}.sliced.cores-percentage": "25600",
        f"{NV}.sliced.memory-mib": "49152",
        f"{NV}.sliced.units": "3200k",
        "amd.com/gpu.sliced.units": None,
        f"{NV}.partitioned.mig-1g.10gb": None,
    }


B013 = case_json("B013-capacity-sequence")["rows"]
FULL = {key: value for key, value in B013[0]["capacity"].items() if key in T4_KEYS}


@pytest.mark.parametrize(
    ("step", "want"),
    [(0, {}), (1, FULL), (2, FULL), (3, {})],
    ids=[f"B013 {row['step']}" for row in B013],
)
def test_case_b013_all_keys_or_none(step: int, want: dict[str, str]) -> None:
    """A Pod holds a slice all the while."""
    capacity = B013[step]["capacity"]
    found = patch(capacity, cards=T4_CARDS, held=[f"{NV}.sliced.units"])
    assert {key: str(value) for key, value in found.items()} == {
        key: value.replace("3200000", "3200k") for key, value in want.items()
    }
    after = capacity | found
    assert patch(after, cards=T4_CARDS, held=[f"{NV}.sliced.units"]) == {}


def test_case_b013_nobody_holds_them_and_they_go() -> None:
    assert patch(B013[1]["capacity"], cards=T4_CARDS) == dict.fromkeys(sorted(T4_KEYS))


def test_held_keys_stay_while_there_is_no_record_of_cards() -> None:
    capacity = B013[0]["capacity"]
    assert patch(capacity, cards=[], held=[f"{NV}.sliced.units"]) == {}
    assert patch(capacity, cards=[], held=["cpu", f"{NV}.partitioned"]) == dict.fromkeys(sorted(T4_KEYS))
