"""The subset of structural schemas that the devcluster understands.

For: `crds`. In: an `openAPIV3Schema`. Out: a compiled `Schema` that prunes, defaults and validates in one walk.
Promises: a keyword it does not know refuses the whole CRD with its path (CEL rules among them), so that no rule is
silently not enforced; all errors of an object are reported at once, with path, value and rule; what the schema does not
name is pruned, and named when the client asked for strict validation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import orjson

from apiserver.rest.status import Cause
from nodefeature.fields import as_list, as_map, as_str

Check = Callable[[Any, str, "Report"], None]

_IGNORED = frozenset(
    {"description", "title", "example", "externalDocs", "x-kubernetes-list-type", "x-kubernetes-map-type"}
)
_KNOWN = _IGNORED | {
    "type",
    "properties",
    "additionalProperties",
    "items",
    "required",
    "enum",
    "default",
    "nullable",
    "format",
    "pattern",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "uniqueItems",
    "minProperties",
    "maxProperties",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-int-or-string",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-list-map-keys",
    "anyOf",
}
_TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}
_INT_OR_STRING = ({"type": "integer"}, {"type": "string"})


class UnknownKeyword(ValueError):
    """A schema asks for something the devcluster does not do."""


@dataclass(slots=True)
class Report:
    """What one walk found."""

    causes: list[Cause] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)

    def invalid(self, path: str, value: Any, why: str) -> None:
        """Add a field error."""
        text = repr(value) if not isinstance(value, (dict, list)) else orjson.dumps(value).decode()[:64]
        self.causes.append(Cause("FieldValueInvalid", f"Invalid value: {text}: {why}", path))


@dataclass(frozen=True, slots=True)
class Schema:
    """A compiled schema. `list_keys`: dotted path of each keyed list -> its keys."""

    check: Check
    list_keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def apply(self, obj: dict[str, Any]) -> Report:
        """Prune and default `obj` in place; return errors and the paths that were pruned."""
        report = Report()
        self.check(obj, "", report)
        return report


def compile_schema(document: Mapping[str, Any]) -> Schema:
    """Compile the schema of a kind; raises UnknownKeyword. The root keeps apiVersion, kind and metadata."""
    root = {**document, "properties": {**as_map(document.get("properties"))}}
    root["properties"].pop("metadata", None)
    for name in ("apiVersion", "kind"):
        root["properties"][name] = {"type": "string"}
    root["properties"]["metadata"] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return Schema(_compile(root, "openAPIV3Schema"), dict(_keyed_lists(root, "")))


def _keyed_lists(node: Mapping[str, Any], dotted: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    if node.get("x-kubernetes-list-type") == "map":
        yield dotted, tuple(as_list(node.get("x-kubernetes-list-map-keys")))
    if isinstance(node.get("items"), Mapping):
        yield from _keyed_lists(node["items"], dotted)
    for name, sub in as_map(node.get("properties")).items():
        yield from _keyed_lists(as_map(sub), f"{dotted}.{name}" if dotted else name)


def _compile(node: Mapping[str, Any], at: str) -> Check:
    _check_keywords(node, at)
    checks: list[Check] = [_type_check(node)]
    kind = node.get("type")
    if kind == "object" or "properties" in node or "additionalProperties" in node:
        checks.append(_object_check(node, at))
    if "items" in node:
        checks.append(_items_check(node, at))
    checks.extend(_rules(node))
    nullable = node.get("nullable") is True

    def check(value: Any, path: str, report: Report) -> None:
        if value is None and nullable:
            return
        before = len(report.causes)
        for step in checks:
            step(value, path, report)
            if len(report.causes) > before:
                return

    return check


def _check_keywords(node: Mapping[str, Any], at: str) -> None:
    for keyword in node:
        if keyword not in _KNOWN:
            raise UnknownKeyword(f"{at}: the devcluster does not know the schema keyword {keyword!r}")
    kind = node.get("type")
    if kind is not None and kind not in _TYPES:
        raise UnknownKeyword(f"{at}.type: unknown type {kind!r}")
    if "anyOf" in node and tuple(as_list(node["anyOf"])) != _INT_OR_STRING:
        raise UnknownKeyword(f"{at}.anyOf: only integer-or-string is known")
    any_type = node.get("x-kubernetes-int-or-string") or node.get("x-kubernetes-preserve-unknown-fields")
    if kind is None and not any_type:
        raise UnknownKeyword(f"{at}: a structural schema needs a type here")
    if isinstance(node.get("items"), list) or node.get("additionalProperties") is False:
        raise UnknownKeyword(f"{at}: items must be one schema, additionalProperties a schema or true")


def _type_check(node: Mapping[str, Any]) -> Check:
    if node.get("x-kubernetes-int-or-string"):
        return _int_or_string
    kind = as_str(node.get("type"))
    if not kind:
        return lambda value, path, report: None
    types = _TYPES[kind]

    def check(value: Any, path: str, report: Report) -> None:
        wrong_bool = isinstance(value, bool) and kind != "boolean"
        whole = kind == "integer" and isinstance(value, float) and value.is_integer()
        if wrong_bool or not (isinstance(value, types) or whole):
            text = f'{path or "object"} in body must be of type {kind}: "{_type_name(value)}"'
            report.causes.append(Cause("FieldValueTypeInvalid", f"Invalid value: {text}", path))

    return check


def _int_or_string(value: Any, path: str, report: Report) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        text = f'{path} in body must be of type integer or string: "{_type_name(value)}"'
        report.causes.append(Cause("FieldValueTypeInvalid", f"Invalid value: {text}", path))


def _type_name(value: Any) -> str:
    if value is None:
        return "null"
    names: tuple[tuple[type, str], ...] = ((bool, "boolean"), (int, "integer"), (float, "number"), (str, "string"))
    return next((name for kind, name in names if isinstance(value, kind)), type(value).__name__)


def _object_check(node: Mapping[str, Any], at: str) -> Check:
    properties = {
        name: _compile(sub, f"{at}.properties[{name}]") for name, sub in as_map(node.get("properties")).items()
    }
    nullable = {name for name, sub in as_map(node.get("properties")).items() if sub.get("nullable") is True}
    defaults = {
        name: orjson.dumps(sub["default"]) for name, sub in as_map(node.get("properties")).items() if "default" in sub
    }
    extra = node.get("additionalProperties")
    extra_check = _compile(extra, f"{at}.additionalProperties") if isinstance(extra, Mapping) else None
    keep = bool(node.get("x-kubernetes-preserve-unknown-fields")) or extra is True
    required = tuple(as_list(node.get("required")))
    embedded = bool(node.get("x-kubernetes-embedded-resource"))

    def check(value: Any, path: str, report: Report) -> None:
        if not isinstance(value, dict):
            return
        for name in [name for name in value if value[name] is None and name in properties and name not in nullable]:
            del value[name]
        for name, encoded in defaults.items():
            if name not in value:
                value[name] = orjson.loads(encoded)
        prefix = f"{path}." if path else ""
        for name in list(value):
            known = properties.get(name)
            if known is not None:
                known(value[name], prefix + name, report)
            elif extra_check is not None:
                extra_check(value[name], f"{path}[{name}]", report)
            elif not keep and not (embedded and name in ("apiVersion", "kind", "metadata")):
                report.unknown.append(prefix + name)
                del value[name]
        for name in required:
            if name not in value:
                report.causes.append(Cause("FieldValueRequired", "Required value", prefix + name))

    return check


def _items_check(node: Mapping[str, Any], at: str) -> Check:
    item_check = _compile(node["items"], f"{at}.items")
    keys = tuple(as_list(node.get("x-kubernetes-list-map-keys")))
    is_set = node.get("x-kubernetes-list-type") == "set"

    def check(value: Any, path: str, report: Report) -> None:
        seen: set[bytes] = set()
        for index, item in enumerate(as_list(value)):
            item_check(item, f"{path}[{index}]", report)
            if keys or is_set:
                identity = orjson.dumps([as_map(item).get(key) for key in keys] if keys else item)
                if identity in seen:
                    text = f"Duplicate value: {identity.decode()}"
                    report.causes.append(Cause("FieldValueDuplicate", text, f"{path}[{index}]"))
                seen.add(identity)

    return check


def _rules(node: Mapping[str, Any]) -> list[Check]:
    """Return the value rules of a node."""
    checks: list[Check] = []
    if "enum" in node:
        checks.append(_enum_check(as_list(node["enum"])))
    if "pattern" in node:
        checks.append(_pattern_check(as_str(node["pattern"])))
    if node.get("format") in ("int32", "int64"):
        checks.append(_width_check(31 if node["format"] == "int32" else 63, as_str(node["format"])))
    if node.get("format") == "date-time":
        checks.append(_date_check)
    if "minimum" in node or "maximum" in node:
        checks.append(_range_check(node))
    checks.extend(_length_check(node, low, high) for low, high in _LENGTHS if low in node or high in node)
    return checks


_LENGTHS = (("minLength", "maxLength"), ("minItems", "maxItems"), ("minProperties", "maxProperties"))
_LENGTH_TYPES: Mapping[str, type] = {"minLength": str, "minItems": list, "minProperties": dict}


def _enum_check(allowed: Sequence[Any]) -> Check:
    def check(value: Any, path: str, report: Report) -> None:
        if value not in allowed:
            listed = ", ".join(f'"{item}"' for item in allowed)
            text = f'Unsupported value: "{value}": supported values: {listed}'
            report.causes.append(Cause("FieldValueNotSupported", text, path))

    return check


def _pattern_check(pattern: str) -> Check:
    compiled = re.compile(pattern)

    def check(value: Any, path: str, report: Report) -> None:
        if isinstance(value, str) and not compiled.search(value):
            report.invalid(path, value, f"{path} in body should match '{pattern}'")

    return check


def _width_check(bits: int, name: str) -> Check:
    def check(value: Any, path: str, report: Report) -> None:
        if isinstance(value, int) and not -(1 << bits) <= value < 1 << bits:
            report.invalid(path, value, f"must fit {name}")

    return check


def _date_check(value: Any, path: str, report: Report) -> None:
    try:
        datetime.fromisoformat(value)
    except (ValueError, TypeError):
        report.invalid(path, value, "must be a date-time")


def _range_check(node: Mapping[str, Any]) -> Check:
    low, high = node.get("minimum"), node.get("maximum")
    above, below = node.get("exclusiveMinimum") is True, node.get("exclusiveMaximum") is True

    def check(value: Any, path: str, report: Report) -> None:
        if not isinstance(value, (int, float)):
            return
        if low is not None and (value < low or (above and value == low)):
            report.invalid(path, value, f"{path} in body should be greater than {'' if above else 'or equal to '}{low}")
        if high is not None and (value > high or (below and value == high)):
            report.invalid(path, value, f"{path} in body should be less than {'' if below else 'or equal to '}{high}")

    return check


def _length_check(node: Mapping[str, Any], low: str, high: str) -> Check:
    kind, least, most = _LENGTH_TYPES[low], node.get(low), node.get(high)

    def check(value: Any, path: str, report: Report) -> None:
        if not isinstance(value, (str, list, dict)) or not isinstance(value, kind):
            return
        size = len(value)
        if least is not None and size < least:
            report.invalid(path, value, f"{path} in body should have at least {least} ({low})")
        if most is not None and size > most:
            cause = Cause("FieldValueTooLong" if high == "maxLength" else "FieldValueTooMany", "", path)
            text = f"Too long: may not be more than {most}" if high == "maxLength" else f"Too many: {size}: max {most}"
            report.causes.append(Cause(cause.reason, text, path))

    return check
