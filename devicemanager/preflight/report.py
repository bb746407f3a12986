"""A node's fitness as a list of named checks (spec 06 §15).

In: checks. Out: a document for people or machines, and an exit code.
Promises: every manufacturer that was asked stands in the report; a check that did not pass says what to do; steps that
were only written out, not run, never decide the exit code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

NODE = "node"


class State(StrEnum):
    """`not-declared`: the node does not have this, and does not say that it should."""

    OK = "ok"
    NOT_DECLARED = "not-declared"
    UNAVAILABLE = "unavailable"


class Depth(StrEnum):
    """How far a check looked: it stands written, it was played through, it was measured."""

    DECLARED = "declared"
    SIMULATED = "simulated"
    MEASURED = "measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One check's result. `about` is a manufacturer or `node`; `remedy` says what to do where it did not pass."""

    about: str
    name: str
    state: State
    depth: Depth = Depth.DECLARED
    said: str = ""
    remedy: str = ""

    @property
    def passed(self) -> bool:
        """Say whether nothing needs to be done."""
        return self.state is not State.UNAVAILABLE


@dataclass(frozen=True, slots=True)
class Report:
    """All checks, and the steps that were written out instead of run."""

    checks: tuple[Check, ...]
    emitted: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """Return 0 when every check passed."""
        return 0 if all(check.passed for check in self.checks) else 1

    def body(self) -> dict[str, Any]:
        """Return the report as plain data."""
        return {
            "passed": self.exit_code == 0,
            "checks": [_row(check) for check in self.checks],
            "emitted": list(self.emitted),
        }


TABLE_HEADER = ("ABOUT", "CHECK", "STATE", "DEPTH", "WHAT WAS SEEN", "WHAT TO DO")


def table_rows(checks: Sequence[Check]) -> list[tuple[str, ...]]:
    """Return one row a check."""
    return [(c.about, c.name, c.state.value, c.depth.value, c.said or "-", c.remedy or "-") for c in checks]


def _row(check: Check) -> dict[str, str]:
    row = {
        "about": check.about,
        "check": check.name,
        "state": check.state.value,
        "depth": check.depth.value,
        "said": check.said,
        "remedy": check.remedy,
    }
    return {name: value for name, value in row.items() if value}
