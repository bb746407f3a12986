"""Tests of the command line's answers that need no control plane."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hack.controlplane.__main__ import main
from hack.controlplane.control_plane import CHAIN, ENGINES, REPOSITORY, ControlPlane
from hack.controlplane.errors import BusyError, ProcessDiedError
from hack.controlplane.layout import Layout
from hack.controlplane.lock import Lock
from hack.controlplane.processes import Program, Supervisor
from hack.controlplane.tools import ENGINES as ENGINE_TOOLS


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


def test_a_folder_of_something_else_is_not_emptied(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cache = full_cache(tmp_path / "cache")
    own = tmp_path / "own"
    own.mkdir()
    (own / "thesis.txt").write_text("years of work")
    assert main(["up", "--state-dir", str(own), "--cache-dir", str(cache)]) == 1
    said = f"controlplane: {own}: holds thesis.txt and no control plane, and would be emptied; "
    assert capsys.readouterr().err == f"{said}name another with --state-dir\n"
    assert (own / "thesis.txt").read_text() == "years of work"


def test_a_file_is_no_state_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "file"
    file.touch()
    assert main(["up", "--state-dir", str(file), "--cache-dir", str(full_cache(tmp_path / "cache"))]) == 1
    assert capsys.readouterr().err == f"controlplane: {file}: not a folder; name another with --state-dir\n"


def full_cache(folder: Path) -> Path:
    for tool in ENGINE_TOOLS:
        tool.cached(folder).mkdir(parents=True)
    return folder


@pytest.mark.parametrize("command", ["up", "down", "status"])
@pytest.mark.parametrize("content", ["[{", "{}1", "[1]", '[{"name": "etcd"}]'])
def test_a_broken_list_of_processes_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, content: str
) -> None:
    (tmp_path / "processes.json").write_text(content)
    cache = str(full_cache(tmp_path / "cache"))
    assert main([command, "--state-dir", str(tmp_path), "--cache-dir", cache]) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith(f"controlplane: {tmp_path}/processes.json: not a list of processes (")
    assert last.endswith(f"end those whose command lines name {tmp_path}, then remove that folder")


def test_a_control_plane_that_broke_is_named_and_how_to_stop_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    layout = Layout(tmp_path / "state")
    layout.create()
    supervisor = Supervisor(layout)
    for name in (*ENGINES, *CHAIN):
        supervisor.start(Program(name=name, command=("/bin/sleep", "60")))
    try:
        os.kill(supervisor.running["etcd"].pid, signal.SIGKILL)
        await_death(supervisor)
        cache = str(full_cache(tmp_path / "cache"))
        assert main(["up", "--state-dir", str(layout.root), "--cache-dir", cache]) == 1
    finally:
        supervisor.stop_all()
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("controlplane: etcd ended; last lines of ")
    assert f"`python -m hack.controlplane down --state-dir {layout.root}`" in lines[-1]


def test_a_start_that_was_broken_off_is_no_control_plane(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    layout = Layout(tmp_path / "state")
    layout.create()
    supervisor = Supervisor(layout)
    supervisor.start(Program(name="etcd", command=("/bin/sleep", "60")))
    started: list[Path] = []
    monkeypatch.setattr(ControlPlane, "start", lambda self: started.append(self.layout.root))
    try:
        assert main(["up", "--state-dir", str(layout.root), "--cache-dir", str(full_cache(tmp_path / "cache"))]) == 0
    finally:
        supervisor.stop_all()
    assert started == [layout.root]
    said = capsys.readouterr().err.splitlines()[0]
    assert said == f"an earlier start in {layout.root} was broken off; starting anew"


def test_a_start_that_is_ended_leaves_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped: list[Path] = []
    monkeypatch.setattr(ControlPlane, "start", lambda _self: os.kill(os.getpid(), signal.SIGTERM))
    monkeypatch.setattr(ControlPlane, "stop", lambda self: stopped.append(self.layout.root))
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as ended:
        main(["up", "--state-dir", str(tmp_path / "s"), "--cache-dir", str(full_cache(tmp_path / "cache"))])
    assert ended.value.code == 128 + signal.SIGTERM
    assert stopped == [tmp_path / "s"]
    assert signal.getsignal(signal.SIGTERM) == before


def await_death(supervisor: Supervisor) -> None:
    """A killed child is reaped by the check that finds it ended."""
    with pytest.raises(ProcessDiedError):
        keep_checking(supervisor)


def keep_checking(supervisor: Supervisor) -> None:
    while True:
        supervisor.check()


@pytest.mark.parametrize(
    ("version", "code", "shown"), [("go1.26.6", 0, r"^/.*/bin/go\n$"), ("go1.26rc1", 2, "go1.26rc1 is too old")]
)
def test_whether_a_build_has_its_go_can_be_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], version: str, code: int, shown: str
) -> None:
    go = tmp_path / "bin" / "go"
    go.parent.mkdir()
    go.write_text(f"#!/bin/sh\necho {version}\n")
    go.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(go.parent))
        assert main(["go"]) == code
    said = capsys.readouterr()
    assert re.search(shown, said.out or said.err)


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "file"
    file.touch()
    go = tmp_path / "bin" / "go"
    go.parent.mkdir()
    go.write_text("#!/bin/sh\necho go1.26.6\n")
    go.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(go.parent))
        assert main(["build", "--cache-dir", str(file)]) == 1
    said = f"controlplane: {file}: cannot hold built tools: File exists; name another folder with --cache-dir"
    assert capsys.readouterr().err == f"{said} or CONTROLPLANE_CACHE_DIR\n"


@pytest.mark.component
def test_a_build_that_is_ended_leaves_nothing_in_the_cache(tmp_path: Path) -> None:
    go = tmp_path / "bin" / "go"
    go.parent.mkdir()
    go.write_text('#!/bin/sh\n[ "$1" = env ] && { echo go1.26.6; exit 0; }\nexec sleep 60\n')
    go.chmod(0o755)
    cache = tmp_path / "cache"
    building = subprocess.Popen(
        [sys.executable, "-m", "hack.controlplane", "build", "--cache-dir", str(cache)],
        cwd=REPOSITORY,
        env={**os.environ, "PATH": f"{go.parent}:/usr/bin:/bin"},
        stderr=subprocess.DEVNULL,
    )
    while not list(cache.glob(".etcd-*/made/bin")):
        assert building.poll() is None
        time.sleep(0.01)
    building.terminate()
    assert building.wait(20) == 128 + signal.SIGTERM
    assert list(cache.iterdir()) == []


def test_status_names_what_is_not_built(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--state-dir", str(tmp_path), "--cache-dir", str(tmp_path)]) == 0
    assert capsys.readouterr().err.startswith("not built: etcd v")


def test_of_two_that_start_in_one_folder_one_is_refused_and_touches_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    layout = Layout(tmp_path / "state")
    first = Lock(layout.root)
    first.take()
    layout.create()
    supervisor = Supervisor(layout)
    supervisor.start(Program(name="etcd", command=("/bin/sleep", "60")))
    cache = full_cache(tmp_path / "cache")
    try:
        assert main(["up", "--state-dir", str(layout.root), "--cache-dir", str(cache)]) == 1
        with pytest.raises(BusyError), ControlPlane(layout.root, cache=cache):
            pass
        supervisor.check()
    finally:
        supervisor.stop_all()
    said = f"controlplane: {layout.root}: another process starts or uses a control plane here; wait for its end, "
    assert capsys.readouterr().err == f"{said}or name another folder with --state-dir\n"


def test_up_holds_its_folder_while_it_starts_and_no_longer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def start(self: ControlPlane) -> None:
        with pytest.raises(BusyError):
            Lock(self.layout.root).take()
        seen.append("started")

    monkeypatch.setattr(ControlPlane, "start", start)
    command = ["up", "--state-dir", str(tmp_path / "s"), "--cache-dir", str(full_cache(tmp_path / "cache"))]
    assert main(command) == main(command) == 0
    assert seen == ["started", "started"]


def test_what_another_started_before_the_lock_was_free_is_known(tmp_path: Path) -> None:
    late = ControlPlane(tmp_path / "state", cache=tmp_path / "cache")
    layout = Layout(tmp_path / "state")
    layout.create()
    supervisor = Supervisor(layout)
    supervisor.start(Program(name="etcd", command=("/bin/sleep", "60")))
    try:
        late.claim()
        assert list(late.running) == ["etcd"]
    finally:
        late.stop()
    with pytest.raises(ProcessDiedError):
        supervisor.check()
