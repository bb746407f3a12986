"""Whether a whole Workload finds its cards, every Pod on one node.

For: gate 3 and its explanation (spec 04 §10.5; design §8.10).
In: the Workload's Pods in groups, and a fleet of nodes with their cards. Out: a node for each Pod, or the nearest miss.
Promises: pure and deterministic: equal fleets give equal answers, ties go by node name; nothing is ever found that
the cards cannot bear; Pods that Kueue put on named nodes are judged there and nowhere else.

The honest limit: Pods are packed greedily, the heaviest groups first, each node filled before the next. Groups of equal
Pods, which is what nearly all Workloads are, are placed whenever any packing exists. Several groups that compete for
the same nodes may be refused although a cleverer packing exists; they are judged again when a card is freed.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from api.ledger.pod_fit import Cards, Need, place, room
from nodefeature.resource_names import Family

Needs = tuple[Need, ...]


@dataclass(frozen=True, slots=True)
class PodGroup:
    """Equal Pods of one role."""

    role: str
    flavor: str
    needs: Needs
    """Never empty; the heaviest first."""
    count: int
    hosts: tuple[tuple[str, int], ...] | None = None
    """(node, Pods) as Kueue's topology assignment says; None when it names no nodes."""
    constraints: str = ""
    """What else of the Pod decides about nodes, as text: equal texts, equal candidates."""
    pod_spec: Mapping[str, Any] = field(default_factory=dict, compare=False)


Place = tuple[str, PodGroup]
"""(node, the group of one Pod that lands there)."""


class Fleet(Protocol):
    """Nodes and what their cards can still give."""

    def candidates(self, group: PodGroup) -> Collection[str]:
        """Return the nodes that Pods of a group may land on when nobody has chosen yet."""

    def cards(self, node: str) -> Cards:
        """Return a node's cards; none for a node that is not there."""

    def room(self, node: str, need: Need) -> int:
        """Return `pod_fit.room` of a node."""


@dataclass(frozen=True, slots=True)
class Miss:
    """Where it fails: the group, how many of its Pods found a place, and the node that came nearest."""

    group: PodGroup
    placed: int
    node: str = ""
    """The named node, or the best candidate; empty when there is none."""
    cards: Cards = ()
    """That node's cards as the failing Pod met them."""
    known: bool = True
    """False: the named node has no Devices object."""


@dataclass(frozen=True, slots=True)
class Fit:
    """A place for every Pod, or the nearest miss."""

    places: tuple[Place, ...] = ()
    miss: Miss | None = None


@dataclass(slots=True)
class _Trial:
    """A fleet on which Pods are put by way of trial."""

    fleet: Fleet
    spread: bool
    changed: dict[str, Cards] = field(default_factory=dict)
    places: list[Place] = field(default_factory=list)

    def cards(self, node: str) -> Cards:
        return self.changed[node] if node in self.changed else self.fleet.cards(node)

    def room(self, node: str, need: Need) -> int:
        return room(self.changed[node], need) if node in self.changed else self.fleet.room(node, need)

    def put(self, node: str, group: PodGroup, count: int) -> int:
        """Put up to `count` Pods of a group on a node; return how many found a place."""
        cards, done = self.cards(node), 0
        while done < count and (after := place(cards, group.needs, spread=self.spread)) is not None:
            cards, done = after, done + 1
        if done:
            self.changed[node] = cards
            self.places += [(node, group)] * done
        return done


def fit(groups: Sequence[PodGroup], fleet: Fleet) -> Fit:
    """Find a node for every Pod; a second pass spreads over emptier cards when packing tightly failed."""
    tight = _fit(groups, fleet, spread=False)
    if tight.miss is None or not _spreading_can_help(groups):
        return tight
    wide = _fit(groups, fleet, spread=True)
    return wide if wide.miss is None else tight


def _fit(groups: Sequence[PodGroup], fleet: Fleet, *, spread: bool) -> Fit:
    trial = _Trial(fleet, spread)
    for group in sorted(groups, key=lambda g: (g.hosts is None, -g.needs[0].weight, -g.needs[0].cards, g.role)):
        miss = _put_hosted(group, trial) if group.hosts is not None else _put_anywhere(group, trial)
        if miss is not None:
            return Fit(miss=miss)
    return Fit(tuple(trial.places))


def _spreading_can_help(groups: Sequence[PodGroup]) -> bool:
    """Equal Pods without shares fit one way or not at all; shares on distinct cards, and mixtures, do not."""
    kinds = {need for group in groups for need in group.needs}
    return len(kinds) > 1 or any(need.family is Family.SHARED and need.cards > 1 for need in kinds)


def _put_hosted(group: PodGroup, trial: _Trial) -> Miss | None:
    placed = 0
    for node, count in group.hosts or ():
        done = trial.put(node, group, count)
        placed += done
        if done < count:
            cards = trial.cards(node)
            return Miss(group, placed, node, cards, known=bool(cards))
    return None


def _put_anywhere(group: PodGroup, trial: _Trial) -> Miss | None:
    """Fill the nodes with the least room that suffices first."""
    need, candidates = group.needs[0], trial.fleet.candidates(group)
    heap = [(free, node) for node in candidates if (free := trial.room(node, need)) >= need.cards]
    heapq.heapify(heap)
    placed = 0
    while heap and placed < group.count:
        placed += trial.put(heapq.heappop(heap)[1], group, group.count - placed)
    if placed >= group.count:
        return None
    best = min(candidates, key=lambda node: (-trial.room(node, need), node), default="")
    return Miss(group, placed, best, trial.cards(best) if best else ())
