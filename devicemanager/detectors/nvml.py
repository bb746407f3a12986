"""NVIDIA cards through NVML (PyPI `nvidia-ml-py`, module `pynvml`), read card by card.

For: the helper process. In: the module, given by tests. Out: an answer in NVML's own words.
Promises: one card that cannot be read is listed as lost and hides no other; a reading the driver refuses is None, never
zero; profiles are asked for by id only on cards whose partition mode is on.
"""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Callable
from typing import Any

from devicemanager.answers import Answer, Empty, Found, RawCard, RawProfile

# Newer drivers know more profiles than the binding's constant; asking for one that is not there is an error we skip.
_PROFILE_IDS = 0x20


def detect(module: Any = None) -> Answer:
    """Return the cards NVML lists."""
    if module is None:
        try:
            module = importlib.import_module("pynvml")
        except ImportError:
            return Empty("the Python package nvidia-ml-py is not installed")
    try:
        module.nvmlInit()
    except module.NVMLError as error:
        if _means_absent(module, error):
            return Empty(f"NVML does not start: {error}")
        raise
    return Found(tuple(_card(module, index) for index in range(module.nvmlDeviceGetCount())))


def _means_absent(module: Any, error: Any) -> bool:
    absent = {getattr(module, name, None) for name in ("NVML_ERROR_LIBRARY_NOT_FOUND", "NVML_ERROR_DRIVER_NOT_LOADED")}
    return getattr(error, "value", None) in absent


def _card(module: Any, index: int) -> RawCard:
    try:
        handle = module.nvmlDeviceGetHandleByIndex(index)
        uuid = _text(module.nvmlDeviceGetUUID(handle))
    except module.NVMLError as error:
        return RawCard("nvidia", index, health="lost", detail=str(error), **_place(module, index))

    def read(function: str, *arguments: Any) -> Any:
        try:
            return getattr(module, function)(handle, *arguments)
        except module.NVMLError:
            return None

    memory = read("nvmlDeviceGetMemoryInfo")
    minor = read("nvmlDeviceGetMinorNumber")
    capability = read("nvmlDeviceGetCudaComputeCapability")
    ecc = read("nvmlDeviceGetEccMode")
    pci = read("nvmlDeviceGetPciInfo")
    mode = _partition_mode(module, handle)
    return RawCard(
        "nvidia",
        index,
        product=_text(read("nvmlDeviceGetName")),
        uuid=uuid,
        memory_mib=int(memory.total) >> 20 if memory is not None else None,
        cores=read("nvmlDeviceGetNumGpuCores"),
        compute_capability=".".join(map(str, capability)) if capability else None,
        driver_version=_text(_system(module, "nvmlSystemGetDriverVersion")),
        runtime_version=runtime_version(_system(module, "nvmlSystemGetCudaDriverVersion")),
        memory_bus_bits=read("nvmlDeviceGetMemoryBusWidth"),
        ecc_enabled=bool(ecc[0]) if ecc else None,
        ecc_uncorrected=_errors(module, read, "NVML_MEMORY_ERROR_TYPE_UNCORRECTED"),
        ecc_corrected=_errors(module, read, "NVML_MEMORY_ERROR_TYPE_CORRECTED"),
        bus_id=_text(pci.busId) or "" if pci is not None else "",
        physical_indexes=(minor,) if isinstance(minor, int) else (),
        partition_mode=mode,
        profiles=_profiles(module, handle) if mode == "enabled" else (),
    )


def runtime_version(cuda: int | None) -> str | None:
    """Return `major.minor` of CUDA's integer version; None when it is not known."""
    return f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda and cuda > 0 else None


def _errors(module: Any, read: Callable[..., Any], kind: str) -> int | None:
    count = read(
        "nvmlDeviceGetMemoryErrorCounter",
        getattr(module, kind),
        module.NVML_VOLATILE_ECC,
        module.NVML_MEMORY_LOCATION_DEVICE_MEMORY,
    )
    return count if isinstance(count, int) else None


def _partition_mode(module: Any, handle: Any) -> str | None:
    try:
        current, _pending = module.nvmlDeviceGetMigMode(handle)
    except module.NVMLError as error:
        unsupported = getattr(error, "value", None) == module.NVML_ERROR_NOT_SUPPORTED
        return "unsupported" if unsupported else None
    return "enabled" if current == module.NVML_DEVICE_MIG_ENABLE else "disabled"


def _profiles(module: Any, handle: Any) -> tuple[RawProfile, ...]:
    found = []
    for number in range(_PROFILE_IDS):
        try:
            info = module.nvmlDeviceGetGpuInstanceProfileInfo(handle, number)
        except module.NVMLError:
            continue
        placements = _placements(module, handle, info.id)
        found.append(
            RawProfile(
                name=_text(info.name) or "",
                count=int(info.instanceCount),
                memory_mib=int(info.memorySizeMB),
                compute_slices=int(info.sliceCount),
                memory_slices=placements[0][1] if placements else 0,
                starts=tuple(start for start, _size in placements),
                cores=int(info.multiprocessorCount),
            )
        )
    return tuple(found)


def _placements(module: Any, handle: Any, profile_id: int) -> list[tuple[int, int]]:
    count = ctypes.c_uint()
    try:
        module.nvmlDeviceGetGpuInstancePossiblePlacements(handle, profile_id, None, ctypes.byref(count))
        places = (module.c_nvmlGpuInstancePlacement_t * count.value)()
        module.nvmlDeviceGetGpuInstancePossiblePlacements(handle, profile_id, places, ctypes.byref(count))
    except module.NVMLError:
        return []
    return [(int(place.start), int(place.size)) for place in places[: count.value]]


def _place(module: Any, index: int) -> dict[str, Any]:
    try:
        pci = module.nvmlDeviceGetPciInfo(module.nvmlDeviceGetHandleByIndex(index))
    except module.NVMLError:
        return {}
    return {"bus_id": _text(pci.busId) or ""}


def _system(module: Any, function: str) -> Any:
    try:
        return getattr(module, function)()
    except module.NVMLError:
        return None


def _text(value: Any) -> str | None:
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    return value if isinstance(value, str) else None
