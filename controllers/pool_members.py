"""What the nodes of an accelerated pool contribute, kept from one refresh to the next (design §8.11, decision 0351).

For: instance_type. In: cached Devices, Nodes, our NodeFeatures, the pool's live flavors.
Out: the four views of the nodes that may take work, and of all nodes that a flavor counts.
Promises: a node is read again only when something changed that speaks of it, so a refresh costs what changed and one
fold; a node that no live flavor counts adds nothing; no running totals; long work lets others have their turn; what
cannot be true in a ledger is named once and never counted.
State: per type `node -> contribution` and how far the caches were read; what was said about each ledger. Rebuilt from
the caches after a restart.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from api.devices import group_key, spec_groups, status_groups
from api.ledger.contribution import Contribution, contribution
from api.ledger.findings import ledger_problems
from api.ledger.views import FourViews, combine, fold
from controllers.instance_type_watches import DEVICES_BY_POOL, device_pools
from controllers.node_changes import NodeChanges
from controllers.node_view import cached_labels, is_usable, stands_behind
from controllers.reports import Reports
from kube.pace import Pace, in_steps
from kube.reconciler import Caches, Key, Object
from nodefeature.fields import as_maps, as_str, at, labels_of, name_of
from nodefeature.kinds import DEVICES, NODE, NODE_FEATURE
from nodefeature.labels import TRUE

log = logging.getLogger(__name__)


class Standing(Enum):
    """What a node's cards are to its pool."""

    UNCOUNTED = "no live flavor counts them"
    BLOCKED = "counted, and may not take new work"
    USABLE = "counted"


@dataclass(frozen=True, slots=True)
class Pool:
    """Which Devices belong to a type, and by which flavors they are counted."""

    place: str
    """Where DEVICES_BY_POOL files them."""
    accelerator_group: str
    cpu_keys: tuple[str, ...] = ()
    """Under CPU awareness: the labels they carry beside."""
    flavors: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Member:
    """One node of a pool as last read."""

    devices: Object
    node: str
    adds: Contribution
    compute_capability: str
    standing: Standing


@dataclass(frozen=True, slots=True)
class PoolViews:
    """What a pool can give now, and what it is."""

    usable: FourViews = field(default_factory=FourViews)
    all_nodes: FourViews = field(default_factory=FourViews)
    compute_capability: str = ""


@dataclass(slots=True)
class _Kept:
    """A type's members, and what they were read for."""

    pool: Pool
    changes: NodeChanges
    members: dict[str, Member] = field(default_factory=dict)


class PoolMembers:
    """Contributions per type."""

    def __init__(self, caches: Caches) -> None:
        self._caches = caches
        self._kept: dict[str, _Kept] = {}
        self._reports = Reports()

    def forget(self, name: str) -> None:
        """Drop what is kept for a type."""
        self._kept.pop(name, None)

    async def views(self, name: str, pool: Pool) -> PoolViews:
        """Return the views of a type."""
        return await fold_members(await self._refresh(name, pool))

    async def _refresh(self, name: str, pool: Pool) -> Collection[Member]:
        # Taken out while it is worked on: a run that is cut off leaves nothing half read behind.
        kept = self._kept.pop(name, None)
        if kept is None or not _same_pool(kept.pool, pool):
            known = kept.members if kept is not None and _same_devices(kept.pool, pool) else {}
            kept = _Kept(pool, NodeChanges(self._caches, (DEVICES, NODE, NODE_FEATURE)), known)
        changed = kept.changes.names()
        if changed is None:
            await self._read_all(kept)
        else:
            pace = Pace()
            for node in changed:
                self._read_node(kept, node, kept.members.pop(node, None))
                await pace.step()
        self._kept[name] = kept
        return kept.members.values()

    async def _read_all(self, kept: _Kept) -> None:
        before, kept.members = kept.members, {}
        pace = Pace()
        for devices in self._caches[DEVICES].by(DEVICES_BY_POOL, kept.pool.place):
            node = name_of(devices)
            self._read_node(kept, node, before.get(node))
            await pace.step()
        for node in before.keys() - kept.members.keys():
            self._reports.forget(node)

    def _read_node(self, kept: _Kept, node: str, known: Member | None) -> None:
        """Bring one member up to date; by what the caches say now, which may be newer than what asked for it."""
        devices = self._caches[DEVICES].get(Key(node))
        if devices is None:
            self._reports.forget(node)
            return
        if not _belongs(devices, kept.pool):
            return
        standing = self._standing(node, kept.pool.flavors)
        if known is not None and known.devices is devices:
            kept.members[node] = known if known.standing is standing else replace(known, standing=standing)
            return
        self._say(devices)
        kept.members[node] = _read(devices, kept.pool.accelerator_group, standing)

    def _standing(self, name: str, flavors: Sequence[Mapping[str, Any]]) -> Standing:
        node = self._caches[NODE].get(Key(name))
        if node is None:
            return Standing.UNCOUNTED
        labels = cached_labels(node, self._caches)
        for flavor in flavors:
            if stands_behind(flavor, labels):
                usable = is_usable(node, as_maps(at(flavor, "spec", "tolerations")))
                return Standing.USABLE if usable else Standing.BLOCKED
        return Standing.UNCOUNTED

    def _say(self, devices: Object) -> None:
        """Name what is impossible; an agent that has not written its ledger yet says nothing wrong."""
        problems = ledger_problems(devices) if status_groups(devices) else ()
        for problem in self._reports.news(name_of(devices), map(str, problems)):
            log.warning("ledger problem", extra={"kind": "Devices", "object": name_of(devices), "reason": problem})


async def fold_members(members: Iterable[Member]) -> PoolViews:
    """Return the views of the nodes that may take work, and of all counted ones; each node is folded once."""
    usable: list[FourViews] = []
    blocked: list[FourViews] = []
    speakers: list[tuple[str, str]] = []
    async for part in in_steps(members):
        usable.append(fold(member.adds for member in part if member.standing is Standing.USABLE))
        if any(member.standing is Standing.BLOCKED for member in part):
            blocked.append(fold(member.adds for member in part if member.standing is Standing.BLOCKED))
        counted = (member for member in part if member.standing is not Standing.UNCOUNTED)
        speakers += sorted((m.node, m.compute_capability) for m in counted if m.compute_capability)[:1]
    can_take = combine(usable)
    _, capability = min(speakers, default=("", ""))
    return PoolViews(can_take, combine([can_take, *blocked]) if blocked else can_take, capability)


def _belongs(devices: Object, pool: Pool) -> bool:
    if pool.place not in device_pools(devices):
        return False
    return not pool.cpu_keys or all(labels_of(devices).get(key) == TRUE for key in pool.cpu_keys)


def _same_devices(left: Pool, right: Pool) -> bool:
    return (left.place, left.accelerator_group) == (right.place, right.accelerator_group)


def _same_pool(left: Pool, right: Pool) -> bool:
    """Say whether members stand the same in both; how many nodes a flavor counts is no difference."""
    same_flavors = [at(f, "spec") for f in left.flavors] == [at(f, "spec") for f in right.flavors]
    return same_flavors and _same_devices(left, right) and left.cpu_keys == right.cpu_keys


def _read(devices: Object, accelerator_group: str, standing: Standing) -> Member:
    groups = (group for group in spec_groups(devices) if group_key(group) == accelerator_group)
    capability = next((text for group in groups if (text := as_str(group.get("computeCapability")))), "")
    return Member(devices, name_of(devices), contribution(devices, accelerator_group), capability, standing)
