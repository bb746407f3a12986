"""What a partition is, and what a driver must be able to do.

For: `keeper`, which creates and reclaims; drivers (NVIDIA, T-Head, Hygon, simulated).
In: a claim and a card. Out: a live partition and how it came about, or a refusal.
Promises: frozen data; a driver's methods block and are called in a thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from api.ledger.placements import Placement
from devicemanager.injection.driver_faults import DriverFault
from devicemanager.injection.request import Partition


class InUse(DriverFault):
    """The driver will not destroy an instance that a process still uses."""


class Gone(DriverFault):
    """There is no such instance."""


class Origin(StrEnum):
    """How a partition came to its container; decides what a rollback undoes."""

    CREATED = "created"
    BOUND = "bound"
    REBOUND = "rebound"


@dataclass(frozen=True, slots=True)
class PartitionClaim:
    """One container's wish for one card: a profile in the driver's spelling.

    `preferred` is where the ledger expects it; the driver's live state decides.
    """

    pod_uid: str
    container: str
    card_id: str
    profile: str
    preferred: Placement | None = None


@dataclass(frozen=True, slots=True)
class Bound:
    """One partition of a container."""

    claim: PartitionClaim
    partition: Partition
    origin: Origin


@dataclass(frozen=True, slots=True)
class LiveInstance:
    """One GPU instance on a card. `uuid` is empty when the driver names none; `compute_instances` counts them."""

    gpu_instance: int
    compute_instance: int
    uuid: str
    compute_slices: int
    placement: Placement
    compute_instances: int = 1


@dataclass(frozen=True, slots=True)
class ProfileOffer:
    """One profile of a card as the driver knows it now."""

    name: str
    driver_id: int
    compute_slices: int
    placements: tuple[Placement, ...]


@dataclass(frozen=True, slots=True)
class CardState:
    """A card's legal placements and live instances, read together."""

    offers: tuple[ProfileOffer, ...]
    instances: tuple[LiveInstance, ...]

    def offer(self, profile: str) -> ProfileOffer | None:
        """Return a profile's offer."""
        return next((offer for offer in self.offers if offer.name == profile), None)


class PartitionDriver(Protocol):
    """One manufacturer's driver. Everything raises DriverFault when the driver refuses."""

    def cards(self) -> tuple[str, ...]:
        """Return the ids of the cards in partition mode."""

    def read(self, card_id: str) -> CardState:
        """Return what a card offers and holds."""

    def create(self, card_id: str, offer: ProfileOffer, placement: Placement) -> LiveInstance:
        """Create one GPU instance with one compute instance over all of it; a half-made one is destroyed again."""

    def destroy(self, card_id: str, instance: LiveInstance) -> None:
        """Destroy a compute instance, then its GPU instance; InUse and Gone are told apart from other faults."""
