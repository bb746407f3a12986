"""What a node's cards can still give: published ledger and records, the worse word of both."""

from __future__ import annotations

from typing import Any

import pytest

from api.ledger.freed import freed
from api.ledger.modes import CARD_UNITS, SHARE_UNITS, Mode
from api.ledger.node_cards import Card, Partitions, model_counts, node_cards
from api.ledger.placements import Placement
from api.ledger.rebuild import Charge
from api.ledger.transport import Record
from nodefeature.resource_names import Family
from tests.builders.gate import MODEL, card, cards, shared_cards
from tests.builders.ledgers import H100, H100_POOL, carved, devices, free, group, held, mig_profiles
from tests.builders.ledgers import card as raw_card

SLICE = 320_000


def record(card_id: str, mode: Mode, units: int, **fields: Any) -> Record:
    return Record("main", H100, "nvidia", card_id, 0, mode, units, **fields)


def one(row: Any, *records: Record, **of_card: Any) -> Card:
    """Return the only card of a node with this ledger row and these records."""
    node = devices("n", [group([raw_card("c", **{"slices": 4, **of_card})])], [row] if row else [])
    (found,) = node_cards(node, [Charge("default/p", records)] if records else ())
    return found


def test_a_free_card() -> None:
    found = one(free("c"))
    assert (found.key, found.is_free, found.shares, found.slice_units, found.slots) == (
        H100_POOL,
        True,
        10,
        CARD_UNITS,
        4,
    )


@pytest.mark.parametrize(
    ("row", "records", "want"),
    [
        (free("c"), [record("c", Mode.SLICED, SLICE)], (Mode.SLICED, CARD_UNITS - SLICE, 3)),
        (held("c", Mode.SLICED, CARD_UNITS - SLICE), [], (Mode.SLICED, CARD_UNITS - SLICE, 4)),
        (held("c", Mode.SLICED, SLICE), [record("c", Mode.SLICED, SLICE)], (Mode.SLICED, SLICE, 3)),
        (held("c", Mode.SHARED, SHARE_UNITS), [record("c", Mode.SLICED, SLICE)], (None, SHARE_UNITS, 3)),
        (held("c", Mode.EXCLUSIVE), [], (Mode.EXCLUSIVE, 0, 4)),
        (None, [], (None, 0, 4)),
        ({"id": "c", "mode": 9, "remaining": CARD_UNITS}, [], (None, CARD_UNITS, 4)),
        ({"id": "c", "mode": 5, "remaining": CARD_UNITS}, [], (None, CARD_UNITS, 4)),
        (free("c"), [record("elsewhere", Mode.EXCLUSIVE, CARD_UNITS)], (Mode.NONE, CARD_UNITS, 4)),
    ],
    ids=[
        "the publication lags behind a record",
        "the record is not seen yet",
        "both know, others hold more",
        "they contradict each other",
        "held whole",
        "no ledger row",
        "unknown mode",
        "a mode that no ledger has",
        "a record of an unknown card",
    ],
)
def test_the_worse_word_counts(row: Any, records: list[Record], want: tuple[Mode | None, int, int]) -> None:
    found = one(row, *records)
    assert (found.mode, found.units, found.slots) == want


def test_an_unhealthy_card_gives_nothing() -> None:
    found = one(free("c"), unhealthy=True)
    assert (found.is_free, found.shares, found.slice_units) == (False, 0, 0)


def test_partitions_go_by_placements() -> None:
    taken = record("c", Mode.PARTITIONED, 1, profile="3g.40gb", placements=(Placement(0, 4),))
    row = carved("c", {"1g.10gb": 3, "3g.40gb": 1}, {"3g.40gb": 1})
    found = one(row, taken, slices=0, profiles=mig_profiles())
    assert found.partitions is not None
    assert not found.is_whole
    assert [found.partitions.free(name) for name in ("1g.10gb", "3g.40gb", "7g.80gb")] == [3, 1, 0]
    after = found.partitions.taken("3g.40gb")
    assert after is not None
    assert [after.free(name) for name in ("1g.10gb", "3g.40gb")] == [0, 0], "the second half is gone for all profiles"
    assert after.taken("1g.10gb") is None


