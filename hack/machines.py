"""What a kubelet and an NFD worker would publish for a recorded machine.

For: the demo, benches and tests, which have neither. In: one machine of the recorded set. Out: raw objects.
Promises: pure; only what the file says, except the kubelet's constants (110 Pods, a disk of 1 TiB) and an address made
from the node's name. A reading the machine does not give is left out, as the NFD worker leaves it out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from nodefeature import labels as keys
from nodefeature.fields import as_int, as_map, as_maps, as_str, at

Object = dict[str, Any]

_PODS = "110"
_DISK = "1073741824Ki"
_PCI_CLASSES = keys.PCI_CLASS_PREFIXES


def node_of(name: str, machine: Mapping[str, Any], labels: Mapping[str, str] | None = None) -> Object:
    """Return the Node a kubelet registers: capacity, platform labels, addresses; `labels` are the administrator's."""
    facts = as_map(machine.get("node"))
    capacity = {
        "cpu": str(online_cpus(as_map(facts.get("cpu")))),
        "memory": f"{as_int(facts.get('memory_bytes')) // 1024}Ki",
        "ephemeral-storage": _DISK,
        "pods": _PODS,
    }
    arch = as_str(facts.get("arch"))
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                keys.OS: "linux",
                keys.ARCH: arch,
                keys.HOSTNAME: name,
                **(labels or {}),
            },
        },
        "status": {
            "capacity": capacity,
            "allocatable": dict(capacity),
            "addresses": [{"type": "InternalIP", "address": address_of(name)}, {"type": "Hostname", "address": name}],
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
            "nodeInfo": {
                "architecture": arch,
                "operatingSystem": "linux",
                "osImage": as_str(facts.get("os_image")),
                "kernelVersion": as_str(facts.get("kernel")),
            },
        },
    }


def nfd_feature_of(name: str, machine: Mapping[str, Any], namespace: str) -> Object:
    """Return the NodeFeature an NFD worker publishes for its node: labels, and the features our rule reads."""
    nfd_labels = {key: value for key, value in as_map(machine.get("nfd_labels")).items() if isinstance(value, str)}
    devices = [
        {
            "attributes": {
                "class": as_str(d.get("class")),
                "vendor": as_str(d.get("vendor")),
                "device": as_str(d.get("device")),
            }
        }
        for d in as_maps(machine.get("pci"))
        if as_str(d.get("class")).startswith(_PCI_CLASSES)
    ]
    return {
        "apiVersion": "nfd.k8s-sigs.io/v1alpha1",
        "kind": "NodeFeature",
        "metadata": {"name": name, "namespace": namespace, "labels": {keys.NFD_NODE_NAME: name}},
        "spec": {
            "features": {
                "flags": {},
                "attributes": {"cpu.model": {"elements": cpu_model(machine, nfd_labels)}},
                "instances": {"pci.device": {"elements": devices}},
            },
            "labels": nfd_labels,
        },
    }


def cpu_model(machine: Mapping[str, Any], nfd_labels: Mapping[str, str]) -> dict[str, str]:
    """Return feature `cpu.model`: the three attributes behind the labels, and what the CPU tells of itself."""
    cpu = as_map(at(machine, "node", "cpu"))
    cache = as_map(cpu.get("cache_kib"))
    logical, threads = as_int(cpu.get("logical")), as_int(cpu.get("threads_per_core"))
    elements = {
        "vendor_id": nfd_labels.get(keys.CPU_VENDOR, ""),
        "family": nfd_labels.get(keys.CPU_FAMILY, ""),
        "id": nfd_labels.get(keys.CPU_ID, ""),
        "name": as_str(cpu.get("name")),
        "stepping": _number(cpu.get("stepping")),
        "logical_cores": _number(logical),
        "physical_cores": _number(logical // threads if threads else None),
        "threads_per_core": _number(threads),
        "boost_freq": _number(as_int(cpu.get("max_mhz")) * 1_000_000 or None),
        **{f"cache_{level}": _number(as_int(size) * 1024 or None) for level, size in cache.items()},
    }
    return {key: value for key, value in elements.items() if value}


def online_cpus(cpu: Mapping[str, Any]) -> int:
    """Return how many CPUs are online: what the kubelet counts, an offline one left out."""
    total = 0
    for part in as_str(cpu.get("online")).split(","):
        first, dash, last = part.partition("-")
        if first.isdecimal():
            total += int(last) - int(first) + 1 if dash else 1
    return total or as_int(cpu.get("logical"))


def address_of(name: str) -> str:
    """Return a private address that depends on the node's name."""
    digest = hashlib.sha256(name.encode()).digest()
    return f"10.{digest[0]}.{digest[1]}.{digest[2]}"


def _number(value: object) -> str:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else ""
