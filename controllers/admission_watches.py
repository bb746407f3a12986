"""What makes gate 3 look at a Workload.

For: `node_devices_admission` (spec 04 §10).
In: changes of Workloads, Devices, Pods, AdmissionChecks. Out: Workloads, the important and old ones first.
Promises: pure but for cached reads; a freed card wakes those only that wait for its model; a ledger that only took, or
a Pod that only changed its phase, wakes nobody.
"""

from __future__ import annotations

from collections.abc import Iterable

from api.ledger.freed import freed
from api.ledger.node_cards import node_cards
from api.ledger.transport import ALLOCATED_ANNOTATION
from controllers.card_claims import workloads_of
from controllers.workload_admission import flavor_key, holds_quota, may_be_judged
from kube.reconciler import Caches, Index, Key, Object
from nodefeature.fields import annotations_of, as_int, as_map, as_maps, as_str, at, name_of, namespace_of
from nodefeature.kinds import RESOURCE_FLAVOR, WORKLOAD
from nodefeature.manufacturers import CREDITS_PREFIX

_WAITING = ("Pending", "Retry")


def _model(flavor: Object) -> Iterable[str]:
    key = flavor_key(flavor)
    return (key,) if key else ()


def _waits_for(workload: Object) -> Iterable[str]:
    states = as_maps(at(workload, "status", "admissionChecks"))
    waits = any(state.get("state") in _WAITING for state in states) and may_be_judged(workload)
    return credit_flavors(workload) if waits else ()


def credit_flavors(workload: object) -> list[str]:
    """Return the flavors in which a Workload holds credits."""
    assignments = as_maps(at(workload, "status", "admission", "podSetAssignments"))
    found = {
        as_str(flavor): None
        for assignment in assignments
        for resource, flavor in as_map(assignment.get("flavors")).items()
        if resource.startswith(CREDITS_PREFIX)
    }
    return [flavor for flavor in found if flavor]


FLAVORS_BY_MODEL = Index(RESOURCE_FLAVOR, "model", _model)
WAITING = Index(WORKLOAD, "waiting", _waits_for)
"""Workloads that hold quota and wait for a check, by the flavors of their credits."""


def workload_changed(old: Object | None, new: Object | None, caches: Caches) -> Iterable[Key]:
    """Ask for the Workload itself, and for its rivals when it let its cards go."""
    shown = new if new is not None else old
    keys = [Key(name_of(shown), namespace_of(shown))]
    if old is not None and holds_quota(old) and not (new is not None and holds_quota(new)):
        keys += _waiting(credit_flavors(old), caches)
    return keys


def devices_changed(old: Object | None, new: Object | None, caches: Caches) -> Iterable[Key]:
    """Ask for those who wait for a model of which a card of a node has more room than before.

    Card by card: a publication that takes one Pod's card back and shows another's has the same sums as before, while
    the other's card counted as taken since it was on record.
    """
    before = {(card.key, card.id): card for card in node_cards(old)}
    models = set()
    for card in node_cards(new):
        known = before.get((card.key, card.id))
        models |= {model for model, _ in freed((known,) if known is not None else (), (card,))}
    flavors = [name_of(f) for model in sorted(models) for f in caches[RESOURCE_FLAVOR].by(FLAVORS_BY_MODEL.name, model)]
    return _waiting(flavors, caches)


def pod_changed(old: Object | None, new: Object | None, caches: Caches) -> Iterable[Key]:
    """A Pod that lands elsewhere than was thought, or is gone, may leave cards to others of its flavor."""
    if old is None or _where(old) == _where(new):
        return ()
    workloads = [caches[WORKLOAD].get(key) for key in sorted(workloads_of(old, caches) | workloads_of(new, caches))]
    return _waiting((flavor for workload in workloads for flavor in credit_flavors(workload)), caches)


def check_changed(old: Object | None, new: Object | None, caches: Caches) -> Iterable[Key]:
    """A check that became ours, or ceased to be, is asked of everybody who waits."""
    if old is not None and new is not None and at(old, "spec") == at(new, "spec"):
        return ()
    return _waiting(caches[WORKLOAD].values(WAITING.name), caches)


def _where(pod: Object | None) -> tuple[object, ...]:
    return pod is None, at(pod, "spec", "nodeName"), annotations_of(pod).get(ALLOCATED_ANNOTATION)


def _waiting(flavors: Iterable[str], caches: Caches) -> list[Key]:
    found = {
        Key(name_of(workload), namespace_of(workload)): workload
        for flavor in dict.fromkeys(flavors)
        for workload in caches[WORKLOAD].by(WAITING.name, flavor)
    }
    return sorted(found, key=lambda key: _rank(found[key]))


def _rank(workload: Object) -> tuple[int, str, str, str]:
    """Return what Kueue's own queues go by: priority, then age."""
    created = as_str(at(workload, "metadata", "creationTimestamp"))
    return -as_int(at(workload, "spec", "priority")), created, namespace_of(workload), name_of(workload)
