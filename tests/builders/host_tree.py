"""Builds a host's /proc, /sys and /etc from a recorded machine, as its kernel would show them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any


def host_tree(root: Path, machine: Mapping[str, Any]) -> Path:
    """Write the tree under `root` and return it."""
    node = machine["node"]
    release = "".join(f'{key}="{value}"\n' for key, value in node["os_release"].items())
    write(root / "etc/os-release", f'PRETTY_NAME="{node["os_image"]}"\n{release}')
    write(root / "proc/sys/kernel/osrelease", node["kernel"] + "\n")
    write(root / "proc/meminfo", f"MemTotal:       {node['memory_bytes'] // 1024} kB\nMemFree: 1 kB\n")
    write(root / "proc/cpuinfo", _cpuinfo(node["cpu"]))
    write(root / "sys/devices/system/cpu/online", node["cpu"]["online"] + "\n")
    if node["hypervisor"] == "hyperv":
        write(root / "sys/class/dmi/id/sys_vendor", "Microsoft Corporation\n")
    for numa in machine["numa"]:
        write(root / f"sys/devices/system/node/node{numa['id']}/cpulist", numa["cpus"] + "\n")
    for device in machine["pci"]:
        _pci(root, device)
    return root


def write(path: Path, text: str) -> None:
    """Write a file and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _cpuinfo(cpu: Mapping[str, Any]) -> str:
    if cpu.get("midr"):
        midr = int(cpu["midr"], 16)
        block = (
            f"BogoMIPS : 200.00\nFeatures : {' '.join(cpu['flags'])}\n"
            f"CPU implementer : {midr >> 24:#04x}\nCPU architecture: 8\n"
            f"CPU variant : {midr >> 20 & 0xF:#x}\nCPU part : {midr >> 4 & 0xFFF:#05x}\nCPU revision : {midr & 0xF}\n"
        )
        return "\n".join(f"processor : {n}\n{block}" for n in range(2))
    siblings = cpu["cores_per_socket"] * cpu["threads_per_core"]
    block = (
        f"vendor_id\t: {cpu['vendor_id']}\ncpu family\t: {cpu['family']}\nmodel\t\t: {cpu['model']}\n"
        f"model name\t: {cpu['name']}\nstepping\t: {cpu['stepping']}\nsiblings\t: {siblings}\n"
        f"cpu cores\t: {cpu['cores_per_socket']}\nflags\t\t: {' '.join(cpu['flags'])}\n"
    )
    return "\n".join(f"processor\t: {n}\nphysical id\t: {n}\n{block}" for n in range(cpu["sockets"]))


def _pci(root: Path, device: Mapping[str, Any]) -> None:
    address = device["address"]
    folder = root / "sys/devices" / f"pci{address[:7]}" / "/".join([*(device.get("path") or []), address])
    for name, value in (("class", device["class"] + "00"), ("vendor", device["vendor"]), ("device", device["device"])):
        write(folder / name, f"0x{value}\n")
    if device.get("sriov_totalvfs") is not None:
        write(folder / "sriov_totalvfs", f"{device['sriov_totalvfs']}\n")
    write(folder / "numa_node", f"{device['numa']}\n")
    link = root / "sys/bus/pci/devices" / address
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(folder)
