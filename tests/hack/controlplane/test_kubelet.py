"""Tests of the kubelet's part: allocatable follows capacity."""

from __future__ import annotations

from typing import Any

import pytest

from hack.controlplane.kubelet import allocatable_change, status_change
from nodefeature.manufacturers import build_manufacturers

ROWS: dict[str, tuple[Any, Any, dict[str, str | None]]] = {
    "a new extended resource": ({"cpu": "4", "nvidia.com/gpu": "2"}, {"cpu": "4"}, {"nvidia.com/gpu": "2"}),
    "a changed one": ({"nvidia.com/gpu": "1"}, {"nvidia.com/gpu": "2"}, {"nvidia.com/gpu": "1"}),
    "a vanished one": ({"cpu": "4"}, {"cpu": "4", "nvidia.com/gpu": "2"}, {"nvidia.com/gpu": None}),
    "zero is a value": ({"nvidia.com/gpu": "0"}, {"nvidia.com/gpu": "2"}, {"nvidia.com/gpu": "0"}),
    "equal maps": ({"nvidia.com/gpu": "2"}, {"nvidia.com/gpu": "2"}, {}),
    "reserved cpu stays reserved": ({"cpu": "4", "memory": "8Gi"}, {"cpu": "3500m", "memory": "7Gi"}, {}),
    "native names with a domain": ({"kubernetes.io/batch-cpu": "1"}, {}, {}),
    "no status": (None, None, {}),
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
def test_allocatable_change(row: tuple[Any, Any, dict[str, str | None]]) -> None:
    capacity, allocatable, want = row
    assert allocatable_change({"status": {"capacity": capacity, "allocatable": allocatable}}) == want


CARD = {"id": "a", "index": 0, "status": {"logicalSliced": {"count": 4}}}


@pytest.mark.parametrize(
    ("capacity", "groups", "changed"),
    [
        ({}, [], {}),
        ({"cpu": "4"}, [{"manufacturer": "nvidia", "id": "t4", "accelerators": [CARD]}], {"1", "10", "4"}),
        ({"nvidia.com/gpu": "8"}, [], {"0"}),
        ({"nvidia.com/gpu": "0"}, [], set()),
        ({"example.com/cards": "8"}, [], set()),
    ],
    ids=["nothing", "a card", "cards gone", "cards long gone", "another's"],
)
def test_pools_follow_the_inventory(
    capacity: dict[str, str], groups: list[dict[str, object]], changed: set[str]
) -> None:
    node = {"status": {"capacity": capacity, "allocatable": dict(capacity)}}
    devices = {"spec": {"groups": groups}}
    change = status_change(node, devices, build_manufacturers({}))
    assert set(change.get("capacity", {}).values()) - {"0"} == set(changed) - {"0"}
    assert change.get("capacity", {}) == change.get("allocatable", {})
