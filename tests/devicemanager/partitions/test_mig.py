"""NVML's and HGML's partitions, against a module that behaves like the bindings."""

from __future__ import annotations

import ctypes
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from api.ledger.placements import Placement
from devicemanager.injection.driver_faults import DriverFault
from devicemanager.partitions.keeper import Keeper
from devicemanager.partitions.markers import Markers
from devicemanager.partitions.mig import MigDriver, nvidia_driver, thead_driver
from devicemanager.partitions.port import Gone, InUse, Origin, PartitionClaim
from tests.builders.injection import TreeHost

IN_USE, NOT_FOUND, NO_ROOM, NOT_SUPPORTED = 19, 6, 24, 3


class Fault(Exception):
    """What a binding raises."""

    def __init__(self, value: int) -> None:
        super().__init__(f"error {value}")
        self.value = value


class Run(ctypes.Structure):
    _fields_ = (("start", ctypes.c_uint), ("size", ctypes.c_uint))


PROFILES = {
    0: SimpleNamespace(id=19, name=b"MIG 1g.10gb", sliceCount=1, instanceCount=7),
    2: SimpleNamespace(id=9, name=b"MIG 3g.40gb", sliceCount=3, instanceCount=2),
}
STARTS = {19: ((0, 1, 2, 3, 4, 5, 6), 1), 9: ((0, 4), 4)}


class Binding:
    """A binding whose names begin with a prefix, over one card; instances are plain objects."""

    def __init__(self, prefix: str = "nvml") -> None:
        self._prefix = prefix
        self.live: dict[int, SimpleNamespace] = {}
        self.fail: dict[str, int] = {}
        self.started = 0
        setattr(self, f"{prefix.upper()}Error", Fault)
        setattr(self, f"{prefix.upper()}_ERROR_IN_USE", IN_USE)
        setattr(self, f"{prefix.upper()}_ERROR_NOT_FOUND", NOT_FOUND)
        setattr(self, f"c_{prefix}GpuInstancePlacement_t", Run)
        setattr(self, f"c_{prefix}GpuInstance_t", ctypes.py_object)

    def __getattr__(self, name: str) -> Any:
        prefix = self.__dict__["_prefix"]
        if not name.startswith(prefix):
            raise AttributeError(name)

        def call(*arguments: Any) -> Any:
            short = name.removeprefix(prefix)
            if short in self.fail:
                raise Fault(self.fail[short])
            return getattr(self, f"_{short}")(*arguments)

        return call

    def _Init(self) -> None:  # noqa: N802 - the binding's name
        self.started += 1

    def _DeviceGetCount(self) -> int:  # noqa: N802 - the binding's name
        return 2

    def _DeviceGetHandleByIndex(self, index: int) -> str:  # noqa: N802 - the binding's name
        return f"GPU-{index}"

    def _DeviceGetHandleByUUID(self, uuid: str) -> str:  # noqa: N802 - the binding's name
        if uuid != "GPU-0":
            raise Fault(NOT_FOUND)
        return uuid

    def _DeviceGetUUID(self, handle: Any) -> bytes:  # noqa: N802 - the binding's name
        return handle.encode() if isinstance(handle, str) else f"MIG-{handle.serial}".encode()

    def _DeviceGetMigMode(self, handle: str) -> list[int]:  # noqa: N802 - the binding's name
        return [1, 1] if handle == "GPU-0" else [0, 1]

    def _DeviceGetGpuInstanceProfileInfo(self, _handle: str, number: int) -> Any:  # noqa: N802 - the binding's name
        if number not in PROFILES:
            raise Fault(NOT_SUPPORTED)
        return PROFILES[number]

    def _DeviceGetGpuInstancePossiblePlacements(self, _handle: str, profile: int, places: Any, count: Any) -> int:  # noqa: N802 - the binding's name
        starts, size = STARTS[profile]
        count._obj.value = len(starts)
        for at, start in enumerate(starts if places is not None else ()):
            places[at].start, places[at].size = start, size
        return 0

    def _DeviceGetGpuInstances(self, _handle: str, profile: int, handles: Any, count: Any) -> int:  # noqa: N802 - the binding's name
        found = [one for one in self.live.values() if one.profile == profile]
        for at, one in enumerate(found):
            handles[at] = one
        count._obj.value = len(found)
        return 0

    def _GpuInstanceGetInfo(self, one: Any) -> Any:  # noqa: N802 - the binding's name
        return SimpleNamespace(id=one.number, placement=one.run)

    def _DeviceGetMaxMigDeviceCount(self, _handle: str) -> int:  # noqa: N802 - the binding's name
        return 7

    def _DeviceGetMigDeviceHandleByIndex(self, _handle: str, index: int) -> Any:  # noqa: N802 - the binding's name
        whole = [one for one in self.live.values() if one.compute]
        if index >= len(whole):
            raise Fault(NOT_FOUND)
        return whole[index]

    def _DeviceGetGpuInstanceId(self, one: Any) -> int:  # noqa: N802 - the binding's name
        return int(one.number)

    def _DeviceGetComputeInstanceId(self, _one: Any) -> int:  # noqa: N802 - the binding's name
        return 0

    def _DeviceCreateGpuInstanceWithPlacement(self, _handle: str, profile: int, place: Any) -> Any:  # noqa: N802 - the binding's name
        run = Run(place._obj.start, place._obj.size)
        if any(
            one.run.start < run.start + run.size and run.start < one.run.start + one.run.size
            for one in self.live.values()
        ):
            raise Fault(NO_ROOM)
        number = next(n for n in range(1, 15) if n not in self.live)
        self.live[number] = SimpleNamespace(
            number=number, serial=len(self.live), profile=profile, run=run, compute=False
        )
        return self.live[number]

    def _GpuInstanceGetComputeInstanceProfileInfo(self, one: Any, number: int, _engine: int) -> Any:  # noqa: N802 - the binding's name
        if number != one.profile:
            raise Fault(NOT_SUPPORTED)
        return SimpleNamespace(id=number, sliceCount={19: 1, 9: 3}[one.profile])

    def _GpuInstanceCreateComputeInstance(self, one: Any, _profile: int) -> Any:  # noqa: N802 - the binding's name
        one.compute = True
        return one

    def _ComputeInstanceGetInfo(self, _one: Any) -> Any:  # noqa: N802 - the binding's name
        return SimpleNamespace(id=0)

    def _DeviceGetGpuInstanceById(self, _handle: str, number: int) -> Any:  # noqa: N802 - the binding's name
        if number not in self.live:
            raise Fault(NOT_FOUND)
        return self.live[number]

    def _GpuInstanceGetComputeInstanceById(self, one: Any, _number: int) -> Any:  # noqa: N802 - the binding's name
        return one

    def _ComputeInstanceDestroy(self, one: Any) -> None:  # noqa: N802 - the binding's name
        one.compute = False

    def _GpuInstanceDestroy(self, one: Any) -> None:  # noqa: N802 - the binding's name
        del self.live[one.number]


