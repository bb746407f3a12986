"""Pools of claims that a node's device plugin advertises to its kubelet.

For: the device plugin, and the kubelet stand-in that advertises for it (spec 06 §4).
In: a raw Devices object and the registry. Out: extended resource names with the number of tokens behind each.
Promises: a manufacturer with a group on the node has all its pools, empty ones as 0; cards in partition mode count in
`.partitioned` and may be seen; health is no matter of capacity (the kubelet subtracts unhealthy tokens from
allocatable).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from api.devices import cards_of, spec_groups
from api.ledger.fit import is_partitioned, is_sliceable, is_whole_capable, logical_ceiling, physical_ceiling
from api.ledger.modes import SHARES_PER_CARD
from nodefeature.fields import as_str
from nodefeature.manufacturers import Manufacturers
from nodefeature.resource_names import Family, resource_of

_POOLS = (Family.EXCLUSIVE, Family.SHARED, Family.SLICED, Family.PARTITIONED, Family.VISIBILITY)
_VISIBLE_PER_CARD = 512
"""As many as an agent offers where its message has room; who sees a card holds nothing of it."""


def pool_names(registry: Manufacturers, manufacturer: str) -> tuple[str, ...]:
    """Return the pools a manufacturer's plugin registers, in order; nothing for one nobody knows."""
    if not registry.knows(manufacturer):
        return ()
    return tuple(name for family in _POOLS if (name := resource_of(registry, manufacturer, family)))


def device_pools(devices: Mapping[str, Any], registry: Manufacturers) -> dict[str, int]:
    """Return the tokens of every pool of the node's cards."""
    pools: dict[str, int] = {}
    for group in spec_groups(devices):
        manufacturer = as_str(group.get("manufacturer"))
        pools.update({name: 0 for name in pool_names(registry, manufacturer) if name not in pools})
        for card in cards_of(group):
            for family, tokens in _tokens(card).items():
                name = resource_of(registry, manufacturer, family)
                if name in pools:
                    pools[name] += tokens
    return pools


def _tokens(card: Mapping[str, Any]) -> dict[Family, int]:
    tokens = {Family.VISIBILITY: _VISIBLE_PER_CARD}
    if is_partitioned(card):
        return tokens | {Family.PARTITIONED: physical_ceiling(card)}
    if is_sliceable(card):
        tokens[Family.SLICED] = logical_ceiling(card)
    if is_whole_capable(card):
        tokens |= {Family.EXCLUSIVE: 1, Family.SHARED: SHARES_PER_CARD}
    return tokens
