"""Tests of the command line's answers that need no control plane."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from hack.controlplane.__main__ import main
from hack.controlplane.control_plane import REPOSITORY


@pytest.mark.parametrize("command", ["build", "up"])
def test_without_go_one_line_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    code = main([command, "--state-dir", str(tmp_path / "s"), "--cache-dir", str(tmp_path / "c")])
    assert code == 2
    assert capsys.readouterr().err.splitlines() == [
        "controlplane: Go is missing: install Go 1.26 or newer and put `go` on PATH, then build again"
    ]


def test_make_e2e_builds_before_it_tests() -> None:
    """Its first command is the one above, so that it ends with the same line and code."""
    make = subprocess.run(["make", "-n", "e2e"], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    ours = [line for line in make.stdout.splitlines() if "hack.controlplane" in line or "pytest" in line]
    assert ours[0].endswith("-m hack.controlplane build")
    assert "tests/protocol tests/e2e" in ours[1]


def test_down_where_nothing_runs_is_fine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["down", "--state-dir", str(tmp_path)]) == 0
    assert capsys.readouterr().err == f"nothing runs in {tmp_path}\n"


def test_status_names_what_is_not_built(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--state-dir", str(tmp_path), "--cache-dir", str(tmp_path)]) == 0
    assert capsys.readouterr().err.startswith("not built: etcd v")
