"""Instance: a container that a person asked for, and the Pod behind it.

For: the instance controller, its webhooks and resource, metrics (spec 02 §6).
In: namespaced objects. Out: their shape as raw objects. `api.instance_rules` checks, `api.instance_status` derives.
Trusts: everything under `spec` is a tenant's word.
"""

from __future__ import annotations

from typing import Any, TypedDict

from api.devices import LedgerGroup

MAIN_CONTAINER = "main"
STARTING = "Starting"
STOPPING = "Stopping"
STOPPED = "Stopped"
DELETING = "Deleting"
READY = "Ready"


class Reference(TypedDict, total=False):
    """A named object of the same namespace."""

    name: str


class ServicePort(TypedDict, total=False):
    """One port; `nodePort` stands in a status only."""

    port: int
    protocol: str
    name: str
    nodePort: int


class EnvironmentVariable(TypedDict, total=False):
    """One variable of the main container."""

    name: str
    value: str


class Resources(TypedDict, total=False):
    """What the Instance asks for; the first four are quantities."""

    cpu: str | int
    ram: str | int
    localStorage: str | int
    accelerator: str | int
    acceleratorSlicedMemoryPercentage: int
    acceleratorSlicedCoresPercentage: int
    acceleratorPartitionedProfile: str


class Ephemeral(TypedDict, total=False):
    """A volume that lives as long as the Pod."""

    capacity: str | int


class Volume(TypedDict, total=False):
    """The working volume: exactly one of both."""

    ephemeral: Ephemeral
    persistent: Reference


class HostPath(TypedDict, total=False):
    """A path of the node."""

    path: str
    type: str


class AdditionalVolume(TypedDict, total=False):
    """One more mount of the main container: exactly one source."""

    mountPath: str
    readOnly: bool
    subPath: str
    persistent: Reference
    configMap: Reference
    secret: Reference
    hostPath: HostPath


class InstanceSpec(TypedDict, total=False):
    """What a person asked for."""

    displayName: str
    description: str
    type: str
    image: str
    imagePullPolicy: str
    command: list[str]
    privileged: bool
    ports: list[ServicePort]
    env: list[EnvironmentVariable]
    resources: Resources
    volumeMount: str
    imagePullSecret: Reference
    additionalVolumes: list[AdditionalVolume]
    volume: Volume
    sshPublicKey: Reference
    stop: bool
    nodeName: str


class Address(TypedDict, total=False):
    """One IP address."""

    ip: str


class Summary(TypedDict, total=False):
    """Strings for the table (`api.summary`)."""

    ports: str


class InstanceStatus(TypedDict, total=False):
    """What became of it."""

    phase: str
    phaseMessage: str
    nodeName: str
    accessAddresses: list[str]
    hostIPs: list[Address]
    podIPs: list[Address]
    ports: list[ServicePort]
    allocations: list[LedgerGroup]
    summary: Summary
    conditions: list[dict[str, Any]]


class Instance(TypedDict, total=False):
    """A raw Instance object."""

    apiVersion: str
    kind: str
    metadata: dict[str, Any]
    spec: InstanceSpec
    status: InstanceStatus
