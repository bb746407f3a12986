"""node_fit: how much of each device model is free on a node, as labels of the Node (spec 01 §5.7; design §8.10).

For: Kueue and the scheduler, which follow the pins of Workloads (spec 05 §4.2) and so choose a node that has the cards.
In: Node, our NodeFeatures (managed or not), the Devices of the same name, allocation records of the node's Pods.
Out: labels `sliced-max-free-units`, `shared-free-cards` and `exclusive-free-cards.fit.gpustack.ai/<aKey>`.
Promises: one merge patch of these labels alone, at most one a node and window; a settled node gets no write; an
unmanaged node, and one without such cards, carries none.
Trusts: Devices and records (agents only), Node labels.
They are written on the Node itself, not through NFD (decision 0430): a pin must see a card that was taken a second ago.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import ClassVar

from api.ledger.node_cards import Card, node_cards
from api.ledger.transport import ALLOCATED_ANNOTATION
from controllers.card_claims import CHARGED_PODS, charges_of
from controllers.node_view import FEATURES_BY_NODE, cached_labels, node_of_feature
from kube.client import Client
from kube.errors import NotFound
from kube.reconciler import DONE, Caches, Index, Key, Object, Outcome, Rule, Watch
from nodefeature.fields import annotations_of, as_str, at, has_ended, is_deleting, labels_of, name_of, str_map
from nodefeature.fit_labels import Fit, fit_labels, only_fit_labels
from nodefeature.kinds import DEVICES, NODE, NODE_FEATURE, POD, Kind
from nodefeature.labels import MANAGED, is_managed
from nodefeature.manufacturers import Manufacturers

log = logging.getLogger(__name__)

WINDOW_S = 1.0


def _node_keys(old: Object | None, new: Object | None, caches: Caches) -> Iterable[Key]:
    if new is None or (old is not None and _own(labels_of(old)) == _own(labels_of(new))):
        return ()
    return (Key(name_of(new)),)


def _own(labels: Mapping[str, str]) -> tuple[object, ...]:
    return labels.get(MANAGED), only_fit_labels(labels)


def _devices_keys(old: Object | None, new: Object | None, caches: Caches) -> Iterable[Key]:
    # Card by card: equal sums may stand for other cards, and records of Pods make the difference.
    same = old is not None and new is not None and _whole_cards(old) == _whole_cards(new)
    return () if same else (Key(name_of(new if new is not None else old)),)


def _whole_cards(devices: Object) -> list[Card]:
    return [card for card in node_cards(devices) if card.is_whole]


def _pod_keys(old: Object | None, new: Object | None, caches: Caches) -> Iterable[Key]:
    if _record(old) == _record(new):
        return ()
    nodes = {as_str(at(pod, "spec", "nodeName")) for pod in (old, new)} - {""}
    return [Key(node) for node in sorted(nodes)]


def _record(pod: Object | None) -> tuple[object, ...]:
    text = annotations_of(pod).get(ALLOCATED_ANNOTATION)
    return (text, at(pod, "spec", "nodeName"), has_ended(pod)) if pod is not None and text else ()


def _feature_keys(old: Object | None, new: Object | None, caches: Caches) -> Iterable[Key]:
    node = node_of_feature(new if new is not None else old)
    before, after = (at(feature, "spec", "labels", MANAGED) for feature in (old, new))
    return (Key(node),) if node and before != after else ()


class NodeFit:
    """Keeps the fit labels of one node."""

    NAME: ClassVar[str] = "node_fit"
    WATCHES: ClassVar[tuple[Watch, ...]] = (
        Watch(NODE, _node_keys, WINDOW_S),
        Watch(DEVICES, _devices_keys, WINDOW_S),
        Watch(POD, _pod_keys, WINDOW_S),
        Watch(NODE_FEATURE, _feature_keys, WINDOW_S),
    )
    READS: ClassVar[tuple[Kind, ...]] = ()
    INDEXES: ClassVar[tuple[Index, ...]] = (FEATURES_BY_NODE, CHARGED_PODS)
    RBAC: ClassVar[tuple[Rule, ...]] = (
        Rule("", "nodes", ("get", "list", "watch", "patch")),
        Rule("worker.gpustack.ai", "devices", ("get", "list", "watch")),
        Rule("nfd.k8s-sigs.io", "nodefeatures", ("get", "list", "watch")),
        Rule("", "pods", ("get", "list", "watch")),
    )

    def __init__(self, client: Client, caches: Caches, *, manufacturers: Manufacturers) -> None:
        self.client = client.as_manager("gpustack-node-fit")
        self.caches = caches
        self.manufacturers = manufacturers

    async def reconcile(self, key: Key) -> Outcome:
        """Patch the labels that differ."""
        node = self.caches[NODE].get(key)
        if node is None or is_deleting(node):
            return DONE
        wanted: dict[str, str] = {}
        if is_managed(cached_labels(node, self.caches)):
            pods = self.caches[POD].by(CHARGED_PODS.name, key.name)
            cards = node_cards(self.caches[DEVICES].get(key), charges_of(pods, self.manufacturers))
            wanted = fit_labels(_figures(cards))
        patch = labels_patch(str_map(at(node, "metadata", "labels")), wanted)
        if patch:
            try:
                await self.client.patch(NODE, key.name, {"metadata": {"labels": patch}})
            except NotFound:
                return DONE
            log.info("fit labels patched", extra={"kind": "Node", "object": key.name, "labels": len(patch)})
        return DONE


def _figures(cards: Iterable[Card]) -> dict[str, Fit]:
    """Return, by model, the room on a node; None for a population of which the node has no card."""
    models: dict[str, list[Card]] = {}
    for card in cards:
        if card.is_whole:
            models.setdefault(card.key, []).append(card)
    return {key: _fit(found) for key, found in models.items()}


def _fit(cards: list[Card]) -> Fit:
    sliceable = [card.slice_units for card in cards if card.sliceable]
    return Fit(
        sliced_max_free_units=max(sliceable, default=None),
        shared_free_cards=sum(1 for card in cards if card.shares),
        exclusive_free_cards=sum(1 for card in cards if card.is_free),
    )


def labels_patch(labels: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, str | None]:
    """Return the merge patch of a Node's labels; empty when the fit labels say what they should."""
    owned = only_fit_labels(labels)
    patch: dict[str, str | None] = {key: value for key, value in wanted.items() if owned.get(key) != value}
    return patch | dict.fromkeys(key for key in owned if key not in wanted)
