"""`device-manager monitor` and `preflight`: their text, and exit codes."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from devicemanager.monitor import CardSample, Snapshot, snapshot_body
from devicemanager.preflight.report import Check, Report, State
from devicemanager.usage import CardUsage
from gpustack_operator.cli import main
from gpustack_operator.commands import monitor, preflight

H100 = str(Path(__file__).parents[2] / "hack" / "recorded" / "nvidia-dgx-h100.yaml")
CARD = CardSample("nvidia", "GPU-0", 0, "Tesla T4", 15360, False, CardUsage("GPU-0", 15360, 100, 5, 40, 30))
SHOWN = Snapshot(datetime(2026, 1, 1, tzinfo=UTC), 0.0, 15.0, (CARD,), {"amd": "no driver"})
FAILED = Check(about="node", name="node-name", state=State.UNAVAILABLE, said="not set", remedy="set it")
FINE = Check(about="nvidia", name="detected", state=State.OK, said="8 accelerators")


@pytest.fixture(autouse=True)
def _root_logger() -> Iterator[None]:
    """Commands set up logging for their process; here there are others."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def test_monitor_table() -> None:
    text = monitor.rendered(SHOWN, "table")
    assert text.splitlines()[0] == "measured 2026-01-01T00:00:00Z"
    assert "100 / 15360 MiB" in text
    assert text.endswith("amd: not measured: no driver\n")
    assert monitor.rendered(SHOWN, "table", live=True).startswith("\x1b[H\x1b[2Jmeasured")


def test_monitor_machines_forms() -> None:
    want = snapshot_body(SHOWN)
    assert json.loads(monitor.rendered(SHOWN, "json")) == want
    assert yaml.safe_load(monitor.rendered(SHOWN, "yaml")) == want
    assert monitor.rendered(SHOWN, "json").count("\n") == 1


def test_monitor_of_a_recorded_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["device-manager", "monitor", "--recorded", H100, "--output", "json"], {}) == 0
    (group,) = json.loads(capsys.readouterr().out)["groups"]
    assert len(group["accelerators"]) == 8


def test_preflight_table() -> None:
    text = preflight.rendered(Report((FAILED, FINE), ("docker run x",)), "table")
    assert "to be run by hand:\n  docker run x\n" in text
    assert text.endswith("1 of 2 checks did not pass\n")
    assert preflight.rendered(Report((FINE,)), "table").endswith("all checks passed\n")


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_preflight_machines_forms(output: str) -> None:
    report = Report((FAILED,))
    assert yaml.safe_load(preflight.rendered(report, output)) == report.body()


def test_preflight_of_a_recorded_machine_on_a_machine_without_kubelet(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ["device-manager", "preflight", "--recorded", H100, "--manufacturer", "nvidia", "--output", "json"]
    assert main([*words, "--host-root", str(tmp_path)], {"KUBERNETES_NODE_NAME": "gpu-a"}) == 1
    checks = {check["check"]: check["state"] for check in json.loads(capsys.readouterr().out)["checks"]}
    assert checks["node-name"] == checks["detected"] == "ok"
    assert checks["kubelet-registration"] == "unavailable"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "words", [["--output", "xml"], ["--runtime", "podman"], ["--host-root", "/nowhere"], ["--library-root", "x"]]
)
def test_mistakes(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["device-manager", "preflight", *words], {}) == 2
    assert f"{words[0]}: should" in capsys.readouterr().err
