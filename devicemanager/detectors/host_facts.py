"""This machine as the recorded set describes machines: CPU, memory, NUMA, PCI, and the labels NFD would derive.

For: the demo, in which this machine joins the fleet, and `detect`.
In: the root of a file tree. Out: a mapping in the schema of the recorded machines, without cards.
Promises: only what files say; nothing is made up: what cannot be read is null or left out.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from devicemanager.answers import Bus
from devicemanager.detectors.sysfs import is_wsl, kernel_release, read_bus, read_text
from nodefeature.labels import CPU_FAMILY, CPU_ID, CPU_VENDOR, PCI_CLASS_PREFIXES, pci_present

_ARCHES = {"x86_64": "amd64", "aarch64": "arm64"}
_X86_VENDORS = {
    "GenuineIntel": "Intel",
    "AuthenticAMD": "AMD",
    "HygonGenuine": "Hygon",
    "CentaurHauls": "VIA",
}
_ARM_IMPLEMENTERS = {"0x41": "ARM"}
_UNKNOWN_VENDOR = "VendorUnknown"
_OS_RELEASE = "feature.node.kubernetes.io/system-os_release."
_VERSION = re.compile(r"^(\d+)(?:\.(\d+))?(?:\..*)?$")


def read_machine(root: Path = Path("/"), *, name: str = "this-machine", arch: str = "") -> dict[str, Any]:
    """Return the facts of a host."""
    bus = read_bus(root)
    release = os_release(root)
    cpu = read_cpu(root)
    facts = {
        "os_image": release.get("PRETTY_NAME", ""),
        "os_release": {key: release[key] for key in ("ID", "VERSION_ID") if key in release},
        "arch": arch or _ARCHES.get(platform.machine(), platform.machine()),
        "kernel": kernel_release(root),
        "hypervisor": _hypervisor(root, cpu),
        "memory_bytes": _memory_bytes(root / "proc/meminfo", "MemTotal:"),
        "cpu": cpu,
    }
    return {
        "name": name,
        "node": facts,
        "numa": [{"id": node, "cpus": cpus} for node, cpus in sorted(bus.numa_cpus.items())],
        "pci": [
            {"address": d.address, "class": d.pci_class, "vendor": d.vendor, "device": d.device, "numa": d.numa}
            for d in bus.devices.values()
        ],
        "accelerators": [],
        "nfd_labels": nfd_labels(cpu, bus, release),
    }


def read_cpu(root: Path) -> dict[str, Any]:
    """Return the CPU as /proc/cpuinfo and sysfs tell it; on arm64 there is no name."""
    blocks = [_fields(block) for block in read_text(root / "proc/cpuinfo").split("\n\n") if block.strip()]
    first: Mapping[str, str] = blocks[0] if blocks else {}
    implementer = first.get("CPU implementer", "")
    sockets = {block["physical id"] for block in blocks if "physical id" in block}
    cores = _number(first.get("cpu cores"))
    siblings = _number(first.get("siblings"))
    cpu: dict[str, Any] = {
        "vendor_id": implementer or first.get("vendor_id", ""),
        "name": first.get("model name"),
        "sockets": len(sockets) or None,
        "cores_per_socket": cores,
        "threads_per_core": siblings // cores if cores and siblings else None,
        "logical": len(blocks),
        "online": read_text(root / "sys/devices/system/cpu/online"),
        "max_mhz": _max_mhz(root),
        "cache_kib": _caches(root),
        "flags": (first.get("flags") or first.get("Features") or "").split(),
    }
    if implementer:
        cpu["midr"] = f"0x{_midr(first):08x}"
    else:
        cpu |= {word: _number(first.get(key)) for word, key in _X86_NUMBERS}
    return cpu


_X86_NUMBERS = (("family", "cpu family"), ("model", "model"), ("stepping", "stepping"))


def nfd_labels(cpu: Mapping[str, Any], bus: Bus, release: Mapping[str, str]) -> dict[str, str]:
    """Return the labels NFD derives under our chart's settings."""
    labels: dict[str, str] = {}
    if "midr" in cpu:
        midr = int(cpu["midr"], 16)
        labels[CPU_VENDOR] = _ARM_IMPLEMENTERS.get(cpu["vendor_id"], _UNKNOWN_VENDOR)
        labels[CPU_FAMILY], labels[CPU_ID] = str(midr >> 16 & 0xFF), str(midr & 0xFFFF)
    elif cpu.get("vendor_id"):
        labels[CPU_VENDOR] = _X86_VENDORS.get(cpu["vendor_id"], _UNKNOWN_VENDOR)
        labels[CPU_FAMILY], labels[CPU_ID] = str(cpu.get("family") or 0), str(cpu.get("model") or 0)
    for device in bus.devices.values():
        if device.pci_class.startswith(PCI_CLASS_PREFIXES):
            labels[pci_present(device.vendor)] = "true"
            if device.virtual_functions:
                labels[f"feature.node.kubernetes.io/pci-{device.vendor}.sriov.capable"] = "true"
    for key in ("ID", "VERSION_ID"):
        if release.get(key):
            labels[_OS_RELEASE + key] = release[key]
    if match := _VERSION.match(release.get("VERSION_ID", "")):
        labels[f"{_OS_RELEASE}VERSION_ID.major"] = match[1]
        if match[2] is not None:
            labels[f"{_OS_RELEASE}VERSION_ID.minor"] = match[2]
    return labels