def test_what_the_ledger_does_not_offer_is_never_free() -> None:
    """Somebody holds a partition whose record is not seen: the counts tell, though the placements do not."""
    found = one(carved("c", {"1g.10gb": 2}), slices=0, profiles=mig_profiles())
    assert found.partitions is not None
    assert [found.partitions.free(name) for name in ("1g.10gb", "3g.40gb")] == [2, 0]


def test_a_driver_without_placements_is_believed_by_its_counts() -> None:
    profiles: Any = [{"name": "1g", "count": 2}]
    found = one(carved("c", {"1g": 2}), slices=0, profiles=profiles)
    assert found.partitions is not None
    after = found.partitions.taken("1g")
    assert after is not None
    assert (after.free("1g"), found.partitions.free("1g")) == (1, 2)


def test_placements_that_were_never_computed_offer_nothing() -> None:
    found = one(held("c", Mode.NONE, CARD_UNITS), slices=0, profiles=mig_profiles())
    assert found.partitions is not None
    assert (found.partitions.ready, found.partitions.free("1g.10gb")) == (False, 0)


def test_b019_nulls() -> None:
    broken: list[Any] = [{}, {"spec": None, "status": None}, {"spec": {"groups": [None, {"accelerators": [None, {}]}]}}]
    assert [len(node_cards(each)) for each in broken] == [0, 0, 1]
    assert node_cards(None) == ()


def test_two_cards_with_one_id_are_one() -> None:
    node = devices("n", [group([raw_card("c"), raw_card("c", 1)])], [free("c")])
    assert model_counts(node_cards(node)) == {H100_POOL: 1}


TWO = {"1g": (Placement(0, 1), Placement(1, 1))}
PART = (card("p", partitions=Partitions(TWO, (Placement(0, 1),))),)
FREED: dict[str, tuple[Any, Any, set[Family]]] = {
    "a card comes back": (
        cards(0, mode=Mode.EXCLUSIVE),
        cards(CARD_UNITS),
        {Family.EXCLUSIVE, Family.SHARED, Family.SLICED},
    ),
    "a card is taken": (cards(CARD_UNITS), cards(0, mode=Mode.EXCLUSIVE), set()),
    "a share comes back": (shared_cards(3), shared_cards(4), {Family.SHARED}),
    "a slice comes back": (cards(SLICE), cards(SLICE * 2), {Family.SLICED}),
    "a slot comes back": ((card("c", SLICE, slots=0),), (card("c", SLICE, slots=1),), {Family.SLICED}),
    "one slice takes the room of two": ((card("c", SLICE, slots=1),), (card("c", SLICE, slots=2),), {Family.SLICED}),
    "slots come back where the room is": (
        (card("a", SLICE * 2, slots=1), card("b", SLICE, slots=4)),
        (card("a", SLICE * 2, slots=4), card("b", SLICE, slots=1)),
        {Family.SLICED},
    ),
    "a card with room is gone": (cards(SLICE, SLICE * 2), cards(SLICE), set()),
    "one card for two, with more room": (cards(SLICE * 2, SLICE), cards(SLICE * 3), {Family.SLICED}),
    "a claim moves to an equal card": (cards(SLICE, CARD_UNITS), cards(CARD_UNITS, SLICE), set()),
    "a partition comes back": (PART, (card("p", partitions=Partitions(TWO)),), {Family.PARTITIONED}),
    "a partition is taken": ((card("p", partitions=Partitions(TWO)),), PART, set()),
    "a new card": ((), cards(CARD_UNITS), {Family.EXCLUSIVE, Family.SHARED, Family.SLICED}),
    "the node is gone": (cards(CARD_UNITS), (), set()),
}


@pytest.mark.parametrize("name", FREED)
def test_freed(name: str) -> None:
    before, after, want = FREED[name]
    assert freed(before, after) == {(MODEL, family) for family in want}
