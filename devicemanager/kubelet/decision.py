"""Which part of which card a container gets: the rules of Allocate (spec 06 §7).

For: the allocator, under the node's lock. In: tokens, the container's claim, the ledger without the container's own
holdings. Out: one record for each card, or a refusal with its code.
Promises: pure; no card gets a second mode, more than its units, more slices than it has, or two partitions in a place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from api.devices import cards_of
from api.ledger.fit import Candidate, choose_partitions, is_partitioned, logical_ceiling
from api.ledger.modes import CARD_UNITS, MODE_NAMES, SHARE_UNITS, Mode
from api.ledger.placements import Placement, is_free, placements_of
from api.ledger.rebuild import CardKey, CardUse
from api.ledger.transport import Record
from api.pod_requests import Claim, whole
from devicemanager.kubelet.grant import Injector
from devicemanager.kubelet.identification import Waiting
from devicemanager.kubelet.refusal import Code, Refused, bad_ids, precondition
from devicemanager.tokens import Token, TokenInvalid, card_indexes, parse_token
from nodefeature.credits import memory_mib_to_units, memory_percentage_to_units
from nodefeature.fields import as_bool, as_int, as_maps, as_str, at
from nodefeature.profiles import vendor_profile

Place = tuple[Mapping[str, Any], Mapping[str, Any]]
"""(group, card) of the inventory."""


@dataclass(frozen=True, slots=True)
class Ask:
    """What the kubelet asks one plugin for."""

    manufacturer: str
    mode: Mode
    tokens: tuple[Token, ...]

    @property
    def ids(self) -> tuple[str, ...]:
        """Return the tokens' texts, sorted."""
        return tuple(sorted(str(token) for token in self.tokens))


@dataclass(frozen=True, slots=True)
class Situation:
    """The node without the container's own holdings, and what it held before."""

    groups: Sequence[Mapping[str, Any]]
    cards: Mapping[CardKey, CardUse]
    windows: Mapping[CardKey, tuple[Placement, ...]]
    """Compute windows of others on each card."""
    prior: tuple[Record, ...] = ()
    gate: bool = True
    """False lets slices overcommit a card (spec 06 §7.3)."""


def read_ask(manufacturer: str, mode: Mode, ids: Sequence[str], groups: Sequence[Mapping[str, Any]]) -> Ask:
    """Read the kubelet's ids; only what this plugin offers on this node passes."""
    places = inventory(groups, manufacturer)
    tokens = []
    for text in ids:
        try:
            token = parse_token(text)
        except TokenInvalid as invalid:
            raise bad_ids(str(invalid)) from invalid
        place = places.get((token.group_id, token.card_id))
        if place is None:
            raise bad_ids(f"{text!r}: no {manufacturer} card of this node")
        if token.number not in card_indexes(place[1], mode):
            raise bad_ids(f"{text!r}: not offered as {MODE_NAMES[mode].lower()}")
        tokens.append(token)
    if not tokens or len(set(tokens)) != len(tokens):
        raise bad_ids(f"want at least one device ID and none twice, got {len(tokens)}")
    return Ask(manufacturer, mode, tuple(tokens))


def inventory(groups: Sequence[Mapping[str, Any]], manufacturer: str) -> dict[CardKey, Place]:
    """Return a manufacturer's cards by (group id, card id)."""
    return {
        (as_str(group.get("id")), as_str(card.get("id"))): (group, card)
        for group in groups
        if group.get("manufacturer") == manufacturer
        for card in cards_of(group)
    }


def decide(ask: Ask, waiting: Waiting, claim: Claim, situation: Situation, injector: Injector) -> tuple[Record, ...]:
    """Return what the container gets, a record for each card in the order of their index."""
    if ask.mode is Mode.PARTITIONED:
        records = _partitions(ask, waiting, claim, situation)
    else:
        records = [_on_card(ask, waiting, claim, place, situation, injector) for place in _chosen(ask, situation)]
    return tuple(sorted(records, key=lambda record: record.index))


def units_of(claim: Claim, group: Mapping[str, Any]) -> int:
    """Return the units of one slice: as folded into the Pod, else folded here; at least 1."""
    units = whole(claim.units)
    if not units and whole(claim.memory_percentage):
        units = memory_percentage_to_units(whole(claim.memory_percentage))
    if not units:
        units = memory_mib_to_units(whole(claim.memory_mib), as_int(group.get("memory")))
    return min(max(units, 1), CARD_UNITS)


def _chosen(ask: Ask, situation: Situation) -> list[Place]:
    places = inventory(situation.groups, ask.manufacturer)
    keys = [(token.group_id, token.card_id) for token in ask.tokens]
    doubled = next((key for key in keys if keys.count(key) > 1), None)
    if doubled is not None:
        raise precondition(
            f"{keys.count(doubled)} {MODE_NAMES[ask.mode].lower()} devices of card {':'.join(doubled)} for one "
            f"container: they must lie on {len(keys)} distinct cards"
        )
    return [places[key] for key in keys]


