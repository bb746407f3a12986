"""Which Pods are Instances' Pods on this node, and what they hold (spec 06 §13.2).

In: raw Pods, the node's Devices. Out: frozen Instances with declared totals and grants.
Trusts: owner references and the allocation annotation only for the labels of a series; figures come from the kubelet
and from the cards. A Pod that merely carries the labels is no Instance's: the owner's uid must match the label.
Promises: one Pod an Instance, the newest; the identity is the uid, so a namesake is another Instance (case B059).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from api.devices import iter_cards
from api.instance import MAIN_CONTAINER
from api.ledger.modes import CARD_UNITS, Mode, mode_name
from api.ledger.transport import Record, transport_of
from api.pod_requests import containers_of
from nodefeature.fields import as_int, as_list, as_map, as_maps, as_str, at, labels_of, name_of, namespace_of, uid_of
from nodefeature.kinds import INSTANCE
from nodefeature.quantity import quantity_or_zero
from nodefeature.resource_names import SLICED_CORES_PERCENTAGE

PART_OF = "app.kubernetes.io/part-of"


@dataclass(frozen=True, slots=True)
class Grant:
    """One card, or partition, of one Instance. `cap` is the compute share of a slice in percent, 0 when not known."""

    card_id: str
    shown_id: str
    index: int
    manufacturer: str
    mode: Mode
    memory_mib: int | None
    container: str
    cap: int = 0

    @property
    def mode_name(self) -> str:
        """Return the mode's name."""
        return mode_name(int(self.mode))


@dataclass(frozen=True, slots=True)
class InstancePod:
    """One Instance and its Pod; totals are declared, 0 where nothing is."""

    namespace: str
    instance: str
    instance_uid: str
    pod_uid: str
    cpu_milli: int
    memory_mib: int
    storage_mib: int
    grants: tuple[Grant, ...]


def instance_pods(pods: Iterable[Mapping[str, Any]], devices: Mapping[str, Any]) -> tuple[InstancePod, ...]:
    """Return the Instances of a node, by namespace and name."""
    newest: dict[tuple[str, str], Mapping[str, Any]] = {}
    for pod in pods:
        owner = _instance_owner(pod)
        if owner is None:
            continue
        key = (namespace_of(pod), as_str(owner.get("name")))
        if key not in newest or _birth(pod) > _birth(newest[key]):
            newest[key] = pod
    return tuple(_instance(pod, devices) for _, pod in sorted(newest.items()))


def _instance_owner(pod: Mapping[str, Any]) -> Mapping[str, Any] | None:
    if at(pod, "metadata", "deletionTimestamp"):
        return None
    for owner in as_maps(at(pod, "metadata", "ownerReferences")):
        group = as_str(owner.get("apiVersion")).partition("/")[0]
        if owner.get("controller") is True and owner.get("kind") == INSTANCE.kind and group == INSTANCE.group:
            uid = as_str(owner.get("uid"))
            return owner if uid and labels_of(pod).get(PART_OF) == uid else None
    return None


def _birth(pod: Mapping[str, Any]) -> tuple[str, str]:
    return as_str(at(pod, "metadata", "creationTimestamp")), name_of(pod)


def _instance(pod: Mapping[str, Any], devices: Mapping[str, Any]) -> InstancePod:
    owner = _instance_owner(pod) or {}
    limits = _main_limits(pod)
    return InstancePod(
        namespace=namespace_of(pod),
        instance=as_str(owner.get("name")),
        instance_uid=as_str(owner.get("uid")),
        pod_uid=uid_of(pod),
        cpu_milli=max(quantity_or_zero(limits.get("cpu")).ceil_milli(), 0),
        memory_mib=_mib(limits.get("memory")),
        storage_mib=_mib(limits.get("ephemeral-storage")),
        grants=_grants(pod, devices),
    )


def _main_limits(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    containers = as_maps(at(pod, "spec", "containers"))
    main = next((one for one in containers if one.get("name") == MAIN_CONTAINER), {})
    return as_map(at(main, "resources", "limits"))


def _grants(pod: Mapping[str, Any], devices: Mapping[str, Any]) -> tuple[Grant, ...]:
    caps = _caps(pod)
    cards = {as_str(card.get("id")): (group, card) for group, card in iter_cards(devices)}
    grants = []
    for record in transport_of(pod).records:
        if record.mode is Mode.VISIBILITY:
            continue
        group, card = cards.get(record.card_id, ({}, {}))
        grants.append(
            Grant(
                card_id=record.card_id,
                shown_id=record.physical_id
                if record.mode is Mode.PARTITIONED and record.physical_id
                else record.card_id,
                index=as_int(card.get("index")) if card else record.index,
                manufacturer=record.manufacturer,
                mode=record.mode,
                memory_mib=_memory(record, group, card),
                container=record.container,
                cap=caps.get(record.container, 0),
            )
        )
    return tuple(grants)


def _memory(record: Record, group: Mapping[str, Any], card: Mapping[str, Any]) -> int | None:
    whole = as_int(group.get("memory"))
    if record.mode is Mode.SLICED:
        return whole * record.allocated // CARD_UNITS or None
    if record.mode is Mode.PARTITIONED:
        for profile in as_maps(as_list(at(card, "status", "physicalSliced", "profiles"))):
            if profile.get("name") == record.profile:
                return as_int(profile.get("memoryMib")) or None
        return None
    return whole or None


def _caps(pod: Mapping[str, Any]) -> dict[str, int]:
    caps = {}
    for container in containers_of(as_map(pod.get("spec"))):
        for resource, quantity in container.quantities.items():
            if resource.endswith(SLICED_CORES_PERCENTAGE):
                caps[container.name] = max(quantity.ceil(), 0)
    return caps


def _mib(value: object) -> int:
    return -(-max(quantity_or_zero(value).ceil(), 0) // 2**20)
