"""How the scenarios end a process of ours: by name, with its last lines, and for good."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.e2e.chain.product import Running
from tests.e2e.conftest import end_as_by_interrupt

pytestmark = pytest.mark.component

DEAF = "trap '' TERM; echo deaf; while :; do sleep 0.05; done"


def started(folder: Path, script: str) -> Running:
    log = folder / "first.log"
    with log.open("wb") as out:
        return Running("first", subprocess.Popen(("/bin/sh", "-c", script), stdout=out), log)


def test_a_process_that_is_stopped_gives_its_code(tmp_path: Path) -> None:
    assert started(tmp_path, "exec sleep 60").stop(signal.SIGKILL) == -signal.SIGKILL
    assert started(tmp_path, "exit 3").ended(10) == 3


def test_one_that_ended_already_gives_its_code(tmp_path: Path) -> None:
    running = started(tmp_path, "exit 3")
    running.process.wait()
    assert running.stop(signal.SIGTERM) == 3


def test_one_that_does_not_end_is_named_and_killed(tmp_path: Path) -> None:
    running = started(tmp_path, DEAF)
    while not running.log.read_text():
        time.sleep(0.01)
    with pytest.raises(AssertionError, match=r"^first did not end after SIGTERM within 0\.1 s; its last lines:\ndeaf$"):
        running.stop(signal.SIGTERM, 0.1)
    assert running.process.returncode == -signal.SIGKILL


def test_one_that_should_end_by_itself_and_sleeps_is_named_and_killed(tmp_path: Path) -> None:
    running = started(tmp_path, "echo up; exec sleep 60")
    running.process.send_signal(signal.SIGSTOP)
    with pytest.raises(AssertionError, match=r"^first did not end by itself within 0\.1 s"):
        running.ended(0.1)
    assert running.process.returncode == -signal.SIGKILL


def test_a_run_that_is_ended_clears_up_after_itself() -> None:
    before = signal.getsignal(signal.SIGTERM)
    try:
        end_as_by_interrupt()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
