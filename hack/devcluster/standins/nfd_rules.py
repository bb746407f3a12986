"""Evaluation of NodeFeatureRules, as far as the product's own rule needs it.

For: `nfd_master`. In: the merged features of one node and the rules. Out: labels, annotations, and why rules were left.
Kept from NFD 0.19: a term on a feature the node does not report matches nothing, whatever its operator; outputs of a
rule are seen by later ones as feature `rule.matched`; a label whose `@` value cannot be resolved is left out, an
annotation keeps it as it is; a rule that cannot be evaluated is left out, the others go on.
Resolving `@` in annotations is what the chart's mirrored NFD does; 0.19 as published does it for labels alone.
Left out: taints, extended resources, `matchAny`, `matchName`, templates, and every operator beyond Exists,
DoesNotExist, In, NotIn, InRegexp; a rule that uses one of them is refused by name, never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from nodefeature.fields import as_list, as_map, as_maps, as_str, at, str_map

Attributes = Mapping[str, str]
_MATCHED = "rule.matched"


class UnsupportedRule(ValueError):
    """A rule needs what this stand-in leaves out."""


@dataclass(slots=True)
class Features:
    """What is known of one node: attribute features by name, instance features by name."""

    attributes: dict[str, dict[str, str]] = field(default_factory=dict)
    instances: dict[str, list[dict[str, str]]] = field(default_factory=dict)


@dataclass(slots=True)
class RuleOutput:
    """What the rules of all objects say about one node, and why some of them say nothing."""

    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def read_features(node_features: Iterable[Mapping[str, Any]]) -> Features:
    """Merge `spec.features` of a node's NodeFeature objects; later objects win per attribute."""
    merged = Features()
    for obj in node_features:
        features = as_map(at(obj, "spec", "features"))
        for name, feature in as_map(features.get("attributes")).items():
            elements = as_map(at(feature, "elements"))
            merged.attributes.setdefault(name, {}).update({k: as_str(v) for k, v in elements.items()})
        for name, feature in as_map(features.get("instances")).items():
            found = [
                {k: as_str(v) for k, v in as_map(e.get("attributes")).items()} for e in as_maps(at(feature, "elements"))
            ]
            merged.instances.setdefault(name, []).extend(found)
    return merged


def evaluate(rules: Iterable[Mapping[str, Any]], features: Features) -> RuleOutput:
    """Run all rules in order; a rule's labels and vars are visible to later ones as feature `rule.matched`."""
    output = RuleOutput()
    known: dict[str, Mapping[str, str]] = dict(features.attributes)
    matched: dict[str, str] = {}
    for rule in rules:
        try:
            holds = _rule_holds(rule, known, features.instances)
        except UnsupportedRule as refused:
            output.problems.append(f"rule {rule.get('name')!r}: {refused}")
            continue
        known[_MATCHED] = matched
        if not holds:
            continue
        labels = str_map(rule.get("labels"))
        resolved = {key: _expanded(value, known) for key, value in labels.items()}
        output.labels.update({key: value for key, value in resolved.items() if value is not None})
        for key, value in str_map(rule.get("annotations")).items():
            output.annotations[key] = _expanded(value, known) or value
        matched |= {**labels, **str_map(rule.get("vars"))}
    return output


_KNOWN_FIELDS = frozenset({"name", "matchFeatures", "labels", "annotations", "vars"})


def _rule_holds(
    rule: Mapping[str, Any], attributes: Mapping[str, Attributes], instances: Mapping[str, list[dict[str, str]]]
) -> bool:
    beyond = sorted(set(rule) - _KNOWN_FIELDS)
    if beyond:
        raise UnsupportedRule(f"field {beyond[0]!r} is left out of this stand-in")
    return all(_term_matches(term, attributes, instances) for term in as_maps(rule.get("matchFeatures")))


def _term_matches(
    term: Mapping[str, Any], attributes: Mapping[str, Attributes], instances: Mapping[str, list[dict[str, str]]]
) -> bool:
    beyond = sorted(set(term) - {"feature", "matchExpressions"})
    if beyond:
        raise UnsupportedRule(f"field {beyond[0]!r} of a term is left out of this stand-in")
    name = as_str(term.get("feature")).lower()
    expressions = as_map(term.get("matchExpressions"))
    if name in instances:
        return any(_all_hold(expressions, instance) for instance in instances[name])
    return name in attributes and _all_hold(expressions, attributes[name])


def _all_hold(expressions: Mapping[str, Any], attributes: Attributes) -> bool:
    return all(_holds(key, as_map(expression), attributes) for key, expression in expressions.items())


def _holds(key: str, expression: Mapping[str, Any], attributes: Attributes) -> bool:
    op = as_str(expression.get("op"))
    values = [as_str(v) for v in as_list(expression.get("value"))]
    present = key in attributes
    if op == "Exists":
        return present
    if op == "DoesNotExist":
        return not present
    if op not in ("In", "NotIn", "InRegexp"):
        raise UnsupportedRule(f"operator {op!r} of {key!r} is left out of this stand-in")
    if not values:
        raise UnsupportedRule(f"operator {op} of {key!r} needs a value")
    if not present:
        return False
    if op == "InRegexp":
        return any(_compiled(pattern).search(attributes[key]) for pattern in values)
    return (attributes[key] in values) is (op == "In")


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise UnsupportedRule(f"{pattern!r} is no regular expression: {error}") from error


def _expanded(value: str, attributes: Mapping[str, Attributes]) -> str | None:
    """Resolve `@<domain>.<feature>.<attribute>`; None when nothing is known of it."""
    if not value.startswith("@"):
        return value
    domain, _, rest = value[1:].partition(".")
    feature, _, attribute = rest.partition(".")
    return attributes.get(f"{domain}.{feature}", {}).get(attribute)
