"""Device-plugin tokens: the ids that the kubelet counts, picks and hands back (spec 06 §4).

For: the offer, the preferred allocation, the decision. In: cards of an inventory, texts from the kubelet.
Out: `<group id>:<card id>:<index>`, the index in at least four digits.
Promises: a card offers the same tokens whoever holds it; a list of tokens fits the message the kubelet will take, and
where it would not, every card offers fewer (case B055).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from api.devices import cards_of
from api.ledger.fit import is_partitioned, is_sliceable, is_whole_capable, logical_ceiling, physical_ceiling
from api.ledger.modes import SHARE_UNITS, SHARES_PER_CARD, Mode
from kube.errors import OperatorError
from nodefeature.fields import as_str
from nodefeature.resource_names import Family

FAMILY_OF = {
    Mode.EXCLUSIVE: Family.EXCLUSIVE,
    Mode.SHARED: Family.SHARED,
    Mode.SLICED: Family.SLICED,
    Mode.PARTITIONED: Family.PARTITIONED,
    Mode.VISIBILITY: Family.VISIBILITY,
}
VISIBILITY_TOKENS = 512
MESSAGE_BUDGET = 3 * 1024 * 1024
"""Bytes of one ListAndWatch answer: the kubelet's client refuses more than 4 MiB."""
# Field keys and lengths, the word `Unhealthy`, one NUMA node.
_TOKEN_OVERHEAD = 32
_INDEX_DIGITS = 7
_THINNED = frozenset({Mode.VISIBILITY, Mode.SLICED})


class TokenInvalid(OperatorError):
    """A text is no token."""


class Token(NamedTuple):
    """One token."""

    group_id: str
    card_id: str
    number: int

    def __str__(self) -> str:
        return f"{self.group_id}:{self.card_id}:{self.number:04d}"


def parse_token(text: str) -> Token:
    """Read a token; TokenInvalid says what is wrong with it."""
    parts = text.split(":")
    if len(parts) != 3:
        raise TokenInvalid(f"{text!r}: invalid device ID format, want <group>:<card>:<index>")
    group_id, card_id, index = parts
    if not group_id or not card_id:
        raise TokenInvalid(f"{text!r}: group/device cannot be empty")
    if not (index.isascii() and index.isdecimal() and len(index) <= 10):
        raise TokenInvalid(f"{text!r}: invalid index {index!r}")
    return Token(group_id, card_id, int(index))


def card_indexes(card: Mapping[str, Any], mode: Mode, at_most: int = VISIBILITY_TOKENS) -> Sequence[int]:
    """Return the indexes one card offers in a mode; none when it does not serve it."""
    if mode is Mode.EXCLUSIVE:
        return range(1) if is_whole_capable(card) else ()
    if mode is Mode.SHARED:
        return range(0, SHARES_PER_CARD * SHARE_UNITS, SHARE_UNITS) if is_whole_capable(card) else ()
    if mode is Mode.SLICED:
        return range(min(logical_ceiling(card), at_most)) if is_sliceable(card) else ()
    if mode is Mode.PARTITIONED:
        return range(physical_ceiling(card)) if is_partitioned(card) else ()
    return range(at_most) if mode is Mode.VISIBILITY else ()


def tokens_that_fit(groups: Iterable[Mapping[str, Any]], mode: Mode, budget: int = MESSAGE_BUDGET) -> int:
    """Return how many tokens each card may offer at most, so that all of them fit one message."""
    one_each = sum(
        len(as_str(group.get("id"))) + len(as_str(card.get("id"))) + _INDEX_DIGITS + _TOKEN_OVERHEAD
        for group in groups
        for card in cards_of(group)
        if mode not in _THINNED or card_indexes(card, mode)
    )
    return min(VISIBILITY_TOKENS, max(budget // one_each, 1)) if one_each else VISIBILITY_TOKENS
