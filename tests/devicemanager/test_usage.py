"""How busy cards are: NVML against a module that behaves like the binding, and the vendors' package."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from devicemanager.answers import Failed
from devicemanager.detectors.usage import measure
from devicemanager.usage import CardUsage, Measured, PartitionUsage, ProcessUsage
from tests.devicemanager.test_nvml import NOT_SUPPORTED, Module, NVMLError

NO_PERMISSION, TOO_SMALL = 4, 7
MIB = 2**20


class Binding(Module):
    """The module with what measuring asks for; a value that is an exception is raised."""

    NVML_TEMPERATURE_GPU = 0
    NVML_ERROR_NO_PERMISSION = NO_PERMISSION
    NVML_ERROR_INSUFFICIENT_SIZE = TOO_SMALL
    NVML_GPM_METRICS_GET_VERSION = 1
    busy = 37.6

    def c_nvmlGpmMetricsGet_t(self) -> Any:  # noqa: N802 - the binding's name
        return SimpleNamespace(metrics=[SimpleNamespace(metricId=0, nvmlReturn=0, value=0.0)])

    def _call(self, name: str, *arguments: Any) -> Any:
        if name == "nvmlGpmSampleAlloc":
            return object()
        if name in ("nvmlGpmSampleGet", "nvmlGpmSampleFree"):
            return 0
        if name == "nvmlGpmMetricsGet":
            arguments[0].metrics[0].value = self.busy
            return arguments[0]
        if name == "nvmlDeviceGetMigDeviceHandleByIndex":
            return arguments[0]["parts"][arguments[1]]
        value = super()._call(name, *arguments)
        if isinstance(value, Exception):
            raise value
        return value


def card(uuid: str = "GPU-1", **more: Any) -> dict[Any, Any]:
    return {
        "nvmlDeviceGetUUID": uuid,
        "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=15360 * MIB, used=1024 * MIB),
        "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=12),
        "nvmlDeviceGetTemperature": 44,
        "nvmlDeviceGetPowerUsage": 70_500,
        ("nvmlDeviceGetMemoryErrorCounter", 1, 0, 2): 0,
        "nvmlDeviceGetComputeRunningProcesses": [],
        **more,
    }


def measured(*cards: dict[Any, Any]) -> tuple[CardUsage, ...]:
    answer = measure("nvidia", Binding(*cards), pause=lambda _: None)
    assert isinstance(answer, Measured)
    return answer.cards


def test_a_card_in_full() -> None:
    assert measured(card()) == (
        CardUsage("GPU-1", 15360, 1024, 12, 44, 70, False, process_memory="", process_cores=""),
    )


def test_the_performance_monitor_wins() -> None:
    pauses: list[float] = []
    able = card(nvmlGpmQueryDeviceSupport=SimpleNamespace(isSupportedDevice=1))
    answer = measure("nvidia", Binding(able, card("GPU-2")), pause=pauses.append)
    assert isinstance(answer, Measured)
    assert [one.cores for one in answer.cards] == [37, 12]
    assert pauses == [0.1]


def test_b036_what_is_refused_was_not_measured() -> None:
    bare = {"nvmlDeviceGetUUID": "GPU-gb10-0", "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=3)}
    assert measured(bare) == (
        CardUsage("GPU-gb10-0", cores=3, process_memory="unsupported", process_cores="unsupported"),
    )


def test_one_lost_card_hides_no_other() -> None:
    assert [one.uuid for one in measured(card("GPU-0"), {"lost": True}, card("GPU-2"))] == ["GPU-0", "GPU-2"]


def process(pid: int, memory: int | None) -> SimpleNamespace:
    return SimpleNamespace(pid=pid, usedGpuMemory=memory)


def test_processes() -> None:
    (one,) = measured(
        card(
            nvmlDeviceGetComputeRunningProcesses=[process(7, 512 * MIB), process(8, 256 * MIB)],
            nvmlDeviceGetProcessUtilization=[SimpleNamespace(pid=7, smUtil=30)],
        )
    )
    assert one.processes == (ProcessUsage(7, 512, 30), ProcessUsage(8, 256, 0))
    assert (one.process_memory, one.process_cores) == ("", "")


def test_processes_without_compute() -> None:
    (one,) = measured(card(nvmlDeviceGetComputeRunningProcesses=[process(7, 512 * MIB)]))
    assert (one.process_memory, one.process_cores) == ("", "unsupported")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ([process(7, None)], "invalid_data"),
        (NVMLError(NO_PERMISSION), "permission"),
        (NVMLError(TOO_SMALL), "truncated"),
        (NVMLError(NOT_SUPPORTED), "unsupported"),
        (NVMLError(999), "transient_driver_error"),
    ],
)
def test_why_processes_were_not_measured(answer: Any, reason: str) -> None:
    (one,) = measured(card(nvmlDeviceGetComputeRunningProcesses=answer))
    assert (one.processes, one.process_memory, one.process_cores) == ((), reason, reason)


def test_partitions_by_their_own_handles() -> None:
    part = {"nvmlDeviceGetUUID": b"MIG-a", "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=9856 * MIB, used=MIB)}
    (one,) = measured(card(nvmlDeviceGetMaxMigDeviceCount=1, parts=[part]))
    assert one.partitions == (PartitionUsage("MIG-a", 9856, 1),)


def package(devices: Any) -> Any:
    class Detector:
        def detect_info(self) -> Any:
            return devices

        def detect_usage(self, found: Any) -> Any:
            for device in found:
                device.memory_used, device.cores_utilization = 512, 70
            return found

    return SimpleNamespace(HygonDetector=Detector)


def test_other_manufacturers_by_the_package() -> None:
    device = SimpleNamespace(
        uuid="GPU-1", memory=65520, memory_status=SimpleNamespace(value="unhealthy"), temperature=50.5, power_used=None
    )
    assert measure("hygon", package([device])) == Measured((CardUsage("GPU-1", 65520, 512, 70, 50, None, True),))


def test_without_a_library() -> None:
    assert isinstance(measure("hygon", package(None)), Failed)
