"""Hygon's partitions, against a module that behaves like the binding of libhydmi_mig."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from api.ledger.placements import Placement
from devicemanager.injection.driver_faults import DriverFault
from devicemanager.partitions.dmi import DmiDriver
from devicemanager.partitions.keeper import Keeper
from devicemanager.partitions.markers import Markers
from devicemanager.partitions.port import Gone, InUse, PartitionClaim
from tests.builders.injection import BDF, TreeHost, put

PROFILES = [(0, 11, b"MIG 2g.15gb", 1, 4, (0, 1, 2, 3)), (1, 12, b"MIG 4g.31gb", 2, 2, (0, 2))]


class Fault(Exception):
    """What the binding raises."""

    def __init__(self, value: int) -> None:
        super().__init__(f"error {value}")
        self.value = value


class Library:
    """What the binding loads but does not wrap."""

    def __init__(self, binding: Binding) -> None:
        self._binding = binding

    def nvmlDeviceCreateGpuInstanceWithPlacement(self, _card: Any, profile: Any, run: Any, made: Any) -> int:  # noqa: N802 - the library's name
        live = self._binding.live
        start, size = run._obj
        if any(one.start < start + size and start < one.start + one.size for one in live.values()):
            return 23
        number = next(n for n in range(1, 9) if n not in live)
        live[number] = SimpleNamespace(number=number, profile=profile.value, start=start, size=size, compute=False)
        made._obj.value = number
        return 0

    def nvmlGpuInstanceCreateComputeInstance(self, gpu: Any, _profile: Any, _made: Any) -> int:  # noqa: N802 - the library's name
        if self._binding.refuses:
            return self._binding.refuses
        one = self._binding.live[gpu.value]
        one.compute = True
        text = f"gi: {one.number}\nmig_uuid: uuid-{one.number}-{one.start}\n"
        put(self._binding.root, f"/etc/dmi_mig_config/ci/dev4gi{one.number}ci0.conf", text)
        return 0

    def nvmlComputeInstanceDestroy(self, one: Any) -> int:  # noqa: N802 - the library's name
        if self._binding.refuses:
            return self._binding.refuses
        one.compute = False
        return 0

    def nvmlGpuInstanceDestroy(self, gpu: Any) -> int:  # noqa: N802 - the library's name
        number = getattr(gpu, "number", None) or gpu.value
        del self._binding.live[number]
        return 0


class Binding:
    """The binding over one card."""

    DMIError = Fault
    DMI_ERROR_IN_USE = 19
    DMI_ERROR_NOT_FOUND = 6

    def __init__(self, root: Path, mode: int = 1) -> None:
        self.root = root
        self.live: dict[int, Any] = {}
        self.refuses = 0
        self.dmiLib = Library(self)
        self._mode = mode

    def dmiInit(self) -> None:  # noqa: N802 - the binding's name
        return

    def dmiGetSystemMigMode(self) -> tuple[int, int]:  # noqa: N802 - the binding's name
        return self._mode, self._mode

    def dmiDeviceGetHandleByPciBusId(self, bus: str) -> str:  # noqa: N802 - the binding's name
        if bus != BDF:
            raise Fault(6)
        return bus

    def dmiDeviceGetIndex(self, _card: str) -> int:  # noqa: N802 - the binding's name
        return 4

    def dmiDeviceGetGpuInstanceProfileInfo(self, _card: str, number: int) -> Any:  # noqa: N802 - the binding's name
        for index, profile, name, slices, _count, _starts in PROFILES:
            if index == number:
                return SimpleNamespace(id=profile, name=name, gpu_slice_count=slices)
        raise Fault(6)

    def dmiDeviceGetGpuInstancePossiblePlacements(self, _card: str, profile: int) -> list[Any]:  # noqa: N802 - the binding's name
        (row,) = [row for row in PROFILES if row[1] == profile]
        return [SimpleNamespace(start=start, size=row[3]) for start in row[5]]

    def dmiDeviceGetGpuInstances(self, _card: str, profile: int) -> list[Any]:  # noqa: N802 - the binding's name
        return [one for one in self.live.values() if one.profile == profile]

    def dmiDeviceGetGpuInstanceById(self, _card: str, number: int) -> Any:  # noqa: N802 - the binding's name
        if number not in self.live:
            raise Fault(6)
        return self.live[number]

    def dmiGpuInstanceGetInfo(self, gpu: Any) -> Any:  # noqa: N802 - the binding's name
        one = self.live[getattr(gpu, "number", None) or gpu.value]
        return SimpleNamespace(id=one.number, placement=SimpleNamespace(start=one.start, size=one.size))

    def dmiGpuInstanceGetComputeInstanceProfileInfo(self, _gpu: Any, number: int, _engine: int) -> Any:  # noqa: N802 - the binding's name
        if number > 1:
            raise Fault(6)
        return SimpleNamespace(id=number, gpu_slice_count=number + 1)

    def dmiGpuInstanceGetComputeInstances(self, gpu: Any, profile: int) -> list[Any]:  # noqa: N802 - the binding's name
        one = self.live[getattr(gpu, "number", None) or gpu.value]
        return [one] if one.compute and profile == one.size - 1 else []

    def dmiGpuInstanceGetComputeInstanceById(self, gpu: Any, _number: int) -> Any:  # noqa: N802 - the binding's name
        return gpu

    def dmiComputeInstanceGetInfo(self, _one: Any) -> Any:  # noqa: N802 - the binding's name
        return SimpleNamespace(id=0)


@pytest.fixture
def binding(tmp_path: Path) -> Binding:
    return Binding(tmp_path)


def driver(binding: Binding, buses: dict[str, str] | None = None) -> DmiDriver:
    return DmiDriver(lambda: {"DCU-0": BDF} if buses is None else buses, TreeHost(binding.root), load=lambda: binding)


def test_a_partitions_life(binding: Binding) -> None:
    keeper = Keeper("hygon", driver(binding), Markers(TreeHost(binding.root), "/pods", "hygon"))
    first = keeper.ensure(PartitionClaim("uid-1", "main", "DCU-0", "4g.31gb"))
    second = keeper.ensure(PartitionClaim("uid-2", "main", "DCU-0", "2g.15gb"))
    assert (first.partition.uuid, first.partition.placement) == ("MIG-uuid-1-0", Placement(0, 2))
    assert (second.partition.uuid, second.partition.placement) == ("MIG-uuid-2-2", Placement(2, 1))
    assert keeper.proves("DCU-0", first.partition)
    keeper.undo(first)
    keeper.undo(second)
    assert binding.live == {}


def test_cards_are_partitioned_while_the_nodes_mode_is_on(binding: Binding) -> None:
    assert driver(binding).cards() == ("DCU-0",)
    assert driver(Binding(binding.root, mode=0)).cards() == ()


def test_what_a_card_offers(binding: Binding) -> None:
    offers = driver(binding).read("DCU-0").offers
    assert [(offer.name, offer.compute_slices, len(offer.placements)) for offer in offers] == [
        ("2g.15gb", 1, 4),
        ("4g.31gb", 2, 2),
    ]


def test_a_half_made_instance_is_destroyed_again(binding: Binding) -> None:
    opened = driver(binding)
    offer = opened.read("DCU-0").offers[0]
    binding.refuses = 23
    with pytest.raises(DriverFault, match="error 23"):
        opened.create("DCU-0", offer, Placement(0, 1))
    assert binding.live == {}


def test_in_use_and_gone_are_told_apart(binding: Binding) -> None:
    opened = driver(binding)
    made = opened.create("DCU-0", opened.read("DCU-0").offers[0], Placement(0, 1))
    binding.refuses = 19
    with pytest.raises(InUse):
        opened.destroy("DCU-0", made)
    binding.refuses = 0
    opened.destroy("DCU-0", made)
    with pytest.raises(Gone):
        opened.destroy("DCU-0", made)


def test_what_cannot_be_addressed(binding: Binding) -> None:
    with pytest.raises(DriverFault, match="its PCI address is not known"):
        driver(binding, {}).read("DCU-0")
    with pytest.raises(DriverFault, match="does not start"):
        DmiDriver(lambda: {"DCU-0": BDF}, TreeHost(binding.root)).read("DCU-0")
