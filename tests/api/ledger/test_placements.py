"""Placement arithmetic: spec 02 §3.6."""

from __future__ import annotations

from typing import Any

import pytest

from api.ledger.placements import Placement, overlaps, placements_of, profile_list, remaining_profiles
from tests.builders.ledgers import mig_profiles

A100, H100 = 5, 10


@pytest.mark.parametrize(
    ("small_gb", "occupied", "want"),
    [
        (A100, [], {"1g.5gb": 7, "1g.10gb": 4, "2g.10gb": 3, "3g.20gb": 2, "4g.20gb": 1, "7g.40gb": 1}),
        (A100, [(0, 4)], {"1g.5gb": 3, "1g.10gb": 2, "2g.10gb": 1, "3g.20gb": 1}),
        (A100, [(0, 1)], {"1g.5gb": 6, "1g.10gb": 3, "2g.10gb": 2, "3g.20gb": 1}),
        (A100, [(0, 8)], {}),
        (H100, [(0, 4)], {"1g.10gb": 3, "1g.20gb": 2, "2g.20gb": 1, "3g.40gb": 1}),
    ],
    ids=["1 none (A100)", "2 {0,4}", "3 {0,1}", "4 {0,8}", "5 {0,4} (H100)"],
)
def test_remaining(small_gb: int, occupied: list[tuple[int, int]], want: dict[str, int]) -> None:
    assert remaining_profiles(mig_profiles(small_gb), [Placement(*run) for run in occupied]) == want


def test_lists_are_in_plain_string_order_without_zeros() -> None:
    assert profile_list({"2g.10gb": 1, "1g.5gb": 3, "1g.10gb": 2, "7g.40gb": 0}) == [
        {"name": "1g.10gb", "count": 2},
        {"name": "1g.5gb", "count": 3},
        {"name": "2g.10gb", "count": 1},
        {"name": "7g.40gb"},
    ]


@pytest.mark.parametrize(
    ("a", "b", "want"),
    [((0, 4), (4, 4), False), ((0, 4), (3, 1), True), ((2, 1), (0, 8), True), ((5, 2), (3, 2), False)],
)
def test_overlap_is_half_open(a: tuple[int, int], b: tuple[int, int], want: bool) -> None:
    assert overlaps(Placement(*a), Placement(*b)) is want
    assert overlaps(Placement(*b), Placement(*a)) is want


@pytest.mark.parametrize(
    "raw",
    [None, "x", [None], [{}], [{"start": -1, "length": 1}], [{"start": 0, "length": 0}], [{"start": "0", "length": 1}]],
)
def test_impossible_runs_are_left_out(raw: Any) -> None:
    assert placements_of(raw) == ()


def test_a_profile_without_placements_contributes_nothing() -> None:
    assert remaining_profiles([{"name": "1g.10gb", "count": 7}, {"count": 1}], []) == {}
