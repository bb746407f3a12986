"""Rebuilding the ledger: spec 02 §3.5."""

from __future__ import annotations

from typing import Any

import pytest

from api.ledger.modes import CARD_UNITS, SHARE_UNITS, Mode
from api.ledger.placements import Placement
from api.ledger.rebuild import Charge, rebuild, stays_charged
from api.ledger.transport import Record
from tests.builders.ledgers import H100, card, group, mig_profiles

MIG_CARD, PLAIN = "GPU-3", "GPU-0"
GROUPS = [group([card(PLAIN, 0, slices=128), card(MIG_CARD, 3, profiles=mig_profiles())])]


def record(mode: Mode, units: int, *, on: str = PLAIN, container: str = "main", **fields: Any) -> Record:
    return Record(container, H100, "nvidia", on, 0, mode, units, **fields)


def pod(*records: Record, name: str = "ns/p", **fields: Any) -> Charge:
    return Charge(name, records, **fields)


EXCLUSIVE = record(Mode.EXCLUSIVE, CARD_UNITS)
SHARE = record(Mode.SHARED, SHARE_UNITS)


def sliced(percent: int) -> Record:
    return record(Mode.SLICED, percent * 16_000)


PARTITION = record(
    Mode.PARTITIONED, 800_000, on=MIG_CARD, profile="3g.40gb", placements=(Placement(0, 4),), physical_id="MIG-1"
)


@pytest.mark.parametrize(
    ("charges", "want"),
    [
        ([], {"mode": 0, "remaining": 1_600_000}),
        ([pod(EXCLUSIVE)], {"mode": 1}),
        ([pod(SHARE), pod(SHARE), pod(SHARE)], {"mode": 2, "remaining": 1_120_000}),
        ([pod(sliced(50)), pod(sliced(20))], {"mode": 3, "remaining": 480_000}),
        ([pod(sliced(50)), pod(sliced(20)), pod(sliced(40))], {"mode": 3}),
        ([pod(EXCLUSIVE), pod(sliced(20))], {"mode": 1}),
        ([pod(SHARE, record(Mode.SHARED, SHARE_UNITS, container="side"))], {"mode": 2, "remaining": 1_280_000}),
        ([pod(record(Mode.VISIBILITY, 0))], {"mode": 0, "remaining": 1_600_000}),
        ([pod(EXCLUSIVE, terminated=True)], {"mode": 0, "remaining": 1_600_000}),
    ],
    ids=[
        "free",
        "exclusive",
        "three shared owners",
        "slices 50 % and 20 %",
        "clamped at 0",
        "conflict, row unchanged",
        "two containers of one Pod, shared each",
        "visibility charges nothing",
        "terminated Pod is released",
    ],
)
def test_rows(charges: list[Charge], want: dict[str, int]) -> None:
    row = rebuild(GROUPS, charges).status["groups"][0]["accelerators"][0]
    assert row == {"id": PLAIN, "index": 0, **want}


def test_partition_row() -> None:
    row = rebuild(GROUPS, [pod(PARTITION)]).status["groups"][0]["accelerators"][1]
    assert row == {
        "id": MIG_CARD,
        "index": 3,
        "mode": 4,
        "remaining": 800_000,
        "allocatedProfiles": [{"name": "3g.40gb", "count": 1}],
        "remainingProfiles": [
            {"name": "1g.10gb", "count": 3},
            {"name": "1g.20gb", "count": 2},
            {"name": "2g.20gb", "count": 1},
            {"name": "3g.40gb", "count": 1},
        ],
    }


def test_a_conflict_stops_that_pod_only() -> None:
    first, second = pod(EXCLUSIVE, name="ns/first"), pod(PARTITION, sliced(20), PARTITION, name="ns/second")
    rebuilt = rebuild(GROUPS, [first, second])
    assert [str(p) for p in rebuilt.problems] == [
        f"Pod ns/second: conflicting allocation mode for resource {H100}/{PLAIN}: Exclusive vs. Sliced"
    ]
    charged = rebuilt.status["groups"][0]["accelerators"][1]
    assert charged["mode"] == 4, "rows already charged stay charged"
    assert charged["remaining"] == 800_000
    assert "allocatedProfiles" not in charged, "none of its placements are counted"


def test_a_card_absent_from_the_inventory_is_ignored_and_named() -> None:
    rebuilt = rebuild(GROUPS, [pod(record(Mode.EXCLUSIVE, CARD_UNITS, on="gone"), SHARE)])
    assert rebuilt.status["groups"][0]["accelerators"][0]["mode"] == 2
    assert "not in the node's inventory" in str(rebuilt.problems[0])


@pytest.mark.parametrize(
    ("mode", "manufacturer", "stays"),
    [
        (Mode.EXCLUSIVE, "nvidia", False),
        (Mode.SHARED, "nvidia", False),
        (Mode.SLICED, "nvidia", False),
        (Mode.SLICED, "metax", True),
        (Mode.SLICED, "cambricon", True),
        (Mode.SHARED, "metax", False),
        (Mode.PARTITIONED, "nvidia", True),
    ],
)
def test_release_of_terminated_pods(mode: Mode, manufacturer: str, stays: bool) -> None:
    held = Record("main", "g", manufacturer, "c", 0, mode, 16_000)
    assert stays_charged(held, terminated=True) is stays
    assert stays_charged(held, terminated=True, release_terminated=False)
    assert stays_charged(held, terminated=False)


def test_rebuilding_is_idempotent_and_counts_slices() -> None:
    charges = [pod(sliced(50)), pod(sliced(20)), pod(PARTITION)]
    assert rebuild(GROUPS, charges).status == rebuild(GROUPS, charges).status
    assert rebuild(GROUPS, charges).cards[H100, PLAIN].slices == 2


def test_what_is_assumed_is_charged_last_and_beside_nobody() -> None:
    assumed = pod(EXCLUSIVE, record(Mode.EXCLUSIVE, CARD_UNITS, on=MIG_CARD), name="ns/unreadable", assumed=True)
    rebuilt = rebuild(GROUPS, [assumed, pod(SHARE)])
    first, second = rebuilt.status["groups"][0]["accelerators"]
    assert (first["mode"], first["remaining"]) == (2, 1_440_000)
    assert second["mode"] == 1
    assert rebuilt.problems == ()
