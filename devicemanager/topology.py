"""Where a card sits: bus address, bridges, NUMA node, CPUs near it (spec 06 §2.2)."""

from __future__ import annotations

import re
from typing import Any

from devicemanager.answers import Bus, PciDevice, RawCard

_BUS_ID = re.compile(r"^([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])$")
_MAX_CPU_LIST = 4096
_NOWHERE = PciDevice(address="", pci_class="", vendor="", device="")


def sysfs_address(bus_id: str) -> str:
    """Return a vendor tool's bus id (`00000000:A1:00.0`) in sysfs form (`0000:a1:00.0`); empty when it is none."""
    match = _BUS_ID.match(bus_id.strip().lower())
    if match is None:
        return ""
    domain, bus, slot, function = match.groups()
    return f"{int(domain, 16):04x}:{bus}:{slot}.{function}"


def topology_of(card: RawCard, bus: Bus) -> dict[str, Any]:
    """Return a card's `topology`. An unknown NUMA node (-1) and a node without CPUs give no affinity."""
    address = card.pci_address or sysfs_address(card.bus_id)
    device = bus.devices.get(address, _NOWHERE)
    numa = device.numa if device.address else (card.numa if card.numa is not None else -1)
    topology: dict[str, Any] = {
        "pciBusId": address,
        "pciRootId": device.path[0] if device.path else "",
        "pciClass": device.pci_class,
        "numaAffinity": str(numa) if numa >= 0 else "",
        "cpuAffinity": bus.numa_cpus.get(numa, "")[:_MAX_CPU_LIST] if numa >= 0 else "",
    }
    if device.path:
        topology["pciSwitches"] = list(reversed(device.path))
    if card.roce is not None:
        topology["roce"] = {
            "ip": card.roce.ip,
            "subnetMask": card.roce.subnet_mask,
            "gateway": card.roce.gateway,
        }
    return topology
