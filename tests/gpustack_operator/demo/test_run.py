"""The supervisor, with children that only pretend."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gpustack_operator.config import DemoOptions
from gpustack_operator.demo import report
from gpustack_operator.demo import run as module
from gpustack_operator.demo.children import ChildDied
from gpustack_operator.demo.fleet import DemoFleet
from gpustack_operator.demo.run import NotSettled, demo
from gpustack_operator.demo.world import KINDS, World
from kube.client import Client
from nodefeature.kinds import INSTANCE_TYPE, NAMESPACE, NODE
from tests.builders.fake_api import FakeApi

pytestmark = pytest.mark.component
WAITS = (sys.executable, "-c", "import time; time.sleep(600)")
DIES = (sys.executable, "-c", "raise SystemExit('no room for a cache')")


class Scene:
    """A demo whose processes are stand-ins for stand-ins, and whose world is what a test says it is."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        self.argv: dict[str, tuple[str, ...]] = {}
        self.worlds: list[World] = []
        self.wrong: list[str] = []
        self.second_act: list[str] = []
        self.api = FakeApi()
        machines: Mapping[str, Mapping[str, Any]] = {"n1": {}, "n2": {}}
        fleet = DemoFleet(tmp_path / "fleet.yaml", tmp_path, machines, "n2")

        async def api_client(_: object) -> Client:
            return self.api.client()

        async def read_world(_: object) -> World:
            return self.worlds.pop(0) if len(self.worlds) > 1 else self.worlds[0]

        monkeypatch.setattr(module, "prepare_fleet", lambda *_: fleet)
        monkeypatch.setattr(module, "_api_client", api_client)
        monkeypatch.setattr(module, "read_world", read_world)
        monkeypatch.setattr(module, "findings", lambda *_: list(self.wrong))
        monkeypatch.setattr(module, "play", self._second_act)
        monkeypatch.setattr(module, "_python", lambda *words: self.argv.get(words[0], WAITS))
        monkeypatch.setattr(module, "QUIET_S", 0.05)
        monkeypatch.setattr(module, "_LOOK_S", 0.02)

    async def _second_act(self, *_: object) -> list[str]:
        return list(self.second_act)

    def play(self, **options: Any) -> int:
        return asyncio.run(demo(DemoOptions(exit_when_settled=True, **options), os.environ))


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Scene:
    made = Scene(monkeypatch, tmp_path)
    made.worlds = [world(1), world(2), world(3)]
    return made


def world(version: int) -> World:
    node = {"metadata": {"name": "n", "uid": "u", "resourceVersion": str(version)}, "status": {}}
    return World({**{kind: [] for kind in KINDS}, NODE: [node], INSTANCE_TYPE: []})


def test_settled_and_right(scene: Scene, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert scene.play(state_dir=str(tmp_path / "state")) == 0
    assert scene.api.names(NAMESPACE) == ["gpustack-system"]
    logs = sorted(path.stem for path in (tmp_path / "state" / "logs").iterdir())
    assert logs == ["agent-n1", "agent-n2", "apiserver", "controllers", "devcluster", "standins"]
    printed = capsys.readouterr().out
    order = (
        "stands in",
        "ENTRANCE",
        report.LEGEND,
        "RESOURCEFLAVOR",
        "CLUSTERQUEUE",
        "checked: 0 nodes, 0 cards, 0 pools",
    )
    assert sorted(order, key=printed.index) == list(order)
    assert "Look further" not in printed


def test_a_second_act_that_fails_is_no_success(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    scene.second_act = ["Instance sliced is Pending: no message"]
    assert scene.play() == 1
    printed = capsys.readouterr().out
    assert "Not as it should be:\n  Instance sliced is Pending: no message" in printed
    assert "checked:" not in printed


@pytest.mark.parametrize(
    ("kubectl", "own", "said"),
    [
        (".venv/bin", ".venv/bin", True),
        ("elsewhere", ".venv/bin", True),
        ("elsewhere", "elsewhere", False),
        ("", "", False),
    ],
)
def test_one_who_looks_is_told_how(
    kubectl: str,
    own: str,
    said: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(module, "_CHECKOUT", tmp_path)
    folders = {"kubectl": kubectl, "gpustack-operator": own}
    monkeypatch.setattr("shutil.which", lambda name: str(tmp_path / folders[name] / name) if folders[name] else None)
    module._print_result(module.Place(tmp_path), world(1), [], ends=False)
    printed = capsys.readouterr().out
    assert "Look further" in printed
    assert "checked:" not in printed
    assert (f'export PATH="$PATH:{tmp_path}/.venv/bin"' in printed) is said


@pytest.mark.parametrize("ends", [True, False])
def test_a_wrong_result_has_no_verdict_but_its_findings(
    ends: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module._print_result(module.Place(tmp_path), world(1), ["node n1: 0 cards"], ends=ends)
    printed = capsys.readouterr().out
    assert "Not as it should be:\n  node n1: 0 cards" in printed
    assert "checked:" not in printed


def test_a_world_that_moves_is_not_settled(scene: Scene) -> None:
    scene.worlds = [world(n) for n in range(2000)]
    with pytest.raises(NotSettled, match="nothing settled within 0 s:\n  objects were still changing"):
        scene.play(timeout=0.3)


def test_a_world_that_is_wrong_is_not_settled_and_says_why(scene: Scene) -> None:
    scene.wrong = ["node n1: 0 cards published, the machine has 8"]
    with pytest.raises(NotSettled, match="node n1: 0 cards published"):
        scene.play(timeout=0.3)


@pytest.mark.parametrize("module_name", ["hack.devcluster", "hack.devcluster.standins", "gpustack_operator"])
def test_a_dead_child_ends_it_with_its_last_lines(scene: Scene, module_name: str) -> None:
    scene.argv = {module_name: DIES}
    scene.worlds = [world(n) for n in range(2000)]
    with pytest.raises(ChildDied, match="ended with exit code 1; its last lines:\n    no room for a cache"):
        scene.play(timeout=30.0)


@pytest.mark.parametrize(("number", "checked"), [(signal.SIGINT, True), (signal.SIGTERM, True), (signal.SIGINT, False)])
def test_an_interrupted_check_is_no_success(scene: Scene, number: signal.Signals, checked: bool) -> None:
    scene.worlds = [world(n) for n in range(2000)]

    async def run() -> int:
        asyncio.get_running_loop().call_later(0.3, os.kill, os.getpid(), number)
        return await demo(DemoOptions(exit_when_settled=checked), os.environ)

    assert asyncio.run(run()) == int(checked)


def test_a_folder_that_was_kept(scene: Scene, tmp_path: Path) -> None:
    (tmp_path / "kubeconfig").write_text("left over")
    scene.api.add(NAMESPACE, {"metadata": {"name": "gpustack-system"}})
    assert scene.play(state_dir=str(tmp_path)) == 0
    assert not (tmp_path / "kubeconfig").exists()


def test_the_state_is_removed_unless_somebody_named_a_folder(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = set(tmp_path.iterdir())
    assert scene.play() == 0
    assert set(tmp_path.iterdir()) == before
