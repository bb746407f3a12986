"""Tests of the command line's answers that need no control plane."""

from __future__ import annotations

from pathlib import Path

import pytest

from hack.controlplane.__main__ import main


def test_up_without_go_says_what_is_missing_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    code = main(["up", "--state-dir", str(tmp_path / "s"), "--cache-dir", str(tmp_path / "c")])
    assert code == 2
    assert capsys.readouterr().err.splitlines() == [
        "controlplane: Go is missing: install Go 1.26 or newer and put `go` on PATH, then build again"
    ]


def test_down_where_nothing_runs_is_fine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["down", "--state-dir", str(tmp_path)]) == 0
    assert capsys.readouterr().err == f"nothing runs in {tmp_path}\n"


def test_status_names_what_is_not_built(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--state-dir", str(tmp_path), "--cache-dir", str(tmp_path)]) == 0
    assert capsys.readouterr().err.startswith("not built: etcd v")
