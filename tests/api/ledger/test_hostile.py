"""Ledgers that cannot be true: readers never raise, never free more than a card has, and say what is wrong."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api.ledger.findings import LIMIT, ledger_problems
from api.ledger.rebuild import rebuild
from api.ledger.views import contribution, fold, status_of
from tests.builders.ledgers import H100_POOL, card, devices, free, group, mig_profiles
from tests.builders.rows import case_json


def node(*rows: Any) -> Any:
    return devices("n", [group([card("a", slices=4), card("b", profiles=mig_profiles())])], list(rows))


B = free("b") | {"remainingProfiles": [{"name": "1g.10gb", "count": 7}]}


@pytest.mark.parametrize(
    ("rows", "path", "rule"),
    [
        ([free("a"), B, free("ghost")], "status.groups[0].accelerators[2].id", "not in the inventory"),
        ([{"id": "a", "mode": 0, "remaining": 9_999_999}, B], "status.groups[0].accelerators[0].remaining", "within 0"),
        ([{"id": "a", "mode": 0, "remaining": -5}, B], "status.groups[0].accelerators[0].remaining", "within 0"),
        ([{"id": "a", "mode": 0, "remaining": "all"}, B], "status.groups[0].accelerators[0].remaining", "integer"),
        ([{"id": "a", "mode": 99, "remaining": 5}, B], "status.groups[0].accelerators[0].mode", "mode from 0 to 4"),
        ([free("a"), free("a"), B], "status.groups[0].accelerators[1].id", "twice"),
        ([free("a")], "status.groups", "no ledger row"),
        (["a", free("a"), B], "status.groups[0].accelerators[0]", "object"),
        (
            [free("a"), free("b") | {"remainingProfiles": [{"name": "1g.10gb", "count": 8}]}],
            "status.groups[0].accelerators[1].remainingProfiles[0].count",
            "within 0 and 7",
        ),
        (
            [free("a"), free("b") | {"allocatedProfiles": [{"name": "9g.90gb", "count": 1}]}],
            "status.groups[0].accelerators[1].allocatedProfiles[0].name",
            "no profile",
        ),
    ],
    ids=[
        "unknown card id",
        "more units than a card has",
        "negative remaining",
        "wrong type",
        "unknown mode",
        "one card twice",
        "card without a row",
        "row that is no object",
        "more instances than fit",
        "unknown profile",
    ],
)
def test_findings_are_named(rows: list[Any], path: str, rule: str) -> None:
    found = [p for p in ledger_problems(node(*rows)) if rule in p.rule]
    assert [p.path for p in found] == [path]
    views = fold([contribution(node(*rows), H100_POOL)])
    assert views.exclusive.remaining <= 1
    assert views.partitioned.remaining <= 7
    assert dict(views.remaining_profiles).get("1g.10gb", 0) <= 7


def test_a_true_object_has_no_findings() -> None:
    assert ledger_problems(node(free("a"), B)) == []


def test_inventory_findings() -> None:
    twins = devices("n", [group([card("a")]), group([card("a", slices=2, ceiling=2)])], [free("a")])
    rules = [p.rule for p in ledger_problems(twins)]
    assert "2 groups have one key" in rules
    assert any("partitioned only" in rule for rule in rules)
    assert fold([contribution(twins, H100_POOL)]).exclusive.capacity == 1, "one card counts once"
    nameless = devices("n", [group([card("")], group_id="", manufacturer="")], [])
    assert len(ledger_problems(nameless)) >= 2


def test_findings_are_bounded() -> None:
    assert len(ledger_problems(node(*[free(f"ghost-{i}") for i in range(500)]))) == LIMIT


@pytest.mark.parametrize("obj", case_json("B019-null-fields")["objects"], ids=lambda o: o["metadata"]["name"])
def test_b019_objects_with_nulls(obj: Any) -> None:
    status_of(fold([contribution(obj, "nvidia-t4")]))
    ledger_problems(obj)


_keys = st.sampled_from(
    [
        "spec",
        "status",
        "groups",
        "id",
        "manufacturer",
        "accelerators",
        "mode",
        "remaining",
        "allocatedProfiles",
        "remainingProfiles",
        "name",
        "count",
        "logicalSliced",
        "physicalSliced",
        "profiles",
        "unhealthy",
        "index",
        "runtimeVersion",
        "placements",
        "start",
        "length",
    ]
)
_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.sampled_from(["nvidia", "m", "c", "1g.10gb"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_keys, inner, max_size=6),
    max_leaves=40,
)


@settings(max_examples=100, deadline=None)
@given(_values, _values)
def test_never_raises(spec: Any, status: Any) -> None:
    groups = [{"id": "m", "manufacturer": "nvidia", "accelerators": spec}]
    ledger = [{"id": "m", "manufacturer": "nvidia", "accelerators": status}]
    obj = {"metadata": {"name": "n"}, "spec": {"groups": groups}, "status": {"groups": ledger}}
    views = fold([contribution(obj, "nvidia-m")])
    for view in (views.exclusive, views.shared, views.sliced, views.partitioned):
        assert 0 <= view.remaining <= view.capacity
        assert view.once <= view.remaining
    ledger_problems(obj)
    rebuild([group for group in groups if isinstance(group, dict)], [])
