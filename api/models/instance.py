"""Model of Instance (spec 02 §6)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from api.models.devices import AllocationGroup
from api.models.objects import Condition, Object, Reference
from api.schema import (
    MOUNT_PATH_PATTERN,
    Message,
    Model,
    Percent,
    Port,
    Quantity,
    Text,
    Word,
    atomic_list,
    map_list,
)

MountPath = Annotated[str, Field(max_length=1024, pattern=MOUNT_PATH_PATTERN)]


class InstancePort(Model):
    """A port of the container."""

    port: Port
    protocol: Literal["TCP", "UDP", "SCTP"] = "TCP"
    name: str | None = Field(default=None, max_length=16)


class PublishedPort(InstancePort):
    """A port and where it is reached."""

    node_port: int | None = Field(default=None, ge=0, le=65535, json_schema_extra={"format": "int32"})


class EnvironmentVariable(Model):
    """A variable of the container."""

    name: str = Field(max_length=1024)
    value: str = Field(max_length=131072)


class Resources(Model):
    """What the Instance asks for; what is left out comes from the InstanceType's unit."""

    cpu: Quantity = Field(
        default="0",
        description="Cores; 0 takes the unit's, as anything does on a type with cards"
        " while setting instance-general-resources-overcommit is true",
    )
    ram: Quantity = Field(
        default="0",
        description="For example 16Gi; 0 takes the unit's, as anything does"
        " while setting instance-general-resources-overcommit is true",
    )
    local_storage: Quantity = Field(default="0", description="0 takes 15Gi, or what the type has when that is less")
    accelerator: Quantity | None = Field(
        default=None,
        description="Cards; left out it is 1 on a type that has any, 0 asks for none but with a slice or partition",
        json_schema_extra={"nullable": True},
    )
    accelerator_sliced_memory_percentage: Percent | None = Field(
        default=None, description="Memory of a slice; 0 asks for whole cards"
    )
    accelerator_sliced_cores_percentage: Percent | None = Field(default=None, description="Compute of a slice")
    accelerator_partitioned_profile: Word | None = Field(default=None, description="For example 3g.40gb")


class Ephemeral(Model):
    """A volume that lives as long as the Pod."""

    capacity: Quantity


class Volume(Model):
    """The working volume: exactly one source."""

    ephemeral: Ephemeral | None = None
    persistent: Reference | None = None


class HostPath(Model):
    """A path of the node."""

    path: Text
    type: Word | None = None


class AdditionalVolume(Model):
    """One more mount: exactly one source."""

    mount_path: MountPath
    read_only: bool | None = None
    sub_path: Text | None = None
    persistent: Reference | None = None
    config_map: Reference | None = None
    secret: Reference | None = None
    host_path: HostPath | None = None


class InstanceSpec(Model):
    """What a person asks for."""

    display_name: str | None = Field(default=None, max_length=64)
    description: Text | None = None
    type: Word = Field(description="Name of an InstanceType")
    image: Text
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    command: list[Annotated[str, Field(max_length=131072)]] | None = Field(
        default=None, max_length=1024, json_schema_extra=atomic_list(), description="Replaces the image's command"
    )
    privileged: bool = False
    ports: list[InstancePort] | None = Field(
        default=None, max_length=256, json_schema_extra=map_list("port", "protocol")
    )
    env: list[EnvironmentVariable] | None = Field(default=None, max_length=1024, json_schema_extra=map_list("name"))
    resources: Resources | None = None
    volume_mount: MountPath = "/workspace"
    image_pull_secret: Reference | None = None
    additional_volumes: list[AdditionalVolume] | None = Field(
        default=None, max_length=256, json_schema_extra=atomic_list()
    )
    volume: Volume
    ssh_public_key: Reference | None = Field(default=None, alias="sshPublicKey")
    stop: bool | None = Field(default=None, json_schema_extra={"nullable": True})
    node_name: Word | None = None


class Address(Model):
    """An IP address."""

    ip: Word


class Summary(Model):
    """Table cells."""

    ports: str | None = Field(default=None, max_length=8192)


class InstanceStatus(Model):
    """What became of it."""

    phase: Word | None = None
    phase_message: Message | None = None
    node_name: Word | None = None
    access_addresses: list[Word] | None = Field(default=None, max_length=64, json_schema_extra=atomic_list())
    host_ips: list[Address] | None = Field(
        default=None, alias="hostIPs", max_length=64, json_schema_extra=map_list("ip")
    )
    pod_ips: list[Address] | None = Field(default=None, alias="podIPs", max_length=64, json_schema_extra=map_list("ip"))
    ports: list[PublishedPort] | None = Field(
        default=None, max_length=256, json_schema_extra=map_list("port", "protocol")
    )
    allocations: list[AllocationGroup] | None = Field(default=None, max_length=64, json_schema_extra=map_list("id"))
    summary: Summary | None = None
    conditions: list[Condition] | None = Field(
        default=None,
        max_length=16,
        json_schema_extra=map_list("type"),
        description="Admitted, Scheduled, Ready: how far it is, and why no further",
    )


class Instance(Object):
    """An Instance is a container with accelerators of one InstanceType, run as a Pod of the same name."""

    spec: InstanceSpec
    status: InstanceStatus | None = None
