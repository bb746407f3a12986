"""Tokens behind the device plugin's pools (spec 06 §4)."""

from __future__ import annotations

from typing import Any

import pytest

from api.ledger.pools import device_pools, pool_names
from nodefeature.manufacturers import build_manufacturers

REGISTRY = build_manufacturers({})


def devices(manufacturer: str, *cards: dict[str, Any]) -> dict[str, Any]:
    accelerators = [{"id": f"GPU-{n}", "index": n, "status": status} for n, status in enumerate(cards)]
    return {"spec": {"groups": [{"id": "x", "manufacturer": manufacturer, "accelerators": accelerators}]}}


SLICED = {"logicalSliced": {"count": 128}, "physicalSliced": {}}
PARTED = {"logicalSliced": {}, "physicalSliced": {"count": 7, "profiles": [{"name": "1g.10gb", "count": 7}]}}
WHOLE: dict[str, Any] = {"logicalSliced": {}, "physicalSliced": {}}


@pytest.mark.parametrize(
    ("manufacturer", "cards", "want"),
    [
        ("nvidia", [SLICED] * 4, {"": 4, ".shared": 40, ".sliced": 512, ".partitioned": 0}),
        ("nvidia", [SLICED, PARTED], {"": 1, ".shared": 10, ".sliced": 128, ".partitioned": 7}),
        ("nvidia", [PARTED], {"": 0, ".shared": 0, ".sliced": 0, ".partitioned": 7}),
        ("nvidia", [WHOLE], {"": 1, ".shared": 10, ".sliced": 0, ".partitioned": 0}),
        ("nvidia", [{**SLICED, "unhealthy": True}], {"": 1, ".shared": 10, ".sliced": 128, ".partitioned": 0}),
        ("amd", [SLICED], {"": 1, ".shared": 10, ".sliced": 128}),
        ("amd", [], {"": 0, ".shared": 0, ".sliced": 0}),
    ],
)
def test_pools(manufacturer: str, cards: list[dict[str, Any]], want: dict[str, int]) -> None:
    base = REGISTRY.base(manufacturer)
    pools = {base + suffix: n for suffix, n in want.items()}
    pools[f"device.gpustack.ai/{manufacturer}.visibility"] = 512 * len(cards)
    assert device_pools(devices(manufacturer, *cards), REGISTRY) == pools


def test_groups_of_one_manufacturer_add_up() -> None:
    both = devices("nvidia", SLICED)["spec"]["groups"] + devices("nvidia", SLICED, SLICED)["spec"]["groups"]
    assert device_pools({"spec": {"groups": both}}, REGISTRY)["nvidia.com/gpu"] == 3


@pytest.mark.parametrize("junk", [{}, {"spec": None}, {"spec": {"groups": [None, {"manufacturer": "acme"}]}}])
def test_unknown_and_broken_groups_have_no_pool(junk: dict[str, Any]) -> None:
    assert device_pools(junk, REGISTRY) == {}


def test_pool_names() -> None:
    assert pool_names(REGISTRY, "acme") == ()
    assert pool_names(REGISTRY, "ascend") == (
        "huawei.com/npu",
        "huawei.com/npu.shared",
        "huawei.com/npu.sliced",
        "device.gpustack.ai/ascend.visibility",
    )
