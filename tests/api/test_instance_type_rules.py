"""What InstanceTypes must obey: spec 02 §4.1, §4.8."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from api.instance_type_rules import create_problems, update_problems

OBJECTS = list(yaml.safe_load_all((Path(__file__).parents[1] / "rows/02-objects.yaml").read_text("utf-8")))
TYPES = {obj["spec"]["acceleratable"]: obj for obj in OBJECTS if obj["kind"] == "InstanceType"}


def instance_type(accelerated: bool, **spec: Any) -> Any:
    built = deepcopy(TYPES[accelerated])
    built["spec"] = {key: value for key, value in (built["spec"] | spec).items() if value is not None}
    return built


@pytest.mark.parametrize("accelerated", [True, False])
def test_worked_types_are_accepted(accelerated: bool) -> None:
    assert create_problems(instance_type(accelerated)) == []


@pytest.mark.parametrize(
    ("accelerated", "spec", "paths"),
    [
        (True, {"acceleratorGroup": None}, ["spec.acceleratorGroup"]),
        (False, {"acceleratorGroup": "nvidia-a10g"}, ["spec.acceleratorGroup"]),
        (True, {"acceleratorGroup": "x" * 64}, ["spec.acceleratorGroup"]),
        (True, {"os": None, "arch": None}, ["spec.os", "spec.arch"]),
        (True, {"os": "", "arch": "x86 64"}, ["spec.os", "spec.arch"]),
        (True, {"unitResources": {"cpu": "4"}}, ["spec.unitResources.ram"]),
        (True, {"unitResources": {"cpu": "4000m", "ram": "16Gi"}}, ["spec.unitResources.cpu"]),
        (True, {"unitResources": {"cpu": "0", "ram": "16Gi"}}, ["spec.unitResources.cpu"]),
        (True, {"unitResources": {"cpu": "٤", "ram": "16Gi"}}, ["spec.unitResources.cpu"]),
        (False, {"unitResources": {"cpu": "2", "ram": "2Gi"}}, ["spec.unitResources.cpu"]),
        (True, {"unitResources": {"cpu": "4", "ram": "lots"}}, ["spec.unitResources.ram"]),
        (True, {"localStorage": None}, ["spec.localStorage"]),
        (True, {"localStorage": "100gi"}, ["spec.localStorage"]),
        (True, {"localStorage": "100G"}, ["spec.localStorage"]),
        (True, {"unitResources": None, "localStorage": "x"}, ["spec.unitResources", "spec.localStorage"]),
    ],
)
def test_bad_input_is_refused_with_all_errors(accelerated: bool, spec: dict[str, Any], paths: list[str]) -> None:
    assert [p.path for p in create_problems(instance_type(accelerated, **spec))] == paths


@pytest.mark.parametrize("cpu", ["0.5", "500m", "1e-3", "-4", "1180591620717411303424"])
def test_cores_that_are_no_whole_number_are_refused_in_words_that_say_so(cpu: str) -> None:
    [refused] = create_problems(instance_type(True, unitResources={"cpu": cpu, "ram": "16Gi"}))
    assert str(refused) == f'spec.unitResources.cpu: "{cpu}": must be a positive whole number of cores, such as 4'


@pytest.mark.parametrize(
    ("spec", "paths"),
    [
        ({"displayName": "new", "description": "new", "inactive": True}, []),
        ({"generalGroup": ""}, ["spec.generalGroup"]),
        ({"unitResources": {"cpu": "8", "ram": "1Gi"}, "os": "windows"}, ["spec.os", "spec.unitResources"]),
        ({"acceleratable": False}, ["spec.acceleratable"]),
    ],
)
def test_updates(spec: dict[str, Any], paths: list[str]) -> None:
    assert [p.path for p in update_problems(instance_type(True), instance_type(True, **spec))] == paths


def test_a_legacy_shape_can_still_be_renamed_and_a_deleted_one_is_not_judged() -> None:
    legacy = instance_type(True, localStorage="100G")
    assert update_problems(legacy, {**legacy, "spec": legacy["spec"] | {"inactive": True}}) == []
    going = instance_type(True, os="windows")
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert update_problems(instance_type(True), going) == []
