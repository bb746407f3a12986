"""One node's ledger in memory: what every card carries right now.

For: the allocator (under `lock`), the offer to the kubelet, the publisher of `Devices.status`.
In: the node's Devices and Pods from the caches, reservations, the kubelet's word. Out: snapshots; wake-ups.
Promises:
  - one lock a node: between a decision and its reservation nothing else is decided;
  - a container is charged once: by its reservation, else by its annotation;
  - cards that the kubelet says are held, and that no record accounts for, are charged too: a disagreement never frees
    a card;
  - every change of the answer wakes the subscribers;
  - asking again costs what has changed: a full node is asked several times for each allocation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import is_
from typing import Any

from api.devices import spec_groups
from api.ledger.rebuild import CardKey, CardUse, Charge, Rebuilt, rebuild, stays_charged
from api.ledger.transport import Record
from api.problems import Problem
from devicemanager.ledger.accounts import Account, Accounts, ContainerKey, Entry
from devicemanager.ledger.kubelet_word import KubeletWord, PodName
from devicemanager.ledger.reservations import Reservation, Reservations
from devicemanager.ledger.verification import Agreed, unaccounted
from kube.clock import Clock
from kube.reconciler import Caches, Index, Key
from nodefeature.fields import as_str, at, metadata, name_of, namespace_of, uid_of
from nodefeature.kinds import DEVICES, POD
from nodefeature.manufacturers import Manufacturers


def _node_of(pod: Mapping[str, Any]) -> list[str]:
    name = as_str(at(pod, "spec", "nodeName"))
    return [name] if name else []


PODS_BY_NODE = Index(POD, "node", _node_of)


@dataclass(frozen=True)
class Snapshot:
    """The ledger at one moment."""

    groups: Sequence[Mapping[str, Any]]
    rebuilt: Rebuilt
    charged: tuple[tuple[str, Charge], ...]
    """(Pod uid, its charge)."""
    problems: tuple[Problem, ...]
    disagreements: tuple[str, ...]
    release_terminated: bool = True

    @cached_property
    def records(self) -> tuple[tuple[ContainerKey, Record], ...]:
        """Return all records that count, with the container they belong to."""
        return tuple(
            ((uid, record.container), record)
            for uid, charge in self.charged
            for record in charge.records
            if self.counts(charge, record)
        )

    def counts(self, charge: Charge, record: Record) -> bool:
        """Say whether a record of a charge still holds its card."""
        return stays_charged(record, terminated=charge.terminated, release_terminated=self.release_terminated)

    @property
    def cards(self) -> Mapping[CardKey, CardUse]:
        """Return what lies on each card."""
        return self.rebuilt.cards


class NodeLedger:
    """One node."""

    def __init__(
        self, node_name: str, caches: Caches, registry: Manufacturers, clock: Clock, *, release_terminated: bool = True
    ) -> None:
        self.node_name = node_name
        self.registry = registry
        self.lock = asyncio.Lock()
        self.reservations = Reservations()
        self._caches = caches
        self._clock = clock
        self._release_terminated = release_terminated
        self._accounts = Accounts(registry)
        self._wakers: set[asyncio.Event] = set()
        self._current: Snapshot | None = None
        self._devices: Mapping[str, Any] | None = None
        self._groups: Sequence[Mapping[str, Any]] = ()
        self._changes_read = -1
        self._reserved: tuple[Mapping[str, Any], ...] = ()
        self._pods: tuple[Mapping[str, Any], ...] = ()
        self._read: tuple[Sequence[Mapping[str, Any]], Sequence[Mapping[str, Any]], list[Account]] = ((), (), [])
        self._known: tuple[Sequence[Account], frozenset[PodName]] = ((), frozenset())
        self._agreed: Agreed = {}
        self._folded: tuple[Sequence[Mapping[str, Any]], list[Charge], Rebuilt] | None = None

    def groups(self) -> Sequence[Mapping[str, Any]]:
        """Return the inventory of the node; empty until it is published."""
        devices = self._caches[DEVICES].get(Key(self.node_name))
        if devices is not self._devices:  # caches replace what changes
            self._devices, self._groups = devices, spec_groups(devices or {})
        return self._groups

    def pods(self, more: Iterable[Mapping[str, Any]] = ()) -> Sequence[Mapping[str, Any]]:
        """Return the node's Pods, oldest first; also those reserved for before the cache had them, and `more`."""
        self._changes_read, changed = self._caches[POD].changed(self._changes_read)
        reserved = tuple(self.reservations.pods().values())
        if changed is None or changed or not _same(reserved, self._reserved):
            cached = self._caches[POD].by(PODS_BY_NODE.name, self.node_name)
            pods = {uid_of(pod): pod for pod in (*reserved, *cached)}
            self._reserved = reserved
            found = tuple(sorted(pods.values(), key=_age))
            if not _same(found, self._pods):  # in a fleet mostly another node's Pod has changed
                self._pods = found
        if not more:
            return self._pods
        known = {uid_of(pod) for pod in self._pods}
        return (*self._pods, *(pod for pod in more if uid_of(pod) not in known))

    def account(self, pod: Mapping[str, Any]) -> Account:
        """Return what a Pod asks for and what its record says."""
        return self._accounts.of(pod, self.groups())

    def accounts(self, more: Iterable[Mapping[str, Any]] = ()) -> Iterable[tuple[Mapping[str, Any], Account]]:
        """Return each Pod of `pods` with its account."""
        pods = self.pods(more)
        return zip(pods, self._accounts_of(pods, self.groups()), strict=True)

    def cached(self, pod: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return the cache's newest state of a Pod; None when it is gone or not there yet."""
        newest = self._caches[POD].get(Key(name_of(pod), namespace_of(pod)))
        return newest if newest is not None and uid_of(newest) == uid_of(pod) else None

    def unknown(self, word: KubeletWord) -> list[tuple[str, str]]:
        """Return (namespace, name) of Pods that the kubelet lists and nobody here knows."""
        accounts = self._accounts_of(self.pods(), self.groups())
        if accounts is not self._known[0]:
            self._known = (accounts, frozenset([account.pod for account in accounts]))
        return sorted(word.pods.keys() - self._known[1])

    def entries(self, pod: Mapping[str, Any]) -> dict[str, Entry]:
        """Return what each container of a Pod holds, reservations first."""
        account = self.account(pod)
        found = {c: e for c in {r.container for r in account.charge.records} if (e := account.entry(c)) is not None}
        for container, held in self.reservations.of_pod(account.uid).items():
            found.pop(container, None)
            if held.entry is not None:
                found[container] = held.entry
        return found

    def snapshot(
        self,
        word: KubeletWord | None = None,
        *,
        without: ContainerKey | None = None,
        more: Iterable[Mapping[str, Any]] = (),
    ) -> Snapshot:
        """Return the ledger of now; `without` leaves one container's own holdings out, `more` adds fresh Pods."""
        groups = self.groups()
        accounts = self._accounts_of(self.pods(more), groups)
        overridden = {without[0], *self.reservations.pods()} if without else self.reservations.pods().keys()
        charges = [
            self._charge(account, without) if account.uid in overridden else account.charge for account in accounts
        ]
        charged = tuple((account.uid, charge) for account, charge in zip(accounts, charges, strict=True))
        disagreements: list[str] = []
        if word is not None:
            doubts = unaccounted(word, accounts, charges, groups=groups, registry=self.registry, agreed=self._agreed)
            for charge, reason in list(doubts):
                if charge.records:
                    charges.append(charge)
                disagreements.append(reason)
        return Snapshot(
            groups,
            self._rebuilt(groups, [charge for charge in charges if charge.records]),
            charged,
            tuple(problem for account in accounts for problem in account.problems),
            tuple(disagreements),
            self._release_terminated,
        )

    def current(self) -> Snapshot:
        """Return the ledger as of the last wake-up, without the kubelet's word: for those who only show it."""
        if self._current is None:
            self._current = self.snapshot()
        return self._current

    def reserve(self, pod: Mapping[str, Any], container: str, entry: Entry | None, *, unwritten: bool = False) -> None:
        """Let `entry` count for a container instead of its annotation, from now on; None withdraws it.

        `unwritten`: until told otherwise, even if the annotation says the same.
        """
        seen = self.cached(pod) is not None
        self.reservations.put(container, Reservation(pod, entry, self._clock.now(), seen, unwritten))
        self.wake()

    def release(self, pod: Mapping[str, Any], container: str) -> None:
        """Forget a reservation: the annotation speaks for itself again."""
        self.reservations.drop((uid_of(pod), container))
        self.wake()

    def settle(self) -> frozenset[str]:
        """Drop reservations that have served; return the uids of the node's Pods that are there (deleting ones too)."""
        groups = self.groups()
        cached = {uid_of(pod): pod for pod in self._caches[POD].by(PODS_BY_NODE.name, self.node_name)}
        accounts = {uid: self._accounts.of(pod, groups) for uid, pod in cached.items()}
        self.reservations.settle(accounts, self._clock.now())
        alive = frozenset(cached) | frozenset(self.reservations.pods())
        self._accounts.forget_others(alive)
        return alive

    def subscribe(self, waker: asyncio.Event) -> None:
        """Have an event set after every change."""
        self._wakers.add(waker)

    def unsubscribe(self, waker: asyncio.Event) -> None:
        """Stop setting an event."""
        self._wakers.discard(waker)

    def wake(self) -> None:
        """Tell everybody that the ledger may have changed."""
        self._current = None
        for waker in self._wakers:
            waker.set()

    def _accounts_of(self, pods: Sequence[Mapping[str, Any]], groups: Sequence[Mapping[str, Any]]) -> Sequence[Account]:
        read_pods, read_groups, accounts = self._read
        if pods is not read_pods or groups is not read_groups:
            accounts = [self._accounts.of(pod, groups) for pod in pods]
            self._read = (pods, groups, accounts)
        return accounts

    def _rebuilt(self, groups: Sequence[Mapping[str, Any]], charges: list[Charge]) -> Rebuilt:
        """Fold charges, unless they are those of the last time: comparing them costs a hundredth of it."""
        if self._folded is None or self._folded[0] is not groups or self._folded[1] != charges:
            rebuilt = rebuild(groups, charges, release_terminated=self._release_terminated)
            self._folded = (groups, charges, rebuilt)
        return self._folded[2]

    def _charge(self, account: Account, without: ContainerKey | None) -> Charge:
        held = self.reservations.of_pod(account.uid)
        records = [record for record in account.charge.records if record.container not in held]
        records += [record for _, r in sorted(held.items()) if r.entry is not None for record in r.entry.records]
        if without is not None and without[0] == account.uid:
            records = [record for record in records if record.container != without[1]]
        return replace(account.charge, records=tuple(records), assumed=account.charge.assumed and not held)


def _same(some: Sequence[object], others: Sequence[object]) -> bool:
    """Say whether two sequences hold the very same objects."""
    return len(some) == len(others) and all(map(is_, some, others))


def _age(pod: Mapping[str, Any]) -> tuple[str, str, str]:
    meta = metadata(pod)  # asked for each Pod at each decision
    return as_str(meta.get("creationTimestamp")), as_str(meta.get("namespace")), as_str(meta.get("name"))
