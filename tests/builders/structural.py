"""A second opinion on CRD schemas: kube-apiserver's rules for structural schemas, and its value checks, restated.

Knows only the keywords that our schemas may use; any other one is an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

Schema = dict[str, Any]
_KNOWN = {
    "anyOf",
    "default",
    "description",
    "enum",
    "format",
    "items",
    "maximum",
    "maxItems",
    "maxLength",
    "minimum",
    "nullable",
    "pattern",
    "properties",
    "required",
    "type",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type",
}
_FORMATS = {"int32", "int64"}
_TYPES: dict[str, tuple[type, ...]] = {
    "array": (list,),
    "boolean": (bool,),
    "integer": (int,),
    "object": (dict,),
    "string": (str,),
}


def broken_rules(schema: Schema, path: str = "") -> Iterator[str]:
    """Yield what kube-apiserver would refuse about a schema."""
    unknown = set(schema) - _KNOWN
    if unknown:
        yield f"{path}: keywords {sorted(unknown)}"
    if schema.get("x-kubernetes-int-or-string"):
        if schema.get("anyOf") != [{"type": "integer"}, {"type": "string"}] or "type" in schema:
            yield f"{path}: int-or-string must be written as anyOf integer, string and nothing else"
        return
    kind = schema.get("type")
    if kind not in _TYPES or "anyOf" in schema:
        yield f"{path}: type {kind!r}"
    if schema.get("format", "int32") not in _FORMATS:
        yield f"{path}: format {schema['format']}"
    if abs(schema.get("maximum", 0)) > 2**53:
        yield f"{path}: a bound that a float cannot hold"
    if missing := set(schema.get("required", ())) - set(schema.get("properties", {})):
        yield f"{path}: required but unknown {sorted(missing)}"
    if "default" in schema and list(
        value_errors({k: v for k, v in schema.items() if k != "default"}, schema["default"])
    ):
        yield f"{path}: default {schema['default']!r} is not valid"
    if kind == "array":
        yield from _broken_list_rules(schema, path)
    for name, part in schema.get("properties", {}).items():
        yield from broken_rules(part, f"{path}.{name}")


def _broken_list_rules(schema: Schema, path: str) -> Iterator[str]:
    items = schema.get("items")
    if not items:
        yield f"{path}: array without items"
        return
    yield from broken_rules(items, f"{path}[]")
    keys = schema.get("x-kubernetes-list-map-keys", [])
    if schema.get("x-kubernetes-list-type") not in {"map", "atomic"}:
        yield f"{path}: list type not declared"
    if (schema.get("x-kubernetes-list-type") == "map") != bool(keys):
        yield f"{path}: keys go with list type map"
    if "maxItems" not in schema:
        yield f"{path}: list without a bound"
    for key in keys:
        part = items.get("properties", {}).get(key, {})
        if part.get("type") not in {"string", "integer", "boolean"}:
            yield f"{path}: key {key} is no scalar"
        if key not in items.get("required", ()) and "default" not in part:
            yield f"{path}: key {key} is neither required nor defaulted"


def value_errors(schema: Schema, value: Any, path: str = "") -> Iterator[str]:
    """Yield the paths of a value that the schema refuses."""
    if value is None and schema.get("nullable"):
        return
    if schema.get("x-kubernetes-int-or-string"):
        typed = isinstance(value, int | str) and not isinstance(value, bool)
        if not typed or (isinstance(value, str) and not re.search(schema.get("pattern", ""), value)):
            yield path
        return
    wanted = _TYPES[schema["type"]]
    if not isinstance(value, wanted) or (isinstance(value, bool) and schema["type"] != "boolean"):
        yield path
        return
    yield from _scalar_errors(schema, value, path)
    if isinstance(value, list):
        yield from _list_errors(schema, value, path)
    if isinstance(value, dict):
        for name in schema.get("required", ()):
            if name not in value:
                yield f"{path}.{name}"
        for name, part in schema.get("properties", {}).items():
            if name in value:
                yield from value_errors(part, value[name], f"{path}.{name}")


def _scalar_errors(schema: Schema, value: Any, path: str) -> Iterator[str]:
    if "enum" in schema and value not in schema["enum"]:
        yield path
    if isinstance(value, str):
        if len(value) > schema.get("maxLength", 2**31) or not re.search(schema.get("pattern", ""), value):
            yield path
    elif isinstance(value, int) and not schema.get("minimum", -(2**63)) <= value <= schema.get("maximum", 2**63):
        yield path


def _list_errors(schema: Schema, value: list[Any], path: str) -> Iterator[str]:
    if len(value) > schema["maxItems"]:
        yield path
    keys = schema.get("x-kubernetes-list-map-keys", [])
    defaults = {key: schema["items"]["properties"][key].get("default") for key in keys}
    seen = set()
    for index, item in enumerate(value):
        yield from value_errors(schema["items"], item, f"{path}[{index}]")
        if keys and isinstance(item, dict):
            identity = tuple(item.get(key, defaults[key]) for key in keys)
            if identity in seen:
                yield f"{path}[{index}]"
            seen.add(identity)


def unknown_fields(schema: Schema, value: Any, path: str = "") -> Iterator[str]:
    """Yield the fields that pruning would drop."""
    if isinstance(value, list) and "items" in schema:
        for index, item in enumerate(value):
            yield from unknown_fields(schema["items"], item, f"{path}[{index}]")
    if isinstance(value, dict) and "properties" in schema:
        for name, part in value.items():
            if name not in schema["properties"]:
                yield f"{path}.{name}"
            elif path or name != "metadata":
                yield from unknown_fields(schema["properties"][name], part, f"{path}.{name}")
