"""What the nodes of an accelerated pool contribute, kept from one refresh to the next (design §8.11).

For: instance_type. In: cached Devices. Out: the four views of the nodes that may take work, and of all nodes.
Promises: a node is read again only when its Devices object changed; the fold runs once a call; no running totals; long
reading lets others have their turn; what cannot be true in a ledger is named once and never counted.
State: per type `node -> contribution`, compared by object identity, and what was said about each node; rebuilt from the
cache after a restart.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from api.devices import group_key, spec_groups, status_groups
from api.ledger.contribution import Contribution, contribution
from api.ledger.findings import ledger_problems
from api.ledger.views import FourViews, fold
from controllers.reports import Reports
from kube.reconciler import Object
from nodefeature.fields import as_str, name_of

log = logging.getLogger(__name__)

_STEP = 50
"""Contributions computed before others get their turn."""


@dataclass(frozen=True, slots=True)
class Member:
    """One node of a pool as last read."""

    devices: Object
    node: str
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
        # By identity: a member holds its Devices, so the id of one that is kept belongs to no other object.
        self._pools: dict[str, dict[int, Member]] = {}
        self._reports = Reports()

    def forget(self, name: str) -> None:
        """Drop what is kept for a type."""
        self._pools.pop(name, None)

    async def views(
        self, name: str, devices: Iterable[Object], *, accelerator_group: str, unusable: frozenset[str]
    ) -> PoolViews:
        """Return the views of a type whose pool is `devices`; nodes in `unusable` may not take new work."""
        known = self._pools.get(name, {})
        members: dict[int, Member] = {}
        read = 0
        for one in devices:
            member = known.get(id(one))
            if member is None:
                member = _read(one, accelerator_group)
                self._say(one)
                read += 1
                if read % _STEP == 0:
                    await asyncio.sleep(0)
            members[id(one)] = member
        self._pools[name] = members
        usable, everyone = fold_members(members.values(), unusable)
        return PoolViews(usable, everyone, _first_capability(members.values()))

    def _say(self, devices: Object) -> None:
        """Name what is impossible; an agent that has not written its ledger yet says nothing wrong."""
        problems = ledger_problems(devices) if status_groups(devices) else ()
        for problem in self._reports.news(name_of(devices), map(str, problems)):
            log.warning("ledger problem", extra={"kind": "Devices", "object": name_of(devices), "reason": problem})


def fold_members(members: Collection[Member], unusable: frozenset[str]) -> tuple[FourViews, FourViews]:
    """Return the views of the nodes that may take work, and of all nodes; one fold when they are the same."""
    everyone = fold(member.adds for member in members)
    usable = [member.adds for member in members if member.node not in unusable] if unusable else []
    if not unusable or len(usable) == len(members):
        return everyone, everyone
    return fold(usable), everyone


def _read(devices: Object, accelerator_group: str) -> Member:
    groups = (group for group in spec_groups(devices) if group_key(group) == accelerator_group)
    capability = next((text for group in groups if (text := as_str(group.get("computeCapability")))), "")
    return Member(devices, name_of(devices), contribution(devices, accelerator_group), capability)


def _first_capability(members: Iterable[Member]) -> str:
    named = [(member.node, member.compute_capability) for member in members if member.compute_capability]
    return min(named)[1] if named else ""
