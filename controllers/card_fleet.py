"""Every node's cards as gate 3 may promise them: what the ledgers say, less what was promised already.

For: `card_book`, and through it `node_devices_admission` (spec 04 §10.4; design §8.10).
In: the caches of Devices, Pods, Nodes, ResourceFlavors; what is promised on each node. Out: an `api.ledger` Fleet.
Promises: a node is read again only when something of it changed; a node that is cordoned, tainted against the Pods or
not ready is no candidate; a freed card gets a new serial number, so that whoever was refused before can tell whether
looking again is worth it.
State: the cards of all nodes, candidates by flavor; all of it can be read again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from api.devices import group_key, spec_groups
from api.ledger.freed import Freed, freed
from api.ledger.node_cards import model_counts, node_cards
from api.ledger.pod_fit import Cards, Need, place, room
from api.ledger.rebuild import CardKey
from api.ledger.workload_fit import Needs, PodGroup
from controllers.card_claims import CHARGED_PODS, charges_of, inventory_of
from controllers.node_view import is_ready, is_usable
from controllers.workload_admission import flavor_key
from kube.reconciler import Caches, Index, Key, Object
from nodefeature.device_labels import label_count
from nodefeature.fields import as_maps, at, is_deleting, labels_of, name_of, str_map
from nodefeature.fit_labels import equal_but_fit_labels
from nodefeature.kinds import DEVICES, NODE, POD, RESOURCE_FLAVOR
from nodefeature.labels import DEVICE_PREFIX, HOSTNAME
from nodefeature.manufacturers import Manufacturers
from nodefeature.pool import matches

_COUNT = ".count"
_KEPT_CANDIDATES = 1024


def _models(devices: Object) -> Iterable[str]:
    return {group_key(group): None for group in spec_groups(devices)}


def _hostname(node: Object) -> Iterable[str]:
    hostname = labels_of(node).get(HOSTNAME)
    return (hostname,) if hostname else ()


DEVICES_BY_MODEL = Index(DEVICES, "model", _models)
NODES_BY_HOSTNAME = Index(NODE, "hostname", _hostname)


@dataclass(slots=True)
class _Node:
    """One node: its cards by the ledgers, and after what is promised."""

    ledger: Cards = ()
    cards: Cards = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    """Cards by model; with the labels, what decides which flavors it stands behind."""
    inventory: frozenset[CardKey] = frozenset()
    rooms: dict[Need, int] = field(default_factory=dict)


class CardFleet:
    """The nodes. `serial` grows with every freed card."""

    def __init__(self, caches: Caches, registry: Manufacturers) -> None:
        self.serial = 0
        self._caches = caches
        self._registry = registry
        self._nodes: dict[str, _Node] = {}
        self._candidates: dict[tuple[str, str], tuple[str, ...]] = {}
        self._freed: dict[tuple[str, str, object], int] = {}
        self._reshaped = 0
        self._seen: dict[str, Object] = {}

    # What `api.ledger.workload_fit` asks

    def candidates(self, group: PodGroup) -> Collection[str]:
        """Return the usable nodes behind a group's flavor."""
        place_of = (group.flavor, group.constraints)
        found = self._candidates.get(place_of)
        if found is None:
            if len(self._candidates) >= _KEPT_CANDIDATES:
                self._candidates.clear()
            found = self._candidates[place_of] = tuple(self._find(group))
        return found

    def cards(self, node: str) -> Cards:
        """Return what a node can still give; nothing for a node that takes no new Pod of anybody."""
        known = self._nodes.get(node)
        if known is None or not self._is_open(node):
            return ()
        return known.cards

    def room(self, node: str, need: Need) -> int:
        """Return how many of a node's cards could serve a need."""
        known = self._nodes.get(node)
        if known is None:
            return 0
        if need not in known.rooms:
            known.rooms[need] = room(known.cards, need)
        return known.rooms[need]

    # What the book keeps

    def inventory(self, node: str) -> frozenset[CardKey]:
        """Return the cards that a node has, by (group id, card id)."""
        known = self._nodes.get(node)
        return known.inventory if known is not None else frozenset()

    def flavor(self, name: str) -> Object | None:
        """Return a flavor that is there."""
        return self._caches[RESOURCE_FLAVOR].get(Key(name))

    def node_named(self, hostname: str) -> str:
        """Return the node that carries a hostname label; the name itself when none does."""
        found = next(iter(self._caches[NODE].by(NODES_BY_HOSTNAME.name, hostname)), None)
        return name_of(found) if found is not None else hostname

    def read_ledgers(self, node: str) -> bool:
        """Read a node's Devices and records again; say whether its inventory changed."""
        devices = self._caches[DEVICES].get(Key(node))
        known = self._nodes.get(node)
        if devices is None:
            if known is not None:
                self._reshape()
                del self._nodes[node]
            return known is not None
        if known is None:
            known = self._nodes[node] = _Node()
        pods = self._caches[POD].by(CHARGED_PODS.name, node)
        known.ledger = node_cards(devices, charges_of(pods, self._registry))
        labels, counts = labels_of(devices), model_counts(known.ledger)
        if (labels, counts) != (known.labels, known.counts):
            known.labels, known.counts = labels, counts
            self._reshape()
        before, known.inventory = known.inventory, inventory_of(spec_groups(devices))
        return before != known.inventory

    def charge(self, node: str, promised: Sequence[Needs]) -> list[bool]:
        """Take what is promised on a node out of its cards; return which promises found their cards."""
        known = self._nodes.get(node)
        if known is None:
            return [False] * len(promised)
        cards, housed = known.ledger, []
        missed: set[Needs] = set()
        for needs in promised:
            after = None
            if needs not in missed:  # equal Pods find no place either
                after = place(cards, needs)
                if after is None:
                    after = place(cards, needs, spread=True)
            if after is None:
                missed.add(needs)
            else:
                cards = after
            housed.append(after is not None)
        before, known.cards = known.cards, cards
        known.rooms = {}
        for pair in freed(before, cards):
            self._note_freed(node, pair)
        return housed

    def look_at(self, node: str) -> None:
        """Notice whether a Node with cards began or ceased to take Pods."""
        found, before = self._caches[NODE].get(Key(node)), self._seen.get(node)
        if found is None:
            self._seen.pop(node, None)
        else:
            self._seen[node] = found
        if node not in self._nodes:
            return  # reading its first Devices will find the candidates again
        if _bars(before) != _bars(found) or not equal_but_fit_labels(labels_of(before), labels_of(found)):
            self._reshape()

    def forget_flavors(self) -> None:
        """Find the candidates of all flavors again."""
        self._reshape()

    def freed_since(self, serial: int, group: PodGroup) -> bool:
        """Say whether something was freed after `serial` that could help a group of Pods."""
        if self._reshaped > serial:
            return True
        nodes = [node for node, _ in group.hosts] if group.hosts is not None else [""]
        pairs = [(need.key, need.family) for need in group.needs]
        return any(self._freed.get((node, *pair), 0) > serial for node in nodes for pair in pairs)

    def _note_freed(self, node: str, pair: Freed) -> None:
        self.serial += 1
        self._freed[node, *pair] = self._freed["", *pair] = self.serial

    def _reshape(self) -> None:
        self._candidates.clear()
        self.serial += 1
        self._reshaped = self.serial
        self._freed.clear()  # older than this, they tell nobody anything

    def _is_open(self, node: str) -> bool:
        found = self._caches[NODE].get(Key(node))
        return (
            found is not None
            and not is_deleting(found)
            and at(found, "spec", "unschedulable") is not True
            and is_ready(found)
        )

    def _find(self, group: PodGroup) -> list[str]:
        flavor = self.flavor(group.flavor)
        key, pinned = flavor_key(flavor), pinned_count(flavor)
        if not key or pinned == 0:
            return []
        labels = {k: v for k, v in str_map(at(flavor, "spec", "nodeLabels")).items() if not k.endswith(_COUNT)}
        tolerations = (*as_maps(at(flavor, "spec", "tolerations")), *as_maps(group.pod_spec.get("tolerations")))
        selector = str_map(group.pod_spec.get("nodeSelector"))
        found = []
        for devices in self._caches[DEVICES].by(DEVICES_BY_MODEL.name, key):
            name = name_of(devices)
            node = self._caches[NODE].get(Key(name))
            known = self._nodes.get(name)
            if known is None or node is None or not is_usable(node, tolerations):
                continue
            fits = matches(labels, known.labels) and pinned in (None, known.counts.get(key, 0))
            if fits and matches(selector, labels_of(node)):
                found.append(name)
        return sorted(found)


def _bars(node: Object | None) -> tuple[object, ...]:
    """Return what may keep Pods off a node."""
    return (node is None, at(node, "spec"), is_ready(node), is_deleting(node))


def pinned_count(flavor: Mapping[str, Any] | None) -> int | None:
    """Return how many cards a node of a flavor must have; None for any, 0 for a count that matches nothing."""
    labels = str_map(at(flavor, "spec", "nodeLabels"))
    named = [label for label in labels if label.startswith(DEVICE_PREFIX) and label.endswith(_COUNT)]
    return label_count(labels, named[0]) if named else None
