"""What a container was granted, and the two parties that turn it into something a container runtime understands.

For: the allocator, which decides and records; `devicemanager.injection` and `devicemanager.partitions`, which act on
the host. In: a decision already made and reserved. Out: parts of a `ContainerAllocateResponse`, bound partitions.
Promises:
  - a `Grant` is complete: whoever acts on it needs no cache, no lock and no API server;
  - cards stand in ascending order of their index, across groups (spec 06 §8);
  - `inject` and `bind` may be repeated for one container and then give the same answer (the kubelet may ask again, and
    an agent may have died in between).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from api.ledger.modes import Mode
from api.ledger.placements import Placement
from api.pod_requests import Claim
from kube.errors import OperatorError


class InjectionRefused(OperatorError):
    """The granted cards cannot be given to the container; the text says why and what to do."""


class PartitionRefused(OperatorError):
    """A partition could not be bound; nothing of it is left behind. `full`: the card has no room for it."""

    def __init__(self, reason: str, *, full: bool = False) -> None:
        super().__init__(reason)
        self.full = full


@dataclass(frozen=True, slots=True)
class Partition:
    """One hardware partition bound to a container. `physical_id` is the partition's own UUID."""

    placement: Placement
    physical_id: str
    created: bool = False
    """False when a live one was adopted or bound again: then `unbind` must not destroy it."""
    rebound: bool = False
    """It was this container's before: `unbind` must touch nothing."""


@dataclass(frozen=True, slots=True)
class GrantedCard:
    """One card of a grant: its group and itself as they stand in `Devices.spec`, and the part that is granted."""

    group: Mapping[str, Any]
    card: Mapping[str, Any]
    units: int
    profile: str = ""
    """The partition's profile in the driver's spelling."""
    partition: Partition | None = None
    windows: tuple[Placement, ...] = ()
    """Compute geometry of a logical slice, where the manufacturer has one (AMD's compute units)."""


@dataclass(frozen=True, slots=True)
class Grant:
    """Everything about one container's cards."""

    manufacturer: str
    mode: Mode
    pod: Mapping[str, Any]
    container: Mapping[str, Any]
    """Raw entry of `spec.containers[]` or `spec.initContainers[]`."""
    cards: tuple[GrantedCard, ...]
    claim: Claim | None = None
    """What the container asked for; None for visibility."""
    owner: Mapping[str, Any] | None = None
    """Visibility only: the raw container whose cards are shown."""


@dataclass(frozen=True, slots=True)
class Mount:
    """One bind mount."""

    container_path: str
    host_path: str
    read_only: bool = True


@dataclass(frozen=True, slots=True)
class DeviceNode:
    """One device file."""

    container_path: str
    host_path: str
    permissions: str = "rw"


@dataclass(frozen=True, slots=True)
class Injection:
    """The parts of a `ContainerAllocateResponse`."""

    envs: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[Mount, ...] = ()
    devices: tuple[DeviceNode, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    cdi_devices: tuple[str, ...] = ()


class Injector(Protocol):
    """Makes a grant real for the container runtime."""

    async def inject(self, grant: Grant) -> Injection:
        """Return what the runtime needs; prepare files the container will mount. Raises InjectionRefused."""

    def window(
        self, claim: Claim, group: Mapping[str, Any], card: Mapping[str, Any], occupied: Sequence[Placement]
    ) -> Placement | None:
        """Return the compute window of a slice; None where the manufacturer has none.

        Called under the node's lock: pure, no I/O. Raises InjectionRefused when no window can be given.
        """


@dataclass(frozen=True, slots=True)
class PartitionRequest:
    """One partition wanted. `placement` is what the ledger chose; the hardware may answer with another one."""

    manufacturer: str
    group: Mapping[str, Any]
    card: Mapping[str, Any]
    profile: str
    placement: Placement
    pod_uid: str
    container: str


class Partitions(Protocol):
    """Binds hardware partitions to containers, under a lock of its own for each card."""

    async def bind(self, request: PartitionRequest) -> Partition:
        """Reuse or create the partition and leave the marker that says whose it is. Raises PartitionRefused."""

    async def unbind(self, request: PartitionRequest, partition: Partition) -> None:
        """Undo a `bind` whose grant came to nothing: destroy what it created, drop the marker it wrote."""

    async def live(self, pods: frozenset[str]) -> None:
        """Hear which Pods (uids) of the node are alive: what dead ones held may be reclaimed (spec 06 §10)."""
