"""One question to a manufacturer's module, and its answer.

For: `entrance`, which asks for the device plugin; the modules beside this one, one a manufacturer.
In: a container's claim and the cards granted to it. Out: environment, device nodes, mounts, annotations, files.
Promises: frozen data, nothing raw; a plan says what must exist, `realize` sees to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from api.ledger.placements import Placement
from devicemanager.kubelet.grant import InjectionRefused
from nodefeature.resource_names import Family

__all__ = [
    "Card",
    "ContainerClaim",
    "DeviceNode",
    "HostFile",
    "InjectionRefused",
    "Mount",
    "Partition",
    "Plan",
    "Request",
]


@dataclass(frozen=True, slots=True)
class Partition:
    """One live hardware partition of a card, as its driver numbers it."""

    uuid: str
    profile: str
    gpu_instance: int
    compute_instance: int
    placement: Placement


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One granted card: facts of its Devices entry, and what of it was granted.

    `memory_mib`, `cores`, `family`, `runtime_version` are its group's. `window` is the run of compute units that an
    AMD slice holds; `partition` the live instance of a partitioned claim.
    """

    id: str
    index: int
    group_id: str = ""
    physical_indexes: tuple[int, ...] = ()
    bus_id: str = ""
    memory_mib: int = 0
    cores: int = 0
    family: str = ""
    runtime_version: str = ""
    overcommits_cores: bool = False
    window: Placement | None = None
    partition: Partition | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerClaim:
    """The container that gets the cards, and what it asked for.

    A figure of 0 was not asked for. `declared` are the variables that its own `env` names. `partitioned_owner` is set
    on a visibility claim whose owner holds partitions: then the partitions are shown, never their cards.
    """

    pod_uid: str
    namespace: str
    pod: str
    container: str
    family: Family
    cores_percentage: int = 0
    memory_percentage: int = 0
    memory_mib: int = 0
    declared: frozenset[str] = frozenset()
    runtime_class: str = ""
    partitioned_owner: bool = False


@dataclass(frozen=True, slots=True)
class Request:
    """One question: this container, these cards of one manufacturer."""

    manufacturer: str
    claim: ContainerClaim
    cards: tuple[Card, ...]

    @property
    def by_index(self) -> tuple[Card, ...]:
        """Return the cards in the order everything is written in: ascending index, stable."""
        return tuple(sorted(self.cards, key=lambda card: card.index))


@dataclass(frozen=True, slots=True)
class DeviceNode:
    """A node shown at its own path. One that is not `required` is left out where it does not exist."""

    path: str
    permissions: str = "rw"
    required: bool = False
    minor: int | None = None
    """The minor number a character device must carry; None when that was not recorded and need not be proven."""
    character: bool = False


@dataclass(frozen=True, slots=True)
class Mount:
    """A host path inside the container. An `optional` one is left out where it does not exist."""

    container_path: str
    host_path: str
    read_only: bool = True
    optional: bool = False


@dataclass(frozen=True, slots=True)
class HostFile:
    """A file to have on the host before the container starts."""

    path: str
    text: str
    mode: int = 0o644


@dataclass(frozen=True, slots=True)
class Plan:
    """The answer. `folders` (0777) and `files` must be on disk before the container starts; `notes` are for the log."""

    env: Mapping[str, str] = field(default_factory=dict)
    devices: tuple[DeviceNode, ...] = ()
    mounts: tuple[Mount, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    folders: tuple[str, ...] = ()
    files: tuple[HostFile, ...] = ()
    notes: tuple[str, ...] = ()
