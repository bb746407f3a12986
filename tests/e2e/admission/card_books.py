"""Who holds which card, counted by the test itself: the judge of the randomized run.

For: the randomized run. In: Pods and Devices as the API server tells of them. Out: who holds what, what is wrong with
it, and whether a want would find its place.
Promises: shares no line with the product's ledger, its fit or its gate; places are found by looking at every card of
every node of the pool.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from hack.controlplane.admin import Object
from nodefeature.fields import annotations_of, as_int, as_maps, as_str, at
from tests.e2e.admission.card_wants import CARD_UNITS, SHARE_UNITS, Want

RECORD = "device.gpustack.ai/accelerator.allocated"
FREE, EXCLUSIVE, SHARED, SLICED, PARTITIONED = range(5)
_MODES = {
    "exclusive": EXCLUSIVE,
    "shared": SHARED,
    "percent": SLICED,
    "mib": SLICED,
    "partitioned": PARTITIONED,
}
_MOST_SHARES = 10
Run = tuple[int, int]
CardId = tuple[str, str, str]
"""Node, group, card."""


@dataclass(frozen=True, slots=True)
class Hold:
    """What one container holds on one card."""

    card: CardId
    mode: int
    units: int
    profile: str = ""
    runs: tuple[Run, ...] = ()


@dataclass(frozen=True, slots=True)
class Card:
    """What one card can serve."""

    healthy: bool
    most_slices: int
    profiles: Mapping[str, tuple[Run, ...]]


@dataclass(slots=True)
class CardBooks:
    """Cards, and by Pod what it holds."""

    cards: dict[CardId, Card] = field(default_factory=dict)
    by_pod: dict[str, tuple[Hold, ...]] = field(default_factory=dict)
    on_card: dict[CardId, dict[str, list[Hold]]] = field(default_factory=dict)

    def take_devices(self, devices: Object) -> None:
        """Learn a node's cards."""
        node = as_str(at(devices, "metadata", "name"))
        for group in as_maps(at(devices, "spec", "groups")):
            for raw in as_maps(group.get("accelerators")):
                self.cards[node, as_str(group.get("id")), as_str(raw.get("id"))] = _card_of(raw)

    def take_pod(self, name: str, holds: tuple[Hold, ...]) -> list[str]:
        """Learn what a Pod holds now; return what is wrong with the cards it touches."""
        touched = {hold.card for hold in (*self.by_pod.get(name, ()), *holds)}
        for card in touched:
            self.on_card.setdefault(card, {}).pop(name, None)
        for hold in holds:
            self.on_card[hold.card].setdefault(name, []).append(hold)
        self.by_pod[name] = holds
        return [fault for card in sorted(touched) for fault in self.faults(card)]

    def holds(self, card: CardId) -> list[Hold]:
        """Return all that is held on a card."""
        return [hold for holds in self.on_card.get(card, {}).values() for hold in holds]

    def faults(self, card: CardId) -> list[str]:
        """Return what is wrong with a card."""
        holds = self.holds(card)
        modes = {hold.mode for hold in holds}
        units = sum(hold.units for hold in holds)
        found = []
        if holds and card not in self.cards:
            found.append("is no card of the fleet")
        if units > CARD_UNITS:
            found.append(f"{units} units are held of {CARD_UNITS}")
        if len(modes) > 1:
            found.append(f"is in modes {sorted(modes)} at once")
        if modes == {SHARED} and len(holds) > _MOST_SHARES:
            found.append(f"{len(holds)} shares are held of {_MOST_SHARES}")
        if modes == {EXCLUSIVE} and len(holds) > 1:
            found.append(f"{len(holds)} hold it alone")
        if _overlap([run for hold in holds for run in hold.runs]):
            found.append(f"partitions overlap: {sorted(run for hold in holds for run in hold.runs)}")
        holders = sorted(self.on_card.get(card, {}))
        return [f"{'/'.join(card)}: {fault}; held by {', '.join(holders)}" for fault in found]

    def place_for(self, want: Want) -> str:
        """Return the first node that has what a Pod wants, or nothing."""
        for node in sorted(want.pool.nodes):
            own = [card for card in self.cards if card[0] == node]
            if sum(self._serves(card, want) for card in own) >= want.cards:
                return node
        return ""

    def _serves(self, card: CardId, want: Want) -> bool:
        known, holds = self.cards[card], self.holds(card)
        mode = _MODES[want.family]
        if not known.healthy or any(hold.mode != mode for hold in holds):
            return False
        if mode == PARTITIONED:
            taken = [run for hold in holds for run in hold.runs]
            return any(not _overlap([run, *taken]) for run in known.profiles.get(want.profile, ()))
        if known.profiles:
            return False  # cut into partitions, it serves nothing else
        if mode == SLICED and len(holds) >= known.most_slices:
            return False
        return sum(hold.units for hold in holds) + want.units <= CARD_UNITS


