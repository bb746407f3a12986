"""Partition profile names: spec 01 §2.4, case B037."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodefeature.destinations import is_qualified_name
from nodefeature.manufacturers import build_manufacturers
from nodefeature.profiles import (
    normalize_profile,
    profile_of_resource,
    profile_resource,
    public_profile,
    vendor_profile,
    vendor_profile_of_resource,
)
from tests.builders.rows import Row, case_json, recorded, row_id, rows

REGISTRY = build_manufacturers({})
OPERATIONS: dict[str, Callable[[str, str], str]] = {
    "normalize": lambda _, text: normalize_profile(text),
    "public": public_profile,
    "vendor": vendor_profile,
    "key": lambda maker, text: profile_resource(REGISTRY, maker, text),
    "profile of key": lambda _, text: profile_of_resource(REGISTRY, text),
    "vendor of key": lambda _, text: vendor_profile_of_resource(REGISTRY, text),
}


@pytest.mark.parametrize("row", rows("01-profiles"), ids=row_id)
def test_profiles(row: Row) -> None:
    assert OPERATIONS[row["operation"]](row["manufacturer"], row["input"]) == row["want"]


@pytest.mark.parametrize("row", case_json("B037-partition-profiles")["rows"], ids=lambda row: f"B037 {row['driver']}")
def test_case_b037(row: dict[str, Any]) -> None:
    profile = normalize_profile(row["driver"])
    assert profile_resource(REGISTRY, row["manufacturer"], profile) == (row["key"] or "")


def test_recorded_profiles_keep_the_drivers_word() -> None:
    for table in recorded("mig-profiles").values():
        for entry in table["profiles"] if isinstance(table, dict) and "profiles" in table else []:
            name = normalize_profile(entry["name"])
            key = profile_resource(REGISTRY, "nvidia", name)
            assert bool(key) == ("+" not in name)
            assert not key or vendor_profile_of_resource(REGISTRY, key) == name


@given(st.text(max_size=100), st.sampled_from(REGISTRY.names))
def test_a_key_is_legal_or_empty(driver: str, manufacturer: str) -> None:
    key = profile_resource(REGISTRY, manufacturer, normalize_profile(driver))
    assert not key or is_qualified_name(key)
    assert public_profile(manufacturer, public_profile(manufacturer, driver)) == public_profile(manufacturer, driver)
