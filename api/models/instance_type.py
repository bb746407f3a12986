"""Model of InstanceType (spec 02 §4)."""

from __future__ import annotations

from pydantic import Field

from api.models.devices import ProfileCount, SlicedDetail
from api.models.objects import Object
from api.schema import Message, Model, Quantity, Text, Word, map_list


class UnitResources(Model):
    """What one accelerator, or one core of a CPU pool, comes with."""

    cpu: Word = Field(description="Cores, without a unit")
    ram: Word = Field(description="For example 16Gi")


class InstanceTypeSpec(Model):
    """The pool's identity and unit."""

    display_name: str | None = Field(default=None, max_length=64)
    description: Text | None = None
    inactive: bool | None = Field(
        default=None, description="Holds the pool's queue: nothing new is admitted, what runs stays"
    )
    accelerator_group: Word | None = Field(default=None, description="Required when acceleratable")
    general_group: Word | None = None
    acceleratable: bool
    os: Word
    arch: Word
    unit_resources: UnitResources
    local_storage: Word = Field(description="For example 100Gi")


class ResourceView(Model):
    """One view of what the pool can give."""

    once_max_request: Quantity = Field(description="Largest single request; a hint, never a reason to refuse")
    remaining: Quantity
    capacity: Quantity


class PartitionView(ResourceView):
    """The partitioned view."""

    allocated_profiles: list[ProfileCount] | None = Field(
        default=None, max_length=64, json_schema_extra=map_list("name")
    )
    remaining_profiles: list[ProfileCount] | None = Field(
        default=None, max_length=64, json_schema_extra=map_list("name"), description="Every offered profile, also at 0"
    )


class Cache(Model):
    """CPU caches in bytes."""

    # The camel-case rule would write l1I and l1D.
    l1i: Word | None = Field(default=None, alias="l1i")
    l1d: Word | None = Field(default=None, alias="l1d")
    l2: Word | None = None
    l3: Word | None = None


class CpuDetail(Model):
    """CPU facts."""

    manufacturer: Word | None = None
    product: Word | None = None
    family: Word | None = None
    physical_cores: Word | None = None
    threads_per_physical_core: Word | None = None
    logical_cores: Word | None = None
    stepping: Word | None = None
    clock_speed: Word | None = None
    max_clock_speed: Word | None = None
    cache_line: Word | None = None
    cache: Cache | None = None


class Detail(CpuDetail):
    """What the pool's hardware is."""

    memory: Word | None = None
    cores: Word | None = None
    compute_capability: Word | None = None
    runtime_version: Word | None = None
    runtime_versions: list[Word] | None = Field(
        default=None, max_length=64, json_schema_extra={"x-kubernetes-list-type": "atomic"}
    )
    sliced_detail: SlicedDetail | None = None
    cpu: CpuDetail | None = None


class Summary(Model):
    """Table cells."""

    unit: Text | None = None
    accelerator: Text | None = None
    cpu: Text | None = None
    partitions: str | None = Field(default=None, max_length=8192)


class InstanceTypeStatus(Model):
    """What the pool is and can still give."""

    detail: Detail | None = None
    entrance: Word | None = Field(default=None, description="LocalQueue for label kueue.x-k8s.io/queue-name")
    phase: Word
    phase_message: Message | None = None
    accelerator: ResourceView
    accelerator_shared: ResourceView
    accelerator_sliced: ResourceView
    accelerator_partitioned: PartitionView
    cpu: ResourceView
    summary: Summary | None = None


class InstanceType(Object):
    """An InstanceType is one hardware pool: what a unit of it is, and what it can still give."""

    spec: InstanceTypeSpec
    status: InstanceTypeStatus | None = None
