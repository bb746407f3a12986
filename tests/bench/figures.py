"""What the bench prints: one line a figure, beside the limit it must hold."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured thing; `limit` is what must hold, empty where nothing is promised."""

    what: str
    found: str
    limit: str = ""
    holds: bool = True


def p50(values: Sequence[float]) -> float:
    """Return the median."""
    return statistics.median(values)


def p99(values: Sequence[float]) -> float:
    """Return the 99th percentile."""
    return statistics.quantiles(values, n=100)[98]


def times(what: str, milliseconds: Sequence[float], *, at_most_ms: float = 0.0) -> Figure:
    """Return a figure of durations; the limit is on their 99th percentile."""
    found = f"p50 {p50(milliseconds):.1f} ms, p99 {p99(milliseconds):.1f} ms, n {len(milliseconds)}"
    limit = f"p99 <= {at_most_ms:.0f} ms" if at_most_ms else ""
    return Figure(what, found, limit, not at_most_ms or p99(milliseconds) <= at_most_ms)


def show(figures: Sequence[Figure]) -> None:
    """Print figures as a table."""
    for figure in figures:
        verdict = ("" if not figure.limit else "holds" if figure.holds else "DOES NOT HOLD").ljust(13)
        sys.stdout.write(f"{figure.what:<58}  {figure.found:<44}  {figure.limit:<14}  {verdict}".rstrip() + "\n")
    sys.stdout.flush()
