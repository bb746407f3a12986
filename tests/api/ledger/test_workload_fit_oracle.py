"""Gate 3's judgement against an oracle that tries everything.

The oracle shares no code with what it judges: cards are plain tuples, and every Pod is tried on every node, every
container on every choice of cards. A Ready must always be one that the oracle finds; for equal Pods, which nearly all
Workloads are made of, the oracle's every packing must be found. Mixed groups may be refused (`workload_fit` says why).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from api.ledger.freed import freed
from api.ledger.modes import Mode
from api.ledger.node_cards import Partitions
from api.ledger.placements import Placement
from api.ledger.pod_fit import Cards, Need
from api.ledger.workload_fit import PodGroup, fit
from tests.builders.gate import MODEL, FleetOf, card, exclusive, partition, pods, shared, sliced

TENTH = 160_000
# Placements of two profiles on a card of four memory slices.
PROFILES = {"1g": ((0, 1), (1, 1), (2, 1), (3, 1)), "2g": ((0, 2), (2, 2))}

Raw = tuple[str, int, int, tuple[tuple[int, int], ...]]
"""(mode, tenths left, slice slots left, runs taken); mode `mig` marks a partitioned card."""
Ask = tuple[str, int]
"""(family, cards | tenths) or (profile, 0)."""


def _takes(raw: Raw, ask: Ask) -> Iterator[Raw]:
    """Yield every state a card can be in after it gave one piece."""
    mode, left, slots, runs = raw
    family, amount = ask
    if family in PROFILES:
        if mode == "mig":
            for start, length in PROFILES[family]:
                if all(start >= s + n or s >= start + length for s, n in runs):
                    yield mode, left, slots, (*runs, (start, length))
    elif mode == "mig":
        return
    elif family == "exclusive":
        if mode == "none" and left == 10:
            yield "exclusive", 0, slots, runs
    elif family == "shared":
        if (mode == "none" and left == 10) or (mode == "shared" and left >= 1):
            yield "shared", left - 1, slots, runs
    elif slots and ((mode == "none" and left == 10) or mode == "sliced") and left >= amount:
        yield "sliced", left - amount, slots - 1, runs


def _container(cards: tuple[Raw, ...], ask: Ask) -> Iterator[tuple[Raw, ...]]:
    wanted = ask[1] if ask[0] in ("exclusive", "shared") else 1
    for chosen in combinations(range(len(cards)), wanted):
        states = [cards]
        for position in chosen:
            states = [
                (*state[:position], after, *state[position + 1 :])
                for state in states
                for after in _takes(state[position], ask)
            ]
        yield from states


def _pod(cards: tuple[Raw, ...], asks: Sequence[Ask]) -> Iterator[tuple[Raw, ...]]:
    if not asks:
        yield cards
        return
    for after in _container(cards, asks[0]):
        yield from _pod(after, asks[1:])


def exists(nodes: tuple[tuple[Raw, ...], ...], waiting: Sequence[Sequence[Ask]]) -> bool:
    """Say whether there is any place for all Pods."""
    seen: set[Any] = set()

    def search(state: tuple[tuple[Raw, ...], ...], done: int) -> bool:
        if done == len(waiting):
            return True
        key = (tuple(tuple(sorted(map(repr, node))) for node in state), done)
        if key in seen:
            return False
        seen.add(key)
        return any(
            search((*state[:n], after, *state[n + 1 :]), done + 1)
            for n, node in enumerate(state)
            for after in _pod(node, waiting[done])
        )

    return search(nodes, 0)


MODES = {"none": Mode.NONE, "exclusive": Mode.EXCLUSIVE, "shared": Mode.SHARED, "sliced": Mode.SLICED}


def as_cards(node: tuple[Raw, ...]) -> Cards:
    """Return the oracle's cards as the product sees them."""
    found = []
    for number, (mode, left, slots, runs) in enumerate(node):
        if mode == "mig":
            legal = {name: tuple(Placement(*run) for run in runs_of) for name, runs_of in PROFILES.items()}
            taken = tuple(Placement(*run) for run in runs)
            found.append(card(f"c{number}", partitions=Partitions(legal, taken)))
        else:
            found.append(card(f"c{number}", left * TENTH, MODES[mode], slots=slots))
    return tuple(found)


