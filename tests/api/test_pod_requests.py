"""Pod requests: spec 01 §9.4, spec 04 §10.3, §14.8, §14.9."""

from __future__ import annotations

from typing import Any

import pytest

from api.pod_requests import (
    Demand,
    FitDemand,
    Lifetime,
    claims_of,
    containers_of,
    fit_demand,
    merge_demands,
    pod_set_demands,
    visible_cards,
    whole,
)
from nodefeature.manufacturers import build_manufacturers
from nodefeature.resource_names import Family
from tests.builders.rows import case_json

REGISTRY = build_manufacturers({})
GPU = "nvidia.com/gpu"
SHARED, SLICED, PARTITIONED = f"{GPU}.shared", f"{GPU}.sliced", f"{GPU}.partitioned"
UNITS = f"{SLICED}.units"
PROFILE = f"{PARTITIONED}.mig-1g.10gb"


def container(requests: dict[str, Any] | None = None, limits: dict[str, Any] | None = None, **fields: Any) -> Any:
    return {"name": "main", "resources": {"requests": requests, "limits": limits}, **fields}


def pod_set(*containers: Any, count: int = 1, init: list[Any] | None = None, name: str = "main") -> Any:
    spec = {"containers": list(containers), "initContainers": init}
    return {"name": name, "count": count, "template": {"spec": spec}}


@pytest.mark.parametrize(
    ("given", "want"),
    [
        (pod_set(container({SLICED: "1", UNITS: "800000"}), count=3), FitDemand(800000, 0)),
        (pod_set(container({SHARED: "1"}), count=3), FitDemand(0, 1)),
        (pod_set(container({SHARED: "3"}), count=3), FitDemand(0, 3)),
        (pod_set(container({SHARED: "2"}), container({SHARED: "3"})), FitDemand(0, 3)),
        (pod_set(container({}), init=[container({SLICED: "1", UNITS: "480000"})]), FitDemand(480000, 0)),
        (pod_set(container(limits={SLICED: "1", UNITS: "640000"})), FitDemand(640000, 0)),
        (pod_set(container({SLICED: "1", UNITS: "320000"}), container({UNITS: "960000"})), FitDemand(960000, 0)),
        (pod_set(container({SLICED: "1", UNITS: "9223372036854775807"})), FitDemand(2147483647, 0)),
        (pod_set(container({UNITS: "800000"})), FitDemand(0, 0)),
        (pod_set(container({GPU: "2"}), count=3), FitDemand(0, 0, 2)),
        (pod_set(container({GPU: "2"}), container({GPU: "1"})), FitDemand(0, 0, 3)),
        (pod_set(container({PARTITIONED: "1", PROFILE: "1"})), FitDemand(0, 0)),
        (pod_set(container({"cpu": "1"})), FitDemand(0, 0)),
        ({}, FitDemand()),
    ],
    ids=[
        "sliced 1 + units 800000, count 3",
        "shared 1",
        "shared 3",
        "containers shared 2 and shared 3",
        "init container sliced 1 + units 480000",
        "limits only, units 640000",
        "sliced 1 + units 320000, other container units 960000",
        "units 2^63-1",
        "units only, no sliced",
        "exclusive 2",
        "exclusive 2 and 1 in one Pod",
        "partition",
        "cpu only",
        "no template",
    ],
)
def test_fit_demand(given: Any, want: FitDemand) -> None:
    assert fit_demand(given, REGISTRY) == want


def one(family: Family, cards: int, units: int = 0, profile: str = "") -> Demand:
    return Demand(family, cards, units, profile, roles=("main",))


