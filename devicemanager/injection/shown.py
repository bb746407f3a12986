"""Which hardware partitions a container is shown."""

from __future__ import annotations

from devicemanager.injection.request import Card, ContainerClaim, InjectionRefused, Partition, Request
from devicemanager.injection.site import granted
from nodefeature.resource_names import Family


def shows_partitions(claim: ContainerClaim) -> bool:
    """Say whether the container sees partitions: it holds them, or it watches over one that does."""
    return claim.family is Family.PARTITIONED or (claim.family is Family.VISIBILITY and claim.partitioned_owner)


def partitions(request: Request) -> tuple[tuple[Card, Partition], ...]:
    """Return each granted card with its live partition; refused when one has none: its card is never shown instead."""
    shown = []
    for card in granted(request):
        if card.partition is None or not card.partition.uuid:
            raise InjectionRefused(f"accelerator {card.id} has no live partition for this container")
        shown.append((card, card.partition))
    return tuple(shown)


def partition_uuids(request: Request) -> tuple[str, ...]:
    """Return the partitions' ids."""
    return tuple(partition.uuid for _, partition in partitions(request))
