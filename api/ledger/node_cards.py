"""What each card of one node can still give: the picture that gate 3 and the fit labels judge by.

For: `controllers.card_book`, `controllers.node_fit` (spec 04 §10.4-10.5, spec 01 §5.7; design §8.10).
In: one raw Devices object and the charges of the node's Pods. Out: frozen cards.
Promises: of the published ledger and the Pods' own records the worse word counts, so that neither a publication that
lags behind a record nor a record that the ledger does not know of ever frees a card; a card without a ledger row, of
an unknown mode or reported unhealthy gives nothing; never raises.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from api.devices import cards_of, group_key, spec_groups, status_groups
from api.ledger.capability import profiles_of
from api.ledger.fit import is_partitioned, ledger_ready, logical_ceiling
from api.ledger.modes import CARD_UNITS, SHARE_UNITS, Mode, free_units, mode_of
from api.ledger.placements import Placement, is_free, placements_of, remaining_profiles
from api.ledger.rebuild import CardKey, CardUse, Charge, rebuild
from nodefeature.fields import as_bool, as_int, as_maps, as_str, at


@dataclass(frozen=True, slots=True)
class Partitions:
    """What lies on a partitioned card, in the driver's spelling of profiles."""

    legal: Mapping[str, tuple[Placement, ...]]
    occupied: tuple[Placement, ...] = ()
    spare: Mapping[str, int] = field(default_factory=dict)
    """Of each profile: what the published ledger offers beyond (below 0: short of) the placements that look free."""
    ready: bool = True
    """False while the ledger caches no placements."""

    def free(self, profile: str) -> int:
        """Return how many instances of a profile there is room for, each alone."""
        if not self.ready:
            return 0
        looks_free = sum(1 for run in self.legal.get(profile, ()) if is_free(run, self.occupied))
        return max(looks_free + self.spare.get(profile, 0), 0)

    def taken(self, profile: str) -> Partitions | None:
        """Return what is left after one more instance, or None when there is no room."""
        if not self.free(profile):
            return None
        run = next((run for run in self.legal.get(profile, ()) if is_free(run, self.occupied)), None)
        if run is not None:
            return replace(self, occupied=(*self.occupied, run))
        return replace(self, spare={**self.spare, profile: self.spare.get(profile, 0) - 1})


@dataclass(frozen=True, slots=True)
class Card:
    """One card: what it serves and what is left of it."""

    id: str
    key: str
    """The pool's key of its model, `<manufacturer>-<group id>`."""
    mode: Mode | None = Mode.NONE
    """None: it gives nothing to anybody."""
    units: int = CARD_UNITS
    slots: int = 0
    """Software slices it could still take; 0 also for a card that takes none."""
    sliceable: bool = False
    partitions: Partitions | None = None
    """Set on a partitioned card, which serves nothing else."""

    @property
    def is_whole(self) -> bool:
        """Say whether the card serves whole cards, shares and slices."""
        return self.partitions is None

    @property
    def is_free(self) -> bool:
        """Say whether an unpartitioned card is held by nobody."""
        return self.is_whole and self.mode is Mode.NONE and self.units == CARD_UNITS

    @property
    def shares(self) -> int:
        """Return the ownership shares that are left."""
        open_to_all = self.is_free or (self.is_whole and self.mode is Mode.SHARED)
        return self.units // SHARE_UNITS if open_to_all else 0

    @property
    def slice_units(self) -> int:
        """Return the largest slice that the card could still take; 0 for none."""
        open_to_all = self.is_free or (self.is_whole and self.mode is Mode.SLICED)
        return self.units if open_to_all and self.slots > 0 else 0


def node_cards(devices: Mapping[str, Any] | None, charges: Iterable[Charge] = ()) -> tuple[Card, ...]:
    """Return the cards of a node in the order of its inventory; of two with one id the first counts."""
    if devices is None:
        return ()
    groups = spec_groups(devices)
    rows = _rows(devices)
    shown = tuple(charges)
    uses: Mapping[CardKey, CardUse] = rebuild(groups, shown).cards if shown else {}
    found: dict[tuple[str, str], Card] = {}
    for group in groups:
        key, group_id = group_key(group), as_str(group.get("id"))
        for raw in cards_of(group):
            card_id = as_str(raw.get("id"))
            row = rows.get((as_str(group.get("manufacturer")), group_id, card_id))
            found.setdefault((key, card_id), _card(key, raw, row, uses.get((group_id, card_id))))
    return tuple(found.values())


def model_counts(cards: Iterable[Card]) -> dict[str, int]:
    """Return how many cards of each model stand in the inventory."""
    counts: dict[str, int] = {}
    for card in cards:
        counts[card.key] = counts.get(card.key, 0) + 1
    return counts


def _rows(devices: Mapping[str, Any]) -> dict[tuple[str, str, str], Mapping[str, Any]]:
    rows: dict[tuple[str, str, str], Mapping[str, Any]] = {}
    for group in status_groups(devices):
        place = (as_str(group.get("manufacturer")), as_str(group.get("id")))
        for row in cards_of(group):
            rows.setdefault((*place, as_str(row.get("id"))), row)
    return rows


def _card(key: str, raw: Mapping[str, Any], row: Mapping[str, Any] | None, use: CardUse | None) -> Card:
    card_id = as_str(raw.get("id"))
    dead = row is None or as_bool(at(raw, "status", "unhealthy"))
    mode = None if dead or row is None else _mode(mode_of(row.get("mode")), use)
    units = free_units(row.get("remaining")) if row is not None else 0
    units = min(units, use.remaining) if use is not None else units
    if is_partitioned(raw):
        # Instances are counted by placements; the card's units say nothing about them.
        return Card(card_id, key, mode, units, partitions=_partitions(key, raw, row, use))
    slices = logical_ceiling(raw)
    slots = max(slices - (use.slices if use is not None else 0), 0)
    return Card(card_id, key, mode, units, slots=slots, sliceable=slices > 0)


def _mode(published: Mode | None, use: CardUse | None) -> Mode | None:
    """Return the mode both words allow; None when they contradict each other."""
    if published is None or published is Mode.VISIBILITY or use is None or use.mode is Mode.NONE:
        return None if published is Mode.VISIBILITY else published
    return use.mode if published in (Mode.NONE, use.mode) else None


def _partitions(key: str, raw: Mapping[str, Any], row: Mapping[str, Any] | None, use: CardUse | None) -> Partitions:
    profiles = profiles_of(raw)
    legal = {as_str(profile.get("name")): placements_of(profile.get("placements")) for profile in profiles}
    occupied = tuple(use.occupied) if use is not None else ()
    if row is None or not ledger_ready(row):
        return Partitions(legal, occupied, ready=False)
    offered: dict[str, int] = {}
    for item in as_maps(row.get("remainingProfiles")):
        name = as_str(item.get("name"))
        offered[name] = offered.get(name, 0) + max(as_int(item.get("count")), 0)
    seen = remaining_profiles(profiles, occupied)
    # A driver that lists no placements is believed by its counts; one that does, never beyond them.
    spare = {name: offered.get(name, 0) - seen.get(name, 0) for name in legal}
    return Partitions(legal, occupied, {name: n for name, n in spare.items() if n < 0 or (n > 0 and not legal[name])})
