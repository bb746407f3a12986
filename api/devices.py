"""Devices: what cards a node has (spec) and who holds them (status).

For: the agent, which writes; node_capacity, node_devices, instance_type, gate 3, which read (spec 02 §3).
In: cluster-scoped objects named like their Node. Out: their shape as raw objects; `api.models.devices` validates.
Trusts: only agents may write these objects; the reader still takes every field as possibly absent or wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypedDict

from nodefeature.fields import as_maps, as_str, at, uid_of
from nodefeature.keys import clean_key
from nodefeature.kinds import NODE


class PlacementDict(TypedDict):
    """A half-open run of slices."""

    start: int
    length: int


class Profile(TypedDict, total=False):
    """A hardware partition profile of one card, or an aggregate of several (then without placements)."""

    name: str
    memoryMib: int
    computeSlices: int
    memorySlices: int
    count: int
    placements: list[PlacementDict]


class ProfileCount(TypedDict, total=False):
    """Instances bound, or placements free, of one profile; `count` is absent at 0."""

    name: str
    count: int


class LogicalSliced(TypedDict, total=False):
    """Software slices."""

    coresPercentageOvercommit: bool
    count: int


class PhysicalSliced(TypedDict, total=False):
    """Hardware partitions."""

    profiles: list[Profile]
    count: int


class SlicedDetail(TypedDict, total=False):
    """Aggregate over the cards of a group or a pool."""

    logical: LogicalSliced
    physical: PhysicalSliced


class AcceleratorStatus(TypedDict, total=False):
    """Health and slicing capability of one card."""

    unhealthy: bool
    logicalSliced: LogicalSliced
    physicalSliced: PhysicalSliced


class Accelerator(TypedDict, total=False):
    """One card of the inventory."""

    id: str
    index: int
    physicalIndexes: list[int]
    topology: dict[str, Any]
    status: AcceleratorStatus


class DeviceGroup(TypedDict, total=False):
    """One device model on a node."""

    id: str
    manufacturer: str
    name: str
    memory: int
    cores: int
    driverVersion: str
    runtimeVersion: str
    computeCapability: str
    family: str
    accelerators: list[Accelerator]
    acceleratorSlicedDetail: SlicedDetail


class LedgerCard(TypedDict, total=False):
    """One card's row, in the ledger or in a Pod's transport record."""

    id: str
    index: int
    mode: int
    allocated: int
    remaining: int
    allocatedProfiles: list[ProfileCount]
    remainingProfiles: list[ProfileCount]
    allocatedPhysicalProfile: str
    allocatedPhysicalPlacements: list[PlacementDict]
    allocatedPhysicalID: str
    allocatedLogicalPlacements: list[PlacementDict]


class LedgerGroup(TypedDict, total=False):
    """The rows of one device model."""

    id: str
    manufacturer: str
    accelerators: list[LedgerCard]


class DevicesSpec(TypedDict, total=False):
    """Inventory."""

    groups: list[DeviceGroup]


class DevicesStatus(TypedDict, total=False):
    """Ledger, and how complete the inventory is."""

    groups: list[LedgerGroup]
    conditions: list[dict[str, Any]]


class Devices(TypedDict, total=False):
    """A raw Devices object."""

    apiVersion: str
    kind: str
    metadata: dict[str, Any]
    spec: DevicesSpec
    status: DevicesStatus


def is_of_node(devices: object, node: object) -> bool:
    """Say whether a Devices object speaks of this Node, and not of a namesake before it whose uid it still names."""
    owners = [owner for owner in as_maps(at(devices, "metadata", "ownerReferences")) if owner.get("kind") == NODE.kind]
    return not owners or any(owner.get("uid") == uid_of(node) for owner in owners)


def spec_groups(devices: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return `spec.groups[]`, whatever else stands there left out."""
    return as_maps(at(devices, "spec", "groups"))


def status_groups(devices: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return `status.groups[]`, whatever else stands there left out."""
    return as_maps(at(devices, "status", "groups"))


def cards_of(group: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return a group's `accelerators[]`, whatever else stands there left out."""
    return as_maps(group.get("accelerators"))


def group_key(group: Mapping[str, Any]) -> str:
    """Return the pool key of a group, `<manufacturer>-<id>` in the key alphabet; empty when either is missing.

    Older agents spelled ids as the vendor does (`k100_ai`); the pool has the clean key (design §8.1).
    """
    manufacturer, group_id = as_str(group.get("manufacturer")), as_str(group.get("id"))
    return clean_key(f"{manufacturer}-{group_id}") if manufacturer and group_id else ""


def iter_cards(devices: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Yield every (group, card) of the inventory in order."""
    for group in spec_groups(devices):
        for card in cards_of(group):
            yield group, card
