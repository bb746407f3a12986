"""Eight manufacturers' cards through PyPI `gpustack-runtime` (an optional extra).

For: the helper process. In: the package's per-vendor detectors, given by tests. Out: an answer in its words.
Promises: the vendor's detector is called directly, so that its errors are seen (its own front door swallows them); a
reading that the package does not give is None. It lists no partition profiles: a card in partition mode comes without.
"""

from __future__ import annotations

import importlib
from typing import Any

from devicemanager.answers import Answer, Empty, Found, RawCard, Roce
from nodefeature.fields import as_map, as_str

_CLASSES = {
    "amd": "AMDDetector",
    "ascend": "AscendDetector",
    "cambricon": "CambriconDetector",
    "hygon": "HygonDetector",
    "iluvatar": "IluvatarDetector",
    "metax": "MetaXDetector",
    "mthreads": "MThreadsDetector",
    "nvidia": "NVIDIADetector",
    "thead": "THeadDetector",
}
_PARTITIONING = frozenset({"hygon", "thead"})


def detect(manufacturer: str, package: Any = None) -> Answer:
    """Return the cards the package lists for a manufacturer."""
    try:
        devices = detector_of(manufacturer, package).detect_info()
    except ImportError:
        return Empty("the Python package gpustack-runtime is not installed")
    if devices is None:
        return Empty("the vendor's library is not installed or does not start")
    return Found(tuple(_card(manufacturer, device) for device in devices))


def detector_of(manufacturer: str, package: Any = None) -> Any:
    """Return the package's detector of a manufacturer; ImportError when the package is not installed."""
    module = package or importlib.import_module(f"gpustack_runtime.detector.{manufacturer}")
    return getattr(module, _CLASSES[manufacturer])()


def _card(manufacturer: str, device: Any) -> RawCard:
    more = as_map(device.appendix)
    numa = as_str(more.get("numa")).split(",")[0]
    return RawCard(
        manufacturer,
        device.index,
        product=device.name,
        uuid=device.uuid,
        memory_mib=device.memory or None,
        cores=device.cores,
        compute_capability=device.compute_capability,
        architecture=as_str(more.get("arch_family")) or None,
        # For this vendor the package puts the SoC's name where others have the architecture.
        soc=as_str(more.get("arch_family")) or None if manufacturer == "ascend" else None,
        driver_version=device.driver_version,
        runtime_version=device.runtime_version,
        health=str(getattr(device.memory_status, "value", device.memory_status) or ""),
        bus_id=as_str(more.get("bdf")),
        numa=int(numa) if numa.isdecimal() else None,
        physical_indexes=physical_indexes(manufacturer, device.index, more),
        partition_mode=_partition_mode(manufacturer, more),
        roce=_roce(more),
    )


def physical_indexes(manufacturer: str, index: int, more: Any) -> tuple[int, ...]:
    """Return the driver's numbers of a card, by manufacturer (spec 06 §2.2)."""
    if manufacturer in ("cambricon", "mthreads"):
        return (index,)
    names = {
        "ascend": ("physical_id", "card_id", "device_id"),
        "iluvatar": ("minor_number",),
        "thead": ("minor_number",),
    }.get(manufacturer, ("card_id", "renderd_id"))
    numbers = [more.get(name) for name in names]
    if manufacturer == "ascend" and more.get("dcmi_version"):
        numbers = [more.get("physical_id"), index, 0]
    found: list[int] = []
    for number in numbers:
        if not isinstance(number, int):
            break
        found.append(number)
    return tuple(found)


def _partition_mode(manufacturer: str, more: Any) -> str:
    if manufacturer not in _PARTITIONING:
        return "unsupported"
    return "enabled" if more.get("mig") else "disabled"


def _roce(more: Any) -> Roce | None:
    if not more.get("roce_ip"):
        return None
    return Roce(as_str(more.get("roce_ip")), as_str(more.get("roce_mask")), as_str(more.get("roce_gateway")))
