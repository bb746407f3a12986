"""The table of scenarios that a run on the real control plane ends with.

For: whoever ran `make e2e`. In: pytest's reports of `tests/e2e` and `tests/protocol`. Out: the table at the end of the
run, and the same as Markdown in `build/e2e/scenarios.md`.
Promises: a scenario is a test function, its rows are counted, its time holds what it set up and cleared away; figures
that a test recorded stand below; a scenario that failed in any phase, or was left out, says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.protocol.differences import SERVERS

FIGURE = "figure"
_PROTOCOL = "tests/protocol/"


@dataclass(slots=True)
class Row:
    """One scenario."""

    file: str
    scenario: str
    tests: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0

    @property
    def outcome(self) -> str:
        """Return what the table says of it."""
        counted = {"FAILED": self.failed, "SKIPPED": self.skipped}
        return ", ".join(f"{count} {word}" for word, count in counted.items() if count) or "passed"


@dataclass(slots=True, eq=False)  # pytest keeps plugins in sets
class Scenarios:
    """Collects rows in the order of the run; registered as a pytest plugin."""

    markdown: Path
    rows: dict[tuple[str, str], Row] = field(default_factory=dict)
    figures: list[str] = field(default_factory=list)
    _failed: set[str] = field(default_factory=set)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add one phase of one test."""
        row = self._row(report.nodeid)
        row.seconds += report.duration
        row.tests += report.when == "call" or (report.when == "setup" and report.failed)
        if report.failed and report.nodeid not in self._failed:
            self._failed.add(report.nodeid)
            row.failed += 1
        row.skipped += report.skipped
        if report.when == "teardown":
            self.figures += [str(value) for name, value in report.user_properties if name == FIGURE]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the table and write the file."""
        if not self.rows:
            return
        self.markdown.parent.mkdir(parents=True, exist_ok=True)
        self.markdown.write_text("\n".join(self._markdown()) + "\n", encoding="utf-8")
        terminalreporter.section("scenarios")
        for row in self.rows.values():
            terminalreporter.line(f"{row.seconds:7.1f} s  {row.tests:4d}  {row.outcome:<10} {row.scenario}")
        terminalreporter.line(f"{self.seconds:7.1f} s  {self.tests:4d}  in all; as Markdown in {self.markdown}")
        for figure in self.figures:
            terminalreporter.line(figure)

    @property
    def tests(self) -> int:
        """Return the number of tests of all rows."""
        return sum(row.tests for row in self.rows.values())

    @property
    def seconds(self) -> float:
        """Return the time of all rows."""
        return sum(row.seconds for row in self.rows.values())

    def _row(self, nodeid: str) -> Row:
        file, _, name = nodeid.partition("::")
        plain, _, parameters = name.partition("[")
        scenario = plain.removeprefix("test_").replace("_", " ")
        if file.startswith(_PROTOCOL):  # hundreds of tests, the same for each server: one row a file and server
            servers = [server for server in sorted(SERVERS, key=len, reverse=True) if server in parameters]
            scenario = " ".join(["protocol:", Path(file).stem.removeprefix("test_").replace("_", " "), *servers[:1]])
        return self.rows.setdefault((file, scenario), Row(file, scenario))

    def _markdown(self) -> Iterator[str]:
        yield "| Scenario | Tests | Outcome | Seconds | File |"
        yield "|---|--:|---|--:|---|"
        for row in self.rows.values():
            yield f"| {row.scenario} | {row.tests} | {row.outcome} | {row.seconds:.1f} | `{row.file}` |"
        yield f"| in all | {self.tests} | | {self.seconds:.1f} | |"
        yield from ("", *(f"- {figure}" for figure in self.figures))