def holds_of(pod: Object) -> tuple[Hold, ...]:
    """Return what a Pod holds: nothing when it has ended."""
    text = annotations_of(pod).get(RECORD)
    if text is None or at(pod, "status", "phase") in ("Succeeded", "Failed"):
        return ()
    return tuple(_read_record(as_str(at(pod, "spec", "nodeName")), text))


def _read_record(node: str, text: str) -> Iterator[Hold]:
    for container in json.loads(text).values():
        for group in container["devices"]["groups"]:
            for raw in group["accelerators"]:
                runs = tuple((run.get("start", 0), run["length"]) for run in raw.get("allocatedPhysicalPlacements", ()))
                profile = raw.get("allocatedPhysicalProfile", "")
                yield Hold((node, group["id"], raw["id"]), raw["mode"], raw["allocated"], profile, runs)


def ledger_faults(devices: Object) -> list[str]:
    """Return what is impossible in a published ledger."""
    node = as_str(at(devices, "metadata", "name"))
    found = []
    for group in as_maps(at(devices, "status", "groups")):
        for row in as_maps(group.get("accelerators")):
            mode, left = as_int(row.get("mode")), as_int(row.get("remaining"))
            held = CARD_UNITS - left
            possible = {
                FREE: left == CARD_UNITS,
                EXCLUSIVE: left == 0,
                SHARED: 0 <= left < CARD_UNITS and held % SHARE_UNITS == 0,
                SLICED: 0 <= left < CARD_UNITS,
                PARTITIONED: 0 <= left <= CARD_UNITS,
            }
            if not possible.get(mode, False):
                found.append(f"the ledger of {node} says of {row.get('id')}: mode {mode}, {left} units left")
    return found


def ledger_of(devices: Iterable[Object]) -> dict[CardId, tuple[int, int]]:
    """Return mode and units left of every card, as published."""
    return {
        (as_str(at(obj, "metadata", "name")), as_str(group.get("id")), as_str(row.get("id"))): (
            as_int(row.get("mode")),
            as_int(row.get("remaining")),
        )
        for obj in devices
        for group in as_maps(at(obj, "status", "groups"))
        for row in as_maps(group.get("accelerators"))
    }


def _card_of(raw: Mapping[str, object]) -> Card:
    profiles = {
        as_str(profile.get("name")): tuple(
            (as_int(run.get("start")), as_int(run.get("length"))) for run in as_maps(profile.get("placements"))
        )
        for profile in as_maps(at(raw, "status", "physicalSliced", "profiles"))
    }
    return Card(
        healthy=at(raw, "status", "unhealthy") is not True,
        most_slices=as_int(at(raw, "status", "logicalSliced", "count")),
        profiles=profiles,
    )


def _overlap(runs: list[Run]) -> bool:
    ordered = sorted(runs)
    return any(start + length > following for (start, length), (following, _) in pairwise(ordered))
