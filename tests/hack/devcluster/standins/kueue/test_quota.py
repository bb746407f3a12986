"""What a Pod costs and which flavor carries it (spec 07 §4, case B030)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from hack.devcluster.standins.kueue.quota import Transformation, assign, milli, pod_requests, transform
from hack.devcluster.standins.kueue.transformations import transformations_of
from tests.builders.chain import manufacturers
from tests.builders.queues import group
from tests.builders.standins import CARD, CREDITS, flavor, pod

TABLE = transformations_of(manufacturers())


def cost(limits: Mapping[str, object]) -> dict[str, int]:
    found = transform(pod_requests(pod(limits=limits)), TABLE)
    return {name: value // 1000 for name, value in found.items()}


COSTS: dict[str, tuple[dict[str, object], int]] = {
    "5 whole cards": ({CARD: "5"}, 8_000_000),
    "3 shared": ({f"{CARD}.shared": "3"}, 480_000),
    "sliced 1, units 320000 (B030 fifth)": ({f"{CARD}.sliced": "1", f"{CARD}.sliced.units": "320000"}, 320_000),
    "sliced 1, units 533333 (B030 third)": ({f"{CARD}.sliced": 1, f"{CARD}.sliced.units": 533_333}, 533_333),
    "sliced 2, units 320000": ({f"{CARD}.sliced": "2", f"{CARD}.sliced.units": "320000"}, 640_000),
    "units without a multiplier are not multiplied": ({f"{CARD}.sliced.units": "320k"}, 320_000),
    "partitioned units 400000": ({f"{CARD}.partitioned": "1", f"{CARD}.partitioned.units": "400000"}, 400_000),
    "whole and shared": ({CARD: "1", f"{CARD}.shared": "1"}, 1_760_000),
}


@pytest.mark.parametrize("row", COSTS.values(), ids=COSTS.keys())
def test_credits(row: tuple[dict[str, object], int]) -> None:
    limits, want = row
    assert cost(limits)[CREDITS] == want


def test_what_nothing_transforms_stays_and_inputs_go() -> None:
    assert cost({CARD: "1", "memory": "1Ki", f"{CARD}.sliced": "1"}) == {
        CREDITS: 1_600_000,
        "memory": 1024,
        f"{CARD}.sliced": 1,
    }


def test_fractions_are_rounded_up_after_the_factor_except_of_cpu() -> None:
    table = {"a": Transformation("a", "b", 3)}
    assert transform({"a": 500, "cpu": 500, "c": 1}, table) == {"b": 2000, "cpu": 500, "c": 1000}


MILLI = {"1": 1000, 1: 1000, "100m": 100, "3200k": 3_200_000_000, "1u": 1, "x": 0, None: 0, "1.5": 1500}


@pytest.mark.parametrize(("given", "want"), MILLI.items(), ids=map(str, MILLI))
def test_milli(given: object, want: int) -> None:
    assert milli(given) == want


def test_pod_requests() -> None:
    def container(**resources: Any) -> dict[str, Any]:
        return {"name": "c", "resources": resources}

    template = {
        "spec": {
            "containers": [
                container(requests={"cpu": "1"}, limits={"cpu": "4", CARD: "1"}),
                container(limits={"cpu": "500m"}),
                {"name": "none", "resources": None},
            ],
            "initContainers": [container(limits={"cpu": "2", "memory": "1"})],
        }
    }
    assert pod_requests(template) == {"cpu": 2000, CARD: 1000, "memory": 1000}
    assert pod_requests({"spec": None}) == {}


def pod_sets(limits: Mapping[str, object], count: int = 1, **spec: Any) -> list[dict[str, Any]]:
    return [{"name": "main", "count": count, "template": {"spec": pod(limits=limits, **spec)["spec"]}}]


def assigned(
    sets: list[dict[str, Any]], quotas: Mapping[str, str], held: Mapping[tuple[str, str], int] | None = None
) -> list[dict[str, str]] | str:
    flavors = {name: flavor(name, labels={"count": name[-1]}) for name in ("f-4", "f-8")}
    found = assign(
        sets,
        {"resourceGroups": [group(CREDITS, quotas)]},
        reserved=held or {},
        flavors=flavors,
        transformations=TABLE,
    )
    return found if isinstance(found, str) else [dict(each.flavors) for each in found]


TWO = {"f-4": "6400k", "f-8": "12800k"}
FULL = {("f-4", CREDITS): 6_400_000_000}
ASSIGNED: dict[str, tuple[list[dict[str, str]] | str, list[dict[str, str]] | str]] = {
    "the first flavor": (assigned(pod_sets({CARD: "1"}), TWO), [{CREDITS: "f-4"}]),
    "the next when it is full": (assigned(pod_sets({CARD: "1"}), TWO, FULL), [{CREDITS: "f-8"}]),
    "the next when it is too small": (assigned(pod_sets({CARD: "5"}), TWO), [{CREDITS: "f-8"}]),
    "the one its selector names": (
        assigned(pod_sets({CARD: "1"}, nodeSelector={"count": "8"}), TWO),
        [{CREDITS: "f-8"}],
    ),
    "a selector of other keys does not matter": (
        assigned(pod_sets({CARD: "1"}, nodeSelector={"zone": "a"}), TWO),
        [{CREDITS: "f-4"}],
    ),
    "undeclared resources cost nothing": (assigned(pod_sets({"memory": "1Ti"}), TWO), [{}]),
    "every Pod of a set counts": (assigned(pod_sets({CARD: "4"}, 2), TWO), [{CREDITS: "f-8"}]),
    "sets add up": (
        assigned([*pod_sets({CARD: "4"}), *pod_sets({CARD: "4"})], TWO),
        [{CREDITS: "f-4"}, {CREDITS: "f-8"}],
    ),
    "a flavor that does not exist": (assigned(pod_sets({CARD: "1"}), {"f-9": "1M", "f-8": "2M"}), [{CREDITS: "f-8"}]),
    "nothing fits": (
        assigned(pod_sets({CARD: "9"}), TWO),
        f"couldn't assign flavors to pod set main: insufficient quota for {CREDITS}",
    ),
}


@pytest.mark.parametrize("row", ASSIGNED.values(), ids=ASSIGNED.keys())
def test_assign(row: tuple[object, object]) -> None:
    got, want = row
    assert got == want
