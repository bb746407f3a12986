"""Which changes of a Node make flavors and types look again."""

from __future__ import annotations

from typing import Any

import pytest

from controllers.flavor_watches import flavors_of_node
from controllers.instance_type_watches import types_of_node
from kube.reconciler import Key
from nodefeature.kinds import INSTANCE_TYPE
from nodefeature.labels import DEVICE_PREFIX, EXCLUSIVE_FIT_PREFIX, SLICED_FIT_PREFIX
from tests.builders.chain import bench
from tests.builders.fake_api import FakeApi
from tests.builders.instance_types import instance_type
from tests.builders.nodes import gpu_node

A10G = "nvidia-a10g"
FLAVORS = {
    "gpustack-generic-linux-amd64-4c",
    "gpustack-nvidia-a10g-linux-amd64-2d",
    "gpustack-generic--nvidia-a10g-linux-amd64-2d",
}

ROWS: dict[str, tuple[dict[str, Any], bool]] = {
    "nothing": ({}, False),
    "a card was taken": ({"labels": {EXCLUSIVE_FIT_PREFIX + A10G: "1", SLICED_FIT_PREFIX + A10G: "0"}}, False),
    "another label": ({"labels": {DEVICE_PREFIX + A10G + ".driver": "570"}}, True),
    "an annotation": ({"annotations": {"feature.gpustack.ai/cpu-name": "AMD EPYC 7571"}}, True),
    "a taint": ({"taints": [{"key": "a", "effect": "NoSchedule"}]}, True),
}


@pytest.mark.parametrize(("change", "asks"), ROWS.values(), ids=ROWS.keys())
def test_flavors_of_a_changed_node(change: dict[str, Any], asks: bool) -> None:
    caches = bench(FakeApi()).caches
    keys = flavors_of_node(gpu_node("a"), gpu_node("a", **change), caches)
    assert {key.name for key in keys} >= FLAVORS if asks else not list(keys)


@pytest.mark.parametrize("row", ["nothing", "a card was taken", "another label", "a taint"])
def test_types_of_a_changed_node(row: str) -> None:
    change, asks = ROWS[row]
    api = FakeApi()
    api.add(INSTANCE_TYPE, instance_type())
    caches = bench(api, ("instance_type",)).caches
    keys = set(types_of_node(gpu_node("a"), gpu_node("a", **change), caches))
    assert keys == ({Key(instance_type()["metadata"]["name"])} if asks else set())
