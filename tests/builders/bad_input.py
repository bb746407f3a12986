"""The rows of `tests/rows/bad-input.json`: what strangers send, and the codes that may come of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROWS: list[dict[str, Any]] = json.loads((Path(__file__).parents[1] / "rows" / "bad-input.json").read_text())


def _nested(depth: int) -> str:
    return '{"a":' * depth + "1" + "}" * depth


_WORDS = {
    "TERMS": ",".join(f"k{number}!=v" for number in range(1000)),
    "NAME300": "a" * 300,
    "DEEP1000": _nested(1000),
    "DEEP": f'{{"apiVersion":"VERSION","kind":"KIND","spec":{_nested(10_000)}}}',
    "LONG": " " * 10_000_000,
    "BYTE": "\udcff",
    "DIGITS": "1" * 5000,
    "BLANKS": "+" * 50_000,
    "DOUBLING": ',{"op":"copy","from":"/spec/no","path":"/spec/no/-"}' * 60,
}
"""What stands in the rows for text that nobody wants to read."""


def filled(row: dict[str, Any], *, version: str, kind: str) -> tuple[str, bytes]:
    """Return what a row adds to the path of its collection, and its body."""
    target, body = row["target"], row["body"]
    for word, text in {**_WORDS, "VERSION": version, "KIND": kind}.items():
        target, body = target.replace(word, text), body.replace(word, text)
    return target, body.encode("utf-8", "surrogateescape")
