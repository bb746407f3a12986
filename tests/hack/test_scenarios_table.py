"""The table that a run on the real control plane ends with."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from tests.e2e.parts import part_of
from tests.e2e.scenarios import FIGURE, Scenarios

FILE = "tests/e2e/chain/test_2_fleet.py"
When = Literal["setup", "call", "teardown"]
Outcome = Literal["passed", "failed", "skipped"]


def told(table: Scenarios, node: str, *phases: tuple[When, Outcome], figure: str = "") -> None:
    properties = [(FIGURE, figure)] if figure else []
    for when, outcome in phases:
        report = pytest.TestReport(
            node, (FILE, 1, node), {}, outcome, None, when, user_properties=properties, duration=1.5
        )
        table.pytest_runtest_logreport(report)


def passed(*, but: When | None = None, outcome: Outcome = "failed") -> list[tuple[When, Outcome]]:
    whole: list[When] = ["setup", "call", "teardown"]
    return [(when, outcome if when == but else "passed") for when in whole]


def rows(table: Scenarios) -> list[tuple[str, int, str, float]]:
    return [(row.scenario, row.tests, row.outcome, row.seconds) for row in table.rows.values()]


def test_a_scenario_counts_its_rows_and_all_its_phases(tmp_path: Path) -> None:
    table = Scenarios(tmp_path / "t.md")
    told(table, f"{FILE}::test_a_pool[one]", *passed(), figure="audit: 1 get")
    told(table, f"{FILE}::test_a_pool[two]", *passed())
    assert rows(table) == [("a pool", 2, "passed", 9.0)]
    assert table.figures == ["audit: 1 get"]


@pytest.mark.parametrize("phase", ["setup", "call", "teardown"])
def test_a_failure_in_any_phase_shows_once(tmp_path: Path, phase: When) -> None:
    table = Scenarios(tmp_path / "t.md")
    phases = passed(but=phase)
    told(table, f"{FILE}::test_a_pool", *(phases if phase != "setup" else [phases[0], phases[2]]))
    assert [(row[1], row[2]) for row in rows(table)] == [(1, "1 FAILED")]


@pytest.mark.parametrize("phase", ["setup", "call"])
def test_what_is_left_out_is_said(tmp_path: Path, phase: When) -> None:
    table = Scenarios(tmp_path / "t.md")
    phases = passed(but=phase, outcome="skipped")
    told(table, f"{FILE}::test_a_pool", *(phases if phase != "setup" else [phases[0], phases[2]]))
    assert [row[2] for row in rows(table)] == ["1 SKIPPED"]


def test_protocol_tests_are_one_row_a_file_and_server(tmp_path: Path) -> None:
    table = Scenarios(tmp_path / "t.md")
    for server in ("kube-apiserver", "view-of-kube-apiserver"):
        for test in ("test_a", "test_b"):
            told(table, f"tests/protocol/test_reading.py::{test}[{server}-v1]", *passed())
    assert [(row[0], row[1]) for row in rows(table)] == [
        ("protocol: reading kube-apiserver", 2),
        ("protocol: reading view-of-kube-apiserver", 2),
    ]


@pytest.mark.parametrize(
    ("node", "part"),
    [
        ("tests/protocol/test_reading.py::test_a[kube-apiserver-v1]", "protocol"),
        ("tests/e2e/chain/test_1_walkthrough.py::test_a", "pools"),
        ("tests/e2e/chain/test_4_wire.py::test_a", "pools"),
        ("tests/e2e/chain/test_3_disturbed.py::test_a[etcd]", "disturbed"),
        ("tests/e2e/test_client.py::test_a", "rest"),
        ("tests/e2e/admission/test_1_rows.py::test_a", "rest"),
    ],
)
def test_parts_of_a_spread_run(node: str, part: str) -> None:
    assert part_of(node) == part
