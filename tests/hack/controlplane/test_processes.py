"""Tests of starting, finding, naming and stopping processes; each starts real, tiny ones."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.controlplane.errors import ControlPlaneError, NotReadyError, ProcessDiedError
from hack.controlplane.layout import Layout
from hack.controlplane.processes import Program, Supervisor

pytestmark = pytest.mark.component

SLEEPER = Program(name="sleeper", command=("/bin/sleep", "60"))
FAILING = Program(name="failing", command=("/bin/sh", "-c", "echo first; echo no room left; exit 3"))
DEAF = Program(name="deaf", command=("/bin/sh", "-c", "trap '' TERM; echo deaf; while :; do sleep 0.05; done"))


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    layout = Layout(tmp_path)
    layout.create()
    return layout


@pytest.fixture
def supervisor(layout: Layout) -> Iterator[Supervisor]:
    supervisor = Supervisor(layout)
    yield supervisor
    supervisor.stop_all()


def await_end(supervisor: Supervisor) -> str:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            supervisor.check()
        except ProcessDiedError as error:
            return str(error)
        time.sleep(0.01)
    raise AssertionError("no process was reported dead")


def test_a_process_that_ends_is_named_with_its_last_lines(supervisor: Supervisor) -> None:
    supervisor.start(SLEEPER)
    supervisor.start(FAILING)
    message = await_end(supervisor)
    assert message.startswith("failing ended with 3; last lines of ")
    assert message.endswith("first\nno room left")


def test_a_killed_process_is_named_with_its_signal(supervisor: Supervisor) -> None:
    supervisor.start(SLEEPER)
    os.kill(supervisor.running["sleeper"].pid, signal.SIGKILL)
    assert await_end(supervisor).startswith("sleeper was ended by signal 9")


def test_another_command_finds_and_stops_what_the_first_started(supervisor: Supervisor, layout: Layout) -> None:
    supervisor.start(SLEEPER)
    other = Supervisor(layout)
    running = other.running["sleeper"]
    assert running.is_alive()
    other.stop_all()
    assert not running.is_alive()
    assert json.loads(layout.processes.read_text()) == []


def test_a_recycled_process_id_is_left_alone(supervisor: Supervisor, layout: Layout) -> None:
    supervisor.start(SLEEPER)
    ours = supervisor.running["sleeper"]
    earlier = dataclasses.replace(ours, start_time=ours.start_time - 100)
    layout.processes.write_text(json.dumps([dataclasses.asdict(earlier)]))
    Supervisor(layout).stop_all()
    assert ours.is_alive()


def test_a_stopped_process_is_not_reported_dead(supervisor: Supervisor) -> None:
    supervisor.start(SLEEPER)
    supervisor.stop("sleeper", with_signal=signal.SIGKILL)
    supervisor.check()
    assert not supervisor.running


def test_a_process_that_ignores_sigterm_is_killed(
    supervisor: Supervisor, layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hack.controlplane.processes._TERMINATE_S", 0.2)
    supervisor.start(DEAF)
    running = supervisor.running["deaf"]
    while not layout.log("deaf").read_text():
        time.sleep(0.01)
    supervisor.stop("deaf")
    assert not running.is_alive()


def test_the_same_name_does_not_run_twice(supervisor: Supervisor) -> None:
    supervisor.start(SLEEPER)
    with pytest.raises(NotReadyError, match="sleeper: already runs with process id"):
        supervisor.start(SLEEPER)


def test_what_others_lean_on_is_stopped_last(supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("store", "server", "client"):
        supervisor.start(dataclasses.replace(SLEEPER, name=name))
    order: list[str] = []
    stop = supervisor.stop

    def record(name: str) -> None:
        order.append(name)
        stop(name)

    monkeypatch.setattr(supervisor, "stop", record)
    supervisor.stop_all(last=("server", "store"))
    assert order == ["client", "server", "store"]


def test_one_that_survives_leaves_no_other_running(supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("survivor", "client", "store"):
        supervisor.start(dataclasses.replace(SLEEPER, name=name))
    stop = supervisor.stop

    def refuse(name: str) -> None:
        if name == "survivor":
            raise NotReadyError("survivor: process 7 survived SIGKILL for 5 s")
        stop(name)

    with monkeypatch.context() as patch:
        patch.setattr(supervisor, "stop", refuse)
        with pytest.raises(NotReadyError, match=r"^survivor: process 7 survived"):
            supervisor.stop_all(last=("store",))
    assert list(supervisor.running) == ["survivor"]


def test_a_program_that_is_not_there_is_named(supervisor: Supervisor, tmp_path: Path) -> None:
    gone = dataclasses.replace(SLEEPER, command=(str(tmp_path / "etcd-v1" / "bin" / "etcd"),))
    with pytest.raises(ControlPlaneError, match=r"sleeper: cannot run .*/etcd-v1/bin/etcd: No such file .*remove it"):
        supervisor.start(gone)
    assert not supervisor.running
