"""Simulated cards are as strict as a driver."""

from __future__ import annotations

from api.ledger.placements import Placement
from devicemanager.partitions.port import ProfileOffer
from devicemanager.partitions.simulated import SimulatedCards

OFFER = ProfileOffer("1g.10gb", 0, 1, (Placement(0, 1),))


def test_no_uuid_is_given_out_twice_by_cards_of_one_process_or_of_the_next() -> None:
    seen = set()
    for _ in range(2):  # the second stands for a process after a kill: its cards begin empty
        cards = SimulatedCards({"GPU-0": (OFFER,)})
        for _ in range(2):
            made = cards.create("GPU-0", OFFER, OFFER.placements[0])
            seen.add(made.uuid)
            cards.destroy("GPU-0", made)
    assert len(seen) == 4
