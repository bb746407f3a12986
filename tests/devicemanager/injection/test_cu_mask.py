"""AMD compute-unit windows: the table of spec 06 §8.7 and its refusals."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.ledger.placements import Placement
from devicemanager.injection.cu_mask import CuLayout, merge, place_window, window_length
from devicemanager.injection.request import InjectionRefused

GFX1101 = CuLayout(gfx="gfx1101", compute_units=60, shader_engines=3)
GFX942 = CuLayout(gfx="gfx942", compute_units=304, dies=8)
GFX90A = CuLayout(gfx="gfx90a", compute_units=104, dies=1)


@pytest.mark.parametrize(
    ("layout", "percent", "units"),
    [
        (GFX1101, 100, 60),
        (GFX1101, 50, 30),
        (GFX1101, 25, 12),
        (GFX1101, 9, 6),
        (GFX942, 50, 152),
        (GFX942, 3, 8),
        (GFX90A, 1, 1),
        (GFX90A, 33, 34),
    ],
)
def test_length(layout: CuLayout, percent: int, units: int) -> None:
    assert window_length(layout, percent) == units


@pytest.mark.parametrize(
    ("layout", "percent", "said"),
    [
        (GFX1101, 8, "at least 9 %"),
        (GFX942, 2, "at least 3 %"),
        (GFX1101, 0, "1 to 100 percent, not 0"),
        (GFX1101, 101, "1 to 100 percent, not 101"),
        (CuLayout(gfx="gfx942", compute_units=304), 50, "accelerator dies"),
        (CuLayout(gfx="gfx1101", compute_units=60), 50, "0 shader engines"),
        (CuLayout(gfx="gfx1101", compute_units=61, shader_engines=3), 50, "61 compute units"),
        (CuLayout(gfx="gfx1101", compute_units=4, shader_engines=3), 50, "cannot be sliced"),
        (CuLayout(gfx="gfx1101", compute_units=60, shader_engines=4), 50, "do not divide"),
        (CuLayout(gfx="gfx803", compute_units=64, shader_engines=4), 50, "cannot be sliced by"),
        (CuLayout(gfx="", compute_units=64), 50, "without a gfx name"),
    ],
)
def test_refused(layout: CuLayout, percent: int, said: str) -> None:
    with pytest.raises(InjectionRefused, match=said):
        window_length(layout, percent)


@pytest.mark.parametrize(
    ("held", "percent", "window"),
    [
        ([Placement(0, 12)], 25, Placement(12, 12)),
        ([Placement(0, 30), Placement(30, 30)], 50, Placement(0, 30)),
        ([], 25, Placement(0, 12)),
        ([Placement(0, 60), Placement(0, 30)], 50, Placement(0, 30)),
    ],
    ids=["next", "two-held", "empty", "least-crowded-counts-once"],
)
def test_place(held: list[Placement], percent: int, window: Placement) -> None:
    assert place_window(GFX1101, percent, held) == window


def test_merge() -> None:
    assert merge([Placement(6, 6), Placement(0, 6), Placement(20, 2)]) == [Placement(0, 12), Placement(20, 2)]


@given(st.lists(st.integers(9, 100), max_size=8))
def test_windows_lie_on_the_card(shares: list[int]) -> None:
    held: list[Placement] = []
    for share in shares:
        held.append(place_window(GFX1101, share, held))
    assert all(run.start % 6 == 0 and run.start + run.length <= 60 for run in held)
