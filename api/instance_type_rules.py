"""What an InstanceType must obey beyond its shape.

For: the InstanceType webhook (spec 02 §4.1, §4.8, spec 05 §7.7).
In: raw objects. Out: problems, all of them, in the order of the fields.
Promises: pure; an update is judged on immutability alone, so that a legacy object with a bad shape can still be
renamed or deactivated; nothing is judged on an object that is being deleted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from api.models.instance_type import InstanceType
from api.problems import Fault, Problem, problem, require
from api.validation import shape_problems
from nodefeature.destinations import is_dns_label, is_label_value
from nodefeature.fields import as_bool, as_map, as_str, at
from nodefeature.quantity import QuantityInvalid, parse_amount

EDITABLE = frozenset({"displayName", "description", "inactive"})
_CORES = re.compile(r"[1-9][0-9]{0,8}")
_STORAGE = re.compile(r"[1-9][0-9]{0,8}Gi")


def create_problems(instance_type: Mapping[str, Any]) -> list[Problem]:
    """Return everything wrong with a new InstanceType."""
    spec = as_map(at(instance_type, "spec"))
    problems = shape_problems(InstanceType, instance_type)
    accelerated = as_bool(spec.get("acceleratable"))
    group = as_str(spec.get("acceleratorGroup"))
    rule = "is required when acceleratable"
    problems += require(bool(group) or not accelerated, "spec.acceleratorGroup", None, rule, Fault.REQUIRED)
    problems += require(not group or accelerated, "spec.acceleratorGroup", group, "needs an acceleratable type")
    for field in ("acceleratorGroup", "generalGroup"):
        value = as_str(spec.get(field))
        rule = "must be a legal name of at most 63 characters"
        problems += require(is_label_value(value), f"spec.{field}", value, rule)
    problems += _platform_problems(spec, "os") + _platform_problems(spec, "arch")
    problems += _unit_problems(spec, accelerated=accelerated)
    return problems


def update_problems(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Problem]:
    """Return the immutable fields that an update changes."""
    if at(new, "metadata", "deletionTimestamp"):
        return []
    before, after = as_map(at(old, "spec")), as_map(at(new, "spec"))
    return [
        problem(
            f"spec.{name}",
            after.get(name),
            f"{name} is immutable; create another InstanceType instead",
            Fault.FORBIDDEN,
        )
        for name in sorted({*before, *after} - EDITABLE)
        if (before.get(name) or None) != (after.get(name) or None)
    ]


def _platform_problems(spec: Mapping[str, Any], field: str) -> list[Problem]:
    """Take whatever nodes may call themselves: derived types follow the nodes' labels, `s390x` included."""
    value = spec.get(field)
    legal = not isinstance(value, str) or (value != "" and is_dns_label(value))
    return require(legal, f"spec.{field}", value, "must be the value of a node's label, such as linux or amd64")


def _unit_problems(spec: Mapping[str, Any], *, accelerated: bool) -> list[Problem]:
    problems: list[Problem] = []
    cpu, ram = at(spec, "unitResources", "cpu"), at(spec, "unitResources", "ram")
    if isinstance(cpu, str):
        path = "spec.unitResources.cpu"
        problems += require(
            _CORES.fullmatch(cpu) is not None, path, cpu, "must be a positive whole number of cores, such as 4"
        )
        problems += require(accelerated or cpu == "1", path, cpu, "must be exactly 1 when not acceleratable")
    if isinstance(ram, str):
        problems += require(_is_positive(ram), "spec.unitResources.ram", ram, "must be a quantity such as 16Gi")
    storage = spec.get("localStorage")
    if isinstance(storage, str):
        fine = _STORAGE.fullmatch(storage) is not None
        problems += require(fine, "spec.localStorage", storage, "must be a whole number of Gi such as 100Gi")
    return problems


def _is_positive(text: str) -> bool:
    try:
        return parse_amount(text).nano > 0
    except QuantityInvalid:
        return False
