"""Model of Devices (spec 02 §3)."""

from __future__ import annotations

from pydantic import Field

from api.ledger.modes import CARD_UNITS, Mode
from api.models.objects import Condition, Object
from api.schema import Amount, Count, Model, Word, atomic_list, map_list

_MODE = "0 None, 1 Exclusive, 2 Shared, 3 Sliced, 4 Partitioned"
_MAX_GROUPS = 64
_MAX_CARDS = 1024
_MAX_PROFILES = 64
_MAX_PLACEMENTS = 1024


class Placement(Model):
    """A half-open run of slices."""

    start: Count = Field(description="First slice, from 0")
    length: Count = Field(description="Number of slices")


class Profile(Model):
    """A hardware partition profile."""

    name: Word
    memory_mib: Amount | None = None
    compute_slices: Count | None = None
    memory_slices: Count | None = None
    count: Count | None = Field(default=None, description="Instances on an empty card")
    placements: list[Placement] | None = Field(
        default=None,
        max_length=_MAX_PLACEMENTS,
        json_schema_extra=atomic_list(),
        description="Legal runs of memory slices on an empty card",
    )


class ProfileCount(Model):
    """How many of one profile."""

    name: Word
    count: Count | None = None


class LogicalSliced(Model):
    """Software slices."""

    cores_percentage_overcommit: bool | None = Field(
        default=None, description="Each slice may claim all of the card's compute"
    )
    count: Count | None = Field(default=None, description="Largest number of slices")


class PhysicalSliced(Model):
    """Hardware partitions."""

    profiles: list[Profile] | None = Field(default=None, max_length=_MAX_PROFILES, json_schema_extra=map_list("name"))
    count: Count | None = Field(default=None, description="Largest number of partitions")


class SlicedDetail(Model):
    """Slicing capability, added up."""

    logical: LogicalSliced | None = None
    physical: PhysicalSliced | None = None


class Roce(Model):
    """RoCE endpoint of a card."""

    ip: Word
    subnet_mask: Word
    gateway: Word


class AcceleratorTopology(Model):
    """Where a card sits."""

    pci_bus_id: Word = Field(alias="pciBusId")
    pci_root_id: Word = Field(alias="pciRootId")
    pci_class: Word
    pci_switches: list[Word] | None = Field(
        default=None,
        max_length=64,
        json_schema_extra=atomic_list(),
        description="Bridges above the card, innermost first",
    )
    numa_affinity: Word
    cpu_affinity: str = Field(max_length=4096, description="CPUs near the card's NUMA node")
    roce: Roce | None = None


class AcceleratorStatus(Model):
    """Health and slicing capability of a card."""

    unhealthy: bool
    logical_sliced: LogicalSliced | None = None
    physical_sliced: PhysicalSliced | None = None


class Accelerator(Model):
    """One card."""

    id: Word = Field(description="UUID of the card")
    index: Count = Field(description="Logical number, from 0")
    physical_indexes: list[Count] | None = Field(
        default=None, max_length=64, json_schema_extra=atomic_list(), description="Numbers of the card's device files"
    )
    topology: AcceleratorTopology | None = None
    status: AcceleratorStatus | None = None


class DeviceGroup(Model):
    """One device model on the node."""

    id: Word
    manufacturer: Word
    name: Word = Field(description="Product name as reported")
    memory: Amount = Field(description="MiB of one card")
    cores: Count | None = None
    driver_version: Word | None = None
    runtime_version: Word | None = None
    compute_capability: Word | None = None
    family: Word | None = None
    accelerators: list[Accelerator] | None = Field(
        default=None, max_length=_MAX_CARDS, json_schema_extra=map_list("id")
    )
    accelerator_sliced_detail: SlicedDetail | None = None


class LedgerCard(Model):
    """Who holds a card."""

    id: Word
    index: Count
    mode: int = Field(ge=0, le=int(Mode.PARTITIONED), json_schema_extra={"format": "int32"}, description=_MODE)
    remaining: int | None = Field(
        default=None, ge=0, le=CARD_UNITS, json_schema_extra={"format": "int32"}, description="Free units of the card"
    )
    allocated_profiles: list[ProfileCount] | None = Field(
        default=None, max_length=_MAX_PROFILES, json_schema_extra=map_list("name")
    )
    remaining_profiles: list[ProfileCount] | None = Field(
        default=None, max_length=_MAX_PROFILES, json_schema_extra=map_list("name")
    )


class LedgerGroup(Model):
    """The ledger of one device model."""

    id: Word
    manufacturer: Word
    accelerators: list[LedgerCard] | None = Field(default=None, max_length=_MAX_CARDS, json_schema_extra=map_list("id"))


class Allocation(Model):
    """What one container of an Instance's Pod holds on a card."""

    id: Word
    index: Count
    mode: int = Field(
        ge=0, le=int(Mode.VISIBILITY), json_schema_extra={"format": "int32"}, description=_MODE + ", 5 Visibility"
    )
    allocated: Count | None = None
    allocated_physical_profile: Word | None = None
    allocated_physical_placements: list[Placement] | None = Field(
        default=None, max_length=_MAX_PLACEMENTS, json_schema_extra=atomic_list()
    )
    allocated_physical_id: Word | None = Field(default=None, alias="allocatedPhysicalID")
    allocated_logical_placements: list[Placement] | None = Field(
        default=None, max_length=_MAX_PLACEMENTS, json_schema_extra=atomic_list()
    )


class AllocationGroup(Model):
    """What an Instance's Pod holds of one device model; two containers on one card give two rows."""

    id: Word
    manufacturer: Word
    accelerators: list[Allocation] | None = Field(default=None, max_length=_MAX_CARDS, json_schema_extra=atomic_list())


class DevicesSpec(Model):
    """Detected inventory of the node."""

    groups: list[DeviceGroup] = Field(max_length=_MAX_GROUPS, json_schema_extra=map_list("id", "manufacturer"))


class DevicesStatus(Model):
    """Ledger of the node's cards, and how complete the inventory is."""

    groups: list[LedgerGroup] | None = Field(
        default=None, max_length=_MAX_GROUPS, json_schema_extra=map_list("id", "manufacturer")
    )
    conditions: list[Condition] | None = Field(
        default=None,
        max_length=64,
        json_schema_extra=map_list("type"),
        description="Detected-<manufacturer>: whether its cards were measured and all of them published",
    )


class Devices(Object):
    """Devices are the accelerators of the node of the same name, and who holds them."""

    spec: DevicesSpec
    status: DevicesStatus | None = None
