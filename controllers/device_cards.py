"""Cards of a Devices object, as node capacity counts them.

For: `node_capacity` (spec 04 §4).
In: a raw Devices object, possibly half empty. Out: `nodefeature.capacity.Card` values and the signature of a change.
Promises: pure; never raises; health, modes and units never alter what is returned.
Trusts: only agents write Devices.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from api.devices import cards_of, group_key, spec_groups, status_groups
from api.ledger.capability import overcommits, profile_ceiling, profiles_of
from api.ledger.fit import is_partitioned, ledger_ready, logical_ceiling
from nodefeature.capacity import Card
from nodefeature.fields import as_int, as_map, as_maps, as_str
from nodefeature.keys import manufacturer_of
from nodefeature.profiles import public_profile


def capacity_cards(devices: object) -> list[Card]:
    """Return every card of the inventory with what it can be cut into."""
    shown = as_map(devices)
    ledger = {
        (group_key(group), as_str(row.get("id"))): row for group in status_groups(shown) for row in cards_of(group)
    }
    return [
        _card(group_key(group), card, ledger.get((group_key(group), as_str(card.get("id")))))
        for group in spec_groups(shown)
        for card in cards_of(group)
    ]


def signature(devices: object) -> dict[str, tuple[object, ...]]:
    """Return, by pool key, all of a Devices object that capacity depends on."""
    found: dict[str, list[Card]] = {}
    for card in capacity_cards(devices):
        found.setdefault(card.key, []).append(card)
    return {key: _signature(manufacturer_of(key), cards) for key, cards in found.items()}


def _signature(manufacturer: str, cards: list[Card]) -> tuple[object, ...]:
    profiles: dict[str, int] = {}
    for card in cards:
        for name, count in (card.profiles or {}).items():
            public = public_profile(manufacturer, name)
            profiles[public] = profiles.get(public, 0) + count
    slices = [card.slices for card in cards if card.slices and card.profiles is None]
    return (
        len(slices),
        sum(1 for card in cards if card.profiles is not None),
        sum(slices),
        any(card.overcommits_cores for card in cards),
        ";".join(f"{name}={count}" for name, count in sorted(profiles.items())),
    )


def _card(key: str, card: Mapping[str, Any], row: Mapping[str, Any] | None) -> Card:
    if is_partitioned(card):
        return Card(key, profiles=_instances(card, row))
    return Card(key, slices=logical_ceiling(card), overcommits_cores=overcommits(card))


def _instances(card: Mapping[str, Any], row: Mapping[str, Any] | None) -> dict[str, int]:
    """Return instances by profile: bound plus free where a ledger says so, else what the empty card offers."""
    offered = {as_str(profile.get("name")): profile_ceiling(profile) for profile in profiles_of(card)}
    if row is None or not ledger_ready(row):
        return offered
    counted = dict.fromkeys(offered, 0)
    for entry in (*as_maps(row.get("allocatedProfiles")), *as_maps(row.get("remainingProfiles"))):
        name = as_str(entry.get("name"))
        if name:
            counted[name] = counted.get(name, 0) + max(as_int(entry.get("count")), 0)
    return counted
