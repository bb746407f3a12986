"""Stand-in for the node agents' allocations: records on each bound Pod the cards it asked for, and keeps the ledgers.

For: the devcluster and tests on a real control plane where no agent speaks to a kubelet. In: Devices, bound Pods.
Out: the allocation annotation and `Devices.status`, as an agent writes them: recorded once a Pod, then charged; a Pod
that finds no cards fails with `UnexpectedAdmissionError`, as its kubelet would let it.
Left out: device plugin protocol, preferences, compute windows of slices, partitions' ids, reservations (one node at a
time is decided here, from what the Pods say).
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import uvloop

from api.devices import cards_of, spec_groups
from api.ledger.evidence import charge_of
from api.ledger.fit import Candidate, choose_partitions, is_partitioned, is_sliceable, logical_ceiling
from api.ledger.modes import CARD_UNITS, SHARE_UNITS, Mode
from api.ledger.placements import Placement, placements_of
from api.ledger.rebuild import CardKey, CardUse, Rebuilt, rebuild
from api.ledger.transport import ALLOCATED_ANNOTATION, Record, dump
from api.pod_requests import Claim, claims_of, whole
from kube.client import Client
from kube.connection import Connection
from kube.credentials import find_credentials
from kube.errors import Conflict, NotFound
from kube.logs import set_up
from kube.meaning import meaning_differs
from kube.reconciler import DONE, Caches, Index, Key, Object, Outcome, Rule, Watch
from kube.runtime import Manager
from nodefeature.credits import memory_percentage_to_units
from nodefeature.fields import (
    annotations_of,
    as_int,
    as_map,
    as_maps,
    as_str,
    at,
    is_deleting,
    name_of,
    namespace_of,
    uid_of,
)
from nodefeature.kinds import DEVICES, POD, Kind
from nodefeature.manufacturers import Manufacturers, build_manufacturers
from nodefeature.profiles import vendor_profile
from nodefeature.resource_names import Family

BY_NODE = "agent-node"
_MODES = {Family.EXCLUSIVE: Mode.EXCLUSIVE, Family.SHARED: Mode.SHARED, Family.SLICED: Mode.SLICED}
_ENDED = ("Succeeded", "Failed")
Place = tuple[CardKey, Mapping[str, Any]]


def _node_of(old: Object | None, new: Object | None, _: Caches) -> Iterable[Key]:
    names = {as_str(at(pod, "spec", "nodeName")) for pod in (old, new)}
    return [Key(name) for name in sorted(names) if name]


def _devices(old: Object | None, new: Object | None, _: Caches) -> Iterable[Key]:
    return [Key(name_of(new if new is not None else old))]


class AgentLedger:
    """Reconciles the ledger of one node."""

    NAME: ClassVar[str] = "standin-agent"
    WATCHES: ClassVar[tuple[Watch, ...]] = (Watch(POD, _node_of), Watch(DEVICES, _devices))
    READS: ClassVar[tuple[Kind, ...]] = ()
    INDEXES: ClassVar[tuple[Index, ...]] = (
        Index(POD, BY_NODE, lambda pod: [as_str(at(pod, "spec", "nodeName")) or "-"]),
    )
    RBAC: ClassVar[tuple[Rule, ...]] = ()

    def __init__(self, client: Client, caches: Caches, *, manufacturers: Manufacturers) -> None:
        self._client = client
        self._caches = caches
        self._registry = manufacturers

    async def reconcile(self, key: Key) -> Outcome:
        """Record what one Pod gets and look again, or publish the ledger when every Pod has its record."""
        devices = self._caches[DEVICES].get(key)
        if devices is None:
            return DONE
        pods = sorted(self._caches[POD].by(BY_NODE, key.name), key=_age)
        ledger = self._ledger(devices, pods)
        try:
            for pod in pods:
                if self._waits(pod):
                    await self._record(pod, ledger, devices)
                    return DONE  # the Pod's change brings us back
            if meaning_differs(at(devices, "status", "groups"), ledger.status["groups"]):
                patch = {"status": {"groups": ledger.status["groups"]}}
                await self._client.patch(DEVICES, key.name, patch, subresource="status")
        except (Conflict, NotFound):
            return DONE
        return DONE

    def _ledger(self, devices: Object, pods: Sequence[Object]) -> Rebuilt:
        groups = spec_groups(devices)
        charges = (charge_of(pod, spec_groups=groups, registry=self._registry)[0] for pod in pods)
        return rebuild(groups, charges)

    def _waits(self, pod: Object) -> bool:
        done = is_deleting(pod) or at(pod, "status", "phase") in _ENDED or ALLOCATED_ANNOTATION in annotations_of(pod)
        return not done and bool(claims_of(as_map(pod.get("spec")), self._registry))

    async def _record(self, pod: Object, ledger: Rebuilt, devices: Object) -> None:
        claims = claims_of(as_map(pod.get("spec")), self._registry)
        found = [chosen(claim, ledger.cards, spec_groups(devices)) for claim in claims]
        if any(records is None for records in found):
            status = {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "Allocate failed: no cards"}
            await self._client.patch(POD, name_of(pod), {"status": status}, namespace_of(pod), subresource="status")
            return
        text = dump((record for records in found for record in records or ()), {})
        meta = {"uid": uid_of(pod), "annotations": {ALLOCATED_ANNOTATION: text}}
        await self._client.patch(POD, name_of(pod), {"metadata": meta}, namespace_of(pod))


def chosen(claim: Claim, cards: Mapping[CardKey, CardUse], groups: Sequence[Mapping[str, Any]]) -> list[Record] | None:
    """Return what one container gets, used cards first; None when the node does not have it."""
    places = [
        ((as_str(group.get("id")), as_str(card.get("id"))), card)
        for group in groups
        if group.get("manufacturer") == claim.manufacturer
        for card in cards_of(group)
        if at(card, "status", "unhealthy") is not True
    ]
    if claim.family is Family.PARTITIONED:
        return _partition(claim, places, cards)
    units = _units(claim)
    mode = _MODES[claim.family]
    fitting = [(key, card) for key, card in places if _fits(card, cards[key], mode, units)]
    fitting.sort(key=lambda place: cards[place[0]].remaining)  # stable: by index where equally full
    count = whole(claim.cards)
    if len(fitting) < count:
        return None
    return [_record_of(claim, key, card, mode, units) for key, card in fitting[:count]]


def _fits(card: Mapping[str, Any], use: CardUse, mode: Mode, units: int) -> bool:
    if is_partitioned(card) or use.mode not in {Mode.NONE, mode} or use.remaining < units:
        return False
    return mode is not Mode.SLICED or (is_sliceable(card) and use.slices < logical_ceiling(card))


def _units(claim: Claim) -> int:
    if claim.family is Family.SLICED:
        return whole(claim.units) or memory_percentage_to_units(whole(claim.memory_percentage))
    return SHARE_UNITS if claim.family is Family.SHARED else CARD_UNITS


def _record_of(claim: Claim, key: CardKey, card: Mapping[str, Any], mode: Mode, units: int, **more: Any) -> Record:
    return Record(
        container=claim.container.name,
        group_id=key[0],
        manufacturer=claim.manufacturer,
        card_id=key[1],
        index=as_int(card.get("index")),
        mode=mode,
        allocated=units,
        **more,
    )


def _partition(claim: Claim, places: Sequence[Place], cards: Mapping[CardKey, CardUse]) -> list[Record] | None:
    profile = vendor_profile(claim.manufacturer, claim.profiles[0][0]) if claim.profiles else ""
    by_text = {f"{key[0]}:{key[1]}": (key, card) for key, card in places if is_partitioned(card)}
    candidates = [
        Candidate(text, _legal(card, profile), tuple(cards[key].occupied)) for text, (key, card) in by_text.items()
    ]
    picked = choose_partitions([candidate for candidate in candidates if candidate.legal], whole(claim.cards))
    if picked is None:
        return None
    units = min(whole(claim.units), CARD_UNITS) or CARD_UNITS
    return [
        _record_of(claim, *by_text[pick.id], Mode.PARTITIONED, units, profile=profile, placements=(pick.placement,))
        for pick in picked
    ]


def _legal(card: Mapping[str, Any], profile: str) -> tuple[Placement, ...]:
    offered = as_maps(at(card, "status", "physicalSliced", "profiles"))
    return next((placements_of(one.get("placements")) for one in offered if one.get("name") == profile), ())


def _age(pod: Object) -> tuple[str, str, str]:
    return as_str(at(pod, "metadata", "creationTimestamp")), namespace_of(pod), name_of(pod)


async def _run(kubeconfig: str) -> None:
    connection = Connection(find_credentials(kubeconfig=kubeconfig))
    client = Client(connection, field_manager="standin-agent")
    manager = Manager(client)
    registry = build_manufacturers(os.environ)
    manager.add(AgentLedger(client, manager.caches, manufacturers=registry), workers=1)
    manager.stop_on_signals()
    try:
        await manager.run()
    finally:
        await connection.close()


def main(argv: Sequence[str] | None = None) -> None:
    """Record allocations until told to stop."""
    parser = argparse.ArgumentParser(prog="python -m hack.devcluster.standins.agent", description=__doc__)
    parser.add_argument("--kubeconfig", required=True, help="kubeconfig of the cluster")
    set_up(level="INFO", style="text")
    uvloop.run(_run(parser.parse_args(argv).kubeconfig))


if __name__ == "__main__":
    main()
