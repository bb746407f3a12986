"""What the nodes of an accelerated pool contribute, kept from one refresh to the next (design §8.11).

For: instance_type. In: cached Devices. Out: the four views of the nodes that may take work, and of all nodes.
Promises: a node is read again only when its Devices object changed; the fold runs once a call; no running totals; long
reading lets others have their turn.
State: per type `node -> contribution`, compared by object identity; rebuilt from the cache after a restart.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from api.devices import group_key, spec_groups
from api.ledger.contribution import Contribution, contribution
from api.ledger.views import FourViews, fold
from kube.reconciler import Object
from nodefeature.fields import as_str, name_of

_STEP = 50
"""Contributions computed before others get their turn."""


@dataclass(frozen=True, slots=True)
class Member:
    """One node of a pool as last read."""

    devices: Object
    adds: Contribution
    compute_capability: str


@dataclass(frozen=True, slots=True)
class PoolViews:
    """What a pool can give now, and what it is."""

    usable: FourViews = field(default_factory=FourViews)
    all_nodes: FourViews = field(default_factory=FourViews)
    compute_capability: str = ""


class PoolMembers:
    """Contributions per type."""

    def __init__(self) -> None:
        self._pools: dict[str, dict[str, Member]] = {}

    def forget(self, name: str) -> None:
        """Drop what is kept for a type."""
        self._pools.pop(name, None)

    async def views(
        self, name: str, devices: Iterable[Object], *, accelerator_group: str, unusable: frozenset[str]
    ) -> PoolViews:
        """Return the views of a type whose pool is `devices`; nodes in `unusable` may not take new work."""
        known, members, read = self._pools.get(name, {}), {}, 0
        for one in devices:
            node = name_of(one)
            member = known.get(node)
            if member is None or member.devices is not one:
                member = Member(one, contribution(one, accelerator_group), _capability_of(one, accelerator_group))
                read += 1
                if read % _STEP == 0:
                    await asyncio.sleep(0)
            members[node] = member
        self._pools[name] = members
        usable, everyone = fold_members(members, unusable)
        return PoolViews(usable, everyone, _first_capability(members))


def fold_members(members: Mapping[str, Member], unusable: frozenset[str]) -> tuple[FourViews, FourViews]:
    """Return the views of the nodes that may take work, and of all nodes; one fold when they are the same."""
    everyone = fold(member.adds for member in members.values())
    if unusable.isdisjoint(members):
        return everyone, everyone
    return fold(member.adds for node, member in members.items() if node not in unusable), everyone


def _capability_of(devices: Object, accelerator_group: str) -> str:
    groups = (group for group in spec_groups(devices) if group_key(group) == accelerator_group)
    return next((text for group in groups if (text := as_str(group.get("computeCapability")))), "")


def _first_capability(members: Mapping[str, Member]) -> str:
    named = [(node, member.compute_capability) for node, member in members.items() if member.compute_capability]
    return min(named)[1] if named else ""
