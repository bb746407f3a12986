"""Tests of the kubelet's part: allocatable follows capacity."""

from __future__ import annotations

from typing import Any

import pytest

from hack.controlplane.kubelet import allocatable_change

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
