"""PCI functions, NUMA nodes and the kernel's release, read from a host's /sys and /proc.

In: the root of a file tree, `/` on a host, a fake one in tests. Out: a `Bus`, plain values.
Promises: reads files only; what is absent or unreadable is left out, never an error.
"""

from __future__ import annotations

import re
from pathlib import Path

from devicemanager.answers import Bus, PciDevice

_ADDRESS = re.compile(r"^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$")
_NODE = re.compile(r"^node(\d+)$")


def read_text(path: Path) -> str:
    """Return a file's text without blanks around it; empty when it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def read_bus(root: Path) -> Bus:
    """Return the PCI functions and NUMA nodes of a host."""
    devices = {}
    for entry in _entries(root / "sys/bus/pci/devices"):
        if _ADDRESS.match(entry.name):
            devices[entry.name] = _pci_device(entry)
    cpus = {}
    for entry in _entries(root / "sys/devices/system/node"):
        if match := _NODE.match(entry.name):
            cpus[int(match[1])] = read_text(entry / "cpulist")
    return Bus(devices, cpus)


def kernel_release(root: Path) -> str:
    """Return the kernel's release."""
    return read_text(root / "proc/sys/kernel/osrelease")


def is_wsl(root: Path) -> bool:
    """Say whether the kernel is one of Microsoft's, under which cards do not show on the bus."""
    release = kernel_release(root).lower()
    return "microsoft" in release or "wsl" in release


def _pci_device(entry: Path) -> PciDevice:
    numa, functions = read_text(entry / "numa_node"), read_text(entry / "sriov_totalvfs")
    return PciDevice(
        address=entry.name,
        pci_class=_hex(entry / "class")[:4],
        vendor=_hex(entry / "vendor"),
        device=_hex(entry / "device"),
        numa=int(numa) if re.fullmatch(r"-?\d+", numa) else -1,
        path=_bridges(entry),
        virtual_functions=int(functions) if functions.isdecimal() else 0,
    )


def _bridges(entry: Path) -> tuple[str, ...]:
    """Return the functions between the root complex and the device, as the link's target spells them."""
    try:
        parts = entry.resolve().parts
    except OSError:
        return ()
    return tuple(part for part in parts[:-1] if _ADDRESS.match(part))


def _hex(path: Path) -> str:
    return read_text(path).lower().removeprefix("0x")


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []
