"""Makes, reuses and undoes partitions of one manufacturer (spec 06 §10).

For: `binder`, which serves the device plugin. In: claims; the driver; markers on disk. Out: bound partitions.
Promises:
  - fails closed: a marker that is corrupt, names another profile, or whose instance is gone or another one now, gets
    nothing, and nothing is created in its place;
  - an instance that a marker names, one without a uuid, one with several compute instances are never adopted;
  - a crash between creating and marking leaves an instance that the next asking adopts, or reclaiming finds;
  - a placement lost to somebody else between reading and creating is followed by the next free one;
  - the mode of a card is never changed.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Sequence

from api.ledger.placements import Placement, is_free
from devicemanager.injection.driver_faults import DriverFault
from devicemanager.injection.request import InjectionRefused, Partition
from devicemanager.kubelet.grant import PartitionRefused
from devicemanager.partitions.markers import Found, Marker, Markers
from devicemanager.partitions.port import (
    Bound,
    CardState,
    LiveInstance,
    Origin,
    PartitionClaim,
    PartitionDriver,
    ProfileOffer,
)


class Keeper:
    """The partitions of one manufacturer's cards. Methods block; one card is worked on by one caller at a time."""

    def __init__(self, manufacturer: str, driver: PartitionDriver, markers: Markers) -> None:
        self.manufacturer = manufacturer
        self.driver = driver
        self.markers = markers
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    def lock(self, card_id: str) -> threading.Lock:
        """Return the lock of a card."""
        return self._locks[card_id]

    def ensure(self, claim: PartitionClaim) -> Bound:
        """Return the claim's partition, made when there is none; PartitionRefused when it cannot be had."""
        with self.lock(claim.card_id):
            try:
                own = self.markers.own(claim.pod_uid, claim.container, claim.card_id)
                state = self.driver.read(claim.card_id)
                if own is not None:
                    return Bound(claim, _rebound(claim, own, state), Origin.REBOUND)
                return self._bind(claim, state, self.markers.find())
            except (DriverFault, InjectionRefused) as error:
                raise PartitionRefused(f"partition {claim.profile} of card {claim.card_id}: {error}") from error

    def undo(self, bound: Bound) -> None:
        """Undo what `ensure` did: created is destroyed, bound only unmarked, rebound left alone. DriverFault passes."""
        claim = bound.claim
        if bound.origin is Origin.REBOUND:
            return
        with self.lock(claim.card_id):
            own = self.markers.own(claim.pod_uid, claim.container, claim.card_id)
            if own is None or own.partition != bound.partition:
                return
            if bound.origin is Origin.CREATED:
                instance = find_instance(self.driver.read(claim.card_id), own.partition)
                if instance is not None:
                    self.driver.destroy(claim.card_id, instance)
            self.markers.remove(own.path)

    def proves(self, card_id: str, partition: Partition) -> bool:
        """Say whether a recorded partition is alive now, and still the same."""
        return find_instance(self.driver.read(card_id), partition) is not None

    def _bind(self, claim: PartitionClaim, state: CardState, found: Found) -> Bound:
        offer = state.offer(claim.profile)
        if offer is None or not offer.placements:
            raise PartitionRefused(f"card {claim.card_id} does not offer partition profile {claim.profile}")
        adopted = adoptable(claim, offer, state.instances, found)
        if adopted is not None:
            partition = _partition(claim.profile, adopted)
            self._mark(claim, offer, partition)
            return Bound(claim, partition, Origin.BOUND)
        return self._create(claim, offer, state)

    def _create(self, claim: PartitionClaim, offer: ProfileOffer, state: CardState) -> Bound:
        for _ in offer.placements:
            placement = choose_placement(offer, state.instances, claim.preferred)
            if placement is None:
                break
            try:
                made = self.driver.create(claim.card_id, offer, placement)
            except DriverFault:
                state = self.driver.read(claim.card_id)
                if is_free(placement, [instance.placement for instance in state.instances]):
                    raise
                continue
            partition = _partition(claim.profile, made)
            try:
                if not made.uuid:
                    raise DriverFault("the driver gave the new instance no uuid")
                self._mark(claim, offer, partition)
            except (DriverFault, InjectionRefused):
                self.driver.destroy(claim.card_id, made)
                raise
            return Bound(claim, partition, Origin.CREATED)
        raise PartitionRefused(f"card {claim.card_id} has no free placement for profile {claim.profile}", full=True)

    def _mark(self, claim: PartitionClaim, offer: ProfileOffer, partition: Partition) -> None:
        self.markers.write(
            claim.pod_uid,
            claim.container,
            claim.card_id,
            compute_slices=offer.compute_slices,
            partition=partition,
        )


def adoptable(
    claim: PartitionClaim, offer: ProfileOffer, instances: Sequence[LiveInstance], found: Found
) -> LiveInstance | None:
    """Return a live instance of the wanted size that nobody owns; the ledger's placement first, then the lowest."""
    if any(corrupt.card_id == claim.card_id for corrupt in found.corrupt):
        return None
    owned = {marker.partition.uuid for marker in found.markers if marker.card_id == claim.card_id}
    runs = [marker.partition.placement for marker in found.markers if marker.card_id == claim.card_id]
    lengths = {placement.length for placement in offer.placements}
    fitting = [
        instance
        for instance in instances
        if instance.uuid
        and instance.uuid not in owned
        and instance.compute_instances == 1
        and instance.compute_slices == offer.compute_slices
        and instance.placement.length in lengths
        and is_free(instance.placement, runs)
    ]
    return min(fitting, key=lambda one: (one.placement != claim.preferred, one.placement), default=None)


def choose_placement(
    offer: ProfileOffer, instances: Sequence[LiveInstance], preferred: Placement | None
) -> Placement | None:
    """Return the ledger's placement while it is legal and free, else the free legal one that starts lowest."""
    occupied = [instance.placement for instance in instances]
    free = sorted(placement for placement in offer.placements if is_free(placement, occupied))
    return preferred if preferred in free else next(iter(free), None)


def find_instance(state: CardState, partition: Partition) -> LiveInstance | None:
    """Return the live instance a marker names: by number, uuid and place together, for numbers are used again."""
    return next(
        (
            instance
            for instance in state.instances
            if instance.gpu_instance == partition.gpu_instance
            and instance.uuid == partition.uuid
            and instance.placement == partition.placement
        ),
        None,
    )


def _rebound(claim: PartitionClaim, own: Marker, state: CardState) -> Partition:
    recorded = own.partition
    if recorded.profile != claim.profile:
        raise PartitionRefused(f"container {claim.container!r} holds a {recorded.profile} of card {claim.card_id}")
    same_number = [one for one in state.instances if one.gpu_instance == recorded.gpu_instance]
    if not same_number:
        raise PartitionRefused(
            f"its instance {recorded.gpu_instance} of card {claim.card_id} is gone; recreate the Pod"
        )
    if same_number[0].uuid != recorded.uuid:
        raise PartitionRefused(
            f"instance {recorded.gpu_instance} of card {claim.card_id} is {same_number[0].uuid or 'nameless'} now, "
            f"not {recorded.uuid}; recreate the Pod"
        )
    return recorded


def _partition(profile: str, instance: LiveInstance) -> Partition:
    return Partition(instance.uuid, profile, instance.gpu_instance, instance.compute_instance, instance.placement)
