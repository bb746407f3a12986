"""How much room a pool's nodes have for one demand, by the ledgers.

For: `cards`. In: Devices, a demand. Out: counts for each node, the best node first.
Promises: pure; a card counts exactly as gate 3 counts it (`api.ledger.node_cards`, `api.ledger.pod_fit`).
Left out: what admitted but not yet recorded Workloads hold; gate 3 knows them and says so in its own words.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from api.devices import cards_of, group_key, status_groups
from api.explain.evidence import Object
from api.ledger import pod_fit
from api.ledger.modes import CARD_UNITS, Mode
from api.ledger.node_cards import Card, Partitions, node_cards
from api.ledger.pod_fit import Need
from api.pod_requests import Demand
from nodefeature.device_labels import label_count
from nodefeature.fields import at, labels_of, name_of, str_map
from nodefeature.keys import manufacturer_of
from nodefeature.labels import DEVICE_PREFIX, TRUE
from nodefeature.pool import matches

_COUNT = ".count"


@dataclass(frozen=True, slots=True)
class Room:
    """One node: how many cards (or partitions) it could give now, and how many when it were empty."""

    node: str
    free: int
    capacity: int


def rooms(devices: Iterable[Object], demand: Demand, key: str, flavors: Sequence[Object] = ()) -> list[Room]:
    """Return the nodes that have cards of the group `key`, best first; with `flavors` only those that one selects."""
    need = Need(
        family=demand.family,
        manufacturer=manufacturer_of(key),
        key=key,
        cards=demand.cards,
        units=demand.units_per_card,
        profile=demand.profile,
    )
    found = []
    for each in devices:
        if flavors and not any(_selects(flavor, each) for flavor in flavors):
            continue
        cards = node_cards(each)
        capacity = pod_fit.room(tuple(_emptied(card) for card in cards), need)
        if capacity > 0:
            found.append(Room(name_of(each), pod_fit.room(cards, need), capacity))
    return sorted(found, key=lambda room: (-room.free, room.node))


def accelerator_key(flavors: Iterable[Object]) -> str:
    """Return the one device key that flavors pin; empty for none or several."""
    keys = {
        label.removeprefix(DEVICE_PREFIX)
        for flavor in flavors
        for label, value in str_map(at(flavor, "spec", "nodeLabels")).items()
        if label.startswith(DEVICE_PREFIX) and value == TRUE
    }
    return keys.pop() if len(keys) == 1 else ""


def _emptied(card: Card) -> Card:
    partitions = Partitions(card.partitions.legal) if card.partitions is not None else None
    return replace(card, mode=Mode.NONE, units=CARD_UNITS, slots=int(card.sliceable), partitions=partitions)


def _selects(flavor: Object, devices: Object) -> bool:
    wanted = str_map(at(flavor, "spec", "nodeLabels"))
    plain = {label: value for label, value in wanted.items() if not label.endswith(_COUNT)}
    return bool(plain) and matches(plain, labels_of(devices)) and _count_fits(wanted, devices)


def _count_fits(wanted: Mapping[str, str], devices: Object) -> bool:
    """Say whether a node has as many cards as a flavor pins."""
    for label in wanted:
        if label.startswith(DEVICE_PREFIX) and label.endswith(_COUNT):
            key = label.removeprefix(DEVICE_PREFIX).removesuffix(_COUNT)
            rows = sum(len(cards_of(group)) for group in status_groups(devices) if group_key(group) == key)
            return rows == label_count(wanted, label)
    return True
