"""Which Pods stand behind a Workload, and which of their cards no ledger knows of yet.

For: `card_book` (spec 04 §10; design §8.10).
In: cached Pods and Workloads. Out: indexes, the Pods of a Workload, claims without a record.
Promises: pure but for cached reads, so that a restart or another leader comes to the same answer; a claim counts as
recorded only when the Pod's annotation bears it out card by card and the node's inventory has those cards. A word that
cannot be read, or that names unknown cards, never ends a promise before the container runs.
Trusts: that only agents write `device.gpustack.ai/accelerator.allocated` (a ValidatingAdmissionPolicy says so). Which
Workload a Pod belongs to is its owner's word, else the annotation by which Kueue itself finds it; a tenant who forges
that one gives up cards that were promised to a Workload of its own namespace.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from api.devices import cards_of
from api.ledger.evidence import MODE_OF_FAMILY, credible
from api.ledger.rebuild import CardKey, Charge
from api.ledger.transport import ALLOCATED_ANNOTATION, Record, transport_of
from api.pod_requests import Claim, claims_of, whole
from kube.reconciler import Caches, Index, Key, Object
from nodefeature.fields import (
    annotations_of,
    as_map,
    as_maps,
    as_str,
    at,
    has_ended,
    is_deleting,
    labels_of,
    name_of,
    namespace_of,
    uid_of,
)
from nodefeature.kinds import POD, WORKLOAD
from nodefeature.manufacturers import Manufacturers

WORKLOAD_ANNOTATION = "kueue.x-k8s.io/workload"
POD_SET_LABEL = "kueue.x-k8s.io/podset"


def _owner_uids(obj: object) -> list[str]:
    return [as_str(owner.get("uid")) for owner in as_maps(at(obj, "metadata", "ownerReferences")) if owner.get("uid")]


def _claimants(pod: Object) -> Iterable[str]:
    if at(pod, "spec") is None:
        return  # the cache keeps no more of Pods that never were queued and hold no cards
    yield uid_of(pod)
    yield from _owner_uids(pod)
    named = annotations_of(pod).get(WORKLOAD_ANNOTATION)
    if named:
        yield f"{namespace_of(pod)}/{named}"


def _charged_node(pod: Object) -> Iterable[str]:
    node = as_str(at(pod, "spec", "nodeName"))
    return (node,) if node and ALLOCATED_ANNOTATION in annotations_of(pod) else ()


PODS_BY_CLAIMANT = Index(POD, "claimant", _claimants)
"""Pods by their own uid, their owners' uids and the Workload that Kueue wrote on them."""
CHARGED_PODS = Index(POD, "charged-node", _charged_node)
"""Pods with a record, by node."""
WORKLOADS_BY_OWNER = Index(WORKLOAD, "owner", _owner_uids)


def pods_of(workload: Object, caches: Caches) -> list[Object]:
    """Return the Pods that exist for a Workload."""
    found: dict[str, Object] = {}
    for owner in _owner_uids(workload):
        found.update((uid_of(pod), pod) for pod in caches[POD].by(PODS_BY_CLAIMANT.name, owner))
    named = f"{namespace_of(workload)}/{name_of(workload)}"
    for pod in caches[POD].by(PODS_BY_CLAIMANT.name, named):
        if not any(True for _ in caches[WORKLOAD].by(WORKLOADS_BY_OWNER.name, uid_of(pod))):
            found[uid_of(pod)] = pod
    return [found[uid] for uid in sorted(found) if namespace_of(found[uid]) == namespace_of(workload)]


def workloads_of(pod: Object | None, caches: Caches) -> set[Key]:
    """Return the Workloads that a Pod may stand behind."""
    if pod is None:
        return set()
    owners = (uid_of(pod), *_owner_uids(pod))
    found = {
        Key(name_of(workload), namespace_of(workload))
        for owner in owners
        for workload in caches[WORKLOAD].by(WORKLOADS_BY_OWNER.name, owner)
    }
    named = annotations_of(pod).get(WORKLOAD_ANNOTATION)
    return found | ({Key(named, namespace_of(pod))} if named else set())


def role_of(pod: Object) -> str:
    """Return the PodSet that Kueue says a Pod belongs to; empty when it does not say."""
    return labels_of(pod).get(POD_SET_LABEL, "")


def is_live(pod: Object) -> bool:
    """Say whether a Pod may still take cards or holds them for good: neither ended nor going."""
    return not has_ended(pod) and not is_deleting(pod)


def unrecorded(pod: Object, registry: Manufacturers, inventory: Collection[CardKey]) -> tuple[Claim, ...]:
    """Return the claims of a Pod for which no card of the node's inventory is on record."""
    claims = tuple(claim for claim in claims_of(as_map(at(pod, "spec")), registry) if whole(claim.cards) > 0)
    if not claims:
        return ()
    transport = transport_of(pod)
    if not transport.readable:
        # The agent keeps a running container's cards charged whatever the annotation says.
        started = _started(pod)
        return tuple(claim for claim in claims if claim.container.name not in started)
    records, _ = credible(transport.records, claims)
    cards = Counter(_claim_key(r) for r in records if (r.group_id, r.card_id) in inventory)
    return tuple(
        claim
        for claim in claims
        if cards[claim.container.name, claim.manufacturer, MODE_OF_FAMILY[claim.family]] < whole(claim.cards)
    )


def inventory_of(groups: Iterable[Mapping[str, Any]]) -> frozenset[CardKey]:
    """Return the cards of `spec.groups` by (group id, card id)."""
    return frozenset((as_str(group.get("id")), as_str(card.get("id"))) for group in groups for card in cards_of(group))


def charges_of(pods: Iterable[Object], registry: Manufacturers) -> Sequence[Charge]:
    """Return what the readable records of Pods charge; an unreadable one is charged by its agent alone."""
    charges = []
    for pod in pods:
        transport = transport_of(pod)
        records, _ = credible(transport.records, claims_of(as_map(at(pod, "spec")), registry))
        if records:
            charges.append(Charge(f"{namespace_of(pod)}/{name_of(pod)}", records, has_ended(pod)))
    return charges


def _claim_key(record: Record) -> tuple[str, str, object]:
    return record.container, record.manufacturer, record.mode


def _started(pod: Object) -> frozenset[str]:
    statuses = (
        *as_maps(at(pod, "status", "containerStatuses")),
        *as_maps(at(pod, "status", "initContainerStatuses")),
    )
    return frozenset(
        as_str(s.get("name")) for s in statuses if s.get("containerID") or at(s, "state", "running") is not None
    )
