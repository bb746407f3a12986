"""Models of what sub-resources answer: nothing of it is stored (spec 02 §7, spec 05 §12)."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from api.models.objects import Object
from api.schema import Amount, Model, Text, Word

Figure = Annotated[int, Field(json_schema_extra={"format": "int64"})]


class InstanceEvents(Object):
    """InstanceEvents are the Events about the Pod of an Instance, oldest first; metadata is the Pod's."""

    items: list[dict[str, Any]] = Field(description="Events of core/v1")


class InstancePersistentVolumeEvents(Object):
    """InstancePersistentVolumeEvents are the Events about a volume's claim, oldest first; metadata is the claim's."""

    items: list[dict[str, Any]] = Field(description="Events of core/v1")


class AcceleratorSample(Model):
    """What is measured of a card that the Instance holds."""

    id: Word
    mode: Word = Field(description="Exclusive, Shared, Sliced, Partitioned or Visibility")
    memory_total_mib: Amount | None = Field(default=None, alias="memoryTotalMiB")
    memory_used_mib: Amount | None = Field(default=None, alias="memoryUsedMiB")
    memory_utilization_percent: Amount | None = None
    cores_utilization_percent: Amount | None = None
    temperature_celsius: Figure | None = None
    power_usage_watts: Figure | None = None
    unhealthy: bool | None = None


class Sample(Model):
    """Limits, and what is used of them: zero is measured and idle, what is absent was not measured."""

    timestamp: Word = Field(description="When it was measured")
    cpu_total_milli_cores: Amount
    cpu_used_milli_cores: Amount | None = None
    memory_total_mib: Amount = Field(alias="memoryTotalMiB")
    memory_used_mib: Amount | None = Field(default=None, alias="memoryUsedMiB")
    storage_total_mib: Amount = Field(alias="storageTotalMiB")
    storage_used_mib: Amount | None = Field(default=None, alias="storageUsedMiB")
    accelerators: list[AcceleratorSample] | None = None


class InstanceMetrics(Object):
    """InstanceMetrics is one current sample of what an Instance uses."""

    sample: Sample


class GateNumbers(Model):
    """The figures behind a gate's answer."""

    unit: Word | None = Field(default=None, description="What is counted")
    asked: Figure | None = None
    free: Figure | None = None
    largest: Figure | None = Field(default=None, description="What of it is free in one place")
    largest_at: Word | None = Field(default=None, description="That place: a node or a flavor")
    queue_ahead: Figure | None = None
    queue_pending: Figure | None = None
    at_least: bool | None = Field(default=None, description="Only a part was looked at: figures are lower bounds")


class GateAnswer(Model):
    """What a gate says."""

    name: Word = Field(description="Webhook, Quota, CardCheck, Scheduler or DevicePlugin")
    state: Word = Field(description="Passed, Waiting, Refused or Unknown")
    reason: Text
    passes_when: Text | None = None
    numbers: GateNumbers | None = None


class InstanceExplanation(Object):
    """An InstanceExplanation says at which gate an Instance waits, and why."""

    phase: Word
    summary: Text
    waiting_at: Word | None = None
    gates: list[GateAnswer]
