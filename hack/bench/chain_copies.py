"""Copies of nodes that are published already.

For: `hack.bench.chain_real`: thousands of nodes as their agents, NFD and kubelets leave them, without waiting for
thousands of each. In: what the cluster holds of one node of a machine. Out: the same objects for another node.
Promises: pure; a copy's cards have ids of their own, as those of another machine of the sort have; nothing of the
original is left in a copy, neither its name nor its uid nor its address.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hack.fleet import own_id
from hack.machines import address_of
from nodefeature.fields import as_maps, as_str, at, name_of, uid_of

Object = dict[str, Any]

_SERVERS = ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "selfLink")


@dataclass(frozen=True, slots=True)
class Published:
    """One node's objects, without what a server gives them. Features and Devices name the node and its uid."""

    name: str
    uid: str
    node: str
    others: str
    card_ids: tuple[str, ...]

    def node_named(self, name: str) -> Object:
        """Return the Node of a copy."""
        text = self.node.replace(self.name, name).replace(address_of(self.name), address_of(name))
        copy: Object = json.loads(text)
        return copy

    def others_of(self, name: str, uid: str) -> tuple[list[Object], Object]:
        """Return the NodeFeatures and the Devices of a copy whose Node has this uid."""
        text = self.others.replace(self.name, name).replace(self.uid, uid)
        for card in self.card_ids:
            text = text.replace(json.dumps(card), json.dumps(own_id(card, f"{name}/{card}")))
        copy = json.loads(text)
        return copy["features"], copy["devices"]


def published(node: Object, features: Sequence[Object], devices: Object) -> Published:
    """Return what the cluster holds of a node, to be copied."""
    cards = (card for group in as_maps(at(devices, "spec", "groups")) for card in as_maps(group.get("accelerators")))
    return Published(
        name_of(node),
        uid_of(node),
        json.dumps(bare(node)),
        json.dumps({"features": [bare(feature) for feature in features], "devices": bare(devices)}),
        tuple(dict.fromkeys(as_str(card.get("id")) for card in cards if card.get("id"))),
    )


def bare(obj: Mapping[str, Any]) -> Object:
    """Return an object without what its server gave it."""
    metadata = {key: value for key, value in (at(obj, "metadata") or {}).items() if key not in _SERVERS}
    return {**obj, "metadata": metadata}
