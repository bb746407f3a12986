"""The command: dispatch, help, mistakes, exit codes."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from inspect import signature
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from gpustack_operator import cli
from gpustack_operator.cli import COMMANDS, Command, main
from gpustack_operator.options import declared, flag_of, variable_of
from kube.errors import OperatorError

CHECKOUT = Path(__file__).parents[2]
H100 = str(CHECKOUT / "hack" / "recorded" / "nvidia-dgx-h100.yaml")


@pytest.fixture(autouse=True)
def _root_logger() -> Iterator[None]:
    """Commands set up logging for their process; here there are others."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def words(command: Command) -> str:
    return " ".join(command.words)


@pytest.mark.parametrize("command", COMMANDS, ids=words)
def test_a_commands_module_takes_its_options_in_order(command: Command) -> None:
    assert find_spec(command.module)
    parameters = signature(import_module(command.module).run).parameters
    groups = [p.annotation for p in parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert groups == [group.__name__ for group in command.groups]
    assert "environ" in parameters


@pytest.mark.parametrize("command", COMMANDS, ids=words)
def test_help_shows_every_flag_with_default_and_variable(
    command: Command, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    with pytest.raises(SystemExit) as left:
        main([*command.words, "--help"], {})
    assert left.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    for group in command.groups:
        for name, meta in declared(group):
            assert flag_of(name) in text
            assert f"(default: {meta.shown or 'none'}; environment: {variable_of(name, meta)})" in text


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"], {})
    text = capsys.readouterr().out
    assert all(command.words[0] in text for command in COMMANDS)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["--version"], {})
    assert left.value.code == 0
    assert capsys.readouterr().out.startswith("gpustack-operator ")


@pytest.mark.parametrize("argv", [[], ["device-manager"], ["nothing"]], ids=" ".join)
def test_no_command_is_wrongly_asked(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(argv, {})
    assert left.value.code == 2
    assert "usage:" in capsys.readouterr().err


def test_all_mistakes_are_reported_before_anything_starts(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli, "import_module", lambda name: pytest.fail(f"{name} was imported"))
    argv = ["controllers", "--bogus", "--leader-elect=maybe", "--health-port", "70000"]
    environ = {"GPUSTACK_OPERATOR_LOG_FORMT": "text", "GPUSTACK_OPERATOR_LOG_LEVEL": "loud"}
    assert main(argv, environ) == 2
    lines = capsys.readouterr().err.splitlines()
    assert all(line.startswith("gpustack-operator: ") for line in lines)
    for part in ("--bogus", "LOG_FORMT", "--leader-elect", "--health-port", "--log-level"):
        assert sum(part in line for line in lines) == 1, part
    assert len(lines) == 5


@pytest.mark.parametrize("flag", ["--log-form", "--lead"])
def test_flags_are_not_abbreviated(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["controllers", f"{flag}=x"], {}) == 2
    assert f"{flag}=x: no such flag" in capsys.readouterr().err


def outcome(monkeypatch: pytest.MonkeyPatch, does: Any, *argv: str, **environ: str) -> int:
    def run(*options: Any, environ: Any) -> Any:
        return does(*options)

    monkeypatch.setattr(cli, "import_module", lambda name: SimpleNamespace(run=run))
    return main([*argv], environ)


class TestDispatch:
    def test_options_arrive(self, monkeypatch: pytest.MonkeyPatch) -> None:
        seen: list[Any] = []
        code = outcome(
            monkeypatch,
            lambda *options: seen.extend(options),
            "dm",
            "detect",
            "--manufacturer=amd",
            "--no-fast-failed",
            KUBERNETES_NODE_NAME="n",
        )
        assert code == 0
        manufacturers, detector, logs = seen
        assert manufacturers.manufacturer == ("amd",)
        assert (detector.node_name, detector.no_fast_failed) == ("n", True)
        assert logs.log_format == "json"

    def test_exit_codes(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        def refuses(*_: Any) -> None:
            raise OperatorError("the cluster is not there")

        def interrupted(*_: Any) -> None:
            raise KeyboardInterrupt

        assert outcome(monkeypatch, lambda *_: None, "crds") == 0
        assert outcome(monkeypatch, lambda *_: 1, "crds") == 1
        assert outcome(monkeypatch, refuses, "crds") == 1
        assert capsys.readouterr().err == "gpustack-operator: the cluster is not there\n"
        assert outcome(monkeypatch, interrupted, "crds") == 130


class TestCommands:
    def test_detect_prints_the_groups_of_a_recorded_machine(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["device-manager", "detect", "--recorded", H100, "--log-format=text"], {}) == 0
        (group,) = yaml.safe_load(capsys.readouterr().out)
        assert (group["manufacturer"], group["name"]) == ("nvidia", "NVIDIA H100 80GB HBM3")
        assert len(group["accelerators"]) == 8

    def test_detect_says_that_nothing_is_there(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (tmp_path / "m.yaml").write_text("accelerators: []")
        assert main(["device-manager", "detect", "--recorded", str(tmp_path / "m.yaml")], {}) == 0
        shown = capsys.readouterr()
        assert yaml.safe_load(shown.out) == []
        assert shown.err.startswith("no accelerators found; looked for amd, ascend")

    def test_detect_names_a_file_that_holds_no_machine(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        for content in ("a: [b", "only text", "\x00"):
            (tmp_path / "m.yaml").write_text(content)
            assert main(["device-manager", "detect", "--recorded", str(tmp_path / "m.yaml")], {}) == 1
            assert f"gpustack-operator: recorded machine {tmp_path / 'm.yaml'}" in capsys.readouterr().err

    def test_b056_serve_without_a_node_name(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        kubeconfig = tmp_path / "config"
        kubeconfig.write_text("")
        argv = ["device-manager", "serve", "--recorded", H100, "--kubeconfig", str(kubeconfig), "--log-format=text"]
        assert main(argv, {"KUBERNETES_NODE_NAME": ""}) == 1
        message = "gpustack-operator: environment variable KUBERNETES_NODE_NAME is not set"
        assert message in capsys.readouterr().err

    def test_crds(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["crds"], {}) == 0
        kinds = {crd["kind"] for crd in yaml.safe_load_all(capsys.readouterr().out)}
        assert kinds == {"CustomResourceDefinition"}

    def test_a_bad_override_is_named_and_costs_no_start(self, capsys: pytest.CaptureFixture[str]) -> None:
        argv = ["device-manager", "detect", "--recorded", H100, "--log-format=text"]
        bad = {"GPUSTACK_NVIDIA_ACCELERATABLE_RESOURCE_NAME": "not a name", "GPUSTACK_PCI_CLASS_PREFIXES": "03,x"}
        assert main(argv, bad) == 0
        told = capsys.readouterr()
        assert all(variable in told.err for variable in bad)
        assert yaml.safe_load(told.out)


def test_python_m_is_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gpustack_operator", "--version"],
        capture_output=True,
        text=True,
        cwd=CHECKOUT,
        check=False,
    )
    assert (done.returncode, done.stdout[:18]) == (0, "gpustack-operator ")
