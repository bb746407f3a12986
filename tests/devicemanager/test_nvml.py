"""NVML read card by card, against a module that behaves like the binding."""

from __future__ import annotations

import ctypes
import importlib
from types import SimpleNamespace
from typing import Any

import pytest

from devicemanager.answers import Bus, Empty, Found
from devicemanager.detectors.nvml import detect, runtime_version
from devicemanager.inventory import take_inventory


class NVMLError(Exception):
    """What the binding raises."""

    def __init__(self, value: int) -> None:
        super().__init__(f"NVML error {value}")
        self.value = value


class Placement(ctypes.Structure):
    _fields_ = (("start", ctypes.c_uint), ("size", ctypes.c_uint))


NOT_SUPPORTED, LOST, DRIVER_GONE, MISMATCH = 3, 15, 9, 18


class Module:
    """A binding with the given cards; a reading that is an int under `errors` raises that error."""

    NVMLError = NVMLError
    NVML_ERROR_NOT_SUPPORTED = NOT_SUPPORTED
    NVML_ERROR_LIBRARY_NOT_FOUND = 12
    NVML_ERROR_DRIVER_NOT_LOADED = DRIVER_GONE
    NVML_VOLATILE_ECC = 0
    NVML_MEMORY_LOCATION_DEVICE_MEMORY = 2
    NVML_MEMORY_ERROR_TYPE_CORRECTED = 0
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 1
    NVML_DEVICE_MIG_ENABLE = 1
    c_nvmlGpuInstancePlacement_t = Placement  # noqa: N815 - the binding's name

    def __init__(self, *cards: dict[Any, Any], start: int = 0) -> None:
        self._cards = cards
        self._start = start

    def nvmlInit(self) -> None:  # noqa: N802 - the binding's name
        if self._start:
            raise NVMLError(self._start)

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvml"):
            raise AttributeError(name)

        def call(*arguments: Any) -> Any:
            return self._call(name, *arguments)

        return call

    def _call(self, name: str, *arguments: Any) -> Any:
        if name == "nvmlDeviceGetCount":
            return len(self._cards)
        if name == "nvmlDeviceGetHandleByIndex":
            card = self._cards[arguments[0]]
            if "lost" in card:
                raise NVMLError(LOST)
            return card
        if name == "nvmlSystemGetDriverVersion":
            return b"580.126.09"
        if name == "nvmlSystemGetCudaDriverVersion":
            return 13000
        card, rest = arguments[0], arguments[1:]
        if name == "nvmlDeviceGetGpuInstancePossiblePlacements":
            return _placements(card, *rest)
        if name == "nvmlDeviceGetGpuInstanceProfileInfo":
            return _found(card["profiles"], rest[0])
        return _found(card, (name, *rest) if name == "nvmlDeviceGetMemoryErrorCounter" else name)


def _found(card: Any, key: Any) -> Any:
    if key not in card:
        raise NVMLError(NOT_SUPPORTED)
    return card[key]


def _placements(card: Any, profile: int, places: Any, count: Any) -> int:
    starts, size = card["placements"][profile]
    if places is not None:
        for at, start in enumerate(starts):
            places[at].start, places[at].size = start, size
    count._obj.value = len(starts)
    return 0


def card(uuid: str = "GPU-1", **more: Any) -> dict[Any, Any]:
    return {
        "nvmlDeviceGetUUID": uuid,
        "nvmlDeviceGetName": b"NVIDIA A100-SXM4-80GB",
        "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=85899345920),
        "nvmlDeviceGetMinorNumber": 4,
        "nvmlDeviceGetCudaComputeCapability": (8, 0),
        "nvmlDeviceGetEccMode": [1, 1],
        "nvmlDeviceGetMemoryBusWidth": 5120,
        "nvmlDeviceGetNumGpuCores": 6912,
        "nvmlDeviceGetPciInfo": SimpleNamespace(busId=b"00000000:01:00.0"),
        "nvmlDeviceGetMigMode": [0, 1],
        ("nvmlDeviceGetMemoryErrorCounter", 1, 0, 2): 0,
        ("nvmlDeviceGetMemoryErrorCounter", 0, 0, 2): 7,
        **more,
    }


def found(*cards: dict[Any, Any]) -> Found:
    answer = detect(Module(*cards))
    assert isinstance(answer, Found)
    return answer


def test_a_card_in_full() -> None:
    (raw,) = found(card()).cards
    assert (raw.uuid, raw.product, raw.memory_mib, raw.cores) == ("GPU-1", "NVIDIA A100-SXM4-80GB", 81920, 6912)
    assert (raw.driver_version, raw.runtime_version, raw.compute_capability) == ("580.126.09", "13.0", "8.0")
    assert (raw.ecc_enabled, raw.ecc_uncorrected, raw.ecc_corrected) == (True, 0, 7)
    assert (raw.bus_id, raw.physical_indexes, raw.partition_mode) == ("00000000:01:00.0", (4,), "disabled")


def test_what_the_driver_refuses_is_not_zero() -> None:
    bare = {"nvmlDeviceGetUUID": "GPU-1", "nvmlDeviceGetName": "NVIDIA GB10"}
    (raw,) = found(bare).cards
    assert (raw.memory_mib, raw.ecc_enabled, raw.ecc_uncorrected, raw.physical_indexes) == (None, None, None, ())
    assert raw.partition_mode == "unsupported"


def test_one_lost_card_hides_no_other() -> None:
    answer = found(card("GPU-0"), {"lost": True}, card("GPU-2"))
    assert [raw.health for raw in answer.cards] == ["", "lost", ""]
    (group,) = take_inventory("nvidia", answer.cards, Bus()).groups
    assert [(c["id"], c["index"]) for c in group["accelerators"]] == [("GPU-0", 0), ("GPU-2", 1)]


def test_profiles_of_a_partitioned_card() -> None:
    def profile(number: int, name: bytes, slices: int) -> SimpleNamespace:
        return SimpleNamespace(
            id=number, name=name, instanceCount=7, memorySizeMB=9856, sliceCount=slices, multiprocessorCount=14
        )

    partitioned = card(
        nvmlDeviceGetMigMode=[1, 1],
        profiles={0: profile(19, b"MIG 1g.10gb", 1), 7: profile(20, b"MIG 1g.10gb+me", 1)},
        placements={19: ([0, 1, 2, 3, 4, 5, 6], 1), 20: ([0], 1)},
    )
    (raw,) = found(partitioned).cards
    assert [(p.name, p.memory_slices, p.starts) for p in raw.profiles] == [
        ("MIG 1g.10gb", 1, (0, 1, 2, 3, 4, 5, 6)),
        ("MIG 1g.10gb+me", 1, (0,)),
    ]
    (group,) = take_inventory("nvidia", [raw], Bus()).groups
    assert group["acceleratorSlicedDetail"]["physical"]["count"] == 7


@pytest.mark.parametrize("start", [12, DRIVER_GONE])
def test_no_driver_is_an_empty_answer(start: int) -> None:
    assert isinstance(detect(Module(start=start)), Empty)


def test_b015_a_mismatch_is_an_error() -> None:
    with pytest.raises(NVMLError):
        detect(Module(start=MISMATCH))


def test_no_package_is_an_empty_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", absent)
    assert detect() == Empty("the Python package nvidia-ml-py is not installed")


@pytest.mark.parametrize(("cuda", "want"), [(13000, "13.0"), (12040, "12.4"), (10020, "10.2"), (0, None), (None, None)])
def test_runtime_version(cuda: int | None, want: str | None) -> None:
    assert runtime_version(cuda) == want
