"""InstanceType: one hardware pool, what a unit of it is, and what it can still give.

For: the instance_type controller, which writes the status; webhooks, Instances and people, who read (spec 02 §4).
In: cluster-scoped objects. Out: their shape as raw objects; the phase that a ClusterQueue's state gives.
Promises: the four phases and their messages are exactly those of spec 02 §4.5.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypedDict

from api.devices import ProfileCount, SlicedDetail

DRAINING = "Draining"
INACTIVE = "Inactive"
ACTIVE = "Active"
ACTIVATING = "Activating"

HOLD = "Hold"
HOLD_AND_DRAIN = "HoldAndDrain"
"""Stop policies of a Kueue queue: nothing new is admitted; what is admitted goes too."""


class UnitResources(TypedDict, total=False):
    """What one accelerator, or one core of a CPU pool, comes with."""

    cpu: str
    ram: str


class InstanceTypeSpec(TypedDict, total=False):
    """A pool's identity and unit. Scalars only: equal specs are equal pools."""

    displayName: str
    description: str
    inactive: bool
    acceleratorGroup: str
    generalGroup: str
    acceleratable: bool
    os: str
    arch: str
    unitResources: UnitResources
    localStorage: str


class ResourceView(TypedDict, total=False):
    """One view; the values are quantities."""

    onceMaxRequest: str
    remaining: str
    capacity: str


class PartitionView(ResourceView, total=False):
    """The partitioned view, with its profiles."""

    allocatedProfiles: list[ProfileCount]
    remainingProfiles: list[ProfileCount]


class Cache(TypedDict, total=False):
    """CPU caches, in bytes as text."""

    l1i: str
    l1d: str
    l2: str
    l3: str


class CpuDetail(TypedDict, total=False):
    """CPU facts."""

    manufacturer: str
    product: str
    family: str
    physicalCores: str
    threadsPerPhysicalCore: str
    logicalCores: str
    stepping: str
    clockSpeed: str
    maxClockSpeed: str
    cacheLine: str
    cache: Cache


class Detail(CpuDetail, total=False):
    """What the pool's hardware is; does not move with allocations."""

    memory: str
    cores: str
    computeCapability: str
    runtimeVersion: str
    runtimeVersions: list[str]
    slicedDetail: SlicedDetail
    cpu: CpuDetail


class Summary(TypedDict, total=False):
    """Strings for the table (`api.summary`)."""

    unit: str
    accelerator: str
    cpu: str
    partitions: str


class InstanceTypeStatus(TypedDict, total=False):
    """What the pool is and can give."""

    detail: Detail
    entrance: str
    phase: str
    phaseMessage: str
    accelerator: ResourceView
    acceleratorShared: ResourceView
    acceleratorSliced: ResourceView
    acceleratorPartitioned: PartitionView
    cpu: ResourceView
    summary: Summary


class InstanceType(TypedDict, total=False):
    """A raw InstanceType object."""

    apiVersion: str
    kind: str
    metadata: dict[str, Any]
    spec: InstanceTypeSpec
    status: InstanceTypeStatus


@dataclass(frozen=True, slots=True)
class Phase:
    """A phase and why."""

    phase: str
    message: str = ""


def phase_of_queue(stop_policy: str, *, reserving: bool, active: str, message: str) -> Phase:
    """Return the phase of a pool whose ClusterQueue has this stop policy, holds reservations or not, and has this
    `Active` condition (its status and message).
    """
    if stop_policy == HOLD_AND_DRAIN:
        if reserving:
            return Phase(DRAINING, "cluster queue is draining admitted workloads")
        return Phase(INACTIVE, "cluster queue is held and drained")
    if stop_policy == HOLD:
        return Phase(INACTIVE, "cluster queue is held")
    if active == "True":
        return Phase(ACTIVE)
    return Phase(INACTIVE, message) if active == "False" else Phase(ACTIVATING)
