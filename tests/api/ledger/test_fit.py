"""Card predicates and the choice of cards for partitions: spec 02 §3.6-3.7."""

from __future__ import annotations

from typing import Any

import pytest

from api.ledger.fit import (
    Candidate,
    Chosen,
    choose_partitions,
    detail_ready,
    is_partitioned,
    is_sliceable,
    is_whole_capable,
    ledger_ready,
    pool_partitionable,
    pool_sliceable,
)
from api.ledger.placements import Placement
from tests.builders.ledgers import card, mig_profiles

ONE_G = tuple(Placement(start, 1) for start in range(7))
A = Candidate("A", ONE_G, ())
B = Candidate("B", ONE_G, (Placement(0, 4),))
FULL = Candidate("F", ONE_G, (Placement(0, 8),))


@pytest.mark.parametrize(
    ("candidates", "count", "want"),
    [
        ([A, B], 2, (Chosen("B", Placement(4, 1)), Chosen("A", Placement(0, 1)))),
        ([A, B], 3, None),
        ([A, B], 0, ()),
        ([A, B], -1, ()),
        ([], 1, None),
        ([FULL], 1, None),
        ([FULL, A], 1, (Chosen("A", Placement(0, 1)),)),
        ([A, Candidate("A2", ONE_G, ())], 1, (Chosen("A", Placement(0, 1)),)),
    ],
)
def test_choice(candidates: list[Candidate], count: int, want: tuple[Chosen, ...] | None) -> None:
    assert choose_partitions(candidates, count) == want


@pytest.mark.parametrize(
    ("one", "partitioned", "sliceable", "whole"),
    [
        (card("c"), False, False, True),
        (card("c", slices=128), False, True, True),
        (card("c", profiles=mig_profiles()), True, False, False),
        (card("c", slices=128, profiles=mig_profiles()), True, False, False),
        ({"id": "c"}, False, False, True),
        ({"status": {"physicalSliced": {"count": "7"}, "logicalSliced": None}}, False, False, True),
    ],
    ids=["none", "slices", "partitions", "both: partitioned only", "no status", "wrong types"],
)
def test_card_predicates(one: Any, partitioned: bool, sliceable: bool, whole: bool) -> None:
    assert (is_partitioned(one), is_sliceable(one), is_whole_capable(one)) == (partitioned, sliceable, whole)


@pytest.mark.parametrize(
    ("logical", "physical", "want"),
    [(0, 0, (False, False)), (128, 0, (True, False)), (0, 4, (False, True)), (128, 4, (True, True))],
)
def test_pool_predicates_are_independent(logical: int, physical: int, want: tuple[bool, bool]) -> None:
    detail = {"slicedDetail": {"logical": {"count": logical}, "physical": {"count": physical}}}
    assert (pool_sliceable(detail), pool_partitionable(detail)) == want


@pytest.mark.parametrize(
    ("row", "want"),
    [
        (None, False),
        ({}, False),
        ({"allocatedProfiles": [], "remainingProfiles": []}, False),
        ({"allocatedProfiles": [{"name": "a"}]}, True),
        ({"remainingProfiles": [{"name": "a"}]}, True),
        ({"remainingProfiles": "many"}, False),
    ],
)
def test_ledger_ready(row: Any, want: bool) -> None:
    assert ledger_ready(row) is want


def test_detail_ready() -> None:
    assert detail_ready({"manufacturer": "nvidia"})
    assert not detail_ready({"manufacturer": ""})
    assert not detail_ready({})
