"""What the bench's command line answers before and after it measures."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hack.bench.__main__ import main
from hack.bench.processes import CHECKOUT

BUILD = "-m hack.controlplane build"


def test_a_devcluster_that_dies_is_named_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    dead = tmp_path / "python"
    dead.write_text("#!/bin/sh\necho no room left\nexit 3\n")
    dead.chmod(0o755)
    monkeypatch.setattr("hack.bench.processes.sys.executable", str(dead))
    monkeypatch.setattr(sys, "argv", ["bench", "chain", "--sizes", "8"])
    assert main() == 1
    said = capsys.readouterr().err.splitlines()
    assert said[-2:] == ["bench: devcluster ended with exit code 3:", "no room left"]


@pytest.mark.parametrize("size", ["0", "-3", "7", "many", "1e3", ""])
def test_a_size_that_is_no_fleet_is_refused(
    size: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["bench", "chain", f"--sizes={size}"])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert f"{size!r} is no fleet: 8 nodes at least, one of each machine" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("target", "builds"),
    [
        (["bench-chain", "ENGINE=real"], True),
        (["bench-chain"], False),
        (["bench-chain", "ENGINE=devcluster"], False),
        (["bench-api"], True),
        (["bench-admission"], True),
        (["e2e"], True),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_needs_the_real_control_plane_builds_it_first(target: list[str], builds: bool) -> None:
    make = subprocess.run(["make", "-n", *target], cwd=CHECKOUT, capture_output=True, text=True, check=True)
    ours = [line for line in make.stdout.splitlines() if "-m hack." in line or "-m pytest" in line]
    assert ours[0].endswith(BUILD) == builds
    assert not any(BUILD in line for line in ours[1:])
