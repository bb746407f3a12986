"""Partitionable cards without hardware.

For: replayed machines, benches, tests. In: cards and the placements their driver calls legal. Out: a driver.
Promises: as strict as a real one: illegal or overlapping placements, instances in use and unknown instances are
refused; numbers of destroyed instances are given out again, uuids never, nor by the cards of a later process, which
begin empty while markers of before are still there. Faults, other people's instances and lost placements can be
arranged.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import replace

from api.ledger.placements import Placement, is_free
from devicemanager.answers import RawCard
from devicemanager.injection.driver_faults import DriverFault
from devicemanager.partitions.port import CardState, Gone, InUse, LiveInstance, ProfileOffer
from nodefeature.profiles import normalize_profile


class SimulatedCards:
    """Cards in partition mode; safe to call from several threads."""

    def __init__(self, offers: Mapping[str, tuple[ProfileOffer, ...]]) -> None:
        self._offers = dict(offers)
        self._instances: dict[str, dict[int, LiveInstance]] = {card: {} for card in offers}
        self._used: set[tuple[str, int]] = set()
        self._faults: dict[str, list[DriverFault]] = {"read": [], "create": [], "destroy": []}
        self._stolen: list[tuple[str, Placement, int]] = []
        self._lock = threading.Lock()

    def cards(self) -> tuple[str, ...]:
        """Return the cards' ids."""
        return tuple(self._offers)

    def read(self, card_id: str) -> CardState:
        """Return a card's offers and live instances, lowest placement first."""
        with self._lock:
            self._maybe_fail("read")
            live = sorted(self._of(card_id).values(), key=lambda one: one.placement)
            return CardState(self._offers[card_id], tuple(live))

    def create(self, card_id: str, offer: ProfileOffer, placement: Placement) -> LiveInstance:
        """Create an instance."""
        with self._lock:
            while self._stolen:
                self._add(*self._stolen.pop())
            self._maybe_fail("create")
            if placement not in offer.placements or offer not in self._offers[card_id]:
                raise DriverFault(f"card {card_id}: {placement.start}:{placement.length} is no legal placement")
            if not is_free(placement, [one.placement for one in self._of(card_id).values()]):
                raise DriverFault(f"card {card_id}: insufficient resources at {placement.start}:{placement.length}")
            return self._add(card_id, placement, offer.compute_slices)

    def destroy(self, card_id: str, instance: LiveInstance) -> None:
        """Destroy an instance."""
        with self._lock:
            self._maybe_fail("destroy")
            live = self._of(card_id).get(instance.gpu_instance)
            if live is None:
                raise Gone(f"card {card_id}: no instance {instance.gpu_instance}")
            if (card_id, instance.gpu_instance) in self._used:
                raise InUse(f"card {card_id}: instance {instance.gpu_instance} is in use")
            del self._instances[card_id][instance.gpu_instance]

    def add_foreign(
        self, card_id: str, placement: Placement, compute_slices: int, *, named: bool = True
    ) -> LiveInstance:
        """Put somebody else's instance on a card."""
        with self._lock:
            made = self._add(card_id, placement, compute_slices)
            if not named:
                made = self._instances[card_id][made.gpu_instance] = replace(made, uuid="")
            return made

    def split(self, card_id: str, gpu_instance: int) -> None:
        """Give an instance a second compute instance."""
        one = self._instances[card_id][gpu_instance]
        self._instances[card_id][gpu_instance] = replace(one, compute_instances=2)

    def lose(self, card_id: str, gpu_instance: int) -> None:
        """Let an instance vanish, as a reset does."""
        del self._instances[card_id][gpu_instance]

    def steal_before_create(self, card_id: str, placement: Placement, compute_slices: int) -> None:
        """Let somebody else take a placement between the next reading and creating."""
        self._stolen.append((card_id, placement, compute_slices))

    def fail_next(self, operation: str, fault: DriverFault) -> None:
        """Let the next `read`, `create` or `destroy` fail."""
        self._faults[operation].append(fault)

    def use(self, card_id: str, gpu_instance: int, *, used: bool = True) -> None:
        """Let a process run on an instance, or end."""
        (self._used.add if used else self._used.discard)((card_id, gpu_instance))

    def _of(self, card_id: str) -> dict[int, LiveInstance]:
        if card_id not in self._instances:
            raise DriverFault(f"card {card_id}: not found, or its partition mode is off")
        return self._instances[card_id]

    def _add(self, card_id: str, placement: Placement, compute_slices: int) -> LiveInstance:
        live = self._of(card_id)
        number = next(n for n in range(1, len(live) + 2) if n not in live)
        live[number] = LiveInstance(number, 0, f"MIG-{uuid.uuid4()}", compute_slices, placement)
        return live[number]

    def _maybe_fail(self, operation: str) -> None:
        if self._faults[operation]:
            raise self._faults[operation].pop(0)


def offers_of(card: RawCard) -> tuple[ProfileOffer, ...]:
    """Return what a recorded card's driver offers."""
    return tuple(
        ProfileOffer(
            normalize_profile(raw.name),
            number,
            raw.compute_slices,
            tuple(Placement(start, raw.memory_slices) for start in sorted(set(raw.starts)) if raw.memory_slices > 0),
        )
        for number, raw in enumerate(card.profiles)
    )


def simulate(cards: Iterable[RawCard]) -> SimulatedCards:
    """Return a driver of the recorded cards that are in partition mode."""
    return SimulatedCards(
        {card.uuid: offers_of(card) for card in cards if card.uuid and card.partition_mode == "enabled"}
    )
