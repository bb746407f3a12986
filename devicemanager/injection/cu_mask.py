"""Which compute units an AMD slice gets (spec 06 §8.7).

For: the device plugin, which places a window with the allocation; `amd`, which prints it.
In: a card's layout, a share, the windows other slices hold. Out: a window of compute units.
Promises: exact integers; a share too small for one quantum is refused with the smallest that fits. A share is a
placement, not a wall: when no free window is left, the least crowded one is shared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from api.ledger.placements import Placement
from devicemanager.injection.request import InjectionRefused

_RDNA = ("gfx10", "gfx11", "gfx12")
_CDNA = "gfx9"


@dataclass(frozen=True, slots=True, kw_only=True)
class CuLayout:
    """How a card's compute units are wired: shader engines over the whole device, and accelerator dies."""

    gfx: str
    compute_units: int
    shader_engines: int = 0
    dies: int = 0


@dataclass(frozen=True, slots=True)
class _Grain:
    """Sizes are counted in units of `weight` compute units, in multiples of `atom`; starts in `quantum` CUs."""

    units: int
    atom: int
    weight: int

    @property
    def quantum(self) -> int:
        return self.atom * self.weight


def window_length(layout: CuLayout, percent: int) -> int:
    """Return how many compute units a share is."""
    grain = _grain(layout)
    if not 1 <= percent <= 100:
        raise InjectionRefused(f"a compute share must be 1 to 100 percent, not {percent}")
    count = _half_up(grain.units * percent) // grain.atom * grain.atom
    if count == 0:
        least = -(-(100 * grain.atom - 50) // grain.units)
        raise InjectionRefused(
            f"{percent} % of a {layout.gfx} with {layout.compute_units} compute units is less than one group of "
            f"{grain.quantum}; ask for at least {least} %"
        )
    return count * grain.weight


def place_window(layout: CuLayout, percent: int, held: Sequence[Placement]) -> Placement:
    """Return the window of a new slice beside those that are held."""
    length = window_length(layout, percent)
    merged = merge(held)
    starts = range(0, layout.compute_units - length + 1, _grain(layout).quantum)
    return Placement(min(starts, key=lambda start: (_overlap(Placement(start, length), merged), start)), length)


def merge(runs: Sequence[Placement]) -> list[Placement]:
    """Return the union of runs as runs that do not touch."""
    merged: list[Placement] = []
    for run in sorted(runs):
        last = merged[-1] if merged else None
        if last is not None and run.start <= last.start + last.length:
            end = max(last.start + last.length, run.start + run.length)
            merged[-1] = Placement(last.start, end - last.start)
        else:
            merged.append(run)
    return merged


def _grain(layout: CuLayout) -> _Grain:
    units = layout.compute_units
    if layout.gfx.startswith(_RDNA):
        engines = layout.shader_engines
        if engines <= 0 or units % 2 or engines > units // 2:
            raise InjectionRefused(f"{layout.gfx}: {units} compute units in {engines} shader engines cannot be sliced")
        grain = _Grain(units // 2, engines, 2)
    elif layout.gfx.startswith(_CDNA):
        if layout.dies <= 0:
            raise InjectionRefused(f"{layout.gfx}: the number of accelerator dies is not known; it cannot be sliced")
        grain = _Grain(units, layout.dies, 1)
    else:
        raise InjectionRefused(f"{layout.gfx or 'a card without a gfx name'} cannot be sliced by compute-unit masks")
    if units <= 0 or units % grain.quantum:
        raise InjectionRefused(f"{layout.gfx}: groups of {grain.quantum} do not divide {units} compute units")
    return grain


def _half_up(hundredths: int) -> int:
    return (hundredths + 50) // 100


def _overlap(window: Placement, merged: Sequence[Placement]) -> int:
    end = window.start + window.length
    return sum(max(0, min(end, run.start + run.length) - max(window.start, run.start)) for run in merged)
