"""Synthetic machines in the form of the recorded ones (`hack/recorded/README.md`): just enough of each."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

Machine = dict[str, Any]

VENDOR_IDS = {"AMD": "AuthenticAMD", "Intel": "GenuineIntel"}
PCI_VENDORS = {"nvidia": "10de", "ascend": "19e5"}
NO_PARTITIONS: dict[str, Any] = {"mode": "not-supported", "pending": "not-supported", "table": None, "instances": []}


def card(product: str | None, *, memory_mib: int, **facts: Any) -> dict[str, Any]:
    """Return one accelerator; `machine` gives it index, uuid and place."""
    return {
        "manufacturer": "nvidia",
        "product": product,
        "memory_mib": memory_mib,
        "cores": 2560,
        "compute_capability": "7.5",
        "family": "Turing",
        "driver_version": "580.126.09",
        "runtime_version": "13.0",
        "health": {"state": "healthy", "ecc_uncorrected": 0, "ecc_corrected": 0, "xid": []},
        "mig": NO_PARTITIONS,
        **facts,
    }


def t4(**facts: Any) -> dict[str, Any]:
    """Return a Tesla T4."""
    return card("Tesla T4", memory_mib=15360, memory_bus_bits=256, ecc_enabled=True, **facts)


def a10g(**facts: Any) -> dict[str, Any]:
    """Return an A10G."""
    return card(
        "NVIDIA A10G",
        memory_mib=23028,
        memory_bus_bits=384,
        ecc_enabled=True,
        cores=9216,
        family="Ampere",
        compute_capability="8.6",
        **facts,
    )


def l4(**facts: Any) -> dict[str, Any]:
    """Return an L4."""
    return card("NVIDIA L4", memory_mib=23034, cores=7424, family="Ada", compute_capability="8.9", **facts)


def machine(
    name: str,
    *,
    cores: int = 4,
    vendor: str = "Intel",
    cpu: str | None = "Intel(R) Xeon(R) Platinum 8259CL CPU @ 2.50GHz",
    cards: Sequence[Mapping[str, Any]] = (),
    arch: str = "amd64",
) -> Machine:
    """Return a machine; its ids depend on its name."""
    identity = {"vendor_id": vendor, "family": "6", "id": "85"} if vendor else {}
    placed = [_placed(name, number, one) for number, one in enumerate(cards)]
    return {
        "name": name,
        "node": {
            "os_image": "Linux",
            "arch": arch,
            "kernel": "6.12.0",
            "memory_bytes": 64 << 30,
            "cpu": {
                "vendor_id": VENDOR_IDS.get(vendor, vendor),
                "name": cpu,
                "logical": cores,
                "threads_per_core": 1,
                "online": f"0-{cores - 1}",
            },
        },
        "numa": [{"id": 0, "cpus": f"0-{cores - 1}", "memory_mib": 65536}],
        "pci": [
            {"address": one["pci_address"], "class": "0302", "vendor": PCI_VENDORS[one["manufacturer"]], "device": "1"}
            for one in placed
        ],
        "accelerators": placed,
        "network": [],
        "nfd_labels": {f"feature.node.kubernetes.io/cpu-model.{key}": value for key, value in identity.items()},
    }


def _placed(name: str, number: int, one: Mapping[str, Any]) -> dict[str, Any]:
    digits = hashlib.sha256(f"{name}/{number}".encode()).hexdigest()
    uuid = f"GPU-{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:32]}"
    address = f"0000:{number + 1:02x}:00.0"
    place = {"index": number, "uuid": uuid, "pci_address": address, "bus_id": f"0000{address}".upper()}
    return {**place, "numa": 0, "physical_indexes": [number], "links": [], **one}
