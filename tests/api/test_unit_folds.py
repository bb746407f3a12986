"""Folding slices and partitions into units: spec 01 §9.3, design §8.12."""

from __future__ import annotations

from typing import Any

import pytest

from api.unit_folds import Write, fold_units
from nodefeature.manufacturers import build_manufacturers

REGISTRY = build_manufacturers({})
NVIDIA, HYGON, THEAD = "nvidia.com/gpu", "hygon.com/dcu", "alibabacloud.com/ppu"
DETAIL: Any = {
    "manufacturer": "nvidia",
    "memory": "80Gi",
    "slicedDetail": {"physical": {"count": 7, "profiles": [{"name": "3g.40gb", "count": 2, "memoryMib": 40960}]}},
}


def fold(resources: dict[str, Any], detail: Any = DETAIL, **fields: Any) -> Any:
    return fold_units(
        {"containers": [{"name": "main", "resources": {"limits": resources}, **fields}]}, REGISTRY, detail
    )


def written(answer: Any) -> dict[str, str]:
    return {write.resource: write.value for write in answer.writes}


@pytest.mark.parametrize(
    ("base", "asked", "want"),
    [
        (NVIDIA, {"memory-percentage": "20"}, {"units": "320k", "cores-percentage": "100"}),
        (NVIDIA, {"memory-percentage": "33", "cores-percentage": "10"}, {"units": "528k"}),
        (NVIDIA, {"memory-mib": "10240"}, {"units": "200k", "cores-percentage": "100"}),
        (NVIDIA, {"memory-percentage": "50", "memory-mib": "1"}, {"units": "800k", "cores-percentage": "100"}),
        (NVIDIA, {"memory-percentage": "20", "units": "7"}, {"units": "320k", "cores-percentage": "100"}),
        (HYGON, {"memory-percentage": "25"}, {"units": "400k", "cores-percentage": "25"}),
        (HYGON, {"memory-mib": "8192"}, {"units": "160k", "cores-percentage": "10"}),
        (HYGON, {"memory-mib": "8193"}, {"units": "160019", "cores-percentage": "11"}),
    ],
    ids=[
        "percent",
        "compute share kept",
        "MiB",
        "percent wins over MiB",
        "a client's units are overwritten",
        "no overcommit: the memory's share",
        "no overcommit: MiB",
        "no overcommit: rounded up",
    ],
)
def test_slices(base: str, asked: dict[str, str], want: dict[str, str]) -> None:
    resources = {f"{base}.sliced": "1"} | {f"{base}.sliced.{key}": value for key, value in asked.items()}
    answer = fold(resources)
    assert answer.problems == ()
    assert written(answer) == {f"{base}.sliced.{key}": value for key, value in want.items()}


@pytest.mark.parametrize(
    ("asked", "detail", "rule"),
    [
        ({"memory-percentage": "101"}, DETAIL, "(0, 100]"),
        ({"memory-mib": "81921"}, DETAIL, "must not be above the 81920 MiB"),
        ({"memory-mib": "1"}, DETAIL | {"memory": "2000000Mi"}, "too small"),
        ({"memory-mib": "1"}, DETAIL | {"memory": "0"}, "positive quantity"),
        ({"memory-mib": "1"}, DETAIL | {"memory": "lots"}, "positive quantity"),
    ],
)
def test_slices_that_cannot_be(asked: dict[str, str], detail: Any, rule: str) -> None:
    resources = {f"{NVIDIA}.sliced": "1"} | {f"{NVIDIA}.sliced.{key}": value for key, value in asked.items()}
    answer = fold(resources, detail)
    assert answer.writes == ()
    assert rule in answer.problems[0].rule


def test_a_slice_without_memory_is_left_to_validation() -> None:
    answer = fold({f"{NVIDIA}.sliced": "1"})
    assert answer.problems == ()
    assert written(answer) == {f"{NVIDIA}.sliced.cores-percentage": "100"}


def test_memory_unknown_is_asked_again() -> None:
    assert "not known yet" in fold({f"{NVIDIA}.sliced": "1", f"{NVIDIA}.sliced.memory-mib": "1"}, {}).retry
    assert written(fold({f"{NVIDIA}.sliced": "1", f"{NVIDIA}.sliced.memory-percentage": "5"}, {})), "needs no detail"


def partition(profile: str, base: str = NVIDIA) -> dict[str, str]:
    return {f"{base}.partitioned": "1", f"{base}.partitioned.mig-{profile}": "1"}


def test_partition() -> None:
    assert written(fold(partition("3g.40gb"))) == {f"{NVIDIA}.partitioned.units": "800k"}


def test_partition_in_the_driver_s_spelling() -> None:
    profiles = [{"name": "4g48gb", "count": 2, "memoryMib": 49152}]
    detail = {"manufacturer": "thead", "memory": "96Gi", "slicedDetail": {"physical": {"profiles": profiles}}}
    assert written(fold(partition("4g.48gb", THEAD), detail)) == {f"{THEAD}.partitioned.units": "800k"}


@pytest.mark.parametrize(
    ("profile", "detail", "retry", "rule"),
    [
        ("3g.40gb", {}, "not computed yet", ""),
        ("9g.90gb", DETAIL, "", "profile is not offered; offered: 3g.40gb"),
        ("9g.90gb", {"manufacturer": "nvidia"}, "", "offered: none"),
        ("3g.40gb", {k: v for k, v in DETAIL.items() if k != "memory"}, "not known yet", ""),
        (
            "3g.40gb",
            DETAIL | {"slicedDetail": {"physical": {"profiles": [{"name": "3g.40gb"}]}}},
            "3g.40gb is not known yet",
            "",
        ),
    ],
    ids=["detail not computed", "not offered", "nothing offered", "card memory missing", "profile memory missing"],
)
def test_partitions_that_cannot_be(profile: str, detail: Any, retry: str, rule: str) -> None:
    answer = fold(partition(profile), detail)
    assert answer.writes == ()
    assert retry in answer.retry
    assert bool(answer.retry) is bool(retry)
    assert [rule in p.rule for p in answer.problems] == ([True] if rule else [])


def test_two_profiles_fold_nothing() -> None:
    assert fold(partition("3g.40gb") | partition("1g.10gb")).writes == ()


def test_whole_and_shared_claims_and_native_side_containers_are_not_folded() -> None:
    assert fold({NVIDIA: "1", f"{NVIDIA}.shared": "1"}).writes == ()
    sliced = {f"{NVIDIA}.sliced": "1", f"{NVIDIA}.sliced.memory-percentage": "20"}
    side = {"name": "s", "restartPolicy": "Always", "resources": {"limits": sliced}}
    assert fold_units({"initContainers": [side]}, REGISTRY, DETAIL).writes == ()


def test_writes_name_their_container() -> None:
    sliced = {
        f"{NVIDIA}.sliced": "1",
        f"{NVIDIA}.sliced.memory-percentage": "20",
        f"{NVIDIA}.sliced.cores-percentage": 5,
    }
    spec = {"initContainers": [{"name": "i", "resources": {"limits": sliced}}], "containers": [{"name": "m"}]}
    assert fold_units(spec, REGISTRY, DETAIL).writes == (Write("initContainers", 0, f"{NVIDIA}.sliced.units", "320k"),)
