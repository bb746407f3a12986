"""The generated CRDs: structural, current, and taking exactly the worked objects of spec 02."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from api.crds import DEFINITIONS, Definition, crd_manifests
from api.validation import shape_problems
from tests.builders.structural import broken_rules, unknown_fields, value_errors

ROOT = Path(__file__).parents[2]
OBJECTS = list(yaml.safe_load_all((ROOT / "tests/rows/02-objects.yaml").read_text("utf-8")))
BY_KIND = {crd["spec"]["names"]["kind"]: crd for crd in crd_manifests()}


def schema_of(kind: str) -> dict[str, Any]:
    schema: dict[str, Any] = BY_KIND[kind]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


def definition_of(kind: str) -> Definition:
    return next(d for d in DEFINITIONS if d.kind.kind == kind)


@pytest.mark.parametrize("kind", BY_KIND)
def test_structural(kind: str) -> None:
    assert list(broken_rules(schema_of(kind))) == []


@pytest.mark.parametrize(
    ("kind", "plural", "singular", "short", "scope"),
    [
        ("Devices", "devices", "devices", "devs", "Cluster"),
        ("InstanceType", "instancetypes", "instancetype", "instype", "Cluster"),
        ("Instance", "instances", "instance", "inst", "Namespaced"),
    ],
)
def test_names(kind: str, plural: str, singular: str, short: str, scope: str) -> None:
    spec = BY_KIND[kind]["spec"]
    assert spec["names"] == {
        "kind": kind,
        "listKind": f"{kind}List",
        "plural": plural,
        "singular": singular,
        "shortNames": [short],
        "categories": ["gpustack"],
    }
    assert spec["scope"] == scope
    (version,) = spec["versions"]
    assert (version["name"], version["served"], version["storage"]) == ("v1alpha1", True, True)
    assert version["subresources"] == {"status": {}}


@pytest.mark.parametrize(
    ("kind", "columns"),
    [
        ("Devices", [("Age", 1)]),
        (
            "InstanceType",
            [
                ("Entrance", 0),
                ("Unit(CPU/RAM)/Storage", 0),
                ("Accelerator(EX/SH/SL/PT)", 0),
                ("CPU", 0),
                ("Phase", 0),
                ("Partitions", 1),
                ("Age", 2),
            ],
        ),
        ("Instance", [("Type", 0), ("Access", 0), ("Port(s)", 0), ("Phase", 0), ("Age", 1)]),
    ],
)
def test_columns_are_those_of_the_v1_tables(kind: str, columns: list[tuple[str, int]]) -> None:
    found = BY_KIND[kind]["spec"]["versions"][0]["additionalPrinterColumns"]
    assert [(column["name"], column.get("priority", 0)) for column in found] == columns
    for column in found:
        steps = column["jsonPath"].removesuffix("[0]").strip(".").split(".")
        part = schema_of(kind)
        for step in steps if steps[0] != "metadata" else ():
            part = part["properties"][step]


@pytest.mark.parametrize("obj", OBJECTS, ids=lambda obj: f"{obj['kind']} {obj['metadata']['name']}")
def test_worked_objects_are_taken_whole(obj: Any) -> None:
    schema = schema_of(obj["kind"])
    assert list(value_errors(schema, obj)) == []
    assert list(unknown_fields(schema, obj)) == []
    assert shape_problems(definition_of(obj["kind"]).model, obj) == []


@pytest.mark.parametrize(
    ("kind", "path", "value", "where"),
    [
        ("Devices", "spec.groups", None, "spec.groups"),
        ("Devices", "spec.groups.0.memory", "80Gi", "spec.groups[0].memory"),
        ("Devices", "spec.groups.0.accelerators.0.index", -1, "spec.groups[0].accelerators[0].index"),
        ("Devices", "status.groups.0.accelerators.0.mode", 5, "status.groups[0].accelerators[0].mode"),
        ("Devices", "status.groups.0.accelerators.0.mode", "Sliced", "status.groups[0].accelerators[0].mode"),
        ("Devices", "status.groups.0.accelerators.0.remaining", -1, "status.groups[0].accelerators[0].remaining"),
        ("Devices", "status.groups.0.accelerators.0.remaining", 1600001, "status.groups[0].accelerators[0].remaining"),
        ("InstanceType", "spec.acceleratable", "true", "spec.acceleratable"),
        ("InstanceType", "spec.unitResources.cpu", 4, "spec.unitResources.cpu"),
        ("InstanceType", "spec.displayName", "x" * 65, "spec.displayName"),
        ("InstanceType", "status.accelerator.remaining", "1 Gi", "status.accelerator.remaining"),
        ("Instance", "spec.resources.cpu", "four", "spec.resources.cpu"),
        ("Instance", "spec.resources.cpu", True, "spec.resources.cpu"),
        ("Instance", "spec.imagePullPolicy", "Sometimes", "spec.imagePullPolicy"),
        ("Instance", "spec.volumeMount", "/a/", "spec.volumeMount"),
        ("Instance", "spec.volumeMount", "a/b", "spec.volumeMount"),
        ("Instance", "spec.command", "sleep", "spec.command"),
        ("Instance", "spec.ports", [{"port": 80, "name": "x" * 17}], "spec.ports[0].name"),
        ("Instance", "spec.ports", [{"port": 0}], "spec.ports[0].port"),
        ("Instance", "spec.env", [{"name": "A"}], "spec.env[0].value"),
        ("Instance", "spec.resources.acceleratorSlicedMemoryPercentage", 101,
         "spec.resources.acceleratorSlicedMemoryPercentage"),
    ],
)  # fmt: skip
def test_refused_by_schema_and_model_alike(kind: str, path: str, value: Any, where: str) -> None:
    obj = deepcopy(next(obj for obj in OBJECTS if obj["kind"] == kind))
    *steps, last = [int(step) if step.isdigit() else step for step in path.split(".")]
    at: Any = obj
    for step in steps:
        at = at[step]
    at[last] = value
    assert f".{where}" in list(value_errors(schema_of(kind), obj))
    assert where in [p.path for p in shape_problems(definition_of(kind).model, obj)]


@pytest.mark.parametrize(
    ("kind", "path"),
    [("Instance", "spec.stop"), ("Instance", "spec.resources.accelerator")],
)
def test_null_is_legal_where_the_api_says_so(kind: str, path: str) -> None:
    obj = deepcopy(next(obj for obj in OBJECTS if obj["kind"] == kind))
    at = obj
    *steps, last = path.split(".")
    for step in steps:
        at = at[step]
    at[last] = None
    assert list(value_errors(schema_of(kind), obj)) == []
    assert shape_problems(definition_of(kind).model, obj) == []


def test_defaults() -> None:
    spec = schema_of("Instance")["properties"]["spec"]["properties"]
    assert spec["imagePullPolicy"]["default"] == "IfNotPresent"
    assert spec["volumeMount"]["default"] == "/workspace"
    assert spec["privileged"]["default"] is False
    amounts = ("cpu", "ram", "localStorage")
    assert [spec["resources"]["properties"][name]["default"] for name in amounts] == ["0", "0", "0"]
    assert spec["ports"]["items"]["properties"]["protocol"]["default"] == "TCP"
