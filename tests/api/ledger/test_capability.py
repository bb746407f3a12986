"""Group aggregates: spec 02 §3.3."""

from __future__ import annotations

from typing import Any

import pytest

from api.devices import Accelerator, Profile
from api.ledger.capability import group_detail
from tests.builders.ledgers import card


def profiles(*pairs: tuple[str, int], memory: int = 0) -> list[Profile]:
    built: list[Profile] = [{"name": name, "count": count} for name, count in pairs]
    for profile in built:
        if memory:
            profile["memoryMib"] = memory
    return built


MIG = ("1g.5gb", 7), ("2g.10gb", 3), ("7g.40gb", 1)


@pytest.mark.parametrize(
    ("cards", "want"),
    [
        (
            [
                card("a", slices=128, overcommit=True),
                card("b", slices=128, overcommit=True),
                card("c", profiles=profiles(*MIG)),
            ],
            {
                "logical": {"count": 256, "coresPercentageOvercommit": True},
                "physical": {"count": 7, "profiles": profiles(*MIG)},
            },
        ),
        ([card(x, slices=4) for x in "abc"], {"logical": {"count": 12}, "physical": {}}),
        (
            [card(x, profiles=profiles(("1g.5gb", 7), ("2g.10gb", 3))) for x in "ab"],
            {"logical": {}, "physical": {"count": 14, "profiles": profiles(("1g.5gb", 14), ("2g.10gb", 6))}},
        ),
        (
            [card(x, profiles=profiles(("1g.10gb", 7), memory=10240)) for x in "ab"],
            {"logical": {}, "physical": {"count": 14, "profiles": profiles(("1g.10gb", 14), memory=10240)}},
        ),
        ([], {"logical": {}, "physical": {}}),
        (
            [card("a", overcommit=True), card("b", slices=4)],
            {"logical": {"count": 4}, "physical": {}},
        ),
    ],
    ids=["128,oc x 2 + MIG", "3 x 4", "2 x MIG", "memory is not summed", "none", "overcommit counts with slices only"],
)
def test_group_detail(cards: list[Accelerator], want: Any) -> None:
    assert group_detail(cards) == want
