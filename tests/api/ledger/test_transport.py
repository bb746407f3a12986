"""The transport record: spec 02 §3.2, spec 06 §6.1, hostile text."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api.ledger.modes import CARD_UNITS, Mode
from api.ledger.placements import Placement
from api.ledger.transport import (
    ALLOCATED_ANNOTATION,
    MAX_TEXT,
    Record,
    dump,
    fold_groups,
    parse,
    preferred_cards,
    transport_of,
)
from tests.builders.rows import case_yaml


def text_of(*cards: Any, container: str = "main", group: str = "g", manufacturer: str = "nvidia") -> str:
    groups = [{"id": group, "manufacturer": manufacturer, "accelerators": list(cards)}]
    return json.dumps({container: {"devices": {"groups": groups}, "deviceIDs": ["t"]}})


def test_worked_annotation() -> None:
    text = (
        '{"main":{"devices":{"groups":[{"id":"h100-80gb-hbm3","manufacturer":"nvidia","accelerators":'
        '[{"id":"GPU-01","index":1,"mode":2,"allocated":160000}]}]},"deviceIDs":["h100-80gb-hbm3:GPU-01:0000"]}}'
    )
    transport = parse(text)
    (record,) = transport.records
    assert record == Record("main", "h100-80gb-hbm3", "nvidia", "GPU-01", 1, Mode.SHARED, 160_000)
    assert transport.device_ids == (("main", ("h100-80gb-hbm3:GPU-01:0000",)),)
    assert dump(transport.records, dict(transport.device_ids)) == text


def test_partition_round_trip() -> None:
    record = Record(
        "main",
        "g",
        "nvidia",
        "GPU-3",
        3,
        Mode.PARTITIONED,
        800_000,
        profile="3g.40gb",
        placements=(Placement(0, 4),),
        physical_id="MIG-1",
        logical_placements=(Placement(8, 8),),
    )
    assert parse(dump([record], {})).records == (record,)


def test_folding_appends_cards_and_keeps_the_first_manufacturer() -> None:
    text = json.dumps(
        {
            "b": {
                "devices": {"groups": [{"id": "g", "manufacturer": "amd", "accelerators": [{"id": "1", "mode": 2}]}]}
            },
            "a": {
                "devices": {
                    "groups": [
                        {"id": "g", "manufacturer": "nvidia", "accelerators": [{"id": "1", "mode": 2, "x": 1}]},
                        {"id": "h", "manufacturer": "nvidia", "accelerators": [{"id": "2", "mode": 1}]},
                    ]
                }
            },
        }
    )
    assert fold_groups(text) == [
        {"id": "g", "manufacturer": "nvidia", "accelerators": [{"id": "1", "mode": 2}, {"id": "1", "mode": 2}]},
        {"id": "h", "manufacturer": "nvidia", "accelerators": [{"id": "2", "mode": 1}]},
    ]


@pytest.mark.parametrize("text", [None, "", "nonsense", "[]", "null", "7", '{"main": 1}', '{"main": {"devices": []}}'])
def test_absent_or_malformed_yields_no_groups(text: str | None) -> None:
    assert fold_groups(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        "[]",
        "null",
        "[" * 100_000,
        " " * (MAX_TEXT + 1),
        "{" + "1" * 5000,
        '{"a": {"devices": {"groups": 1}}}',
    ],
    ids=["empty", "no JSON", "list", "null", "too deep", "too long", "cut", "groups no list"],
)
def test_unreadable_is_told_apart_from_empty(text: str) -> None:
    transport = parse(text)
    assert not transport.readable
    assert transport.records == ()
    assert len(transport.problems) == 1
    assert parse(None).readable
    assert parse("{}").readable


@pytest.mark.parametrize(
    ("card", "path"),
    [
        ({"id": "c", "mode": 3, "allocated": 2_147_483_647}, "allocated"),
        ({"id": "c", "mode": 3, "allocated": -1}, "allocated"),
        ({"id": "c", "mode": 3, "allocated": 0}, "allocated"),
        ({"id": "c", "mode": 3, "allocated": "160000"}, "allocated"),
        ({"id": "c", "mode": 3, "allocated": 1.5}, "allocated"),
        ({"id": "c", "mode": 99, "allocated": 1}, "mode"),
        ({"id": "c", "mode": "3", "allocated": 1}, "mode"),
        ({"id": "c", "allocated": 1}, "mode"),
        ({"id": "", "mode": 1, "allocated": 1}, "id"),
        ({"id": None, "mode": 1, "allocated": 1}, "id"),
        ("card", "id"),
    ],
)
def test_impossible_figures_are_refused_by_name(card: Any, path: str) -> None:
    transport = parse(text_of(card, {"id": "good", "mode": 2, "allocated": 160_000}))
    assert [record.card_id for record in transport.records] == ["good"]
    (found,) = transport.problems
    assert found.path == f"{ALLOCATED_ANNOTATION}[main].devices.groups[0].accelerators[0].{path}"


def test_an_exclusive_holder_has_the_whole_card() -> None:
    assert parse(text_of({"id": "c", "mode": 1, "allocated": 5})).records[0].allocated == CARD_UNITS
    assert parse(text_of({"id": "c", "mode": 5, "allocated": 5})).records[0].allocated == 0


def test_b008_figures_over_one_card() -> None:
    squatter, crumb = map(transport_of, case_yaml("B008-forged-annotation"))
    assert len(squatter.records) == 2
    assert crumb.records == ()
    assert crumb.problems[0].value == "2147483647"


@pytest.mark.parametrize(
    ("annotations", "want"),
    [
        ({"preferred-id": " GPU-1, ,GPU-2 ", "preferred-index": "3"}, (("GPU-1", "GPU-2"), ())),
        ({"preferred-index": "0, 3,x,-1,99999999999"}, ((), (0, 3))),
        ({"preferred-id": ""}, ((), ())),
        ({}, ((), ())),
    ],
)
def test_preferences(annotations: dict[str, str], want: Any) -> None:
    prefixed = {f"device.gpustack.ai/accelerator.{key}": value for key, value in annotations.items()}
    assert preferred_cards({"metadata": {"annotations": prefixed}}) == want


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["main", "devices", "groups", "accelerators", "id", "mode", "allocated", "deviceIDs"]),
            inner,
        )
    ),
    max_leaves=20,
)


@settings(max_examples=100, deadline=None)
@given(json_values)
def test_never_raises(value: Any) -> None:
    text = json.dumps({"main": value})
    assert all(0 <= record.allocated <= CARD_UNITS for record in parse(text).records)
    fold_groups(text)
