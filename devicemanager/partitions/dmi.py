"""Hygon's partitions through libhydmi_mig, whose functions carry NVML's names (PyPI `gpustack-runtime` binds it).

For: `keeper`. In: the binding, bus addresses of the node's cards by id, the host's files. Out: a driver.
Promises: a partition's identity is what the driver wrote into its own file (`mig_uuid`), never its numbers; the mode,
which is the whole node's, is never changed.
"""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from api.ledger.placements import Placement
from devicemanager.injection.driver_faults import DriverFault
from devicemanager.injection.host import Host
from devicemanager.injection.hygon import instance_file
from devicemanager.partitions.port import CardState, Gone, InUse, LiveInstance, ProfileOffer
from nodefeature.profiles import normalize_profile

_PROFILES = 4
_ENGINES_SHARED = 0


class DmiDriver:
    """Hygon's cards. Methods block; DriverFault when the library refuses."""

    def __init__(
        self, buses: Callable[[], Mapping[str, str]], host: Host, *, load: Callable[[], Any] | None = None
    ) -> None:
        self._buses = buses
        self._host = host
        self._load = load or (lambda: importlib.import_module("gpustack_runtime.detector.pydmi"))
        self._module: Any = None

    def cards(self) -> tuple[str, ...]:
        """Return the node's cards while its mode is on."""
        current, _pending = self._ask("dmiGetSystemMigMode")
        return tuple(self._buses()) if current else ()

    def read(self, card_id: str) -> CardState:
        """Return a card's offers and instances."""
        handle = self._handle(card_id)
        number = int(self._ask("dmiDeviceGetIndex", handle))
        offers, instances = [], []
        for info in self._profiles(handle):
            runs = self._ask("dmiDeviceGetGpuInstancePossiblePlacements", handle, info.id)
            placements = tuple(sorted({Placement(int(run.start), int(run.size)) for run in runs}))
            name = normalize_profile(bytes(info.name).decode("utf-8", "replace"))
            slices = int(info.gpu_slice_count)
            offers.append(ProfileOffer(name, int(info.id), slices, placements))
            for gpu in self._ask("dmiDeviceGetGpuInstances", handle, info.id):
                instances.append(self._instance(gpu, number, slices))
        return CardState(tuple(offers), tuple(sorted(instances, key=lambda one: one.placement)))

    def create(self, card_id: str, offer: ProfileOffer, placement: Placement) -> LiveInstance:
        """Create a GPU instance and the compute instance over all of it."""
        handle = self._handle(card_id)
        run = (ctypes.c_uint * 2)(placement.start, placement.length)
        gpu, compute = ctypes.c_void_p(), ctypes.c_void_p()
        self._call(
            "nvmlDeviceCreateGpuInstanceWithPlacement",
            handle,
            ctypes.c_uint(offer.driver_id),
            ctypes.byref(run),
            ctypes.byref(gpu),
        )
        try:
            profile = self._whole_compute_profile(gpu, offer.compute_slices)
            self._call("nvmlGpuInstanceCreateComputeInstance", gpu, ctypes.c_uint(profile), ctypes.byref(compute))
        except DriverFault:
            self._call("nvmlGpuInstanceDestroy", gpu)
            raise
        return self._instance(gpu, int(self._ask("dmiDeviceGetIndex", handle)), offer.compute_slices)

    def destroy(self, card_id: str, instance: LiveInstance) -> None:
        """Destroy the compute instance, then the GPU instance."""
        gpu = self._ask("dmiDeviceGetGpuInstanceById", self._handle(card_id), instance.gpu_instance)
        if instance.compute_instances:
            compute = self._ask("dmiGpuInstanceGetComputeInstanceById", gpu, instance.compute_instance)
            self._call("nvmlComputeInstanceDestroy", compute)
        self._call("nvmlGpuInstanceDestroy", gpu)

    def _handle(self, card_id: str) -> Any:
        bus_id = self._buses().get(card_id)
        if not bus_id:
            raise DriverFault(f"card {card_id}: its PCI address is not known")
        return self._ask("dmiDeviceGetHandleByPciBusId", bus_id)

    def _instance(self, gpu: Any, number: int, slices: int) -> LiveInstance:
        info = self._ask("dmiGpuInstanceGetInfo", gpu)
        parts = [int(self._ask("dmiComputeInstanceGetInfo", one).id) for one in self._compute_instances(gpu)]
        part = min(parts, default=0)
        name = self._uuid(number, int(info.id), part) if parts else ""
        run = Placement(int(info.placement.start), int(info.placement.size))
        return LiveInstance(int(info.id), part, name, slices, run, len(parts))

    def _compute_instances(self, gpu: Any) -> list[Any]:
        return [
            one
            for profile in self._compute_profiles(gpu)
            for one in self._ask("dmiGpuInstanceGetComputeInstances", gpu, profile.id)
        ]

    def _uuid(self, number: int, gpu: int, part: int) -> str:
        for line in (self._host.read_or_none(instance_file(number, gpu, part)) or "").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "mig_uuid" and value.strip():
                return f"MIG-{value.strip().removeprefix('MIG-')}"
        return ""

    def _profiles(self, handle: Any) -> Iterator[Any]:
        for number in range(_PROFILES):
            try:
                yield self._ask("dmiDeviceGetGpuInstanceProfileInfo", handle, number)
            except DriverFault:
                continue  # a card without a profile of that many slices says so this way

    def _compute_profiles(self, gpu: Any) -> Iterator[Any]:
        for number in range(_PROFILES):
            try:
                yield self._ask("dmiGpuInstanceGetComputeInstanceProfileInfo", gpu, number, _ENGINES_SHARED)
            except DriverFault:
                continue

    def _whole_compute_profile(self, gpu: Any, slices: int) -> int:
        for profile in self._compute_profiles(gpu):
            if int(profile.gpu_slice_count) == slices:
                return int(profile.id)
        raise DriverFault(f"no compute instance profile covers all {slices} slices")

    def _library(self) -> Any:
        if self._module is None:
            try:
                module = self._load()
                module.dmiInit()
            except Exception as error:
                raise DriverFault(f"the driver's library does not start: {error}") from error
            self._module = module
        return self._module

    def _ask(self, function: str, *arguments: Any) -> Any:
        module = self._library()
        try:
            return getattr(module, function)(*arguments)
        except module.DMIError as error:
            raise self._fault(module, function, error.value, str(error)) from error

    def _call(self, function: str, *arguments: Any) -> None:
        """Call a function that the binding loads but does not wrap."""
        module = self._library()
        called = getattr(module.dmiLib, function, None)
        if called is None:
            raise DriverFault(f"libhydmi_mig has no function {function}")
        answer = called(*arguments)
        if answer:
            raise self._fault(module, function, answer, f"error {answer}")

    def _fault(self, module: Any, function: str, code: Any, text: str) -> DriverFault:
        kinds: dict[Any, type[DriverFault]] = {module.DMI_ERROR_IN_USE: InUse, module.DMI_ERROR_NOT_FOUND: Gone}
        return kinds.get(code, DriverFault)(f"{function}: {text}")
