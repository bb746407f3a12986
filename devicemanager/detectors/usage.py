"""How busy cards are: through NVML for NVIDIA, through PyPI `gpustack-runtime` for the others.

For: the helper process. In: the module or package, given by tests. Out: figures, None for what was refused.
Promises: one card that cannot be read hides no other; a process list that the library cut or refused is named as such.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from typing import Any

from devicemanager.answers import Failed
from devicemanager.detectors import vendor_runtime
from devicemanager.usage import CardUsage, Measured, PartitionUsage, ProcessUsage, reading

_MIB = 20
# Between two readings of NVIDIA's performance monitor; shorter and its figures are noise.
_GPM_S = 0.1
_GPM_SM_UTIL = 2


def measure(manufacturer: str, module: Any = None, *, pause: Callable[[float], None] = time.sleep) -> Measured | Failed:
    """Return the figures of a manufacturer's cards."""
    if manufacturer != "nvidia":
        return _by_package(manufacturer, module)
    try:
        module = module or importlib.import_module("pynvml")
    except ImportError:
        return Failed("the Python package nvidia-ml-py is not installed")
    module.nvmlInit()
    handles = []
    for index in range(module.nvmlDeviceGetCount()):
        try:
            handle = module.nvmlDeviceGetHandleByIndex(index)
            handles.append((_text(module.nvmlDeviceGetUUID(handle)), handle))
        except module.NVMLError:
            continue
    busy = _monitored(module, dict(handles), pause)
    return Measured(tuple(_nvidia(module, uuid, handle, busy.get(uuid)) for uuid, handle in handles))


def _nvidia(module: Any, uuid: str, handle: Any, cores: int | None) -> CardUsage:
    def read(function: str, *arguments: Any) -> Any:
        return _read(module, function, handle, *arguments)

    memory = read("nvmlDeviceGetMemoryInfo")
    rates = read("nvmlDeviceGetUtilizationRates")
    power = read("nvmlDeviceGetPowerUsage")
    errors = read(
        "nvmlDeviceGetMemoryErrorCounter",
        module.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
        module.NVML_VOLATILE_ECC,
        module.NVML_MEMORY_LOCATION_DEVICE_MEMORY,
    )
    processes, fault = _processes(module, handle)
    return CardUsage(
        uuid=uuid,
        memory_mib=int(memory.total) >> _MIB if memory is not None else None,
        memory_used_mib=int(memory.used) >> _MIB if memory is not None else None,
        cores=cores if cores is not None else (reading(rates.gpu, high=100) if rates is not None else None),
        temperature=reading(read("nvmlDeviceGetTemperature", module.NVML_TEMPERATURE_GPU), low=-273, high=1000),
        power_w=int(power) // 1000 if isinstance(power, int) else None,
        unhealthy=errors > 0 if isinstance(errors, int) else None,
        processes=processes,
        process_memory=fault,
        process_cores=fault
        or ("" if any(one.cores is not None for one in processes) or not processes else "unsupported"),
        partitions=_partitions(module, handle),
    )


def _processes(module: Any, handle: Any) -> tuple[tuple[ProcessUsage, ...], str]:
    try:
        running = module.nvmlDeviceGetComputeRunningProcesses(handle)
    except module.NVMLError as error:
        return (), _why(module, error)
    samples = _read(module, "nvmlDeviceGetProcessUtilization", handle, 0) or ()
    busy = {int(sample.pid): reading(int(sample.smUtil), high=100) for sample in samples}
    found = []
    for process in running:
        used = process.usedGpuMemory
        memory = reading(int(used) >> _MIB) if isinstance(used, int) else None
        if memory is None:
            return (), "invalid_data"
        # The driver samples only what ran lately: a process without a sample did nothing.
        found.append(ProcessUsage(int(process.pid), memory, busy.get(int(process.pid), 0 if busy else None)))
    return tuple(found), ""


