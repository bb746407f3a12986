"""NodeFeatureRules as the stand-in evaluates them (spec 07 §3.2)."""

from __future__ import annotations

from typing import Any

import pytest

from controllers.node_feature_rule import node_feature_rule
from hack.devcluster.standins.nfd_rules import Features, evaluate, read_features
from nodefeature.labels import ACCELERATABLE
from tests.builders.chain import manufacturers

CPU = {"vendor_id": "AMD", "family": "23", "cores": "64", "name": "AMD EPYC 7571"}


def features(*pci: dict[str, str], **attributes: str) -> Features:
    return Features({"cpu.model": attributes or CPU}, {"pci.device": list(pci)})


def rule(feature: str, *expressions: tuple[str, str, list[str] | None], **fields: Any) -> dict[str, Any]:
    matched = {key: {"op": op, **({} if value is None else {"value": value})} for key, op, value in expressions}
    return {
        "name": "r",
        "labels": {"example.com/l": "true"},
        "matchFeatures": [{"feature": feature, "matchExpressions": matched}],
        **fields,
    }


MATCHES: dict[str, tuple[dict[str, Any], bool]] = {
    "Exists": (rule("cpu.model", ("family", "Exists", None)), True),
    "Exists, absent": (rule("cpu.model", ("id", "Exists", None)), False),
    "DoesNotExist": (rule("cpu.model", ("id", "DoesNotExist", None)), True),
    "DoesNotExist, present": (rule("cpu.model", ("family", "DoesNotExist", None)), False),
    "DoesNotExist of a feature nobody reports": (rule("cpu.cstate", ("enabled", "DoesNotExist", None)), False),
    "In": (rule("cpu.model", ("vendor_id", "In", ["Intel", "AMD"])), True),
    "In, other": (rule("cpu.model", ("vendor_id", "In", ["Intel"])), False),
    "In, absent": (rule("cpu.model", ("id", "In", ["1"])), False),
    "NotIn": (rule("cpu.model", ("vendor_id", "NotIn", ["Intel"])), True),
    "NotIn, absent": (rule("cpu.model", ("id", "NotIn", ["1"])), False),
    "InRegexp searches": (rule("cpu.model", ("vendor_id", "InRegexp", ["^A"])), True),
    "InRegexp, none": (rule("cpu.model", ("vendor_id", "InRegexp", ["^B", "D$x"])), False),
    "all expressions": (rule("cpu.model", ("vendor_id", "Exists", None), ("id", "Exists", None)), False),
    "the feature's case does not matter": (rule("CPU.Model", ("family", "Exists", None)), True),
    "no terms at all": ({"name": "r", "labels": {"example.com/l": "true"}}, True),
}


@pytest.mark.parametrize("row", MATCHES.values(), ids=MATCHES.keys())
def test_match(row: tuple[dict[str, Any], bool]) -> None:
    said, holds = row
    output = evaluate([said], features())
    assert output.labels == ({"example.com/l": "true"} if holds else {})
    assert output.problems == []


def test_class_and_vendor_are_asked_of_one_device() -> None:
    both = rule("pci.device", ("class", "InRegexp", ["^03"]), ("vendor", "In", ["10de"]))
    one, other = {"class": "0302", "vendor": "8086"}, {"class": "0403", "vendor": "10de"}
    assert evaluate([both], features(one, other)).labels == {}
    assert evaluate([both], features(one, {**other, "class": "0302"})).labels == {"example.com/l": "true"}


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "templates": (rule("cpu.model", labelsTemplate="x"), "rule 'r': field 'labelsTemplate' is left out"),
    "matchAny": (rule("cpu.model", matchAny=[]), "field 'matchAny' is left out"),
    "matchName": ({"name": "r", "matchFeatures": [{"feature": "cpu.model", "matchName": {}}]}, "field 'matchName'"),
    "operator": (rule("cpu.model", ("family", "Gt", ["1"])), "operator 'Gt' of 'family' is left out"),
    "no value": (rule("cpu.model", ("family", "In", [])), "operator In of 'family' needs a value"),
    "no expression": (rule("cpu.model", ("family", "InRegexp", ["("])), "'(' is no regular expression"),
}


