"""Vendors' slice drivers without hardware.

For: replayed machines, benches, tests. Out: drivers as strict as real ones.
Promises: what exists cannot be created again, what is gone cannot be destroyed, nothing works before its mode is on.
Faults can be arranged.
"""

from __future__ import annotations

from collections import defaultdict

from devicemanager.injection.cambricon import SmluInstance, SmluProfile
from devicemanager.injection.driver_faults import DriverFault
from devicemanager.injection.metax import Subdevice
from devicemanager.injection.request import Card


class _Faults:
    """Faults arranged for the next call of an operation."""

    def __init__(self) -> None:
        self._next: defaultdict[str, list[DriverFault]] = defaultdict(list)
        self.calls: list[str] = []

    def fail_next(self, operation: str, fault: DriverFault) -> None:
        """Let the next call of an operation fail."""
        self._next[operation].append(fault)

    def _called(self, operation: str) -> None:
        self.calls.append(operation)
        if self._next[operation]:
            raise self._next[operation].pop(0)


class SimulatedShareFlags(_Faults):
    """Ascend's container-share flags; off at first."""

    def __init__(self) -> None:
        super().__init__()
        self.shared: set[str] = set()

    def is_shared(self, card: Card) -> bool:
        """Say whether the flag is on."""
        self._called("is_shared")
        return card.id in self.shared

    def share(self, card: Card) -> None:
        """Turn the flag on."""
        self._called("share")
        self.shared.add(card.id)


class SimulatedSgpus(_Faults):
    """MetaX cards' subdevices."""

    def __init__(self) -> None:
        super().__init__()
        self.enabled: set[str] = set()
        self.live: defaultdict[str, dict[int, Subdevice]] = defaultdict(dict)

    def subdevices(self, bus_id: str) -> tuple[Subdevice, ...]:
        """Return the live subdevices of a card."""
        self._called("subdevices")
        return tuple(self.live[bus_id].values())

    def enable(self, bus_id: str) -> None:
        """Turn sGPU mode on."""
        self._called("enable")
        if self.live[bus_id]:
            raise DriverFault(f"{bus_id}: the mode of a card with subdevices cannot be set")
        self.enabled.add(bus_id)

    def create(self, bus_id: str, index: int, mib: int, alias: str) -> None:
        """Create one subdevice."""
        self._called("create")
        if bus_id not in self.enabled or index in self.live[bus_id] or mib <= 0:
            raise DriverFault(f"{bus_id}: subdevice {index} of {mib} MiB cannot be created")
        self.live[bus_id][index] = Subdevice(index, alias)

    def destroy(self, bus_id: str, index: int) -> None:
        """Destroy one subdevice."""
        self._called("destroy")
        if self.live[bus_id].pop(index, None) is None:
            raise DriverFault(f"{bus_id}: no subdevice {index}")


class SimulatedSmlus(_Faults):
    """Cambricon cards' profiles and instances."""

    def __init__(self) -> None:
        super().__init__()
        self.enabled: set[int] = set()
        self.made_profiles: defaultdict[int, dict[int, SmluProfile]] = defaultdict(dict)
        self.live: defaultdict[int, dict[str, SmluInstance]] = defaultdict(dict)

    def is_enabled(self, index: int) -> bool:
        """Say whether sMLU mode is on."""
        self._called("is_enabled")
        return index in self.enabled

    def enable(self, index: int) -> None:
        """Turn sMLU mode on."""
        self._called("enable")
        self.enabled.add(index)

    def profiles(self, index: int) -> tuple[SmluProfile, ...]:
        """Return the card's profiles."""
        self._called("profiles")
        return tuple(self.made_profiles[index].values())

    def instances(self, index: int) -> tuple[SmluInstance, ...]:
        """Return the card's instances."""
        self._called("instances")
        return tuple(self.live[index].values())

    def create_profile(self, index: int, cores: int, mib: int) -> SmluProfile:
        """Create a profile."""
        self._called("create_profile")
        if index not in self.enabled:
            raise DriverFault(f"device {index}: sMLU mode is off")
        number = max(self.made_profiles[index], default=0) + 1
        self.made_profiles[index][number] = SmluProfile(number, cores, mib)
        return self.made_profiles[index][number]

    def destroy_profile(self, index: int, profile_id: int) -> None:
        """Destroy a profile that no instance uses."""
        self._called("destroy_profile")
        if any(one.profile_id == profile_id for one in self.live[index].values()):
            raise DriverFault(f"device {index}: profile {profile_id} is in use")
        if self.made_profiles[index].pop(profile_id, None) is None:
            raise DriverFault(f"device {index}: no profile {profile_id}")

    def create(self, index: int, profile_id: int, name: str) -> SmluInstance:
        """Create an instance."""
        self._called("create")
        if profile_id not in self.made_profiles[index] or name in self.live[index]:
            raise DriverFault(f"device {index}: instance {name} cannot be created")
        node = f"/dev/cambricon-caps/cap_dev{index}_smlu{len(self.live[index]) + 1}"
        self.live[index][name] = SmluInstance(name, profile_id, node)
        return self.live[index][name]

    def destroy(self, index: int, name: str) -> None:
        """Destroy an instance."""
        self._called("destroy")
        if self.live[index].pop(name, None) is None:
            raise DriverFault(f"device {index}: no instance {name}")
