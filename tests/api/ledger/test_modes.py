"""Allocation modes: spec 02 §3.4, §3.5."""

from __future__ import annotations

import pytest

from api.ledger.modes import (
    CARD_UNITS,
    PERCENT_UNITS,
    SHARE_UNITS,
    Mode,
    free_units,
    memory_mib_to_units,
    mode_name,
    mode_of,
)


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (0, "None"),
        (1, "Exclusive"),
        (2, "Shared"),
        (3, "Sliced"),
        (4, "Partitioned"),
        (5, "Visibility"),
        (99, "None"),
        ("3", "None"),
        (True, "None"),
        (None, "None"),
    ],
)
def test_mode_names(value: object, name: str) -> None:
    assert mode_name(value) == name


def test_unknown_is_told_apart_from_free() -> None:
    assert mode_of(None) is Mode.NONE
    assert mode_of(0) is Mode.NONE
    assert mode_of(99) is None
    assert mode_of(False) is None


def test_unit_ruler() -> None:
    assert (CARD_UNITS, SHARE_UNITS, PERCENT_UNITS) == (1_600_000, 160_000, 16_000)
    assert memory_mib_to_units(40960, 81920) == 800_000
    assert memory_mib_to_units(1, 0) == 0


@pytest.mark.parametrize(
    ("value", "want"), [(480_000, 480_000), (-1, 0), (1_600_001, 1_600_000), ("9", 0), (True, 0), (None, 0), (1.5, 0)]
)
def test_free_units_never_exceed_a_card(value: object, want: int) -> None:
    assert free_units(value) == want