def os_release(root: Path) -> dict[str, str]:
    """Return /etc/os-release, values without their quotes."""
    text = read_text(root / "etc/os-release") or read_text(root / "usr/lib/os-release")
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line and not line.startswith("#"))
    return {key.strip(): value.strip().strip("\"'") for key, _, value in pairs}


def _hypervisor(root: Path, cpu: Mapping[str, Any]) -> str:
    if is_wsl(root):
        return "wsl2"
    product = read_text(root / "sys/class/dmi/id/sys_vendor").lower()
    if "microsoft" in product:
        return "hyperv"
    return "kvm" if "hypervisor" in cpu["flags"] else "none"


def _midr(fields: Mapping[str, str]) -> int:
    implementer, part = _number(fields.get("CPU implementer")) or 0, _number(fields.get("CPU part")) or 0
    variant, revision = _number(fields.get("CPU variant")) or 0, _number(fields.get("CPU revision")) or 0
    return implementer << 24 | variant << 20 | 0xF << 16 | part << 4 | revision


def _caches(root: Path) -> dict[str, int]:
    names = {("1", "Data"): "l1d", ("1", "Instruction"): "l1i", ("2", "Unified"): "l2", ("3", "Unified"): "l3"}
    caches = {}
    for index in range(8):
        folder = root / f"sys/devices/system/cpu/cpu0/cache/index{index}"
        name = names.get((read_text(folder / "level"), read_text(folder / "type")))
        size = read_text(folder / "size")
        if name and size.endswith("K") and size[:-1].isdecimal():
            caches[name] = int(size[:-1])
    return caches


def _max_mhz(root: Path) -> int | None:
    khz = _number(read_text(root / "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq"))
    return khz // 1000 if khz else None


def _memory_bytes(path: Path, field: str) -> int:
    for line in read_text(path).splitlines():
        words = line.split()
        if len(words) >= 2 and words[0] == field and words[1].isdecimal():
            return int(words[1]) * 1024
    return 0


def _fields(block: str) -> dict[str, str]:
    pairs = (line.partition(":") for line in block.splitlines())
    # Blanks at the end of a brand string are part of it; one blank after the colon is not.
    return {key.strip(): value.removeprefix(" ") for key, colon, value in pairs if colon}


def _number(text: str | None) -> int | None:
    try:
        return int((text or "").strip(), 0)
    except ValueError:
        return None
