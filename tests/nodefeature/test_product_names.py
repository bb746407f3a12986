"""Label values and normalised product names: spec 01 §3.1-3.2."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodefeature.destinations import is_label_value
from nodefeature.product_names import label_value_of, normalize_product, tokens_of
from tests.builders.rows import Row, recorded, row_id, rows

LEGAL = re.compile(r"(?:[a-z0-9]+(?:[-.][a-z0-9]+)*)?")
SANITISED = {
    "abc123": "abc123",
    "a!b@c#1$2%3^()[]{}": "abc123",
    "a.b_c-1 2  -  3  .  ": "a.b_c-1-2-3",
    "-_ .abc123.-_ ": "abc123",
    "a.b_c-1 2  -  3  .  " + "x" * 60: "a.b_c-1-2-3-" + "x" * 51,
    "Tesla T4": "Tesla-T4",
    "0,1": "01",
    "": "",
    "K100_AI": "K100_AI",
    "昇腾": "",
}


@pytest.mark.parametrize(("text", "want"), SANITISED.items())
def test_label_value_of(text: str, want: str) -> None:
    assert label_value_of(text) == want


@pytest.mark.parametrize("row", rows("01-normalised-products"), ids=row_id)
def test_normalize_product(row: Row) -> None:
    assert (
        normalize_product(row["name"], maker=row["maker"], limit=row["limit"], strip_cruft=row["strip_cruft"])
        == row["want"]
    )


@pytest.mark.parametrize("entry", recorded("names")["names"], ids=lambda entry: entry["name"].strip())
def test_recorded_names_normalise_to_something_legal(entry: dict[str, str]) -> None:
    name = normalize_product(entry["name"], maker=entry["owner"], strip_cruft=entry["kind"] == "cpu")
    assert name
    assert LEGAL.fullmatch(name)
    assert is_label_value(label_value_of(entry["name"]))


@given(st.text(max_size=300))
def test_label_values_are_legal(text: str) -> None:
    assert is_label_value(label_value_of(text))
    assert label_value_of(label_value_of(text)) == label_value_of(text)


@given(st.text(max_size=300), st.sampled_from(["", "nvidia", "amd", "a"]), st.integers(0, 80), st.booleans())
def test_normalised_names_are_legal(text: str, maker: str, limit: int, strip_cruft: bool) -> None:
    name = normalize_product(text, maker=maker, limit=limit, strip_cruft=strip_cruft)
    assert LEGAL.fullmatch(name)
    assert not limit or len(name) <= limit
    assert normalize_product(name) == name


@given(st.text(alphabet="abC0-_. \t/(R)@", max_size=40))
def test_tokens_do_not_depend_on_separators(text: str) -> None:
    assert "-".join(tokens_of(normalize_product(text))) == normalize_product(text).replace(".", "-")
