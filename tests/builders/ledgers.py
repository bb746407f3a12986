"""Builds the inventory and the ledger of a node, card by card."""

from __future__ import annotations

from typing import Any

from api.devices import Accelerator, DeviceGroup, Devices, LedgerCard, Profile
from api.ledger.capability import group_detail
from api.ledger.modes import CARD_UNITS, PERCENT_UNITS, SHARE_UNITS, Mode

H100 = "h100-80gb-hbm3"
H100_POOL = f"nvidia-{H100}"
_GEOMETRY = (
    ("1g.{0}gb", range(7), 1, 1),
    ("1g.{1}gb", range(0, 8, 2), 2, 1),
    ("2g.{1}gb", range(0, 6, 2), 2, 2),
    ("3g.{2}gb", range(0, 8, 4), 4, 3),
    ("4g.{2}gb", range(1), 4, 4),
    ("7g.{3}gb", range(1), 8, 7),
)


def mig_profiles(small_gb: int = 10) -> list[Profile]:
    """Return the profiles of an A100-40 (5) or H100-80 (10) in MIG mode."""
    sizes = [small_gb * factor for factor in (1, 2, 4, 8)]
    return [
        {
            "name": name.format(*sizes),
            "memoryMib": small_gb * length * 1024,
            "computeSlices": compute,
            "memorySlices": length,
            "count": len(starts),
            "placements": [{"start": start, "length": length} for start in starts],
        }
        for name, starts, length, compute in _GEOMETRY
    ]


def card(
    card_id: str,
    index: int = 0,
    *,
    slices: int = 0,
    overcommit: bool = False,
    profiles: list[Profile] | None = None,
    ceiling: int | None = None,
    unhealthy: bool = False,
) -> Accelerator:
    """Return a card of the inventory; `ceiling` is the partition count, by default the largest of the profiles."""
    most = ceiling if ceiling is not None else max((p["count"] for p in profiles or []), default=0)
    logical: Any = {"coresPercentageOvercommit": True} if overcommit else {}
    physical: Any = {"profiles": profiles} if profiles else {}
    return {
        "id": card_id,
        "index": index,
        "physicalIndexes": [index],
        "topology": {"pciBusId": "", "pciRootId": "", "pciClass": "", "numaAffinity": "", "cpuAffinity": ""},
        "status": {
            "unhealthy": unhealthy,
            "logicalSliced": logical | ({"count": slices} if slices else {}),
            "physicalSliced": physical | ({"count": most} if most else {}),
        },
    }


def free(card_id: str, index: int = 0) -> LedgerCard:
    """Return the ledger row of a free card."""
    return {"id": card_id, "index": index, "mode": 0, "remaining": CARD_UNITS}


def held(card_id: str, mode: Mode, remaining: int = 0, index: int = 0) -> LedgerCard:
    """Return the ledger row of a held card; a `remaining` of 0 is not written."""
    row: LedgerCard = {"id": card_id, "index": index, "mode": int(mode)}
    if remaining:
        row["remaining"] = remaining
    return row


def shared(card_id: str, shares_left: int) -> LedgerCard:
    """Return the ledger row of a shared card."""
    return held(card_id, Mode.SHARED, shares_left * SHARE_UNITS)


def sliced(card_id: str, percent_left: int) -> LedgerCard:
    """Return the ledger row of a sliced card."""
    return held(card_id, Mode.SLICED, percent_left * PERCENT_UNITS)


def carved(card_id: str, remaining: dict[str, int], allocated: dict[str, int] | None = None) -> LedgerCard:
    """Return the ledger row of a partitioned card."""
    row = held(card_id, Mode.PARTITIONED if allocated else Mode.NONE, CARD_UNITS)
    if allocated:
        row["allocatedProfiles"] = [{"name": name, "count": count} for name, count in allocated.items()]
    if remaining:
        row["remainingProfiles"] = [{"name": name, "count": count} for name, count in remaining.items()]
    return row


def group(
    cards: list[Accelerator], *, group_id: str = H100, manufacturer: str = "nvidia", memory: int = 81920, **fields: Any
) -> DeviceGroup:
    """Return one device model."""
    built: Any = {
        "id": group_id,
        "manufacturer": manufacturer,
        "name": group_id,
        "memory": memory,
        "accelerators": cards,
        "acceleratorSlicedDetail": group_detail(cards),
        **fields,
    }
    ready: DeviceGroup = built
    return ready


def devices(name: str, groups: list[DeviceGroup], rows: list[LedgerCard]) -> Devices:
    """Return a node's object; the ledger rows belong to the first group."""
    ledger: Any = [{"id": g["id"], "manufacturer": g["manufacturer"], "accelerators": []} for g in groups]
    if ledger:
        ledger[0]["accelerators"] = rows
    return {
        "apiVersion": "worker.gpustack.ai/v1alpha1",
        "kind": "Devices",
        "metadata": {"name": name},
        "spec": {"groups": groups},
        "status": {"groups": ledger},
    }
