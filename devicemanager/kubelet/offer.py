"""What one plugin offers its kubelet: every token, healthy or not (spec 06 §4.1).

For: ListAndWatch. In: a manufacturer's groups, the ledger. Out: an `Offer`, equal when nothing changed; its message.
Promises:
  - a token never disappears while its card is there, whoever holds it: it turns unhealthy;
  - a card held in another mode is unhealthy for this one; visibility knows no modes;
  - of partitions, as many tokens are healthy as instances fit, those that are held first.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from api.devices import cards_of
from api.ledger.fit import is_partitioned, physical_ceiling
from api.ledger.modes import Mode
from api.ledger.placements import remaining_profiles
from api.ledger.rebuild import CardKey, CardUse
from devicemanager.proto import deviceplugin_pb2 as messages
from devicemanager.tokens import VISIBILITY_TOKENS, Token, card_indexes, tokens_that_fit
from nodefeature.fields import as_bool, as_maps, as_str, at

HEALTHY, UNHEALTHY = "Healthy", "Unhealthy"
_MAX_NUMA_NODES = 8
"""The kubelet's own limit for alignment; each token repeats its card's nodes, so a long list would outgrow messages."""


@dataclass(frozen=True, slots=True)
class CardOffer:
    """One card's tokens, all of them healthy or none; partitions ask the offer instead."""

    group_id: str
    card_id: str
    indexes: Sequence[int]
    healthy: bool
    numa: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Offer:
    """One plugin's tokens. `healthy_ids` is set for partitions only, where health is no matter of one card."""

    cards: tuple[CardOffer, ...] = ()
    healthy_ids: frozenset[str] | None = None
    thinned_to: int = 0
    """Tokens a card offers at most, when all of them would not fit a message; 0 when they do."""

    def message(self) -> bytes:
        """Return the ListAndWatch answer."""
        # Encoded lists of devices, one after another, are the encoded list of all.
        return b"".join(_encoded(card, _healthy_of(card, self.healthy_ids)) for card in self.cards)


def _healthy_of(card: CardOffer, ids: frozenset[str] | None) -> tuple[int, ...] | None:
    """Return the indexes of a card's healthy tokens; None when its own health speaks for all."""
    if ids is None:
        return None
    return tuple(index for index in card.indexes if str(Token(card.group_id, card.card_id, index)) in ids)


@lru_cache(maxsize=1024)
def _encoded(card: CardOffer, healthy: tuple[int, ...] | None) -> bytes:
    """Return one card's tokens as they stand in a message: of a thousand, mostly one card's change at a time."""
    answer = messages.ListAndWatchResponse()
    for index in card.indexes:
        well = card.healthy if healthy is None else index in healthy
        text = str(Token(card.group_id, card.card_id, index))
        device = answer.devices.add(ID=text, health=HEALTHY if well else UNHEALTHY)
        for node in card.numa:
            device.topology.nodes.add(ID=node)
    return answer.SerializeToString()


def offer_of(
    groups: Sequence[Mapping[str, Any]],
    mode: Mode,
    cards: Mapping[CardKey, CardUse],
    held_ids: Collection[str] = (),
) -> Offer:
    """Return what a manufacturer's groups offer in a mode; `held_ids` are partition tokens of live containers."""
    fits = tokens_that_fit(groups, mode)
    offered = []
    for group in groups:
        for card in cards_of(group):
            indexes = card_indexes(card, mode, fits)
            if indexes:
                offered.append(_card_offer(group, card, mode, cards, indexes))
    thinned = fits if fits < VISIBILITY_TOKENS else 0
    if mode is Mode.PARTITIONED:
        return Offer(tuple(offered), _healthy_ids(groups, offered, cards, held_ids), thinned)
    return Offer(tuple(offered), None, thinned)


def _card_offer(
    group: Mapping[str, Any],
    card: Mapping[str, Any],
    mode: Mode,
    cards: Mapping[CardKey, CardUse],
    indexes: Sequence[int],
) -> CardOffer:
    key = (as_str(group.get("id")), as_str(card.get("id")))
    use = cards.get(key)
    held_otherwise = use is not None and use.mode not in {Mode.NONE, mode} and mode is not Mode.VISIBILITY
    healthy = not as_bool(at(card, "status", "unhealthy")) and not held_otherwise
    numa = () if mode is Mode.PARTITIONED else numa_nodes(as_str(at(card, "topology", "numaAffinity")))
    return CardOffer(*key, indexes, healthy, numa)


def numa_nodes(text: str) -> tuple[int, ...]:
    """Read a node list such as `0` or `0-1,3`; what is no such list, or names too many, is no topology."""
    nodes: set[int] = set()
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        first, dash, last = part.partition("-")
        last = last if dash else first
        if not (_is_small(first) and _is_small(last) and int(first) <= int(last) < int(first) + _MAX_NUMA_NODES):
            return ()
        nodes.update(range(int(first), int(last) + 1))
        if len(nodes) > _MAX_NUMA_NODES:
            return ()
    return tuple(sorted(nodes))


def _is_small(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 4


def _healthy_ids(
    groups: Sequence[Mapping[str, Any]],
    offered: Sequence[CardOffer],
    cards: Mapping[CardKey, CardUse],
    held_ids: Collection[str],
) -> frozenset[str]:
    ids = [str(Token(card.group_id, card.card_id, index)) for card in offered for index in card.indexes]
    healthy = [text for text in ids if text in held_ids]
    room = sum(
        _room(card, cards.get((as_str(group.get("id")), as_str(card.get("id")))))
        for group in groups
        for card in cards_of(group)
        if is_partitioned(card) and not as_bool(at(card, "status", "unhealthy"))
    )
    for text in ids:
        if len(healthy) >= room:
            break
        if text not in held_ids:
            healthy.append(text)
    return frozenset(healthy)


def _room(card: Mapping[str, Any], use: CardUse | None) -> int:
    """Return how many instances a card hosts and could still host."""
    profiles = as_maps(at(card, "status", "physicalSliced", "profiles"))
    if use is None or use.mode not in {Mode.NONE, Mode.PARTITIONED}:
        return 0 if use is not None else physical_ceiling(card)
    left = remaining_profiles(profiles, use.occupied)
    if not left and not use.profiles:
        return physical_ceiling(card)
    return sum(use.profiles.values()) + max(left.values(), default=0)
