"""What each Pod of the node holds, as far as its own record is to be believed.

For: `node_ledger`, which charges. In: raw Pods, the inventory, the registry. Out: one `Account` a Pod.
Trusts: see `api.ledger.evidence`: the Pod's requests, and its record only where they bear it out (case B008).
Promises: a Pod costs parsing only when its annotation, its phase or (for an unreadable record) the inventory changes;
an unreadable annotation keeps the charge that was last read of this very Pod.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from api.ledger.evidence import charge_of
from api.ledger.rebuild import Charge
from api.ledger.transport import ALLOCATED_ANNOTATION, Record, transport_of
from api.pod_requests import Claim, claims_of
from api.problems import Problem
from nodefeature.fields import annotations_of, as_map, as_maps, as_str, at, name_of, namespace_of, uid_of
from nodefeature.manufacturers import Manufacturers
from nodefeature.quantity import QuantityInvalid, parse_quantity

TERMINAL = frozenset({"Succeeded", "Failed"})
ContainerKey = tuple[str, str]
"""(Pod uid, container)."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What one container holds, and the kubelet's ids for it."""

    records: tuple[Record, ...]
    device_ids: tuple[str, ...] = ()

    @classmethod
    def of(cls, records: Iterable[Record], device_ids: Iterable[str]) -> Entry:
        """Return an entry in the one order by which two of them can be compared."""
        return cls(tuple(sorted(records, key=_card)), tuple(sorted(device_ids)))


def _card(record: Record) -> tuple[str, str]:
    return record.group_id, record.card_id


@dataclass(frozen=True, slots=True)
class Account:
    """One Pod."""

    uid: str
    pod: tuple[str, str]
    """(namespace, name)."""
    charge: Charge
    claims: tuple[Claim, ...]
    device_ids: Mapping[str, tuple[str, ...]]
    problems: tuple[Problem, ...] = ()
    asks: Mapping[str, tuple[tuple[str, int], ...]] = field(default_factory=dict)
    """Extended resource -> (container, its limit), init containers first; limits never change."""

    def entry(self, container: str) -> Entry | None:
        """Return a container's believed entry; None when it holds nothing."""
        records = tuple(record for record in self.charge.records if record.container == container)
        return Entry.of(records, self.device_ids.get(container, ())) if records else None


@dataclass(frozen=True, slots=True)
class _Read:
    pod: object
    text: str | None
    phase: str
    groups: object
    account: Account


def is_terminal(pod: Mapping[str, Any]) -> bool:
    """Say whether a Pod has ended."""
    return as_str(at(pod, "status", "phase")) in TERMINAL


class Accounts:
    """Reads Pods, and remembers what it read."""

    def __init__(self, registry: Manufacturers) -> None:
        self._registry = registry
        self._read: dict[str, _Read] = {}

    def of(self, pod: Mapping[str, Any], groups: Sequence[Mapping[str, Any]]) -> Account:
        """Return the account of a Pod."""
        uid = uid_of(pod)
        read = self._read.get(uid)
        if read and read.pod is pod and not read.account.problems:  # caches replace what changes
            return read.account
        text = annotations_of(pod).get(ALLOCATED_ANNOTATION)
        phase = as_str(at(pod, "status", "phase"))
        if read and read.text == text and read.phase == phase and (read.groups is groups or not read.account.problems):
            return read.account
        known = read.account.charge if read and not read.account.charge.assumed else None
        account = self._account(pod, groups, known.records if known else None, read)
        self._read[uid] = _Read(pod, text, phase, groups, account)
        return account

    def forget_others(self, uids: Iterable[str]) -> None:
        """Drop what was read of Pods that are gone."""
        kept = set(uids)
        for uid in [uid for uid in self._read if uid not in kept]:
            del self._read[uid]

    def _account(
        self,
        pod: Mapping[str, Any],
        groups: Sequence[Mapping[str, Any]],
        known: Sequence[Record] | None,
        read: _Read | None,
    ) -> Account:
        charge, problems = charge_of(pod, spec_groups=groups, registry=self._registry, known=known)
        claims = read.account.claims if read else claims_of(as_map(at(pod, "spec")), self._registry)
        return Account(
            uid=uid_of(pod),
            pod=(namespace_of(pod), name_of(pod)),
            charge=charge,
            claims=claims,
            device_ids=dict(transport_of(pod).device_ids),
            problems=tuple(problems),
            asks=read.account.asks if read else _asks(pod),
        )


def containers_of(pod: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return a Pod's raw containers in the order in which the kubelet serves them."""
    return as_maps(at(pod, "spec", "initContainers")) + as_maps(at(pod, "spec", "containers"))


def _asks(pod: Mapping[str, Any]) -> dict[str, tuple[tuple[str, int], ...]]:
    found: defaultdict[str, list[tuple[str, int]]] = defaultdict(list)
    for container in containers_of(pod):
        for resource, value in as_map(at(container, "resources", "limits")).items():
            count = _count(value) if "/" in resource else 0
            if count:
                found[resource].append((as_str(container.get("name")), count))
    return {resource: tuple(asked) for resource, asked in found.items()}


def _count(value: object) -> int:
    try:
        return max(parse_quantity(value).ceil(), 0)
    except QuantityInvalid:
        return 0
