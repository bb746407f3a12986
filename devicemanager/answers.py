"""What a detector says, before anybody judges it.

For: detectors, which fill these; `manufacturers`, which read them; `inventory`, which turns them into groups.
In: a vendor library's own words: `None` means that the library did not answer, never zero, never "no".
Out: frozen data.
Promises: nothing here is corrected, rounded, renamed or dropped. Found, empty, unknown and failed are four different
answers (design §7): only the first two are facts about the hardware.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol, TypeAlias


@dataclass(frozen=True, slots=True)
class RawProfile:
    """One hardware partition profile as the driver lists it; spans are in memory slices."""

    name: str
    count: int
    memory_mib: int | None
    compute_slices: int
    memory_slices: int
    starts: tuple[int, ...]
    cores: int | None = None


@dataclass(frozen=True, slots=True)
class Roce:
    """Address of the port that an accelerator carries itself (Ascend)."""

    ip: str
    subnet_mask: str
    gateway: str


@dataclass(frozen=True, slots=True)
class RawCard:
    """One accelerator as the vendor's library describes it.

    `index` is the driver's enumeration, lost cards included. `health` is the library's own verdict: `healthy`,
    `unhealthy`, `lost`, or empty. `partition_mode` is `enabled`, `disabled`, `unsupported`, or None for unreadable.
    """

    manufacturer: str
    index: int
    product: str | None = None
    uuid: str | None = None
    memory_mib: int | None = None
    cores: int | None = None
    compute_capability: str | None = None
    architecture: str | None = None
    soc: str | None = None
    driver_version: str | None = None
    runtime_version: str | None = None
    memory_bus_bits: int | None = None
    ecc_enabled: bool | str | None = None
    ecc_uncorrected: int | None = None
    ecc_corrected: int | None = None
    health: str = ""
    detail: str = ""
    bus_id: str = ""
    pci_address: str = ""
    numa: int | None = None
    physical_indexes: tuple[int, ...] = ()
    partition_mode: str | None = "unsupported"
    profiles: tuple[RawProfile, ...] = ()
    roce: Roce | None = None
    virtual: bool = False


@dataclass(frozen=True, slots=True)
class PciDevice:
    """One function on the bus; strings are lower-case hex.

    `path` holds the bridges above it, outermost first; `virtual_functions` how many it can make (SR-IOV).
    """

    address: str
    pci_class: str
    vendor: str
    device: str
    numa: int = -1
    path: tuple[str, ...] = ()
    virtual_functions: int = 0


@dataclass(frozen=True, slots=True)
class Bus:
    """What the kernel says about places: PCI functions by address, CPU list by NUMA node."""

    devices: dict[str, PciDevice] = field(default_factory=dict)
    numa_cpus: dict[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Found:
    """The library answered and listed cards (usable or not)."""

    cards: tuple[RawCard, ...]


@dataclass(frozen=True, slots=True)
class Empty:
    """The pass succeeded: this manufacturer has nothing here."""

    reason: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """Nobody could be asked; says nothing about the hardware."""

    reason: str


@dataclass(frozen=True, slots=True)
class Failed:
    """The library was asked and this pass could not measure."""

    reason: str


Answer: TypeAlias = Found | Empty | Unknown | Failed


class Detector(Protocol):
    """A source of answers. One manufacturer's failure must not reach another's answer."""

    async def bus(self) -> Bus:
        """Return the host's buses; an unreadable host is an empty Bus."""

    async def detect(self, manufacturer: str, bus: Bus) -> Answer:
        """Ask one manufacturer's library once; `bus` is this pass's. Never raises for what the library does."""
