"""Units and credits: spec 01 §1, §9.1-9.2."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodefeature import credits
from nodefeature.quantity import of, parse_quantity
from tests.builders.rows import Row, row_id, rows

M = credits.CREDITS_PER_ACCELERATOR
FUNCTIONS: dict[str, Callable[..., int]] = {
    "memory_percentage_to_units": credits.memory_percentage_to_units,
    "memory_mib_to_units": credits.memory_mib_to_units,
}


def test_why_m() -> None:
    assert M == 2**9 * 5**5
    assert all(M % 2**n == 0 for n in range(10))
    assert M % 10 == 0
    assert (M % 100, M // 100) == (0, 16_000)
    assert 10**9 % M == 0
    assert credits.UNITS_PER_SHARE == 160_000
    assert credits.UNITS_PER_PERCENT == 16_000


@pytest.mark.parametrize("row", rows("01-units"), ids=row_id)
def test_units(row: Row) -> None:
    assert FUNCTIONS[row["function"]](*row["arguments"]) == row["want"]


@pytest.mark.parametrize(
    ("amount", "want"),
    [
        ("1600000", "1"),
        ("6400000", "4"),
        ("0", "0"),
        ("200000", "125m"),
        ("400000", "250m"),
        ("5800000", "3625m"),
        ("3125", "1953u"),
        ("199999500m", "125m"),
    ],
)
def test_credits_to_accelerators(amount: str, want: str) -> None:
    assert str(credits.credits_to_accelerators(parse_quantity(amount))) == want


@pytest.mark.parametrize(("accelerators", "want"), [(1, "1600k"), (4, "6400k"), (0, "0")])
def test_accelerators_to_credits(accelerators: int, want: str) -> None:
    assert str(credits.accelerators_to_credits(accelerators)) == want


@given(st.integers(0, 10**9))
def test_whole_accelerators_round_trip(accelerators: int) -> None:
    assert credits.credits_to_accelerators(credits.accelerators_to_credits(accelerators)) == of(accelerators)


@pytest.mark.parametrize("slices", [0, 1, 3, 1024, -8])
def test_no_partition_count(slices: int) -> None:
    assert not credits.is_partition_count(slices)


@pytest.mark.parametrize("slices", [2, 8, 16, 512])
def test_partition_count(slices: int) -> None:
    assert credits.is_partition_count(slices)


@pytest.mark.parametrize(
    ("amount", "slices", "want"),
    [
        ("1.5", 1, "1"),
        ("1", 2, "2"),
        ("0.5", 4, "2"),
        ("0.25", 8, "2"),
        ("0.125", 16, "2"),
        ("1", 512, "512"),
        ("1", 0, "1"),
    ],
)
def test_slice_count(amount: str, slices: int, want: str) -> None:
    assert str(credits.slice_count(parse_quantity(amount), slices)) == want


@pytest.mark.parametrize(
    ("amount", "slices", "want"),
    [
        ("1.5", 1, "2400k"),
        ("1", 2, "800k"),
        ("1", 4, "400k"),
        ("1", 8, "200k"),
        ("1", 16, "100k"),
        ("1", 512, "3125"),
        ("7", 3, "7"),
        ("7", -1, "7"),
    ],
)
def test_slices_to_units(amount: str, slices: int, want: str) -> None:
    assert str(credits.slices_to_units(parse_quantity(amount), slices)) == want


@pytest.mark.parametrize(
    ("amount", "slices", "want"), [("2400000", 1, "1500m"), ("800000", 2, "1"), ("3125", 512, "1"), ("5", 7, "5")]
)
def test_units_to_slices(amount: str, slices: int, want: str) -> None:
    assert str(credits.units_to_slices(parse_quantity(amount), slices)) == want
