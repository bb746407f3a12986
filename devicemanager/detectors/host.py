"""The detector of a real host: the bus from sysfs, cards from vendors' libraries.

For: `device-manager serve` and `detect`.
In: the root of the host's file tree, one helper process a manufacturer. Out: answers.
Promises (spec 06 §2.4, design §7):
  - no card of the vendor on the bus: an empty answer, and no library is touched (`no_pci_check` asks all the same);
  - cards on the bus that no library speaks for: unknown, which removes nothing;
  - a library that crashes or hangs fails its own manufacturer's pass and nothing else.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Protocol

from devicemanager.answers import Answer, Bus, Empty, Failed, Unknown
from devicemanager.detectors.sysfs import is_wsl, read_bus
from devicemanager.usage import Measured
from nodefeature.labels import PCI_CLASS_PREFIXES
from nodefeature.manufacturers import DEFAULT_MANUFACTURERS, Manufacturers

# Display, processing and co-processor classes; a NIC (02) of the same vendor is no accelerator.
_ACCELERATOR_CLASSES = ("03", "0b", "12")
# Management controllers of these vendors' servers are display devices (class 03) with the vendor's id.
_NARROW_CLASSES = {"ascend": ("12",)}


class Probes(Protocol):
    """Asks a manufacturer's library in a process of its own."""

    async def ask(self, manufacturer: str) -> Answer:
        """Return the library's answer; Empty with a reason when there is no library or it does not start."""

    async def measure(self, manufacturer: str) -> Measured | Failed:
        """Return how busy the cards are."""

    async def close(self) -> None:
        """End all processes."""


class HostDetector:
    """Answers for the machine under `root`."""

    def __init__(
        self,
        probes: Probes,
        *,
        root: Path = Path("/"),
        registry: Manufacturers = DEFAULT_MANUFACTURERS,
        no_pci_check: bool = False,
    ) -> None:
        self._probes = probes
        self._root = root
        self._registry = registry
        self._no_pci_check = no_pci_check or is_wsl(root)

    async def bus(self) -> Bus:
        """Return the host's PCI functions and NUMA nodes; thousands of small files, hence in a thread."""
        return await asyncio.to_thread(read_bus, self._root)

    async def detect(self, manufacturer: str, bus: Bus) -> Answer:
        """Ask the manufacturer's library, when there is something to ask about."""
        vendor = self._vendor(manufacturer)
        seen = [d for d in bus.devices.values() if d.vendor == vendor and d.pci_class.startswith(PCI_CLASS_PREFIXES)]
        if not seen and not self._no_pci_check:
            return Empty(f"no PCI device of vendor {vendor}")
        answer = await self._probes.ask(manufacturer)
        classes = _NARROW_CLASSES.get(manufacturer, _ACCELERATOR_CLASSES)
        cards = [device.address for device in seen if device.pci_class.startswith(classes)]
        if isinstance(answer, Empty) and cards:
            return Unknown(f"{', '.join(cards)} on the bus, but {answer.reason}")
        return answer

    async def measure(self, manufacturer: str) -> Measured | Failed:
        """Return how busy a manufacturer's cards are."""
        return await self._probes.measure(manufacturer)

    def _vendor(self, manufacturer: str) -> str:
        known = self._registry.get(manufacturer)
        return known.pci_vendor_id if known else ""
