"""Showing a container the cards that its Pod holds already: the SSH side container (spec 06 §7.4).

For: the visibility plugin. In: the kubelet's ids, of which only the number counts. Out: a grant of no units.
Trusts: the owner's record only where the Pod's requests bear it out and the kubelet lists the same ids; a record that
nobody but its Pod vouches for shows nothing (case B008).
Promises: charges nothing and writes nothing; fails closed whenever it is not certain whose cards are shown; never
guesses between two Pods; of a partitioned owner the partition is shown, never its card.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from api.ledger.modes import Mode
from api.ledger.transport import Record, transport_of
from devicemanager.kubelet.decision import inventory, read_ask
from devicemanager.kubelet.grant import Grant, GrantedCard, Injection, InjectionRefused, Injector, Partition
from devicemanager.kubelet.identification import Waiting, identify
from devicemanager.kubelet.refusal import Refused, Unclear, precondition
from devicemanager.ledger.accounts import ContainerKey, Entry
from devicemanager.ledger.kubelet_word import Kubelet, KubeletWord
from devicemanager.ledger.node_ledger import NodeLedger
from devicemanager.tokens import FAMILY_OF
from kube.clock import Clock
from nodefeature.fields import as_int, as_maps, as_str, at, name_of, namespace_of, uid_of
from nodefeature.resource_names import Family, resource_of


class Shower:
    """Serves Allocate of the visibility resources of one node. State: whom it showed cards, until their Pod is gone."""

    def __init__(
        self,
        ledger: NodeLedger,
        clock: Clock,
        *,
        kubelet: Kubelet,
        injector: Injector,
        again_s: float = 0.25,
        again_times: int = 8,
    ) -> None:
        self._ledger = ledger
        self._clock = clock
        self._kubelet = kubelet
        self._injector = injector
        self._again_s = again_s
        self._again_times = again_times
        self._shown: set[ContainerKey] = set()

    async def show(self, manufacturer: str, ids: Sequence[str]) -> Injection:
        """Serve one container; `Refused` when it may see nothing."""
        grant = await self._decide(manufacturer, ids)
        key = uid_of(grant.pod), as_str(grant.container.get("name"))
        try:
            return await self._injector.inject(grant)
        except InjectionRefused as refused:
            self._shown.discard(key)
            raise precondition(f'container "{key[1]}" of pod {name_of(grant.pod)}: {refused}') from refused

    async def _decide(self, manufacturer: str, ids: Sequence[str]) -> Grant:
        for left in range(self._again_times, -1, -1):
            word = await self._kubelet.word()
            async with self._ledger.lock:
                try:
                    return self._decide_now(manufacturer, ids, word)
                except Unclear:
                    if not left:
                        raise
            await self._clock.sleep(self._again_s)
        raise AssertionError("the last look raises")

    def _decide_now(self, manufacturer: str, ids: Sequence[str], word: KubeletWord | None) -> Grant:
        groups = self._ledger.groups()
        ask = read_ask(manufacturer, Mode.VISIBILITY, ids, groups)
        pods = self._ledger.pods()
        self._shown &= {(uid_of(pod), name) for pod in pods for name in _names(pod)}
        waiting = identify(
            resource_of(self._ledger.registry, manufacturer, Family.VISIBILITY),
            len(ask.tokens),
            accounts=self._ledger.accounts(),
            entries=self._shown_to,
            word=word,
            pods_differ=True,
        )
        owner, entry = self._owner(waiting, manufacturer, word)
        cards = tuple(self._card(record, groups, waiting) for record in sorted(entry.records, key=_index))
        if len(cards) != len(ask.tokens):
            raise precondition(f'{waiting.where} asks to see {len(ask.tokens)} cards, "{owner}" holds {len(cards)}')
        self._shown.add((uid_of(waiting.pod), waiting.name))
        return Grant(
            manufacturer, Mode.VISIBILITY, waiting.pod, waiting.container, cards, owner=_container(waiting.pod, owner)
        )

    def _shown_to(self, pod: Mapping[str, Any]) -> dict[str, Entry]:
        return {name: Entry(()) for uid, name in self._shown if uid == uid_of(pod)}

    def _owner(self, waiting: Waiting, manufacturer: str, word: KubeletWord | None) -> tuple[str, Entry]:
        pod = self._ledger.cached(waiting.pod) or waiting.pod
        if not transport_of(pod).readable:
            raise precondition(f"{waiting.where}: the record of its pod cannot be read")
        reserved = {
            name for name, held in self._ledger.reservations.of_pod(uid_of(pod)).items() if held.entry is not None
        }
        entries = {
            name: entry
            for name, entry in self._ledger.entries(pod).items()
            if name != waiting.name and any(record.manufacturer == manufacturer for record in entry.records)
        }
        if not entries:
            raise precondition(f"{waiting.where}: no other container of its pod holds {manufacturer} cards yet")
        owner = min(entries, key=lambda name: (name not in reserved, name))
        self._check_kubelet(waiting, owner, entries[owner], word)
        return owner, entries[owner]

    def _check_kubelet(self, waiting: Waiting, owner: str, entry: Entry, word: KubeletWord | None) -> None:
        if word is None:
            return
        record = entry.records[0]
        resource = resource_of(self._ledger.registry, record.manufacturer, FAMILY_OF[record.mode])
        pod = (namespace_of(waiting.pod), name_of(waiting.pod))
        if word.ids(pod, owner, resource) != frozenset(entry.device_ids):
            raise precondition(
                f'{waiting.where}: the kubelet does not list what the record of "{owner}" names; nothing is shown'
            )

    def _card(self, record: Record, groups: Sequence[Mapping[str, Any]], waiting: Waiting) -> GrantedCard:
        place = inventory(groups, record.manufacturer).get((record.group_id, record.card_id))
        if place is None:
            raise precondition(f"{waiting.where}: card {record.group_id}:{record.card_id} is not on this node any more")
        partition = None
        if record.mode is Mode.PARTITIONED:
            if not record.placements:
                raise precondition(f"{waiting.where}: its pod's record names a partition without a place")
            partition = Partition(record.placements[0], record.physical_id, rebound=True)
        return GrantedCard(*place, 0, profile=record.profile, partition=partition)


def _names(pod: Mapping[str, Any]) -> list[str]:
    return [
        as_str(container.get("name"))
        for part in ("initContainers", "containers")
        for container in as_maps(at(pod, "spec", part))
    ]


def _container(pod: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    containers = as_maps(at(pod, "spec", "containers")) + as_maps(at(pod, "spec", "initContainers"))
    found = next((container for container in containers if container.get("name") == name), None)
    if found is None:
        raise Refused(precondition("").code, f'pod {name_of(pod)} has no container "{name}"')
    return found


def _index(record: Record) -> int:
    return as_int(record.index)
