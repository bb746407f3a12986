"""The ledger held against the kubelet's own listing (spec 06 §6.7, design §7).

For: `node_ledger`. In: the kubelet's word, the Pods' charges. Out: what the kubelet says is held and no record accounts
for, as charges, each with a sentence for people.
Promises:
  - never takes a charge away: a record the kubelet does not list is kept (it may be about to list it);
  - a Pod that has ended blocks nothing (case B035);
  - a Pod whose listing and record were found to agree costs nothing until one of them changes;
  - what was given for partition ids is known to the record alone, so for them only the sentence comes out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from api.devices import cards_of
from api.ledger.modes import CARD_UNITS, SHARE_UNITS, Mode
from api.ledger.rebuild import CardKey, Charge
from api.ledger.transport import Record
from api.pod_requests import Claim, whole
from devicemanager.ledger.accounts import Account
from devicemanager.ledger.kubelet_word import Held, KubeletWord, PodName
from devicemanager.tokens import TokenInvalid, parse_token
from nodefeature.fields import as_int, as_str
from nodefeature.manufacturers import Manufacturers
from nodefeature.resource_names import Family, family_of, manufacturer_of_resource

Place = tuple[Mapping[str, Any], Mapping[str, Any]]
"""(group, card) of the inventory."""
_MODES = {
    Family.EXCLUSIVE: Mode.EXCLUSIVE,
    Family.SHARED: Mode.SHARED,
    Family.SLICED: Mode.SLICED,
    Family.PARTITIONED: Mode.PARTITIONED,
}


Agreed = dict[PodName, tuple[Held, Charge]]
"""Listings and charges, as the very objects, that were found to agree."""


def unaccounted(
    word: KubeletWord,
    accounts: Sequence[Account],
    charges: Sequence[Charge],
    *,
    groups: Sequence[Mapping[str, Any]],
    registry: Manufacturers,
    agreed: Agreed | None = None,
) -> Iterator[tuple[Charge, str]]:
    """Yield a charge for every container whose held ids no record accounts for, and why.

    `agreed` is what an earlier call left there; it is brought up to date.
    """
    by_name = {a.pod: (a, c) for a, c in zip(accounts, charges, strict=False)}
    before = dict(agreed or {})
    if agreed is not None:
        agreed.clear()
    inventory: dict[CardKey, Place] = {}
    for name, held in word.pods.items():
        account, charge = by_name.get(name, (None, None))
        if charge is not None and charge.terminated:
            continue
        doubted = []
        if not _same(before.get(name), held, charge):
            doubted = list(_doubted(held, account, charge, registry))
        if not doubted:
            if agreed is not None and charge is not None:
                agreed[name] = (held, charge)
            continue
        inventory = inventory or _inventory(groups)
        for container, resource, mode, ids in doubted:
            wanted = _implied(container, mode, ids, inventory, _claim(account, container, mode))
            missing = _missing(wanted, charge, container)
            if missing or (mode is Mode.PARTITIONED and not _recorded(charge, container, mode)):
                maker = manufacturer_of_resource(registry, resource)
                yield Charge("/".join(name), missing, assumed=True), _sentence(name, container, maker, mode, ids)


def _same(before: tuple[Held, Charge] | None, held: Held, charge: Charge | None) -> bool:
    return before is not None and before[0] is held and before[1] is charge


def _inventory(groups: Sequence[Mapping[str, Any]]) -> dict[CardKey, Place]:
    return {
        (as_str(group.get("id")), as_str(card.get("id"))): (group, card) for group in groups for card in cards_of(group)
    }


def _doubted(
    held: Held, account: Account | None, charge: Charge | None, registry: Manufacturers
) -> Iterator[tuple[str, str, Mode, frozenset[str]]]:
    """Yield (container, resource, mode, ids) that do not stand as such in a record."""
    for container, resources in held.items():
        for resource, ids in resources.items():
            mode = _MODES.get(family_of(registry, resource))
            if mode is not None and ids and not _is_recorded_so(account, charge, container, ids):
                yield container, resource, mode, ids


def _is_recorded_so(account: Account | None, charge: Charge | None, container: str, ids: frozenset[str]) -> bool:
    """Say whether the very ids stand in a believed record: the common case, and cheap to see."""
    if account is None or charge is not account.charge or charge.assumed:
        return False
    recorded = account.device_ids.get(container, ())
    held = sum(record.container == container for record in charge.records)
    return len(recorded) == len(ids) == held and ids.issuperset(recorded)


def _claim(account: Account | None, container: str, mode: Mode) -> Claim | None:
    claims = account.claims if account else ()
    return next((c for c in claims if c.container.name == container and _MODES.get(c.family) is mode), None)


def _implied(
    container: str,
    mode: Mode,
    ids: frozenset[str],
    inventory: Mapping[CardKey, Place],
    claim: Claim | None,
) -> tuple[Record, ...]:
    """Return the records that ids mean by themselves; a slice of unknown size counts as a whole card."""
    if mode is Mode.PARTITIONED:
        return ()
    units = {Mode.EXCLUSIVE: CARD_UNITS, Mode.SHARED: SHARE_UNITS}.get(mode) or CARD_UNITS
    if mode is Mode.SLICED and claim is not None and whole(claim.units):
        units = min(whole(claim.units), CARD_UNITS)
    records = []
    for text in sorted(ids):
        try:
            token = parse_token(text)
        except TokenInvalid:
            continue
        place = inventory.get((token.group_id, token.card_id))
        if place is not None:
            group, card = place
            maker, index = as_str(group.get("manufacturer")), as_int(card.get("index"))
            records.append(Record(container, token.group_id, maker, token.card_id, index, mode, units))
    return tuple(records)


def _missing(wanted: tuple[Record, ...], charge: Charge | None, container: str) -> tuple[Record, ...]:
    held = {
        (record.group_id, record.card_id)
        for record in (charge.records if charge else ())
        if record.container == container
    }
    return tuple(record for record in wanted if (record.group_id, record.card_id) not in held)


def _recorded(charge: Charge | None, container: str, mode: Mode) -> bool:
    return charge is not None and any(r.container == container and r.mode is mode for r in charge.records)


def _sentence(name: PodName, container: str, maker: str, mode: Mode, ids: frozenset[str]) -> str:
    return (
        f'allocation identity conflict for pod {"/".join(name)} container "{container}": the kubelet says it holds '
        f"{mode.name.lower()} {maker} ids {', '.join(sorted(ids)[:4])}, which its record does not account for"
    )
