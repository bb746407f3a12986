"""Partitions through NVML, or through a library that copied its interface (T-Head's HGML).

For: `keeper`. In: the binding's module and the prefix of its names. Out: a driver.
Promises: the module is loaded and started at the first question; a GPU instance is created with exactly one compute
instance over all of it, and goes again when that fails; the mode of a card is never changed.
"""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Callable, Iterator
from typing import Any

from api.ledger.placements import Placement
from devicemanager.injection.driver_faults import DriverFault
from devicemanager.partitions.port import CardState, Gone, InUse, LiveInstance, ProfileOffer
from nodefeature.profiles import normalize_profile

_PROFILE_IDS = {"nvml": 0x20, "hgml": 85}
_COMPUTE_PROFILE_IDS = 0x10
_ENGINES_SHARED = 0


class MigDriver:
    """One library's cards. Methods block; DriverFault when the library refuses."""

    def __init__(self, load: Callable[[], Any], prefix: str = "nvml") -> None:
        self._load = load
        self._prefix = prefix
        self._module: Any = None

    def cards(self) -> tuple[str, ...]:
        """Return the uuids of the cards whose partition mode is on."""
        found = []
        for index in range(self._ask("DeviceGetCount")):
            handle = self._ask("DeviceGetHandleByIndex", index)
            if self._or_none("DeviceGetMigMode", handle) is not None and self._is_on(handle):
                found.append(_text(self._ask("DeviceGetUUID", handle)))
        return tuple(found)

    def read(self, card_id: str) -> CardState:
        """Return a card's offers and instances."""
        handle = self._handle(card_id)
        names = self._uuids(handle)
        offers, instances = [], []
        for info in self._profiles(handle):
            placements = self._placements(handle, info.id)
            name = normalize_profile(_text(info.name))
            offers.append(ProfileOffer(name, int(info.id), int(info.sliceCount), placements))
            instances += [self._instance(one, info, names) for one in self._instances(handle, info)]
        return CardState(tuple(offers), tuple(sorted(instances, key=lambda one: one.placement)))

    def create(self, card_id: str, offer: ProfileOffer, placement: Placement) -> LiveInstance:
        """Create a GPU instance and the compute instance over all of it."""
        handle = self._handle(card_id)
        place = self._library().__dict__[f"c_{self._prefix}GpuInstancePlacement_t"](placement.start, placement.length)
        made = self._ask("DeviceCreateGpuInstanceWithPlacement", handle, offer.driver_id, ctypes.byref(place))
        try:
            profile = self._whole_compute_profile(made, offer.compute_slices)
            compute = self._ask("GpuInstanceCreateComputeInstance", made, profile)
        except DriverFault:
            self._ask("GpuInstanceDestroy", made)
            raise
        number = int(self._ask("GpuInstanceGetInfo", made).id)
        part = int(self._ask("ComputeInstanceGetInfo", compute).id)
        name = self._uuids(handle).get((number, part), "")
        return LiveInstance(number, part, name, offer.compute_slices, placement)

    def destroy(self, card_id: str, instance: LiveInstance) -> None:
        """Destroy the compute instance, then the GPU instance."""
        handle = self._handle(card_id)
        gpu = self._ask("DeviceGetGpuInstanceById", handle, instance.gpu_instance)
        compute = self._or_none("GpuInstanceGetComputeInstanceById", gpu, instance.compute_instance)
        if compute is not None:
            self._ask("ComputeInstanceDestroy", compute)
        self._ask("GpuInstanceDestroy", gpu)

    def _handle(self, card_id: str) -> Any:
        return self._ask("DeviceGetHandleByUUID", card_id)

    def _is_on(self, handle: Any) -> bool:
        current, _pending = self._ask("DeviceGetMigMode", handle)
        return bool(current)

    def _profiles(self, handle: Any) -> Iterator[Any]:
        for number in range(_PROFILE_IDS[self._prefix]):
            info = self._or_none("DeviceGetGpuInstanceProfileInfo", handle, number)
            if info is not None:
                yield info

    def _placements(self, handle: Any, profile: int) -> tuple[Placement, ...]:
        count = ctypes.c_uint()
        if self._or_none("DeviceGetGpuInstancePossiblePlacements", handle, profile, None, ctypes.byref(count)) is None:
            return ()
        places = (self._library().__dict__[f"c_{self._prefix}GpuInstancePlacement_t"] * count.value)()
        self._ask("DeviceGetGpuInstancePossiblePlacements", handle, profile, places, ctypes.byref(count))
        return tuple(Placement(int(place.start), int(place.size)) for place in places[: count.value])

    def _instances(self, handle: Any, info: Any) -> list[Any]:
        count = ctypes.c_uint(int(info.instanceCount))
        handles = (self._library().__dict__[f"c_{self._prefix}GpuInstance_t"] * max(count.value, 1))()
        self._ask("DeviceGetGpuInstances", handle, info.id, handles, ctypes.byref(count))
        return list(handles[: count.value])

    def _instance(self, gpu: Any, profile: Any, names: dict[tuple[int, int], str]) -> LiveInstance:
        info = self._ask("GpuInstanceGetInfo", gpu)
        parts = sorted(part for number, part in names if number == int(info.id))
        part = parts[0] if parts else 0
        return LiveInstance(
            int(info.id),
            part,
            names.get((int(info.id), part), ""),
            int(profile.sliceCount),
            Placement(int(info.placement.start), int(info.placement.size)),
            len(parts),
        )

    def _uuids(self, handle: Any) -> dict[tuple[int, int], str]:
        """Return the uuids of a card's partitions by (GPU instance, compute instance)."""
        names = {}
        for index in range(int(self._ask("DeviceGetMaxMigDeviceCount", handle))):
            part = self._or_none("DeviceGetMigDeviceHandleByIndex", handle, index)
            if part is None:
                continue
            key = (int(self._ask("DeviceGetGpuInstanceId", part)), int(self._ask("DeviceGetComputeInstanceId", part)))
            names[key] = _text(self._ask("DeviceGetUUID", part))
        return names

    def _whole_compute_profile(self, gpu: Any, slices: int) -> int:
        for number in range(_COMPUTE_PROFILE_IDS):
            info = self._or_none("GpuInstanceGetComputeInstanceProfileInfo", gpu, number, _ENGINES_SHARED)
            if info is not None and int(info.sliceCount) == slices:
                return int(info.id)
        raise DriverFault(f"no compute instance profile covers all {slices} slices")

    def _library(self) -> Any:
        if self._module is None:
            try:
                module = self._load()
                getattr(module, f"{self._prefix}Init")()
            except Exception as error:
                raise DriverFault(f"the driver's library does not start: {error}") from error
            self._module = module
        return self._module

    def _ask(self, function: str, *arguments: Any) -> Any:
        module = self._library()
        try:
            return getattr(module, self._prefix + function)(*arguments)
        except getattr(module, f"{self._prefix.upper()}Error") as error:
            raise self._fault(module, function, error) from error

    def _or_none(self, function: str, *arguments: Any) -> Any:
        try:
            return self._ask(function, *arguments)
        except DriverFault:
            return None

    def _fault(self, module: Any, function: str, error: Any) -> DriverFault:
        kinds: dict[Any, type[DriverFault]] = {
            getattr(module, f"{self._prefix.upper()}_ERROR_IN_USE", object()): InUse,
            getattr(module, f"{self._prefix.upper()}_ERROR_NOT_FOUND", object()): Gone,
        }
        kind = kinds.get(getattr(error, "value", None), DriverFault)
        return kind(f"{self._prefix}{function}: {error}")


def nvidia_driver() -> MigDriver:
    """Return NVIDIA's driver (PyPI `nvidia-ml-py`)."""
    return MigDriver(lambda: importlib.import_module("pynvml"), "nvml")


def thead_driver() -> MigDriver:
    """Return T-Head's driver (through PyPI `gpustack-runtime`)."""
    return MigDriver(lambda: importlib.import_module("gpustack_runtime.detector.pyhgml"), "hgml")


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