@pytest.fixture(autouse=True)
def _whole_profiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bench's compute profiles carry the GPU profile's numbers."""
    monkeypatch.setattr("devicemanager.partitions.mig._COMPUTE_PROFILE_IDS", 20)


@pytest.mark.parametrize("prefix", ["nvml", "hgml"])
def test_a_partitions_life(tmp_path: Path, prefix: str) -> None:
    binding = Binding(prefix)
    driver = MigDriver(lambda: binding, prefix)
    keeper = Keeper("nvidia", driver, Markers(TreeHost(tmp_path), "/pods", "nvidia"))
    assert driver.cards() == ("GPU-0",)
    first = keeper.ensure(PartitionClaim("uid-1", "main", "GPU-0", "3g.40gb"))
    second = keeper.ensure(PartitionClaim("uid-2", "main", "GPU-0", "1g.10gb"))
    assert (first.partition.placement, second.partition.placement) == (Placement(0, 4), Placement(4, 1))
    assert keeper.ensure(PartitionClaim("uid-1", "main", "GPU-0", "3g.40gb")).origin is Origin.REBOUND
    keeper.undo(first)
    keeper.undo(second)
    assert (binding.live, binding.started) == ({}, 1)


def test_what_a_card_offers() -> None:
    state = MigDriver(Binding).read("GPU-0")
    assert [(offer.name, offer.driver_id, offer.compute_slices, len(offer.placements)) for offer in state.offers] == [
        ("1g.10gb", 19, 1, 7),
        ("3g.40gb", 9, 3, 2),
    ]


def test_an_instance_without_compute_has_no_uuid() -> None:
    binding = Binding()
    binding._DeviceCreateGpuInstanceWithPlacement("GPU-0", 19, SimpleNamespace(_obj=Run(0, 1)))
    (found,) = MigDriver(lambda: binding).read("GPU-0").instances
    assert (found.uuid, found.compute_instances) == ("", 0)


def test_a_half_made_instance_is_destroyed_again() -> None:
    binding = Binding()
    binding.fail["GpuInstanceCreateComputeInstance"] = NO_ROOM
    driver = MigDriver(lambda: binding)
    offer = driver.read("GPU-0").offers[0]
    with pytest.raises(DriverFault, match="nvmlGpuInstanceCreateComputeInstance: error 24"):
        driver.create("GPU-0", offer, Placement(0, 1))
    assert binding.live == {}


def test_in_use_and_gone_are_told_apart() -> None:
    binding = Binding()
    driver = MigDriver(lambda: binding)
    made = driver.create("GPU-0", driver.read("GPU-0").offers[0], Placement(0, 1))
    binding.fail["ComputeInstanceDestroy"] = IN_USE
    with pytest.raises(InUse):
        driver.destroy("GPU-0", made)
    del binding.fail["ComputeInstanceDestroy"]
    driver.destroy("GPU-0", made)
    with pytest.raises(Gone):
        driver.destroy("GPU-0", made)
    with pytest.raises(Gone):
        driver.read("GPU-9")


@pytest.mark.parametrize("make", [nvidia_driver, thead_driver])
def test_without_a_library(make: Any) -> None:
    with pytest.raises(DriverFault, match="library does not start"):
        make().cards()
