"""Structural schemas from models."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, Field

from api.problems import problem
from api.schema import Model, Quantity, structural
from api.validation import shape_problems
from tests.builders.rows import case_json


class Choice(BaseModel):
    either: int | str


class Excluded(BaseModel):
    some: int = Field(gt=3)


class Amounts(Model):
    amount: Quantity
    maybe: Quantity | None = None


@pytest.mark.parametrize("model", [Choice, Excluded])
def test_what_has_no_structural_form_raises_at_generation(model: type[BaseModel]) -> None:
    with pytest.raises(ValueError, match="structural"):
        structural(model)


@pytest.mark.parametrize("row", case_json("B020-quantities")["rows"], ids=lambda row: repr(row["in"]))
def test_b020_quantities(row: dict[str, Any]) -> None:
    found = shape_problems(Amounts, {"amount": row["in"]})
    assert bool(found) is row.get("error", False)
    assert [p.path for p in found] in ([], ["amount"])


def test_quantities_take_strings_and_integers_only() -> None:
    assert shape_problems(Amounts, {"amount": 1, "maybe": None}) == []
    assert [p.path for p in shape_problems(Amounts, {"amount": True, "maybe": []})] == ["amount", "maybe"]


def test_all_errors_are_collected_with_path_value_and_rule() -> None:
    found = shape_problems(Amounts, {"maybe": "x"})
    assert [(p.path, p.value, p.rule) for p in found] == [
        ("amount", "", "is required"),
        ("maybe", '"x"', "must be a quantity such as 4, 500m or 16Gi"),
    ]
    assert shape_problems(Amounts, None)[0].rule == "must be an object"


@pytest.mark.parametrize(
    ("value", "want"),
    [("a" * 200, 120), (10**100, 120), ({"a": 1}, 6), ([1], 4), (None, 0), (True, 4), (7, 1)],
)
def test_values_are_shown_in_a_bounded_form(value: object, want: int) -> None:
    assert len(problem("p", value, "r").value) <= want
