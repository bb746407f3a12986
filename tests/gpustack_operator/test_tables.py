"""Tables line up and cut nothing."""

from __future__ import annotations

from gpustack_operator.tables import table


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    text = table(("NAME", "N"), [("a-long-name", "1"), ("b", "22")])
    assert text.splitlines() == ["NAME          N", "a-long-name   1", "b             22"]


def test_no_trailing_blanks() -> None:
    assert table(("A", "B"), [("1", "")]).splitlines() == ["A   B", "1"]


def test_no_rows_are_said() -> None:
    assert table(("A", "B"), []).splitlines() == ["A   B", "(none)"]
