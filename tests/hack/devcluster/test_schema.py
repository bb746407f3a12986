"""The subset of structural schemas: defaults, pruning, validation, refusal of anything else."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from api.crds import crd_manifests
from hack.devcluster.foreign_crds import foreign_manifests
from hack.devcluster.schema import UnknownKeyword, compile_schema

OBJECT: dict[str, Any] = {"type": "object"}


def of(spec: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": {"spec": spec}}


def check(spec: dict[str, Any], value: Any) -> tuple[Any, list[tuple[str, str]], list[str]]:
    obj = {"apiVersion": "v1", "kind": "K", "metadata": {"name": "n"}, "spec": copy.deepcopy(value)}
    report = compile_schema(of(spec)).apply(obj)
    return obj.get("spec"), [(cause.field, cause.reason) for cause in report.causes], report.unknown


STRING, INTEGER = {"type": "string"}, {"type": "integer"}
INVALID, TYPE, REQUIRED = "FieldValueInvalid", "FieldValueTypeInvalid", "FieldValueRequired"
RULES: list[tuple[str, dict[str, Any], Any, list[tuple[str, str]]]] = [
    ("string", STRING, "x", []),
    ("string is a number", STRING, 5, [("spec", TYPE)]),
    ("integer is a bool", INTEGER, True, [("spec", TYPE)]),
    ("integer is a fraction", INTEGER, 1.5, [("spec", TYPE)]),
    ("integer is a whole float", INTEGER, 2.0, []),
    ("null", STRING, None, []),
    ("nullable null", {**STRING, "nullable": True}, None, []),
    ("number", {"type": "number"}, 1.5, []),
    ("boolean", {"type": "boolean"}, "true", [("spec", TYPE)]),
    ("enum", {**STRING, "enum": ["a"]}, "b", [("spec", "FieldValueNotSupported")]),
    ("pattern", {**STRING, "pattern": "^a+$"}, "b", [("spec", INVALID)]),
    ("minimum", {**INTEGER, "minimum": 1}, 0, [("spec", INVALID)]),
    ("exclusive minimum", {**INTEGER, "minimum": 1, "exclusiveMinimum": True}, 1, [("spec", INVALID)]),
    ("maximum", {**INTEGER, "maximum": 1}, 2, [("spec", INVALID)]),
    ("int32", {**INTEGER, "format": "int32"}, 2**31, [("spec", INVALID)]),
    ("int64", {**INTEGER, "format": "int64"}, 2**63 - 1, []),
    ("date-time", {**STRING, "format": "date-time"}, "yesterday", [("spec", INVALID)]),
    ("date-time is fine", {**STRING, "format": "date-time"}, "2026-01-01T00:00:00Z", []),
    ("minLength", {**STRING, "minLength": 2}, "a", [("spec", INVALID)]),
    ("maxLength", {**STRING, "maxLength": 2}, "abc", [("spec", "FieldValueTooLong")]),
    ("maxItems", {"type": "array", "items": STRING, "maxItems": 1}, ["a", "b"], [("spec", "FieldValueTooMany")]),
    ("items", {"type": "array", "items": STRING}, ["a", 1], [("spec[1]", TYPE)]),
    (
        "set",
        {"type": "array", "items": STRING, "x-kubernetes-list-type": "set"},
        ["a", "a"],
        [("spec[1]", "FieldValueDuplicate")],
    ),
    (
        "maxProperties",
        {**OBJECT, "additionalProperties": STRING, "maxProperties": 1},
        {"a": "", "b": ""},
        [("spec", "FieldValueTooMany")],
    ),
    ("required", {**OBJECT, "required": ["a"], "properties": {"a": STRING}}, {}, [("spec.a", REQUIRED)]),
    ("additionalProperties", {**OBJECT, "additionalProperties": INTEGER}, {"k": "x"}, [("spec[k]", TYPE)]),
    ("int or string", {"x-kubernetes-int-or-string": True}, "5Gi", []),
    ("int or string is a list", {"x-kubernetes-int-or-string": True}, [], [("spec", TYPE)]),
    (
        "keyed list",
        {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["n"],
            "items": {**OBJECT, "properties": {"n": STRING}},
        },
        [{"n": "a"}, {"n": "b"}, {"n": "a"}],
        [("spec[2]", "FieldValueDuplicate")],
    ),
    (
        "all errors at once",
        {**OBJECT, "required": ["z"], "properties": {"a": STRING, "b": INTEGER, "z": STRING}},
        {"a": 1, "b": "x"},
        [("spec.a", TYPE), ("spec.b", TYPE), ("spec.z", REQUIRED)],
    ),
]


@pytest.mark.parametrize("row", RULES, ids=lambda row: row[0])
def test_rules(row: tuple[str, dict[str, Any], Any, list[tuple[str, str]]]) -> None:
    assert check(row[1], row[2])[1] == row[3]


def test_unknown_fields_are_pruned_and_named() -> None:
    schema = {**OBJECT, "properties": {"a": STRING, "free": {**OBJECT, "x-kubernetes-preserve-unknown-fields": True}}}
    value, causes, unknown = check(schema, {"a": "x", "b": 1, "free": {"c": {"d": 1}}})
    assert (value, causes, unknown) == ({"a": "x", "free": {"c": {"d": 1}}}, [], ["spec.b"])


def test_defaults_fill_in_and_replace_nulls() -> None:
    schema = {
        **OBJECT,
        "properties": {"a": {**STRING, "default": "x"}, "l": {"type": "array", "items": STRING, "default": []}},
    }
    first, *_ = check(schema, {"a": None})
    second, *_ = check(schema, {})
    assert first == {"a": "x", "l": []}
    first["l"].append("changed")
    assert second == {"a": "x", "l": []}


def test_embedded_resources_keep_their_identity() -> None:
    schema = {**OBJECT, "x-kubernetes-embedded-resource": True, "properties": {}}
    value, *_ = check(schema, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "other": 1})
    assert value == {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}}


UNKNOWN: list[tuple[str, dict[str, Any], str]] = [
    ("CEL", {**OBJECT, "x-kubernetes-validations": [{"rule": "true"}]}, "x-kubernetes-validations"),
    ("oneOf", {**OBJECT, "oneOf": [OBJECT]}, "oneOf"),
    ("anyOf", {**OBJECT, "anyOf": [OBJECT]}, "anyOf"),
    ("not", {**OBJECT, "properties": {"a": {**STRING, "not": {}}}}, "properties[a]"),
    ("$ref", {**OBJECT, "properties": {"a": {"$ref": "#/x"}}}, "$ref"),
    ("no type", {**OBJECT, "properties": {"a": {}}}, "type"),
    ("strange type", {"type": "file"}, "file"),
    ("closed object", {**OBJECT, "additionalProperties": False}, "additionalProperties"),
    ("tuple", {"type": "array", "items": [STRING]}, "items"),
    ("multipleOf", {**INTEGER, "multipleOf": 2}, "multipleOf"),
]


@pytest.mark.parametrize("row", UNKNOWN, ids=lambda row: row[0])
def test_what_is_not_enforced_is_refused(row: tuple[str, dict[str, Any], str]) -> None:
    with pytest.raises(UnknownKeyword) as refused:
        compile_schema(of(row[1]))
    assert row[2] in str(refused.value)


@pytest.mark.parametrize(
    "manifest", [*crd_manifests(), *foreign_manifests()], ids=lambda manifest: str(manifest["metadata"]["name"])
)
def test_every_crd_we_install_compiles(manifest: dict[str, Any]) -> None:
    for version in manifest["spec"]["versions"]:
        compile_schema(version["schema"]["openAPIV3Schema"])
