"""How large an Instance becomes that leaves its size open (spec 05 §6).

For: the Instance webhook's defaulting. In: `spec.resources`, the InstanceType, whether general resources are
overcommitted. Out: the resources with everything filled in, or why that must wait.
Promises: pure and exact; a share of a unit is floored in the unit's own scale and never below 1; an amount that is no
quantity, or negative, stays as it is for validation to name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from api.instance_rules import asks_slice, quantity_of
from api.ledger.fit import detail_ready, pool_sliceable
from api.unit_folds import card_mib, offered_profile
from nodefeature.fields import as_bool, as_int, as_map, as_str, at, name_of
from nodefeature.quantity import Quantity, of, quantity_or_zero

DEFAULT_STORAGE = "15Gi"
_SCALED = re.compile(r"([0-9]+)([A-Za-z]*)")
_MEMORY, _CORES = "acceleratorSlicedMemoryPercentage", "acceleratorSlicedCoresPercentage"


@dataclass(frozen=True, slots=True)
class Sized:
    """Resources, or a reason to try again later."""

    resources: dict[str, Any] = field(default_factory=dict)
    retry: str = ""


def sized(resources: Mapping[str, Any], instance_type: Mapping[str, Any], *, overcommit: bool) -> Sized:
    """Return the resources of an Instance of this type."""
    spec, detail = as_map(instance_type.get("spec")), as_map(at(instance_type, "status", "detail"))
    out = dict(resources)
    if as_bool(spec.get("acceleratable")):
        asks_part = bool(as_str(out.get("acceleratorPartitionedProfile"))) or asks_slice(out)
        if asks_part and not detail_ready(detail):
            return Sized(retry=f"instance type {name_of(instance_type)} is not ready yet; retry")
        retry = _accelerated(out, spec, detail, overcommit=overcommit)
        if retry:
            return Sized(retry=f"instance type {name_of(instance_type)} is not ready yet ({retry}); retry")
    else:
        _general(out, spec, overcommit=overcommit)
    if _is_open(out.get("localStorage")):
        most = quantity_or_zero(spec.get("localStorage"))
        wanted = quantity_or_zero(DEFAULT_STORAGE)
        out["localStorage"] = str(min(wanted, most) if most else wanted)
    return Sized(out)


def partition_percentage(profile: str, detail: Mapping[str, Any]) -> tuple[int, bool]:
    """Return the share of a card that a profile is, in percent, and whether that can be told.

    (0, True) without a profile, or for one that is not offered: validation says so.
    """
    offered = offered_profile(detail, profile) if profile else None
    if offered is None:
        return 0, True
    memory, card = offered["memoryMib"], card_mib(detail)
    if memory <= 0 or card <= 0:
        return 0, False
    return min(max(memory * 100 // card, 1), 100), True


def percent_of(unit: Quantity, percent: int) -> str:
    """Return a share of a unit, floored in the unit's own scale, at least 1 of it."""
    found = _SCALED.fullmatch(str(unit))
    if found is None:
        return str(unit)
    return f"{max(int(found[1]) * percent // 100, 1)}{found[2]}"


def _accelerated(out: dict[str, Any], spec: Mapping[str, Any], detail: Mapping[str, Any], *, overcommit: bool) -> str:
    """Fill in the resources of a pool with cards; return why it must wait."""
    if out.get("accelerator") is None:
        out["accelerator"] = "1"
    profile = as_str(out.get("acceleratorPartitionedProfile"))
    percent, known = partition_percentage(profile, detail)
    if not known:
        return f"the memory of partition profile {profile} is not known"
    if (
        not percent
        and not profile
        and pool_sliceable(detail)
        and (as_int(out.get(_MEMORY)) > 0 or as_int(out.get(_CORES)) > 0)
    ):
        out[_MEMORY] = as_int(out.get(_MEMORY)) or as_int(out.get(_CORES))
        out[_CORES] = as_int(out.get(_CORES)) or as_int(out.get(_MEMORY))
        percent = as_int(out[_MEMORY])
    cards = quantity_of(out.get("accelerator"))
    if percent > 0 and cards is not None and not cards:
        out["accelerator"] = "1"
    for name in ("cpu", "ram"):
        unit = quantity_or_zero(at(spec, "unitResources", name))
        whole = str(unit * max(cards.ceil(), 1)) if cards is not None else str(unit)
        _fill(out, name, percent_of(unit, percent) if percent > 0 else whole, overcommit=overcommit)
    return ""


def _general(out: dict[str, Any], spec: Mapping[str, Any], *, overcommit: bool) -> None:
    """Fill in the resources of a pool of CPUs."""
    _fill(out, "cpu", str(of(1)), overcommit=False)
    cores = quantity_of(out.get("cpu"))
    if cores is not None:
        ram = quantity_or_zero(at(spec, "unitResources", "ram")) * max(cores.ceil(), 1)
        _fill(out, "ram", str(ram), overcommit=overcommit)


def _fill(out: dict[str, Any], name: str, value: str, *, overcommit: bool) -> None:
    if _is_open(out.get(name)) or (overcommit and _is_amount(out.get(name))):
        out[name] = value


def _is_open(value: object) -> bool:
    return value is None or (_is_amount(value) and not quantity_or_zero(value))


def _is_amount(value: object) -> bool:
    found = quantity_of(value)
    return found is not None and found.nano >= 0
