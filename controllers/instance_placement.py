"""Where the volumes of an Instance let its Pod run, and whether they are ready (spec 05 §8.6).

For: the instance controller, before it creates a Pod. In: the Instance's claims, looked up live. Out: what it waits
for, or the node selector terms that the Pod must carry.
Promises: a claim is looked at once; a bound claim's volume restricts the Pod, one that is reachable everywhere does
not; only a claim that waits for its first consumer may be unbound; nothing is remembered.
Trusts: whoever may write PersistentVolumes (administrators and their provisioners).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kube.client import Client
from kube.errors import NotFound
from kube.reconciler import Object, Rule
from nodefeature.destinations import is_object_name
from nodefeature.fields import as_list, as_maps, as_str, at
from nodefeature.kinds import PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM, STORAGE_CLASS, Kind

NO_PROVISIONER = "kubernetes.io/no-provisioner"
MAX_TERMS = 64
RBAC = (
    Rule("", "persistentvolumeclaims", ("get",)),
    Rule("", "persistentvolumes", ("get",)),
    Rule("storage.k8s.io", "storageclasses", ("get",)),
)
Term = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Placement:
    """Either what is waited for, or the terms of which one must hold (none: any node)."""

    waiting: str = ""
    terms: tuple[Term, ...] = ()


class Volumes:
    """Looks the claims of Instances up."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def placement(self, spec: Mapping[str, Any], namespace: str) -> Placement:
        """Return what an Instance's claims say about its Pod."""
        terms: tuple[Term, ...] = ()
        for name in claims_of(spec):
            claim = await found(self._client, PERSISTENT_VOLUME_CLAIM, name, namespace)
            if claim is None:
                return Placement(f'PersistentVolumeClaim "{name}" does not exist')
            if at(claim, "status", "phase") != "Bound":
                storage_class = await self._class_of(claim)
                if not waits_for_consumer(storage_class):
                    phase = as_str(at(claim, "status", "phase")) or "Pending"
                    return Placement(f'PersistentVolumeClaim "{name}" is {phase}')
                continue
            volume = await found(self._client, PERSISTENT_VOLUME, as_str(at(claim, "spec", "volumeName")))
            if volume is None:
                return Placement(f'PersistentVolumeClaim "{name}" is bound to a PersistentVolume that does not exist')
            terms = crossed(terms, terms_of(volume))
            if len(terms) > MAX_TERMS:
                return Placement(f'PersistentVolumeClaim "{name}": its volumes leave more than {MAX_TERMS} node terms')
        return Placement(terms=terms)

    async def _class_of(self, claim: Object) -> Object | None:
        return await found(self._client, STORAGE_CLASS, as_str(at(claim, "spec", "storageClassName")))


async def found(client: Client, kind: Kind, name: str, namespace: str = "") -> Object | None:
    """Return an object as the server has it; None when it is not there, or no object can have that name."""
    if not is_object_name(name):
        return None
    try:
        return await client.get(kind, name, namespace)
    except NotFound:
        return None


def claims_of(spec: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the claims of an Instance: its working volume, then the additional ones, each once."""
    names = [as_str(at(spec, "volume", "persistent", "name"))]
    names += [as_str(at(volume, "persistent", "name")) for volume in as_maps(spec.get("additionalVolumes"))]
    return tuple(dict.fromkeys(filter(None, names)))


def waits_for_consumer(storage_class: Mapping[str, Any] | None) -> bool:
    """Say whether an unbound claim of a class is bound once a Pod uses it, on the node that the Pod gets."""
    provisioner = as_str(at(storage_class, "provisioner"))
    late = at(storage_class, "volumeBindingMode") == "WaitForFirstConsumer"
    return late and provisioner not in {"", NO_PROVISIONER}


def terms_of(volume: Mapping[str, Any]) -> tuple[Term, ...]:
    """Return the node terms of a PersistentVolume, of which one must hold; none when it is reachable everywhere."""
    return tuple(as_maps(at(volume, "spec", "nodeAffinity", "required", "nodeSelectorTerms")))


def crossed(left: Sequence[Term], right: Sequence[Term]) -> tuple[Term, ...]:
    """Return the terms of which one holds exactly where one of `left` and one of `right` hold; none restricts nothing.

    Equal ones are named once.
    """
    if not left or not right:
        return tuple(left or right)
    return _once(_both(one, other) for one in left for other in right)


def _both(one: Term, other: Term) -> dict[str, list[Any]]:
    both: dict[str, list[Any]] = {}
    for part in ("matchExpressions", "matchFields"):
        wanted = [*as_list(one.get(part)), *as_list(other.get(part))]
        if wanted:
            both[part] = [item for index, item in enumerate(wanted) if item not in wanted[:index]]
    return both


def _once(terms: Iterable[dict[str, list[Any]]]) -> tuple[Term, ...]:
    found: list[Term] = []
    for term in terms:
        if term not in found:
            found.append(term)
    return tuple(found)
