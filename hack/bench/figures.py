"""What a bench found, side by side.

For: the benches. In: figures by row name, a column a size. Out: one table; progress on standard
error.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class Figures:
    """What one size gave, by row name."""

    nodes: int
    rows: dict[str, float] = field(default_factory=dict)


def say(text: str) -> None:
    """Show progress, away from the result."""
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


def as_table(results: Sequence[Figures]) -> str:
    """Return the figures side by side, and the growth from the smallest to the largest size."""
    header = ["", *(f"{result.nodes} nodes" for result in results), "growth"]
    names = list(results[0].rows)
    lines = [header]
    for name in names:
        values = [result.rows.get(name, float("nan")) for result in results]
        growth = f"{values[-1] / values[0]:.2f} x" if values[0] else "-"
        lines.append([name, *(f"{value:,.2f}".removesuffix(".00") for value in values), growth])
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return "\n".join(
        "  ".join([line[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(line[1:], widths[1:], strict=True))])
        for line in lines
    )