@pytest.mark.parametrize("row", REFUSED.values(), ids=REFUSED.keys())
def test_a_rule_that_cannot_be_evaluated_is_named_and_the_others_go_on(row: tuple[dict[str, Any], str]) -> None:
    bad, why = row
    output = evaluate([bad, rule("cpu.model", labels={"example.com/other": "1"})], features())
    assert output.labels == {"example.com/other": "1"}
    assert [why in problem for problem in output.problems] == [True]


def test_dynamic_values() -> None:
    said = rule(
        "cpu.model",
        labels={"example.com/cores": "@cpu.model.cores", "example.com/none": "@cpu.model.none"},
        annotations={"example.com/name": "@cpu.model.name", "example.com/hz": "@cpu.model.hz", "example.com/s": "s"},
    )
    output = evaluate([said], features())
    assert output.labels == {"example.com/cores": "64"}, "a label that cannot be resolved is left out"
    assert output.annotations == {
        "example.com/name": "AMD EPYC 7571",
        "example.com/hz": "@cpu.model.hz",
        "example.com/s": "s",
    }


def test_later_rules_see_what_earlier_ones_said() -> None:
    first = rule("cpu.model", vars={"found": "yes"}, labels={"example.com/first": "1"})
    second = rule("rule.matched", ("found", "In", ["yes"]), ("example.com/first", "Exists", None))
    assert evaluate([first, second], features()).labels == {"example.com/first": "1", "example.com/l": "true"}
    assert evaluate([second], features()).labels == {}, "before any rule there is nothing to match"


PRODUCT: dict[str, tuple[list[dict[str, str]], bool]] = {
    "none": ([], True),
    "only 8086 class 0300": ([{"class": "0300", "vendor": "8086"}], True),
    "10de class 0302": ([{"class": "0302", "vendor": "10de"}], False),
    "10de class 0403 (audio) only": ([{"class": "0403", "vendor": "10de"}], True),
    "19e5 class 1200": ([{"class": "1200", "vendor": "19e5"}], False),
}


@pytest.mark.parametrize("row", PRODUCT.values(), ids=PRODUCT.keys())
def test_the_products_own_rule(row: tuple[list[dict[str, str]], bool]) -> None:
    devices, bare = row
    registry = manufacturers()
    spec = node_feature_rule(registry, registry.names)["spec"]
    output = evaluate(spec["rules"], features(*devices))
    assert output.labels == ({ACCELERATABLE: "false"} if bare else {})
    assert output.annotations["feature.gpustack.ai/cpu-name"] == "AMD EPYC 7571"
    assert output.annotations["feature.gpustack.ai/cpu-hz"] == "@cpu.model.hz"
    assert output.problems == []


def test_features_of_all_objects_are_merged() -> None:
    def obj(elements: object, *devices: object) -> dict[str, Any]:
        attributes = {"cpu.model": {"elements": elements}}
        instances = {"pci.device": {"elements": [{"attributes": d} for d in devices]}}
        return {"spec": {"features": {"attributes": attributes, "instances": instances}}}

    merged = read_features([obj({"a": "1", "b": "1"}, {"class": "03"}), obj({"b": "2"}, {"class": "12"})])
    assert merged.attributes == {"cpu.model": {"a": "1", "b": "2"}}
    assert merged.instances == {"pci.device": [{"class": "03"}, {"class": "12"}]}


@pytest.mark.parametrize("broken", [None, {}, {"spec": None}, {"spec": {"features": {"attributes": None}}}])
def test_b019_nulls(broken: Any) -> None:
    assert read_features([broken] if broken is not None else [{}]) == Features()
