"""Plain text tables for people.

For: `demo`, command output. In: a header and rows of text. Out: aligned lines without trailing blanks.
Promises: columns are as wide as their widest cell, as kubectl prints them; nothing is cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_GAP = "   "


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return an aligned table; a table without rows says so under its header."""
    lines = [tuple(header), *(tuple(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    text = [_GAP.join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    return "\n".join([*text, "(none)"] if len(lines) == 1 else text)
