"""`gpustack-operator explain`: what is asked, and how the answer is shown."""

from __future__ import annotations

import json

import pytest
import yaml

from api.explain.document import KIND_OF_INSTANCE, document
from api.explain.verdicts import explain
from gpustack_operator.cli import main
from gpustack_operator.commands.explain import parse_target, rendered
from kube.errors import OperatorError
from tests.builders.waiting import evidence, instance, pod

TARGETS = {
    "team/a": (False, "team", "a"),
    "instance/team/a": (False, "team", "a"),
    "Instances/team/a": (False, "team", "a"),
    "pod/team/a": (True, "team", "a"),
    "PODS/team/a": (True, "team", "a"),
}
WRONG = ["", "a", "/a", "team/", "team//a", "node/team/a", "pod/team/a/b", "pod//a"]


@pytest.mark.parametrize(("text", "wanted"), TARGETS.items(), ids=TARGETS)
def test_a_target_names_an_instance_or_a_pod(text: str, wanted: tuple[bool, str, str]) -> None:
    assert parse_target(text) == wanted


@pytest.mark.parametrize("text", WRONG)
def test_another_target_is_a_mistake(text: str) -> None:
    with pytest.raises(OperatorError, match="should be NAMESPACE/NAME"):
        parse_target(text)


def test_an_answer_is_a_sentence_and_a_table_or_a_document() -> None:
    asked = explain(evidence(pod=pod({"nvidia.com/gpu": "8"})))
    found = document(asked, instance(), kind=KIND_OF_INSTANCE, api_version="worker.gpustack.ai/v1")
    lines = rendered(found, "table").splitlines()
    assert lines[0] == found["summary"]
    assert lines[2].split() == ["GATE", "STATE", "ASKED", "FREE", "LARGEST", "AHEAD", "REASON", "PASSES-WHEN"]
    assert [line.split()[0] for line in lines[3:]] == ["Webhook", "Quota", "CardCheck", "Scheduler", "DevicePlugin"]
    assert json.loads(rendered(found, "json")) == found
    assert yaml.safe_load(rendered(found, "yaml")) == found


def test_a_target_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["explain"], {})
    assert left.value.code == 2
    assert "[pod/]NAMESPACE/NAME" in capsys.readouterr().err


def test_a_wrong_target_is_one_message(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "nothing", "-o", "json"], {}) == 1
    assert "should be NAMESPACE/NAME" in capsys.readouterr().err
