"""Structural schemas for CRDs out of pydantic models, and the types that models are made of.

For: `api.models`, `api.crds`. In: a model. Out: an OpenAPI v3 schema that kube-apiserver takes as structural.
Promises: no `$ref`, no `anyOf` but the one of int-or-string, no titles; a keyword that was not foreseen raises at
generation time instead of reaching a cluster; models refuse wrong types instead of converting them.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Annotated, Any, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, WithJsonSchema
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

from nodefeature.quantity import QuantityInvalid, parse_quantity

Schema = dict[str, Any]
JsonExtra: TypeAlias = dict[str, Any]

QUANTITY_PATTERN = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)
MOUNT_PATH_PATTERN = "^(/[^/]+)+$"


class Model(BaseModel):
    """Part of a kind. Fields are camelCase on the wire; what the model does not know is ignored, as pruning does."""

    model_config = ConfigDict(
        strict=True,
        extra="ignore",
        frozen=True,
        alias_generator=to_camel,
        validate_by_alias=True,
        protected_namespaces=(),
    )


def _check_quantity(value: object) -> object:
    try:
        parse_quantity(value)
    except QuantityInvalid as broken:
        raise PydanticCustomError("quantity", "must be a quantity such as 4, 500m or 16Gi") from broken
    return value


Quantity = Annotated[
    str | int,
    PlainValidator(_check_quantity),
    WithJsonSchema(
        {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "pattern": QUANTITY_PATTERN,
            "x-kubernetes-int-or-string": True,
        }
    ),
]
_INT32: JsonExtra = {"format": "int32"}
_INT64: JsonExtra = {"format": "int64"}
Count = Annotated[int, Field(ge=0, le=2**31 - 1, json_schema_extra=_INT32)]
Percent = Annotated[int, Field(ge=0, le=100, json_schema_extra=_INT32)]
Port = Annotated[int, Field(ge=1, le=65535, json_schema_extra=_INT32)]
# The API server keeps bounds as floats: a larger one would come back as another number, and differ from ours for ever.
Amount = Annotated[int, Field(ge=0, le=2**53 - 1, json_schema_extra=_INT64)]
Word = Annotated[str, Field(max_length=253)]
Text = Annotated[str, Field(max_length=1024)]
Message = Annotated[str, Field(max_length=32768)]


def map_list(*keys: str) -> JsonExtra:
    """Mark a list whose items are told apart by these keys."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}


def atomic_list() -> JsonExtra:
    """Mark a list that is replaced as a whole."""
    return {"x-kubernetes-list-type": "atomic"}


_KEPT = frozenset(
    {
        "default",
        "description",
        "enum",
        "format",
        "maximum",
        "maxItems",
        "maxLength",
        "minimum",
        "nullable",
        "pattern",
        "required",
        "type",
        "x-kubernetes-int-or-string",
        "x-kubernetes-list-map-keys",
        "x-kubernetes-list-type",
    }
)
_DROPPED = frozenset({"title", "$defs"})


def structural(model: type[BaseModel]) -> Schema:
    """Return a model's structural schema."""
    raw = model.model_json_schema(by_alias=True, mode="validation")
    return _structural(raw, raw.get("$defs", {}))


def _structural(node: Schema, definitions: dict[str, Schema]) -> Schema:
    node = _resolved(node, definitions)
    if node.get("x-kubernetes-int-or-string"):
        return {key: value for key, value in node.items() if key in _KEPT | {"anyOf"} and value is not None}
    out: Schema = {}
    for key, value in node.items():
        if key == "properties":
            out[key] = {name: _structural(part, definitions) for name, part in value.items()}
        elif key == "items":
            out[key] = _structural(value, definitions)
        elif key in _KEPT and value is not None:
            out[key] = deepcopy(value)
        elif key not in _DROPPED and value is not None and (key, value) != ("additionalProperties", True):
            raise ValueError(f"schema keyword {key!r} has no place in a structural schema: {node}")
    return out


def _resolved(node: Schema, definitions: dict[str, Schema]) -> Schema:
    """Follow references and unwrap `X or null`, the outer description winning."""
    if "$ref" in node:
        target = definitions[node["$ref"].rpartition("/")[2]]
        return _resolved({**target, **{key: value for key, value in node.items() if key != "$ref"}}, definitions)
    if "anyOf" in node and not node.get("x-kubernetes-int-or-string"):
        wanted = [part for part in node["anyOf"] if part != {"type": "null"}]
        if len(wanted) != 1:
            raise ValueError(f"only `X or null` has a structural form: {node}")
        outer = {key: value for key, value in node.items() if key != "anyOf"}
        return _resolved({**_resolved(wanted[0], definitions), **outer}, definitions)
    return node
