"""Gate 3's judgement: the rows of spec 04 §14.8, and one Pod on one node above them (design §8.10)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from api.ledger.fit_words import miss_message, ready_message
from api.ledger.modes import CARD_UNITS, SHARE_UNITS, Mode
from api.ledger.node_cards import Partitions
from api.ledger.placements import Placement
from api.ledger.pod_fit import Cards
from api.ledger.workload_fit import PodGroup, fit
from tests.builders.gate import (
    HALF,
    FleetOf,
    card,
    cards,
    exclusive,
    partition,
    pods,
    shared,
    shared_cards,
    sliced,
)

WHOLE, SHARE = CARD_UNITS, SHARE_UNITS
SMALL = "1g.10gb"
Nodes = Mapping[str, Cards]


def mig(
    free: int, *, profile: str = SMALL, mode: Mode = Mode.NONE, ready: bool = True, key: str = "nvidia-h100"
) -> Cards:
    """Return a partitioned card with `free` placements of a profile."""
    legal = {profile: tuple(Placement(start, 1) for start in range(free))}
    return (card("p", WHOLE, mode, key=key, partitions=Partitions(legal, ready=ready)),)


def small(count: int = 1, role: str = "") -> PodGroup:
    """Return Pods with a 1g.10gb each."""
    return pods(partition(SMALL, "nvidia-h100"), count=count, role=role)


ONE_PARTITIONED = {"a": mig(7)}
ONE_WHOLE = {"a": cards(WHOLE)}
ROWS: dict[str, tuple[Nodes, tuple[PodGroup, ...], str]] = {
    "8x half | exclusive 5": ({"a": cards(*[HALF] * 8)}, (pods(exclusive(5)),), "Retry"),
    "12x half | exclusive 5": ({"a": cards(*[HALF] * 12)}, (pods(exclusive(5)),), "Retry"),
    "5 whole + 3 half | exclusive 5": ({"a": cards(*[WHOLE] * 5, *[HALF] * 3)}, (pods(exclusive(5)),), "Ready"),
    "4 whole | exclusive 5": ({"a": cards(*[WHOLE] * 4)}, (pods(exclusive(5)),), "Retry"),
    "4x half | sliced 3 x half": ({"a": cards(*[HALF] * 4)}, (pods(sliced(HALF), count=3),), "Ready"),
    "2x half | sliced 1 x whole": ({"a": cards(HALF, HALF)}, (pods(sliced(WHOLE)),), "Retry"),
    "share, share, 0, 0 | shared 2": ({"a": shared_cards(1, 1, 0, 0)}, (pods(shared(2)),), "Ready"),
    "(whole, half) + (whole, whole, half) | exclusive 3": (
        {"a": cards(WHOLE, HALF), "b": cards(WHOLE, WHOLE, HALF)},
        (pods(exclusive(1), count=3),),
        "Ready",
    ),
    "the same | exclusive 3 in one Pod": (
        {"a": cards(WHOLE, HALF), "b": cards(WHOLE, WHOLE, HALF)},
        (pods(exclusive(3)),),
        "Retry",
    ),
    "half | none": ({"a": cards(HALF)}, (), "Ready"),
    "one partitioned card, free 1g.10gb 7 | exclusive": (ONE_PARTITIONED, (pods(exclusive()),), "Retry"),
    "one partitioned card, free 1g.10gb 7 | shared": (ONE_PARTITIONED, (pods(shared()),), "Retry"),
    "one partitioned card, free 1g.10gb 7 | slice half": (ONE_PARTITIONED, (pods(sliced(HALF)),), "Retry"),
    "one partitioned card, free 1g.10gb 7 | partition 1g.10gb": (ONE_PARTITIONED, (small(),), "Ready"),
    "one unpartitioned whole | partition": (ONE_WHOLE, (pods(partition(SMALL)),), "Retry"),
    "one unpartitioned whole | exclusive": (ONE_WHOLE, (pods(exclusive()),), "Ready"),
    "one whole | exclusive 1 + slice half": (
        ONE_WHOLE,
        (pods(exclusive(), role="a"), pods(sliced(HALF), role="b")),
        "Retry",
    ),
    "MIG free 7 and 4 | 1g.10gb x2": ({"a": (*mig(7), *mig(4))}, (small(2),), "Ready"),
    "MIG free 0": ({"a": mig(0)}, (small(),), "Retry"),
    "no placements cached": ({"a": mig(7, ready=False)}, (small(),), "Retry"),
    "mode Exclusive with free 7": ({"a": mig(7, mode=Mode.EXCLUSIVE)}, (small(),), "Retry"),
    "MIG free 1 | x2": ({"a": mig(1)}, (small(2),), "Retry"),
    "MIG free 3 | x1": ({"a": mig(3)}, (small(1),), "Ready"),
    "MIG free 3 | x3": ({"a": mig(3)}, (small(3),), "Ready"),
    "MIG free 3 | x4": ({"a": mig(3)}, (small(4),), "Retry"),
    "MIG free 3 | two demands of 2": ({"a": mig(3)}, (small(2, "a"), small(2, "b")), "Retry"),
    "T-Head ledger 4g48gb 2 | 4g.48gb": (
        {"a": mig(2, profile="4g48gb", key="thead-ppu")},
        (pods(partition("4g.48gb", "thead-ppu")),),
        "Ready",
    ),
    "T-Head ledger 4g48gb 2 | 8g.96gb": (
        {"a": mig(2, profile="4g48gb", key="thead-ppu")},
        (pods(partition("8g.96gb", "thead-ppu")),),
        "Retry",
    ),
    # Above the table: a card's mode counts, slices pack, shares are distinct, hosts are judged.
    "a share does not join a sliced card": ({"a": cards(HALF)}, (pods(shared()),), "Retry"),
    "a slice does not join a shared card": ({"a": shared_cards(5)}, (pods(sliced(SHARE)),), "Retry"),
    "two 30 % slices share a free card": (ONE_WHOLE, (pods(sliced(480_000), count=2),), "Ready"),
    "two 60 % slices do not": (ONE_WHOLE, (pods(sliced(960_000), count=2),), "Retry"),
    "a card whose slice slots are full": ({"a": (card("x", HALF, slots=0),)}, (pods(sliced(SHARE)),), "Retry"),
    "the last slice slot": ({"a": (card("x", HALF, slots=1),)}, (pods(sliced(SHARE), count=2),), "Retry"),
    "shared 3 on two cards": ({"a": cards(WHOLE, WHOLE)}, (pods(shared(3)),), "Retry"),
    "shared 2 by eleven Pods": ({"a": (*shared_cards(1, 1, 1), *cards(WHOLE))}, (pods(shared(2), count=3),), "Ready"),
    "two containers on one card's shares": ({"a": shared_cards(2)}, (pods(shared(), shared()),), "Ready"),
    "shares and whole cards of one Workload": (
        {"a": (*shared_cards(3), *cards(WHOLE))},
        (pods(shared(), role="a"), pods(exclusive(), role="b")),
        "Ready",
    ),
    "another model's cards": ({"a": cards(WHOLE, key="nvidia-t4")}, (pods(exclusive()),), "Retry"),
    "the host that Kueue chose": (
        {"a": cards(WHOLE), "b": cards(HALF)},
        (pods(exclusive(), hosts={"b": 1}),),
        "Retry",
    ),
    "each host its own share": (
        {"a": cards(WHOLE), "b": cards(WHOLE, WHOLE)},
        (pods(exclusive(), count=3, hosts={"a": 1, "b": 2}),),
        "Ready",
    ),
    "a host that is gone": (ONE_WHOLE, (pods(exclusive(), hosts={"z": 1}),), "Retry"),
    "more Pods than any fleet has": (ONE_WHOLE, (pods(exclusive(), count=2**31 - 1),), "Retry"),
    "no nodes at all": ({}, (pods(exclusive()),), "Retry"),
}


@pytest.mark.parametrize("name", ROWS)
def test_14_8(name: str) -> None:
    nodes, groups, want = ROWS[name]
    found = fit(groups, FleetOf(nodes))
    assert ("Ready" if found.miss is None else "Retry") == want
    if found.miss is None:
        assert len(found.places) == sum(group.count for group in groups), "a place for every Pod"


@pytest.mark.parametrize(
    ("nodes", "groups", "said"),
    [
        (
            {"gpu-01": cards(WHOLE), "gpu-03": cards(*[WHOLE] * 4)},
            (pods(exclusive(5), role="worker"),),
            'no node has enough free cards of nvidia-a10g, exclusive for role "worker": '
            "needs 5 free cards on one node; best node gpu-03 has 4",
        ),
        (
            {"n": shared_cards(1, 0)},
            (pods(shared(2)),),
            "no node has enough free cards of nvidia-a10g, shared: "
            "needs 2 cards with a free share on one node; best node n has 1",
        ),
        (
            {"n": cards(640_000, 480_000)},
            (pods(sliced(HALF)),),
            "no node has enough free cards of nvidia-a10g, sliced: "
            "needs a card with 800000 units (50 %) free on one node; "
            "best node n has at most 640000 units (40 %) on a card",
        ),
        (
            {"n": mig(1)},
            (small(2),),
            'no node has a free placement of partition profile "1g.10gb": needs 1 free placement of "1g.10gb" '
            "on one node; best node n has 0; 1 of 2 Pods would find a place",
        ),
        (
            {"n": cards(WHOLE)},
            (pods(partition("1g.10gb")),),
            'no partitioned card of nvidia-a10g offers profile "1g.10gb"; partition a card: '
            'needs 1 free placement of "1g.10gb" on one node; best node n has 0',
        ),
        (
            {"n": mig(7, ready=False)},
            (small(),),
            "the placement ledger of the partitioned cards of nvidia-h100 is not ready, profile "
            '"1g.10gb": needs 1 free placement of "1g.10gb" on one node; best node n has 0',
        ),
        (
            {"n": cards(HALF)},
            (pods(exclusive(2), hosts={"n": 1}),),
            "no node has enough free cards of nvidia-a10g, exclusive: "
            "needs 2 free cards on node n, which was chosen for it and has 0",
        ),
        (
            {},
            (pods(exclusive(), hosts={"n": 1}),),
            "no node has enough free cards of nvidia-a10g, exclusive: "
            "node n, which was chosen for it, is gone, takes no Pods or has no cards",
        ),
        (
            {},
            (pods(exclusive()),),
            "no node has enough free cards of nvidia-a10g, exclusive: "
            'no usable node of flavor "gpustack-nvidia-a10g-linux-amd64-8d" has such cards',
        ),
        (
            {},
            (replace(pods(exclusive()), pod_spec={"nodeSelector": {"kubernetes.io/hostname": "n9"}}),),
            "no node has enough free cards of nvidia-a10g, exclusive: "
            'it insists on node "n9", which is no usable node of flavor "gpustack-nvidia-a10g-linux-amd64-8d"',
        ),
    ],
    ids=[
        "exclusive",
        "shared",
        "sliced",
        "partition full",
        "no partitioned card",
        "placement ledger not ready",
        "on a host",
        "host gone",
        "no candidate",
        "pinned to a node of another pool",
    ],
)
def test_the_nearest_miss_is_said(nodes: Nodes, groups: tuple[PodGroup, ...], said: str) -> None:
    miss = fit(groups, FleetOf(nodes)).miss
    assert miss is not None
    assert miss_message(miss) == said


def test_how_many_were_promised_cards_is_said_and_not_who() -> None:
    miss = fit([pods(exclusive())], FleetOf({"n": cards(HALF)})).miss
    assert miss is not None
    said = "has 0; cards there are promised to 1 Workload whose Pods do not hold them yet"
    assert miss_message(miss, 1).endswith(said)
    assert "promised to 5 Workloads whose Pods do" in miss_message(miss, 5)


def test_a_ready_names_what_was_found() -> None:
    assert ready_message([]) == "the workload asks for no accelerator"
    assert ready_message([pods(exclusive())]) == "the pool has enough free cards"
    two = [pods(exclusive(), role="b"), pods(sliced(HALF), role="a")]
    assert ready_message(two) == 'the pool has enough free cards for roles "a", "b"'
    thead = [pods(partition("4g.48gb", "thead-ppu"))]
    assert ready_message(thead) == 'the pool has a free placement of partition profile "4g.48gb"'


def test_packing_is_deterministic_and_tight() -> None:
    nodes = {"a": cards(WHOLE, WHOLE), "b": cards(WHOLE), "c": cards(WHOLE, HALF)}
    found = fit([pods(exclusive(), count=2)], FleetOf(nodes))
    assert [node for node, _ in found.places] == ["b", "c"], "the nodes with the least room that suffices come first"
    assert found == fit([pods(exclusive(), count=2)], FleetOf(dict(reversed(nodes.items()))))
