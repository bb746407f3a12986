"""Checking an object against its model: every error, each with path, value and rule.

For: webhooks and resources. In: a raw object and its model. Out: problems in the order of the fields.
Promises: collects all; messages carry no class names and no links; values are shown in a bounded form.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from api.problems import Fault, Problem, problem

_RULES = {
    "missing": "is required",
    "string_type": "must be a string",
    "int_type": "must be an integer",
    "bool_type": "must be true or false",
    "list_type": "must be a list",
    "dict_type": "must be an object",
    "model_type": "must be an object",
}


def shape_problems(model: type[BaseModel], obj: object) -> list[Problem]:
    """Return what of an object does not have the shape of its kind."""
    try:
        model.model_validate(obj)
    except ValidationError as broken:
        return [_problem(error) for error in broken.errors(include_url=False)]
    return []


def path_of(location: Sequence[str | int]) -> str:
    """Return a location as people write it: `spec.ports[0].port`."""
    path = ""
    for step in location:
        path += f"[{step}]" if isinstance(step, int) else f".{step}" if path else step
    return path


def _problem(error: Any) -> Problem:
    kind, context = error["type"], error.get("ctx", {})
    value = None if kind == "missing" else error["input"]
    fault = Fault.REQUIRED if kind == "missing" else Fault.INVALID
    return problem(path_of(error["loc"]), value, _rule(kind, context, error["msg"]), fault)


def _rule(kind: str, context: dict[str, Any], message: str) -> str:
    if kind in _RULES:
        return _RULES[kind]
    if kind == "greater_than_equal":
        return f"must be at least {context['ge']}"
    if kind == "less_than_equal":
        return f"must be at most {context['le']}"
    if kind == "string_too_long":
        return f"must have at most {context['max_length']} characters"
    if kind == "string_pattern_mismatch":
        return f"must match {context['pattern']}"
    if kind == "too_long":
        return f"must have at most {context['max_length']} items"
    if kind == "literal_error":
        return f"must be one of {context['expected']}"
    return message