@pytest.mark.parametrize(
    ("given", "want"),
    [
        (pod_set(container({GPU: "5"})), (one(Family.EXCLUSIVE, 5),)),
        (pod_set(container({GPU: "1"}), count=5), (one(Family.EXCLUSIVE, 5),)),
        (
            pod_set(container({SLICED: "2", UNITS: "320000", f"{SLICED}.cores-percentage": "50"})),
            (one(Family.SLICED, 2, 320000),),
        ),
        (pod_set(container({SHARED: "3"})), (one(Family.SHARED, 3),)),
        (
            pod_set(container({PARTITIONED: "1", PROFILE: "1", f"{PARTITIONED}.units": "200000"})),
            (one(Family.PARTITIONED, 1, 200000, "1g.10gb"),),
        ),
        (pod_set(container({"cpu": "4"})), ()),
        (pod_set(container({UNITS: "320000"})), ()),
        (pod_set(container({GPU: "5"}), count=0), ()),
        (
            pod_set(container({SLICED: "1", UNITS: "160000"}), container({SLICED: "1", UNITS: "480000"})),
            (one(Family.SLICED, 2, 480000),),
        ),
        (
            pod_set(container(), init=[container({PARTITIONED: "1", PROFILE: "1"})]),
            (one(Family.PARTITIONED, 1, 0, "1g.10gb"),),
        ),
        (pod_set(container(limits={GPU: "2"})), (one(Family.EXCLUSIVE, 2),)),
        (pod_set(container({GPU: "1"}, {GPU: "4"})), (one(Family.EXCLUSIVE, 1),)),
        (pod_set(container({GPU: "-3"})), ()),
        (pod_set(container({GPU: "many"})), ()),
        (pod_set(container({GPU: str(2**62)}), count=4), (one(Family.EXCLUSIVE, 2147483647),)),
    ],
    ids=[
        "exclusive 5 x 1 pod",
        "1 x 5 pods",
        "sliced 2 + units 320000 (+cores-percentage ignored)",
        "shared 3",
        "partitioned 1 + profile + units 200000",
        "cpu only",
        "units without card key",
        "podset count 0",
        "containers 160000 and 480000",
        "init-only partition counts",
        "limits-only counts",
        "requests win",
        "negative",
        "no quantity",
        "clamped to int32",
    ],
)
def test_demands_of_a_pod_set(given: Any, want: tuple[Demand, ...]) -> None:
    assert pod_set_demands(given, REGISTRY) == want


def test_the_assigned_count_wins() -> None:
    assert pod_set_demands(pod_set(container({GPU: "1"}), count=5), REGISTRY, count=2)[0].cards == 2


def test_small_and_large_pod_sets_stay_separate_large_first() -> None:
    small = Demand(Family.SLICED, 2, 160000, flavor="f", roles=("small",))
    large = Demand(Family.SLICED, 1, 1280000, flavor="f", roles=("large",))
    partition = Demand(Family.PARTITIONED, 1, 100, "1g.10gb", "f")
    assert merge_demands([small, large, partition]) == (partition, large, small)


def test_identical_exclusive_pod_sets_merge() -> None:
    merged = merge_demands(
        [Demand(Family.EXCLUSIVE, 2, flavor="f", roles=("a",)), Demand(Family.EXCLUSIVE, 3, flavor="f", roles=("b",))]
    )
    assert merged == (Demand(Family.EXCLUSIVE, 5, flavor="f", roles=("a", "b")),)
    assert len(merge_demands([merged[0], Demand(Family.EXCLUSIVE, 1, flavor="other")])) == 2


def test_containers_and_their_lifetimes() -> None:
    spec = {
        "initContainers": [container(), container(restartPolicy="Always")],
        "containers": [container({GPU: 1, "device.gpustack.ai/nvidia.visibility": "2"})],
    }
    found = list(containers_of(spec))
    assert [(c.list_name, c.index, c.lifetime) for c in found] == [
        ("initContainers", 0, Lifetime.INIT),
        ("initContainers", 1, Lifetime.SIDECAR),
        ("containers", 0, Lifetime.RUNNING),
    ]
    assert found[2].path == "spec.containers[0].resources.limits"
    assert visible_cards(found[2], REGISTRY, "nvidia") == 2
    assert visible_cards(found[2], REGISTRY, "amd") == 0
    assert visible_cards(found[2], REGISTRY, "acme") == 0


def test_a_claim_tells_everything_apart() -> None:
    resources = {
        SLICED: "1",
        UNITS: "320000",
        f"{SLICED}.memory-percentage": "20",
        f"{SLICED}.memory-mib": "4096",
        f"{SLICED}.cores-percentage": "40",
        "huawei.com/npu": "2",
        PARTITIONED: "1",
        PROFILE: "1",
        f"{PARTITIONED}.mig-3g.40gb": "1",
        "credits.gpustack.ai/nvidia": "5",
    }
    exclusive, sliced, partitioned = claims_of({"containers": [container(resources)]}, REGISTRY)
    assert (exclusive.family, exclusive.manufacturer, whole(exclusive.cards)) == (Family.EXCLUSIVE, "ascend", 2)
    figures = (
        sliced.cards, sliced.units, sliced.memory_percentage, sliced.memory_mib, sliced.cores_percentage
    )  # fmt: skip
    assert [whole(figure) for figure in figures] == [1, 320000, 20, 4096, 40]
    assert [name for name, _ in partitioned.profiles] == ["1g.10gb", "3g.40gb"]


@pytest.mark.parametrize("obj", case_json("B019-null-fields")["objects"], ids=lambda o: o["metadata"]["name"])
def test_b019_objects_with_nulls(obj: Any) -> None:
    assert claims_of(obj.get("spec") or {}, REGISTRY) == ()
    assert pod_set_demands(obj, REGISTRY) == ()
