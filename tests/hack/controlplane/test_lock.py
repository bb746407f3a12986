"""Tests of who may start in a state folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hack.controlplane.control_plane import REPOSITORY
from hack.controlplane.errors import BusyError, ControlPlaneError
from hack.controlplane.layout import Layout
from hack.controlplane.lock import Lock

HOLDER = "import sys, pathlib; from hack.controlplane.lock import Lock; Lock(pathlib.Path(sys.argv[1])).take()"


def test_one_has_it_until_it_gives_it_back(tmp_path: Path) -> None:
    one, two = Lock(tmp_path / "state"), Lock(tmp_path / "state")
    assert one.take()
    assert not one.take()
    with pytest.raises(BusyError):
        two.take()
    one.release()
    one.release()
    assert two.take()
    two.release()


def test_it_outlives_the_emptying_of_the_folder(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "state")
    one = Lock(layout.root)
    one.take()
    layout.create()
    layout.ports()
    layout.empty()
    with pytest.raises(BusyError):
        Lock(layout.root).take()
    one.release()


@pytest.mark.component
@pytest.mark.parametrize("end", ["print('held', flush=True)", "print('held', flush=True); import os; os._exit(9)"])
def test_it_ends_with_its_process_but_not_with_what_that_started(tmp_path: Path, end: str) -> None:
    started = "import subprocess; subprocess.Popen(['/bin/sleep', '2'], stdout=subprocess.DEVNULL)"
    command = [sys.executable, "-c", f"{HOLDER}; {started}; {end}", str(tmp_path)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.stdout == "held\n", done.stderr
    lock = Lock(tmp_path)
    assert lock.take()
    lock.release()


@pytest.mark.parametrize("path", ["file", "file/state"])
def test_a_file_is_no_folder(tmp_path: Path, path: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ControlPlaneError, match="not a folder; name another with --state-dir"):
        Lock(tmp_path / path).take()


def test_a_place_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    with pytest.raises(ControlPlaneError, match="cannot hold a control plane: File name too long"):
        Lock(tmp_path / ("x" * 300)).take()
