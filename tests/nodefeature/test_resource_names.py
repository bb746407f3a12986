"""Resource names and families: spec 01 §2.2-2.3, §5.5."""

from __future__ import annotations

import pytest

from nodefeature.manufacturers import build_manufacturers
from nodefeature.resource_names import (
    PARTITIONED_UNITS,
    SLICED_UNITS,
    Family,
    base_of,
    counting_resource,
    family_of,
    is_claim,
    manufacturer_of_resource,
    rdma_resource,
    resource_of,
)
from tests.builders.rows import Row, row_id, rows

REGISTRY = build_manufacturers({})


@pytest.mark.parametrize("row", rows("01-resource-families"), ids=row_id)
def test_family_of(row: Row) -> None:
    family = family_of(REGISTRY, row["row"])
    assert family == row["family"]
    assert is_claim(REGISTRY, row["row"]) == (family not in (Family.VISIBILITY, Family.NONE))


@pytest.mark.parametrize(
    ("resource", "base"),
    [
        ("nvidia.com/gpu", "nvidia.com/gpu"),
        ("nvidia.com/gpu.shared", "nvidia.com/gpu"),
        ("nvidia.com/gpu.sliced", "nvidia.com/gpu"),
        ("nvidia.com/gpu.sliced.memory-mib", "nvidia.com/gpu"),
        ("huawei.com/npu.sliced.units", "huawei.com/npu"),
        ("nvidia.com/gpu.partitioned.units", "nvidia.com/gpu"),
        ("nvidia.com/gpu.partitioned.mig-3g.40gb", "nvidia.com/gpu"),
        ("device.gpustack.ai/nvidia.visibility", ""),
        ("example.com/foo.sliced", ""),
        ("cpu", ""),
    ],
)
def test_base_of(resource: str, base: str) -> None:
    assert base_of(REGISTRY, resource) == base
    known = REGISTRY.by_base.get(base)
    assert manufacturer_of_resource(REGISTRY, resource) == (known.name if known else "")


@pytest.mark.parametrize(
    ("manufacturer", "family", "want"),
    [
        ("nvidia", Family.EXCLUSIVE, "nvidia.com/gpu"),
        ("nvidia", Family.NONE, "nvidia.com/gpu"),
        ("nvidia", Family.SHARED, "nvidia.com/gpu.shared"),
        ("nvidia", Family.SLICED, "nvidia.com/gpu.sliced"),
        ("nvidia", Family.PARTITIONED, "nvidia.com/gpu.partitioned"),
        ("amd", Family.PARTITIONED, ""),
        ("nvidia", Family.VISIBILITY, "device.gpustack.ai/nvidia.visibility"),
        ("acme", Family.EXCLUSIVE, ""),
    ],
)
def test_resource_of(manufacturer: str, family: Family, want: str) -> None:
    assert resource_of(REGISTRY, manufacturer, family) == want


@pytest.mark.parametrize(
    ("manufacturer", "suffix", "want"),
    [
        ("amd", SLICED_UNITS, "amd.com/gpu.sliced.units"),
        ("amd", PARTITIONED_UNITS, ""),
        ("hygon", PARTITIONED_UNITS, "hygon.com/dcu.partitioned.units"),
        ("acme", SLICED_UNITS, ""),
    ],
)
def test_counting_resource(manufacturer: str, suffix: str, want: str) -> None:
    assert counting_resource(REGISTRY, manufacturer, suffix) == want


@pytest.mark.parametrize(
    ("family", "want"),
    [
        (Family.EXCLUSIVE, "device.gpustack.ai/rdma"),
        (Family.SHARED, "device.gpustack.ai/rdma.shared"),
        (Family.SLICED, "device.gpustack.ai/rdma.sliced"),
        (Family.PARTITIONED, "device.gpustack.ai/rdma.partitioned"),
        (Family.VISIBILITY, ""),
        (Family.NONE, ""),
    ],
)
def test_rdma_resource(family: Family, want: str) -> None:
    assert rdma_resource(family) == want