def _on_card(
    ask: Ask, waiting: Waiting, claim: Claim, place: Place, situation: Situation, injector: Injector
) -> Record:
    group, card = place
    key = (as_str(group.get("id")), as_str(card.get("id")))
    use = situation.cards[key]
    if use.mode not in {Mode.NONE, ask.mode}:
        raise precondition(
            f"card {':'.join(key)} is held in {MODE_NAMES[use.mode]} mode, cannot allocate it in "
            f"{MODE_NAMES[ask.mode]} mode"
        )
    windows: tuple[Placement, ...] = ()
    if ask.mode is Mode.SLICED:
        units = units_of(claim, group)
        why = _no_room(use, units) if situation.gate else ""
        if why:
            raise precondition(f"{waiting.where} cannot take a logical slice of card {':'.join(key)}: {why}")
        windows = _windows(claim, place, situation, injector)
    else:
        units = CARD_UNITS if ask.mode is Mode.EXCLUSIVE else SHARE_UNITS
        if use.remaining < units:
            raise precondition(
                f"card {':'.join(key)} has {use.remaining} of {CARD_UNITS} units free and {waiting.where} needs {units}"
            )
    return Record(
        container=waiting.name,
        group_id=key[0],
        manufacturer=ask.manufacturer,
        card_id=key[1],
        index=as_int(card.get("index")),
        mode=ask.mode,
        allocated=units,
        logical_placements=windows,
    )


def _no_room(use: CardUse, units: int) -> str:
    ceiling = logical_ceiling(use.card)
    if use.slices >= ceiling:
        return f"it already hosts {use.slices} of its {ceiling} slices"
    if use.remaining < units:
        return f"it has {use.remaining} of {CARD_UNITS} units free and the slice needs {units}"
    return ""


def _windows(claim: Claim, place: Place, situation: Situation, injector: Injector) -> tuple[Placement, ...]:
    group, card = place
    key = (as_str(group.get("id")), as_str(card.get("id")))
    occupied = situation.windows.get(key, ())
    before = next((r.logical_placements for r in situation.prior if (r.group_id, r.card_id) == key), ())
    if before and all(is_free(window, occupied) for window in before):
        return before
    window = injector.window(claim, group, card, occupied)
    return (window,) if window is not None else ()


def _partitions(ask: Ask, waiting: Waiting, claim: Claim, situation: Situation) -> list[Record]:
    if len(claim.profiles) != 1:
        raise precondition(f"{waiting.where} names {len(claim.profiles)} partition profiles; it must name one")
    profile = vendor_profile(ask.manufacturer, claim.profiles[0][0])
    places = inventory(situation.groups, ask.manufacturer)
    chosen = _again(profile, places, situation, len(ask.tokens)) or _anew(profile, places, situation, len(ask.tokens))
    if chosen is None:
        raise Refused(
            Code.RESOURCE_EXHAUSTED,
            f'no card on this node can host {len(ask.tokens)} instance(s) of partition profile "{profile}" for '
            f"{waiting.where}",
        )
    return [
        Record(
            container=waiting.name,
            group_id=key[0],
            manufacturer=ask.manufacturer,
            card_id=key[1],
            index=as_int(places[key][1].get("index")),
            mode=Mode.PARTITIONED,
            allocated=_partition_units(claim, places[key], profile),
            profile=profile,
            placements=(placement,),
        )
        for key, placement in chosen
    ]


def _again(
    profile: str, places: Mapping[CardKey, Place], situation: Situation, count: int
) -> list[tuple[CardKey, Placement]] | None:
    """Return the container's own partitions of before, when they still are what it asks for and nobody else's."""
    prior = [r for r in situation.prior if r.mode is Mode.PARTITIONED and r.profile == profile and r.placements]
    found = [((r.group_id, r.card_id), r.placements[0]) for r in prior if (r.group_id, r.card_id) in places]
    if len(found) != count or len({key for key, _ in found}) != count:
        return None
    free = all(
        placement in _legal(places[key][1], profile) and is_free(placement, situation.cards[key].occupied)
        for key, placement in found
    )
    return found if free else None


def _anew(
    profile: str, places: Mapping[CardKey, Place], situation: Situation, count: int
) -> list[tuple[CardKey, Placement]] | None:
    keys = {f"{group}:{card}": (group, card) for group, card in places}
    candidates = [
        Candidate(text, _legal(places[key][1], profile), tuple(situation.cards[key].occupied))
        for text, key in keys.items()
        if is_partitioned(places[key][1])
        and not as_bool(at(places[key][1], "status", "unhealthy"))
        and situation.cards[key].mode in {Mode.NONE, Mode.PARTITIONED}
    ]
    chosen = choose_partitions([candidate for candidate in candidates if candidate.legal], count)
    return None if chosen is None else [(keys[pick.id], pick.placement) for pick in chosen]


def _legal(card: Mapping[str, Any], profile: str) -> tuple[Placement, ...]:
    for offered in as_maps(at(card, "status", "physicalSliced", "profiles")):
        if offered.get("name") == profile:
            return placements_of(offered.get("placements"))
    return ()


def _partition_units(claim: Claim, place: Place, profile: str) -> int:
    if whole(claim.units):
        return min(whole(claim.units), CARD_UNITS)
    group, card = place
    memory = next(
        (
            as_int(offered.get("memoryMib"))
            for offered in as_maps(at(card, "status", "physicalSliced", "profiles"))
            if offered.get("name") == profile
        ),
        0,
    )
    return min(max(memory_mib_to_units(memory, as_int(group.get("memory"))), 1), CARD_UNITS)
