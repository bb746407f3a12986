"""From the plugin's grant to a question.

In: a grant (raw Pod, raw cards), the markers of live partitions. Out: a frozen Request.
Promises: wrong or missing fields count as not known; a partitioned claim without its marker is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from api.ledger.capability import overcommits
from api.ledger.modes import Mode
from api.pod_requests import Claim, whole
from devicemanager.injection.request import Card, ContainerClaim, InjectionRefused, Request
from devicemanager.injection.site import cores_percentage
from devicemanager.kubelet.grant import Grant, GrantedCard
from devicemanager.partitions.markers import Markers
from nodefeature.fields import as_int, as_list, as_map, as_maps, as_str, at
from nodefeature.manufacturers import Manufacturers
from nodefeature.resource_names import Family, family_of

_FAMILIES = {
    Mode.EXCLUSIVE: Family.EXCLUSIVE,
    Mode.SHARED: Family.SHARED,
    Mode.SLICED: Family.SLICED,
    Mode.PARTITIONED: Family.PARTITIONED,
    Mode.VISIBILITY: Family.VISIBILITY,
}


def request_of(grant: Grant, registry: Manufacturers, markers: Markers) -> Request:
    """Return the question a grant asks."""
    claim = _claim(grant, registry)
    holder = as_str(at(grant.owner, "name")) if grant.owner is not None else claim.container
    with_partition = claim.family is Family.PARTITIONED or claim.partitioned_owner
    cards = tuple(
        _card(granted, claim, holder=holder, markers=markers if with_partition else None) for granted in grant.cards
    )
    return Request(grant.manufacturer, claim, cards)


def slice_percentage(claim: Claim, group: Mapping[str, Any], card: Mapping[str, Any]) -> int:
    """Return the compute share of a slice, before it is granted."""
    asked = ContainerClaim(
        pod_uid="",
        namespace="",
        pod="",
        container=claim.container.name,
        family=claim.family,
        cores_percentage=whole(claim.cores_percentage),
        memory_percentage=whole(claim.memory_percentage),
        memory_mib=whole(claim.memory_mib),
    )
    return cores_percentage(asked, card_facts(group, card))


def _claim(grant: Grant, registry: Manufacturers) -> ContainerClaim:
    claim = grant.claim
    limits = {**as_map(at(grant.owner, "resources", "limits")), **as_map(at(grant.owner, "resources", "requests"))}
    return ContainerClaim(
        pod_uid=as_str(at(grant.pod, "metadata", "uid")),
        namespace=as_str(at(grant.pod, "metadata", "namespace")),
        pod=as_str(at(grant.pod, "metadata", "name")),
        container=as_str(grant.container.get("name")),
        family=_FAMILIES.get(grant.mode, Family.NONE),
        cores_percentage=whole(claim.cores_percentage) if claim else 0,
        memory_percentage=whole(claim.memory_percentage) if claim else 0,
        memory_mib=whole(claim.memory_mib) if claim else 0,
        declared=frozenset(as_str(variable.get("name")) for variable in as_maps(grant.container.get("env"))),
        runtime_class=as_str(at(grant.pod, "spec", "runtimeClassName")),
        partitioned_owner=any(family_of(registry, name) is Family.PARTITIONED for name in limits),
    )


def _card(granted: GrantedCard, claim: ContainerClaim, *, holder: str, markers: Markers | None) -> Card:
    card = card_facts(granted.group, granted.card)
    window = granted.windows[0] if granted.windows else None
    partition = None
    if markers is not None:
        marker = markers.own(claim.pod_uid, holder, card.id)
        if marker is None:
            raise InjectionRefused(f"accelerator {card.id} has no partition recorded for container {holder!r}")
        partition = marker.partition
        known = granted.partition.physical_id if granted.partition is not None else partition.uuid
        if partition.uuid != known:
            raise InjectionRefused(
                f"accelerator {card.id}: partition {known} was bound, but {partition.uuid} is recorded on disk"
            )
    return Card(
        id=card.id,
        index=card.index,
        group_id=card.group_id,
        physical_indexes=card.physical_indexes,
        bus_id=card.bus_id,
        memory_mib=card.memory_mib,
        cores=card.cores,
        family=card.family,
        runtime_version=card.runtime_version,
        overcommits_cores=card.overcommits_cores,
        window=window,
        partition=partition,
    )


def card_facts(group: Mapping[str, Any], card: Mapping[str, Any]) -> Card:
    """Return what a Devices object says of a card."""
    return Card(
        id=as_str(card.get("id")),
        index=as_int(card.get("index")),
        group_id=as_str(group.get("id")),
        physical_indexes=tuple(as_int(number) for number in as_list(card.get("physicalIndexes"))),
        bus_id=as_str(at(card, "topology", "pciBusId")),
        memory_mib=as_int(group.get("memory")),
        cores=as_int(group.get("cores")),
        family=as_str(group.get("family")),
        runtime_version=as_str(group.get("runtimeVersion")),
        overcommits_cores=overcommits(card),
    )
