"""What an Instance must obey beyond its shape.

For: the Instance webhook and resource (spec 02 §6, spec 05 §7.1-7.2).
In: raw objects. Out: problems, all of them, in the order of the fields.
Promises: pure; a wrong-typed field is reported by the shape check and ignored here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from api.instance_pod_rules import OBJECT_NAME_RULE, pod_problems
from api.instance_volumes import additional_volume_problems
from api.models.instance import Instance
from api.problems import Fault, Problem, problem, require
from api.validation import shape_problems
from nodefeature.destinations import is_object_name
from nodefeature.fields import as_bool, as_int, as_map, as_maps, as_str, at
from nodefeature.quantity import Quantity, QuantityInvalid, parse_quantity

FROZEN_WHILE_RUNNING = (
    "type",
    "image",
    "imagePullPolicy",
    "command",
    "privileged",
    "ports",
    "env",
    "volumeMount",
    "imagePullSecret",
    "resources",
    "sshPublicKey",
    "nodeName",
    "additionalVolumes",
)
_QUANTITIES = {"cpu": "CPU", "ram": "RAM", "localStorage": "local storage", "accelerator": "accelerator"}
_RESOURCES = "spec.resources"


def instance_problems(instance: Mapping[str, Any]) -> list[Problem]:
    """Return everything wrong with an Instance that can be told without looking at anything else."""
    spec = as_map(at(instance, "spec"))
    problems = shape_problems(Instance, instance)
    named = as_str(spec.get("type")) != "" or "type" not in spec
    problems += require(named, "spec.type", None, "type must be specified", Fault.REQUIRED)
    problems += pod_problems(spec)
    problems += _unique("spec.ports", as_maps(spec.get("ports")), ("port", "protocol"))
    problems += _unique("spec.env", as_maps(spec.get("env")), ("name",))
    problems += volume_problems(spec)
    problems += resource_problems(as_map(spec.get("resources")))
    problems += additional_volume_problems(spec)
    return problems


def volume_problems(spec: Mapping[str, Any]) -> list[Problem]:
    """Return what is wrong with the working volume."""
    volume = as_map(spec.get("volume"))
    ephemeral, persistent = volume.get("ephemeral"), volume.get("persistent")
    if ephemeral is not None and persistent is not None:
        rule = "cannot specify both ephemeral and persistent of volume"
        return [problem("spec.volume", None, rule, Fault.FORBIDDEN)]
    if ephemeral is None and persistent is None:
        rule = "either ephemeral or persistent of volume should be specified"
        return [problem("spec.volume", None, rule, Fault.REQUIRED)]
    if ephemeral is not None:
        raw = at(ephemeral, "capacity")
        capacity = quantity_of(raw)
        positive = capacity is None or capacity.nano > 0
        return require(positive, "spec.volume.ephemeral.capacity", raw, "capacity of ephemeral volume must be positive")
    path, name = "spec.volume.persistent.name", at(persistent, "name")
    if name == "":
        return [problem(path, None, "name of the persistent volume must be specified", Fault.REQUIRED)]
    return require(not isinstance(name, str) or is_object_name(name), path, name, OBJECT_NAME_RULE)


def resource_problems(resources: Mapping[str, Any]) -> list[Problem]:
    """Return what is wrong with the asked resources, whatever the pool."""
    problems: list[Problem] = []
    for name, word in _QUANTITIES.items():
        asked = quantity_of(resources.get(name))
        fine = asked is None or asked.nano >= 0
        problems += require(fine, f"{_RESOURCES}.{name}", resources.get(name), f"{word} request cannot be negative")
    profile = as_str(resources.get("acceleratorPartitionedProfile"))
    sliced = asks_slice(resources)
    if profile and sliced:
        rule = "a hardware partition and a logical slice percentage are mutually exclusive"
        problems.append(problem(f"{_RESOURCES}.acceleratorPartitionedProfile", profile, rule, Fault.FORBIDDEN))
    accelerator = quantity_of(resources.get("accelerator"))
    if (profile or sliced) and accelerator is not None and accelerator != parse_quantity(1):
        kind = "partitioned" if profile else "sliced"
        rule = f"accelerator request must be exactly 1 for a {kind} request"
        problems.append(problem(f"{_RESOURCES}.accelerator", resources.get("accelerator"), rule))
    return problems


def update_problems(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Problem]:
    """Return the frozen fields that an update changes; nothing is judged on an object that is being deleted.

    Whether the Instance is stopped is read from the stored object: stopping and editing in one request is refused.
    """
    if at(new, "metadata", "deletionTimestamp"):
        return []
    before, after = as_map(at(old, "spec")), as_map(at(new, "spec"))
    frozen = ("volume",) if as_bool(before.get("stop")) else ("volume", *FROZEN_WHILE_RUNNING)
    problems = [
        problem(f"spec.{name}", after.get(name), f"{name} is immutable" + _advice(name), Fault.FORBIDDEN)
        for name in frozen
        if not same_value(before.get(name), after.get(name))
    ]
    phase = as_str(at(old, "status", "phase"))
    if as_bool(before.get("stop")) and not as_bool(after.get("stop")) and phase != "Stopped":
        problems.append(problem("spec.stop", after.get("stop"), "can only start stopped instance", Fault.FORBIDDEN))
    if as_bool(after.get("stop")) and not as_bool(before.get("stop")) and phase == "Starting":
        problems.append(problem("spec.stop", after.get("stop"), "cannot stop starting instance", Fault.FORBIDDEN))
    return problems


def asks_slice(resources: Mapping[str, Any]) -> bool:
    """Say whether a percentage other than 0 is asked for."""
    return any(
        as_int(resources.get(name))
        for name in ("acceleratorSlicedMemoryPercentage", "acceleratorSlicedCoresPercentage")
    )


def quantity_of(value: object) -> Quantity | None:
    """Return a quantity, or None for anything that is none (the shape check names it)."""
    try:
        return parse_quantity(value)
    except QuantityInvalid:
        return None


def same_value(left: object, right: object) -> bool:
    """Compare as the API does: absent equals null and empty, quantities by amount."""
    if (isinstance(left, Mapping) or not left) and (isinstance(right, Mapping) or not right):
        before, after = as_map(left), as_map(right)
        return all(same_value(before.get(key), after.get(key)) for key in {*before, *after})
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same_value, left, right))
    if left == right or (not left and not right):
        return True
    amounts = quantity_of(left), quantity_of(right)
    return amounts[0] is not None and amounts[0] == amounts[1]


def _advice(name: str) -> str:
    return "" if name == "volume" else "; stop the Instance first, and change it in a second request"


def _unique(path: str, items: Iterable[Mapping[str, Any]], keys: tuple[str, ...]) -> list[Problem]:
    seen: set[tuple[object, ...]] = set()
    problems: list[Problem] = []
    for index, item in enumerate(items):
        identity = tuple(str(item.get(key, "TCP" if key == "protocol" else "")) for key in keys)
        problems += require(identity not in seen, f"{path}[{index}]", "/".join(map(str, identity)), "must be unique")
        seen.add(identity)
    return problems
