"""InstanceTypes, and Devices with cards in the states that the four views tell apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kube.reconciler import Object
from nodefeature.labels import ARCH, DERIVED_FROM_NODE, DEVICE_PREFIX, FINALIZER, MANAGED, OS

WHOLE = 1_600_000
SHARE = 160_000
PERCENT = 16_000
NONE, EXCLUSIVE, SHARED, SLICED, PARTITIONED = range(5)


def instance_type(
    name: str = "pool",
    *,
    group: str = "nvidia-a10g",
    general: str = "generic",
    inactive: bool | None = None,
    arch: str = "amd64",
    finalizers: Sequence[str] = (FINALIZER,),
    labels: Mapping[str, str] | None = None,
    status: Mapping[str, Any] | None = None,
    derived: bool = True,
) -> Object:
    """Return an InstanceType; without `group` a CPU one."""
    spec: dict[str, Any] = {
        "acceleratable": bool(group),
        "generalGroup": general,
        "os": "linux",
        "arch": arch,
        "unitResources": {"cpu": "8" if group else "1", "ram": "64Gi" if group else "2Gi"},
        "localStorage": "100Gi",
    }
    if group:
        spec["acceleratorGroup"] = group
    if inactive is not None:
        spec["inactive"] = inactive
    marks = {DERIVED_FROM_NODE: "true"} if derived else {}
    metadata: dict[str, Any] = {"name": name, "generation": 1, "labels": {**marks, **(labels or {})}}
    if finalizers:
        metadata["finalizers"] = list(finalizers)
    return {"metadata": metadata, "spec": spec, "status": dict(status or {})}


@dataclass(frozen=True, slots=True)
class Card:
    """One card: what it can be cut into, and what its ledger row says (None: no row)."""

    mode: int = NONE
    remaining: int | None = WHOLE
    slices: int = 128
    ceiling: int = 0
    profiles: Mapping[str, int] = field(default_factory=dict)
    allocated: Mapping[str, int] = field(default_factory=dict)
    left: Mapping[str, int] = field(default_factory=dict)
    overcommit: bool = True


FREE = Card()
WHOLE_ONLY = Card(slices=0)
TAKEN = Card(EXCLUSIVE, 0)


def shared(shares_left: int) -> Card:
    """Return a shared card."""
    return Card(SHARED, shares_left * SHARE)


def sliced(percent_left: int) -> Card:
    """Return a sliced card."""
    return Card(SLICED, percent_left * PERCENT)


def mig(
    profiles: Mapping[str, int],
    *,
    allocated: Mapping[str, int] | None = None,
    left: Mapping[str, int] | None = None,
    ledger: bool = True,
) -> Card:
    """Return a partitioned card; `ledger=False` leaves its row out of the status."""
    return Card(
        mode=PARTITIONED if allocated else NONE,
        remaining=WHOLE if ledger else None,
        slices=0,
        ceiling=max(profiles.values(), default=0),
        profiles=profiles,
        allocated=allocated or {},
        left=left or {},
    )


def devices(
    name: str,
    cards: Sequence[Card],
    *,
    group: str = "nvidia-a10g",
    managed: bool = True,
    arch: str = "amd64",
    labels: Mapping[str, str] | None = None,
    runtime: str = "",
    comcap: str = "",
) -> Object:
    """Return a Devices object with one group."""
    marks = {MANAGED: "true"} if managed else {}
    return {
        "metadata": {
            "name": name,
            "labels": {OS: "linux", ARCH: arch, DEVICE_PREFIX + group: "true", **marks, **(labels or {})},
        },
        **device_groups(cards, group=group, runtime=runtime, comcap=comcap),
    }


def device_groups(
    cards: Sequence[Card], *, group: str = "nvidia-a10g", runtime: str = "", comcap: str = ""
) -> dict[str, Any]:
    """Return spec and status of one group of cards."""
    manufacturer, _, group_id = group.partition("-")
    inventory, ledger = [], []
    for index, card in enumerate(cards):
        logical = {"coresPercentageOvercommit": card.overcommit, "count": card.slices}
        profiles = [_profile(name, count) for name, count in card.profiles.items()]
        physical = {"count": card.ceiling, "profiles": profiles}
        capability = {
            "unhealthy": False,
            "logicalSliced": logical if card.slices else {},
            "physicalSliced": physical if profiles else {},
        }
        inventory.append({"id": f"card-{index}", "index": index, "status": capability})
        if card.remaining is None:
            continue
        row: dict[str, Any] = {"id": f"card-{index}", "index": index, "mode": card.mode, "remaining": card.remaining}
        if card.allocated:
            row["allocatedProfiles"] = [{"name": n, "count": c} for n, c in sorted(card.allocated.items())]
        if card.left:
            row["remainingProfiles"] = [{"name": n, "count": c} for n, c in sorted(card.left.items())]
        ledger.append(row)
    head = {"id": group_id, "manufacturer": manufacturer}
    known = {"name": group_id, "memory": 24576, "runtimeVersion": runtime, "computeCapability": comcap}
    return {
        "spec": {"groups": [{**head, **known, "accelerators": inventory}]},
        "status": {"groups": [{**head, "accelerators": ledger}]},
    }


def _profile(name: str, count: int) -> dict[str, Any]:
    return {"name": name, "count": count, "memoryMib": 10240}