def as_need(ask: Ask) -> Need:
    """Return the oracle's ask as the product sees it."""
    family, amount = ask
    if family in PROFILES:
        return partition(family)
    return {"exclusive": exclusive, "shared": shared, "sliced": lambda n: sliced(n * TENTH)}[family](amount)


FREE: st.SearchStrategy[Raw] = st.builds(lambda slots: ("none", 10, slots, ()), st.integers(0, 3))
SHARED: st.SearchStrategy[Raw] = st.builds(lambda left: ("shared", left, 2, ()), st.integers(0, 9))
SLICED: st.SearchStrategy[Raw] = st.builds(
    lambda left, slots: ("sliced", left, slots, ()), st.integers(0, 9), st.integers(0, 3)
)
MIG: st.SearchStrategy[Raw] = st.sampled_from(
    [("mig", 10, 0, ()), ("mig", 10, 0, ((0, 1),)), ("mig", 10, 0, ((1, 1), (2, 1))), ("mig", 10, 0, ((0, 2),))]
)
NODES = st.lists(st.lists(st.one_of(FREE, FREE, SHARED, SLICED, MIG), max_size=3).map(tuple), max_size=3).map(tuple)
ASKS: st.SearchStrategy[Ask] = st.one_of(
    st.tuples(st.just("exclusive"), st.integers(1, 3)),
    st.tuples(st.just("shared"), st.integers(1, 3)),
    st.tuples(st.just("sliced"), st.integers(1, 10)),
    st.tuples(st.sampled_from(sorted(PROFILES)), st.just(0)),
)


def judged(nodes: tuple[tuple[Raw, ...], ...], groups: Sequence[PodGroup]) -> bool:
    """Return the product's word."""
    return fit(groups, FleetOf({f"n{n}": as_cards(node) for n, node in enumerate(nodes)})).miss is None


@settings(max_examples=400, deadline=None)
@given(NODES, ASKS, st.integers(1, 4))
def test_equal_pods_are_ready_exactly_when_a_placement_exists(nodes: Any, ask: Ask, count: int) -> None:
    assert judged(nodes, [pods(as_need(ask), count=count)]) == exists(nodes, [[ask]] * count)


@settings(max_examples=300, deadline=None)
@given(NODES, st.lists(st.tuples(st.lists(ASKS, min_size=1, max_size=2), st.integers(1, 2)), min_size=1, max_size=2))
def test_a_ready_is_always_true(nodes: Any, shown: list[tuple[list[Ask], int]]) -> None:
    groups = [
        pods(*sorted(map(as_need, asks), key=lambda n: -n.weight), count=count, role=str(number))
        for number, (asks, count) in enumerate(shown)
    ]
    if judged(nodes, groups):
        assert exists(nodes, [asks for asks, count in shown for _ in range(count)])


@settings(max_examples=200, deadline=None)
@given(NODES, ASKS, st.data())
def test_hosts_are_judged_each_for_itself(nodes: Any, ask: Ask, data: st.DataObject) -> None:
    hosts = {f"n{n}": data.draw(st.integers(0, 2)) for n in range(len(nodes))}
    hosts = {node: count for node, count in hosts.items() if count}
    group = pods(as_need(ask), count=sum(hosts.values()), hosts=hosts)
    want = all(exists((nodes[int(node[1:])],), [[ask]] * count) for node, count in hosts.items())
    assert judged(nodes, [group]) == want


@settings(max_examples=400, deadline=None)
@given(NODES, NODES, ASKS, st.integers(1, 4))
def test_nobody_begins_to_fit_unless_its_family_was_freed(before: Any, after: Any, ask: Ask, count: int) -> None:
    group = pods(as_need(ask), count=count)
    for old, new in zip(before, after, strict=False):  # node by node: the shorter fleet says which are there
        if not judged((old,), [group]) and judged((new,), [group]):
            assert (MODEL, group.needs[0].family) in freed(as_cards(old), as_cards(new))
