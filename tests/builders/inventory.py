"""Builds Devices objects by what their cards can be cut into."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kube.reconciler import Object
from nodefeature.labels import MANAGED, TRUE

FREE = 1_600_000
A100_40 = {"1g.5gb": 7, "2g.10gb": 3, "3g.20gb": 2}


def logical_card(number: int, *, slices: int = 128, overcommit: bool = True) -> dict[str, Any]:
    """Return a card that serves software slices."""
    logical: dict[str, Any] = {"count": slices} | ({"coresPercentageOvercommit": True} if overcommit else {})
    return _card(number, {"unhealthy": False, "logicalSliced": logical, "physicalSliced": {}})


def partitioned_card(number: int, profiles: Mapping[str, int], *, ceiling: int = 7) -> dict[str, Any]:
    """Return a card in a hardware partitioning mode."""
    offered = [{"name": name, "count": count} for name, count in profiles.items()]
    return _card(
        number, {"unhealthy": False, "logicalSliced": {}, "physicalSliced": {"count": ceiling, "profiles": offered}}
    )


def plain_card(number: int) -> dict[str, Any]:
    """Return a card that can be held only whole."""
    return _card(number, {"unhealthy": False, "logicalSliced": {}, "physicalSliced": {}})


def _card(number: int, status: dict[str, Any]) -> dict[str, Any]:
    return {"id": f"card-{number}", "index": number, "status": status}


def logical_cards(count: int, *, slices: int = 128, overcommit: bool = True) -> list[dict[str, Any]]:
    """Return equal sliceable cards."""
    return [logical_card(number, slices=slices, overcommit=overcommit) for number in range(count)]


def group(manufacturer: str, group_id: str, cards: Sequence[Mapping[str, Any]], **fields: Any) -> dict[str, Any]:
    """Return one device model."""
    return {"id": group_id, "manufacturer": manufacturer, "name": group_id, "accelerators": list(cards), **fields}


def row(number: int, *, remaining: int = FREE, mode: int = 0, **profiles: Mapping[str, int]) -> dict[str, Any]:
    """Return a ledger row; `profiles` are `allocated` and `remaining_profiles`."""
    shown: dict[str, Any] = {"id": f"card-{number}", "index": number, "mode": mode, "remaining": remaining}
    for field, counts in (
        ("allocatedProfiles", profiles.get("allocated")),
        ("remainingProfiles", profiles.get("left")),
    ):
        if counts:
            shown[field] = [{"name": name, "count": count} for name, count in counts.items()]
    return shown


def devices(
    name: str,
    *groups: Mapping[str, Any],
    ledger: Sequence[Mapping[str, Any]] = (),
    labels: Mapping[str, str] | None = None,
    managed: bool = True,
) -> Object:
    """Return a Devices object; `ledger` are the groups of its status."""
    return {
        "metadata": {"name": name, "labels": {**({MANAGED: TRUE} if managed else {}), **(labels or {})}},
        "spec": {"groups": list(groups)},
        "status": {"groups": list(ledger)},
    }