def _partitions(module: Any, handle: Any) -> tuple[PartitionUsage, ...]:
    found = []
    for index in range(_read(module, "nvmlDeviceGetMaxMigDeviceCount", handle) or 0):
        part = _read(module, "nvmlDeviceGetMigDeviceHandleByIndex", handle, index)
        memory = _read(module, "nvmlDeviceGetMemoryInfo", part) if part is not None else None
        uuid = _read(module, "nvmlDeviceGetUUID", part) if part is not None else None
        if uuid is not None:
            total = int(memory.total) >> _MIB if memory is not None else None
            used = int(memory.used) >> _MIB if memory is not None else None
            found.append(PartitionUsage(_text(uuid), total, used))
    return tuple(found)


def _monitored(module: Any, handles: dict[str, Any], pause: Callable[[float], None]) -> dict[str, int]:
    """Return compute use by the performance monitor, for cards that have one."""
    able = {}
    for uuid, handle in handles.items():
        support = _read(module, "nvmlGpmQueryDeviceSupport", handle)
        if support is not None and support.isSupportedDevice:
            able[uuid] = handle
    if not able:
        return {}
    first = {uuid: _sample(module, handle) for uuid, handle in able.items()}
    pause(_GPM_S)
    second = {uuid: _sample(module, handle) for uuid, handle in able.items()}
    busy = {}
    for uuid in able:
        value = _between(module, first[uuid], second[uuid])
        if value is not None:
            busy[uuid] = value
    for sample in (*first.values(), *second.values()):
        if sample is not None:
            _read(module, "nvmlGpmSampleFree", sample)
    return busy


def _sample(module: Any, handle: Any) -> Any:
    sample = _read(module, "nvmlGpmSampleAlloc")
    return sample if sample is not None and _read(module, "nvmlGpmSampleGet", handle, sample) is not None else None


def _between(module: Any, first: Any, second: Any) -> int | None:
    if first is None or second is None:
        return None
    asked = module.c_nvmlGpmMetricsGet_t()
    asked.version = module.NVML_GPM_METRICS_GET_VERSION
    asked.numMetrics = 1
    asked.sample1, asked.sample2 = first, second
    asked.metrics[0].metricId = getattr(module, "NVML_GPM_METRIC_SM_UTIL", _GPM_SM_UTIL)
    if _read(module, "nvmlGpmMetricsGet", asked) is None or asked.metrics[0].nvmlReturn != 0:
        return None
    return reading(asked.metrics[0].value, high=100)


def _by_package(manufacturer: str, package: Any) -> Measured | Failed:
    try:
        detector = vendor_runtime.detector_of(manufacturer, package)
    except ImportError:
        return Failed("the Python package gpustack-runtime is not installed")
    devices = detector.detect_info()
    if devices is None:
        return Failed("the vendor's library is not installed or does not start")
    measured = detector.detect_usage(devices)
    return Measured(tuple(_package_card(device) for device in measured or devices))


def _package_card(device: Any) -> CardUsage:
    memory = reading(getattr(device, "memory", None)) or None
    status = str(getattr(device.memory_status, "value", device.memory_status) or "")
    return CardUsage(
        uuid=str(device.uuid or ""),
        memory_mib=memory,
        memory_used_mib=reading(getattr(device, "memory_used", None)) if memory else None,
        cores=reading(getattr(device, "cores_utilization", None), high=100),
        temperature=reading(getattr(device, "temperature", None), low=-273, high=1000),
        power_w=reading(getattr(device, "power_used", None), high=1_000_000),
        unhealthy={"healthy": False, "unhealthy": True}.get(status),
    )


def _read(module: Any, function: str, *arguments: Any) -> Any:
    try:
        return getattr(module, function)(*arguments)
    except (module.NVMLError, AttributeError):
        return None


def _why(module: Any, error: Any) -> str:
    words = {
        "NVML_ERROR_NOT_SUPPORTED": "unsupported",
        "NVML_ERROR_NO_PERMISSION": "permission",
        "NVML_ERROR_INSUFFICIENT_SIZE": "truncated",
        "NVML_ERROR_ARGUMENT_VERSION_MISMATCH": "version_skew",
    }
    value = getattr(error, "value", None)
    return next(
        (word for name, word in words.items() if getattr(module, name, None) == value), "transient_driver_error"
    )


def _text(value: Any) -> str:
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value)
