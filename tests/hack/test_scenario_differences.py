"""What the scenarios say of a cluster that is not as it was."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.chain.differences import differences

ROWS: dict[str, tuple[Any, Any, list[str]]] = {
    "equal": ({"Node/a": ({"x": "1"}, None)}, {"Node/a": ({"x": "1"}, None)}, []),
    "a leaf": (
        {"Node/a": ({"x": "1"}, {"gpu": "8"})},
        {"Node/a": ({"x": "2"}, {"gpu": "8"})},
        [
            "[Node/a][0][x]: '1' became '2'",
        ],
    ),
    "one that came": ({"Node/a": {}}, {"Node/a": {"gpu": "0"}}, ["[Node/a][gpu]: nothing became '0'"]),
    "one that went": ({"Node/a": {}, "Node/b": {}}, {"Node/a": {}}, ["[Node/b]: {} became nothing"]),
    "lists of two lengths": ({"a": [1]}, {"a": [1, 2]}, ["[a]: [1] became [1, 2]"]),
    "two kinds": ({"a": "12"}, {"a": ["1", "2"]}, ["[a]: '12' became ['1', '2']"]),
}


@pytest.mark.parametrize(("before", "after", "want"), ROWS.values(), ids=ROWS.keys())
def test_differences(before: Any, after: Any, want: list[str]) -> None:
    assert differences(before, after) == want
