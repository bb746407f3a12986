"""The four views: spec 02 §4.4, spec 04 §14.5, and a property test against an independent oracle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api.devices import Accelerator, LedgerCard
from api.ledger.contribution import runtime_version
from api.ledger.modes import CARD_UNITS, Mode
from api.ledger.views import EMPTY_VIEWS, View, combine, contribution, fold, sliced_detail, status_of
from tests.builders.ledgers import (
    H100_POOL,
    card,
    carved,
    devices,
    free,
    group,
    held,
    mig_profiles,
    shared,
    sliced,
)
from tests.builders.rows import Row, row_id, rows


def counts(text: str) -> dict[str, int]:
    return {name: int(count) for name, _, count in (item.partition(":") for item in text.split(","))}


def build_card(card_id: str, words: list[str]) -> tuple[Accelerator, LedgerCard | None]:
    kind, rest = words[0], words[1:]
    sliceable = card(card_id, slices=128, overcommit=True, unhealthy=kind == "unhealthy")
    if kind in {"free", "unhealthy"}:
        return sliceable, free(card_id)
    if kind == "whole":
        return card(card_id), free(card_id)
    if kind == "exclusive":
        return sliceable, held(card_id, Mode.EXCLUSIVE)
    if kind == "shared":
        return sliceable, shared(card_id, int(rest[0]))
    if kind == "sliced":
        return sliceable, sliced(card_id, int(rest[0]))
    partitioned = card(card_id, profiles=mig_profiles())
    if not rest:
        return partitioned, carved(card_id, {p["name"]: p["count"] for p in mig_profiles()})
    if rest[0] in {"absent", "unready"}:
        return partitioned, None if rest[0] == "absent" else free(card_id)
    if rest[0] == "full":
        return partitioned, carved(card_id, {}, {rest[1]: 1})
    return partitioned, carved(card_id, counts(rest[0]), counts(rest[2]) if len(rest) > 2 else None)


def build_node(name: str, spec: list[str]) -> Any:
    cards: list[Accelerator] = []
    ledger: list[LedgerCard] = []
    for words in (item.split() for item in spec):
        for _ in range(int(words[0])):
            built, row = build_card(f"{name}-{len(cards)}", words[1:])
            cards.append(built)
            ledger += [row] if row else []
    return devices(name, [group(cards)], ledger)


@pytest.mark.parametrize("row", rows("02-four-views"), ids=row_id)
def test_four_views(row: Row) -> None:
    nodes = [build_node(f"n{index}", spec) for index, spec in enumerate(row["nodes"])]
    views = fold(contribution(node, H100_POOL) for node in nodes)
    got = {
        "ex": views.exclusive,
        "sh": views.shared,
        "sl": views.sliced,
        "pt": views.partitioned,
        "allocated": [list(item) for item in views.allocated_profiles],
        "remaining": [list(item) for item in views.remaining_profiles],
    }
    want = {key: View(*value) if key in {"ex", "sh", "sl", "pt"} else value for key, value in row["want"].items()}
    assert {key: got[key] for key in want} == want


def test_the_order_of_nodes_does_not_matter() -> None:
    nodes = [build_node("a", ["2 free", "1 mig"]), build_node("b", ["1 sliced 30"]), build_node("c", ["3 mig"])]
    parts = [contribution(node, H100_POOL) for node in nodes]
    assert fold(parts) == fold(reversed(parts))


def test_foreign_groups_on_the_node_are_ignored() -> None:
    node = build_node("a", ["1 mig"])
    foreign = group([card("x", slices=4)], group_id="t4")
    node["spec"]["groups"].append(foreign)
    node["status"]["groups"].append({"id": "t4", "manufacturer": "nvidia", "accelerators": [free("x")]})
    assert contribution(node, H100_POOL) == contribution(build_node("a", ["1 mig"]), H100_POOL)


@pytest.mark.parametrize(
    ("manufacturer", "stored", "shown"),
    [
        ("thead", ["4g48gb", "16g192gb"], ["16g.192gb", "4g.48gb"]),
        ("nvidia", ["3g.40gb", "1c.12g"], ["1c.12g", "3g.40gb"]),
    ],
)
def test_profiles_are_published_and_sorted(manufacturer: str, stored: list[str], shown: list[str]) -> None:
    profiles: Any = [{"name": name, "count": 2, "memoryMib": 1024} for name in stored]
    node = devices("a", [group([card("c", profiles=profiles)], group_id="m", manufacturer=manufacturer)], [free("c")])
    views = fold([contribution(node, f"{manufacturer}-m")])
    assert [name for name, _ in views.remaining_profiles] == shown
    assert [name for name, _, _ in views.offered_profiles] == shown


def test_detail_of_the_worked_pool() -> None:
    views = fold([contribution(build_node("a", ["7 free", "1 mig"]), H100_POOL)])
    detail = sliced_detail(views)
    assert detail["logical"] == {"coresPercentageOvercommit": True, "count": 896}
    assert detail["physical"]["count"] == 7
    assert detail["physical"]["profiles"][0] == {"name": "1g.10gb", "count": 7, "memoryMib": 10240}
    assert sliced_detail(EMPTY_VIEWS) == {"logical": {}, "physical": {}}


def test_status_of_worked_pool() -> None:
    node = build_node("a", ["4 free", "1 mig full 7g.80gb"])
    status = status_of(fold([contribution(node, H100_POOL)]))
    assert status["accelerator"] == {"onceMaxRequest": "4", "remaining": "4", "capacity": "4"}
    assert status["acceleratorPartitioned"]["allocatedProfiles"] == [{"name": "7g.80gb", "count": 1}]
    assert status["acceleratorPartitioned"]["remainingProfiles"][0] == {"name": "1g.10gb"}
    assert status_of(EMPTY_VIEWS)["acceleratorPartitioned"] == {
        "onceMaxRequest": "0",
        "remaining": "0",
        "capacity": "0",
    }


@pytest.mark.parametrize(
    ("texts", "want"),
    [
        (["13.0", "12.4", "12.9"], ["12.4", "12.9", "13.0"]),
        (["12.9", "9.0"], ["9.0", "12.9"]),
        (["12.10", "12.9"], ["12.9", "12.10"]),
        (["9", "9.1", "9.0"], ["9.0", "9.1"]),
        (["", "N/A", "12.x", "12.", "1.2.3", "-1", "١"], []),
    ],
)
def test_runtime_versions(texts: list[str], want: list[str]) -> None:
    nodes = [devices(f"n{i}", [group([card("c")], runtimeVersion=text)], [free("c")]) for i, text in enumerate(texts)]
    assert list(fold(contribution(node, H100_POOL) for node in nodes).runtime_versions) == want


def test_runtime_version_of_another_group_is_ignored() -> None:
    node = devices("n", [group([card("c")], group_id="t4", runtimeVersion="12.4")], [free("c")])
    assert fold([contribution(node, H100_POOL)]).runtime_versions == ()
    assert runtime_version("12") == (12, 0)


# --- the oracle: counts share by share and percent by percent, over cards that know nothing of our objects ---------


@dataclass(frozen=True)
class Card:
    kind: str
    mode: int
    left: int
    free_profiles: tuple[int, ...] | None
    sick: bool


cards = st.builds(
    Card,
    kind=st.sampled_from(["plain", "sliceable", "mig"]),
    mode=st.integers(0, 4),
    left=st.integers(0, CARD_UNITS) | st.sampled_from([0, 160_000, 480_000, CARD_UNITS]),
    free_profiles=st.none() | st.tuples(*[st.integers(0, p["count"]) for p in mig_profiles()]),
    sick=st.booleans(),
)
fleets = st.lists(st.lists(cards, max_size=6), max_size=5)


def as_object(name: str, fleet_node: list[Card]) -> Any:
    inventory, ledger = [], []
    for index, one in enumerate(fleet_node):
        card_id = f"{name}-{index}"
        inventory.append(
            card(
                card_id,
                slices=4 if one.kind == "sliceable" else 0,
                profiles=mig_profiles() if one.kind == "mig" else None,
                unhealthy=one.sick,
            )
        )
        row: Any = {"id": card_id, "index": index, "mode": one.mode, "remaining": one.left}
        if one.kind == "mig" and one.free_profiles is not None:
            row["allocatedProfiles"] = [{"name": "1g.10gb", "count": 1}]
            pairs = zip(mig_profiles(), one.free_profiles, strict=True)
            row["remainingProfiles"] = [{"name": p["name"], "count": n} for p, n in pairs if n]
        ledger.append(row)
    return devices(name, [group(inventory)], ledger)


def oracle(fleet: list[list[Card]]) -> dict[str, tuple[int, int, int]]:
    whole = [[c for c in node if c.kind != "mig"] for node in fleet]
    is_free = {id(c): not c.sick and c.left == CARD_UNITS for node in fleet for c in node}

    def shares(c: Card) -> int:
        if c.sick or not (is_free[id(c)] or c.mode == Mode.SHARED):
            return 0
        return sum(1 for n in range(1, 11) if c.left >= n * 160_000)

    def percent(c: Card) -> int:
        if c.sick or c.kind != "sliceable" or not (is_free[id(c)] or c.mode == Mode.SLICED):
            return 0
        return sum(1 for n in range(1, 101) if c.left >= n * 16_000)

    def partitions(c: Card) -> int:
        if c.kind != "mig" or c.sick:
            return 0
        return 7 if c.free_profiles is None else max(c.free_profiles)

    flat, everything = [c for node in whole for c in node], [c for node in fleet for c in node]
    migs = [c for c in everything if c.kind == "mig"]
    return {
        "ex": (
            max((sum(is_free[id(c)] for c in node) for node in whole), default=0),
            sum(is_free[id(c)] for c in flat),
            len(flat),
        ),
        "sh": (
            max((sum(shares(c) > 0 for c in node) for node in whole), default=0),
            sum(map(shares, flat)),
            10 * len(flat),
        ),
        "sl": (
            max(map(percent, flat), default=0),
            sum(map(percent, flat)),
            100 * sum(c.kind == "sliceable" for c in flat),
        ),
        "pt": (int(any(map(partitions, migs))), sum(map(partitions, migs)), 7 * len(migs)),
    }


@settings(max_examples=60, deadline=None)
@given(fleets)
def test_views_equal_the_oracle(fleet: list[list[Card]]) -> None:
    views = fold(contribution(as_object(f"n{i}", node), H100_POOL) for i, node in enumerate(fleet))
    want = oracle(fleet)
    assert views.exclusive == View(*want["ex"])
    assert views.shared == View(*want["sh"])
    assert views.sliced == View(*want["sl"])
    assert views.partitioned == View(*want["pt"])


@settings(max_examples=60, deadline=None)
@given(fleets, st.integers(1, 5))
def test_a_pool_folded_in_parts_equals_the_pool_folded_at_once(fleet: list[list[Card]], size: int) -> None:
    nodes = [contribution(as_object(f"n{i}", node), H100_POOL) for i, node in enumerate(fleet)]
    parts = [fold(nodes[start : start + size]) for start in range(0, len(nodes), size)]
    assert combine(parts) == fold(nodes)
