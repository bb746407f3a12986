"""Evaluation of NodeFeatureRules, as far as the product's own rule needs it.

For: `nfd_master`. In: the merged features of one node and the rules. Out: labels and annotations.
Left out: taints, extended resources, `matchAny`, `matchName`, label templates (`labelsTemplate`), and every operator
beyond Exists, DoesNotExist, In, NotIn, InRegexp; a rule that uses one of them is refused by name, never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from nodefeature.fields import as_list, as_map, as_maps, as_str, at

Attributes = Mapping[str, str]


class UnsupportedRule(ValueError):
    """A rule needs what this stand-in leaves out."""


@dataclass(slots=True)
class Features:
    """What is known of one node: attribute features by name, instance features by name."""

    attributes: dict[str, dict[str, str]] = field(default_factory=dict)
    instances: dict[str, list[dict[str, str]]] = field(default_factory=dict)


@dataclass(slots=True)
class RuleOutput:
    """What the rules of all objects say about one node."""

    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)


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
    matched: dict[str, str] = {}
    for rule in rules:
        _refuse_unsupported(rule)
        known = {**features.attributes, "rule.matched": matched}
        if not all(_term_matches(term, known, features.instances) for term in as_maps(rule.get("matchFeatures"))):
            continue
        labels = {k: _expand(as_str(v), known) for k, v in as_map(rule.get("labels")).items()}
        output.labels.update(labels)
        output.annotations.update({k: _expand(as_str(v), known) for k, v in as_map(rule.get("annotations")).items()})
        matched.update(labels)
        matched.update({k: as_str(v) for k, v in as_map(rule.get("vars")).items()})
    return output


_KNOWN_FIELDS = frozenset({"name", "matchFeatures", "labels", "annotations", "vars"})


def _refuse_unsupported(rule: Mapping[str, Any]) -> None:
    beyond = sorted(set(rule) - _KNOWN_FIELDS)
    if beyond:
        raise UnsupportedRule(f"rule {rule.get('name')!r}: field {beyond[0]!r} is left out of this stand-in")


def _term_matches(
    term: Mapping[str, Any], attributes: Mapping[str, Attributes], instances: Mapping[str, list[dict[str, str]]]
) -> bool:
    name = as_str(term.get("feature"))
    expressions = as_map(term.get("matchExpressions"))
    if name in instances:
        return any(_all_hold(expressions, instance) for instance in instances[name])
    return _all_hold(expressions, attributes.get(name, {}))


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
    if op == "In":
        return present and attributes[key] in values
    if op == "NotIn":
        return present and attributes[key] not in values
    if op == "InRegexp":
        return present and any(re.search(pattern, attributes[key]) for pattern in values)
    raise UnsupportedRule(f"operator {op!r} of {key!r} is left out of this stand-in")


def _expand(value: str, attributes: Mapping[str, Attributes]) -> str:
    """Expand `@<feature>.<attribute>`; NFD leaves the literal when it cannot resolve it."""
    if not value.startswith("@"):
        return value
    feature, _, attribute = value[1:].rpartition(".")
    return attributes.get(feature, {}).get(attribute, value)
