"""What strangers send does not stay in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from apiserver.rest import negotiation, request_info, selectors
from apiserver.rest.remembering import LONGEST, remembered

LONG = "a" * (LONGEST + 1)
READERS: dict[str, tuple[Any, Callable[[], object]]] = {
    "a segment of a path": (request_info._segment, lambda: request_info.parse("GET", f"/{LONG}".encode(), b"")),
    "a query": (request_info._parameters, lambda: request_info.parse("GET", b"/", f"x={LONG}".encode())),
    "the known part of a query": (
        request_info._known_parameters,
        lambda: request_info.parse("GET", b"/apis/a/v1/b", f"continue={LONG}".encode()),
    ),
    "a field selector": (selectors.parse_fields, lambda: selectors.parse_fields(f"metadata.name={LONG}")),
    "a label selector": (selectors.parse_labels, lambda: selectors.parse_labels(f"a={LONG}")),
    "an Accept header": (negotiation.negotiate, lambda: negotiation.negotiate(f"{LONG}/b,*/*", "get")),
    "its clauses": (negotiation.clauses, lambda: negotiation.clauses(f"{LONG}/b,*/*")),
}


@pytest.mark.parametrize("row", READERS.values(), ids=READERS.keys())
def test_long_texts_are_not_kept(row: tuple[Any, Callable[[], object]]) -> None:
    reader, read = row
    before = reader.cache_info().currsize
    read()
    assert reader.cache_info().currsize == before


def test_short_ones_are_worked_out_once() -> None:
    worked: list[str] = []

    @remembered(2)
    def length(text: str) -> int:
        worked.append(text)
        return len(text)

    assert [length(text) for text in ("a", "a", LONG, LONG, "b", "a")] == [1, 1, len(LONG), len(LONG), 1, 1]
    assert worked == ["a", LONG, LONG, "b"]
