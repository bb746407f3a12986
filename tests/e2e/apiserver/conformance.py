"""The conformance table: what was asked of the API, whether it passed, what there is to say about it.

For: the tests of this folder, which name their row by `@row("...")`. In: outcomes. Out: `build/conformance.md`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

TABLE = Path(__file__).parents[3] / "build" / "conformance.md"
F = TypeVar("F", bound=Callable[..., Any])
_ROW = "conformance_row"


def row(name: str, remark: str = "") -> Callable[[F], F]:
    """Give a test its line of the table."""

    def mark(test: F) -> F:
        setattr(test, _ROW, (name, remark))
        return test

    return mark


class Conformance:
    """A pytest plugin that writes the table as tests end, so that a broken run leaves what it has."""

    def __init__(self, table: Path) -> None:
        self._table = table
        self._lines: dict[str, tuple[str, str]] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Any:
        """Note an outcome."""
        report = yield
        name, remark = getattr(getattr(item, "function", None), _ROW, ("", ""))
        if name and (report.when == "call" or report.failed):
            case = item.callspec.id if hasattr(item, "callspec") else ""
            said = [str(value) for key, value in item.user_properties if key == "remark"]
            line = f"{name}: {case}" if case else name
            passed = self._lines.get(line, ("yes", ""))[0] == "yes" and report.passed
            self._lines[line] = ("yes" if passed else "no", "; ".join(filter(None, (remark, *said))))
            self._write()
        return report

    def _write(self) -> None:
        self._table.parent.mkdir(exist_ok=True)
        rows = [f"| {name} | {passed} | {remark} |" for name, (passed, remark) in self._lines.items()]
        self._table.write_text("\n".join(["| Row | Passed | Remark |", "|---|---|---|", *rows]) + "\n")
