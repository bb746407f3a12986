"""`python -m hack.bench admission --small`: every webhook answers beside the floor, as processes on loopback."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from hack.bench.__main__ import main
from hack.bench.admission_webhooks import cases


@pytest.mark.component
def test_the_small_bench_measures_every_webhook(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["bench", "admission", "--small"])
    monkeypatch.setenv("KUBECONFIG", os.devnull)  # the bench sets its own, for this process too
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    assert main() == 0
    header, columns, *rows = capsys.readouterr().out.strip().splitlines()[-len(cases()) - 2 :]
    assert header == "50/s, the floor in turns, 50 InstanceTypes, 50 nodes"
    assert columns.split() == ["p50", "p99", "floor", "p50", "floor", "p99", "p50", "ratio", "goal", "p99"]
    assert [row[:28].rstrip() for row in rows] == [case.name for case in cases()]
    assert all(float(row[28:].split()[0]) > 0 for row in rows)
