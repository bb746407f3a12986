"""Quantities: case B020, spec 01 §3.4, and the round trip."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodefeature.quantity import (
    NANO,
    Format,
    Quantity,
    QuantityInvalid,
    canonical,
    is_exactly,
    memory_label,
    memory_label_mib,
    of,
    of_bytes,
    of_mib,
    of_milli,
    parse_amount,
    parse_quantity,
    quantity_or_zero,
    rounded_text,
    same_quantity,
)
from tests.builders.rows import case_json

B020: dict[str, Any] = case_json("B020-quantities")


@pytest.mark.parametrize("row", B020["rows"], ids=lambda row: f"B020 {row['in']!r}")
def test_case_b020(row: dict[str, Any]) -> None:
    if row.get("error"):
        with pytest.raises(QuantityInvalid, match=r"^spec\.field: "):
            parse_quantity(row["in"], field="spec.field")
        return
    quantity = parse_quantity(row["in"])
    assert Decimal(quantity.nano) / NANO == Decimal(row["value"])
    assert str(quantity) == row.get("canonical", str(quantity))
    assert parse_quantity(str(quantity)) == quantity


@pytest.mark.parametrize("pair", B020["equal"], ids=str)
def test_case_b020_equal(pair: list[object]) -> None:
    assert parse_quantity(pair[0]) == parse_quantity(pair[1])
    assert same_quantity(*pair)
    assert hash(parse_quantity(pair[0])) == hash(parse_quantity(pair[1]))


@pytest.mark.parametrize("value", [1, "1", "1000m", "1e0", 1.0, "1."])
def test_case_b020_exactly_one(value: object) -> None:
    assert is_exactly(value, 1)


@pytest.mark.parametrize("value", ["1m", "1.5", "", None, True, "one", 2, [1], 1.5])
def test_case_b020_not_exactly_one(value: object) -> None:
    assert not is_exactly(value, 1)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("0", "0"),
        ("-0", "0"),
        ("0Gi", "0"),
        ("1Ki", "1Ki"),
        ("512", "512"),
        ("0.5Ki", "512"),
        ("0.0001Ki", "102400u"),
        ("1025Ki", "1025Ki"),
        ("1.5Ki", "1536"),
        ("0.1Ki", "102400m"),
        ("-1.5Gi", "-1536Mi"),
        ("100000", "100k"),
        ("1234567", "1234567"),
        ("1e6", "1e6"),
        ("10e5", "1e6"),
        ("1E3", "1e3"),
        ("1E", "1E"),
        ("1000E", "1000E"),
        ("0.0000000001", "1n"),
        ("-0.0000000001", "-1n"),
        ("1e-10", "1e-9"),
        ("16Ei", "9223372036854775807"),
        ("24G", "24G"),
        ("24576Mi", "24Gi"),
        ("007", "7"),
        ("1e99", "1e99"),
    ],
)
def test_canonical_text(text: str, want: str) -> None:
    assert canonical(parse_quantity(text)) == want


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        [],
        {},
        b"1",
        "eight",
        ".",
        "+",
        "-",
        "1e",
        "1e+",
        "1.2.3",
        "1,5",
        "0x10",
        "1\n",
        " 1",
        "٣Gi",
        "1k ",
        "1mi",
        "1e100",
        "9" * 200,
        "1" + "0" * 5000,
        float("nan"),
        float("inf"),
        "1Gi1",
        "--1",
        "²",
    ],
    ids=lambda value: repr(value)[:30],
)
def test_refused_values_name_the_field(value: object) -> None:
    with pytest.raises(QuantityInvalid, match=r"^limits\.cpu: "):
        parse_quantity(value, field="limits.cpu")
    assert quantity_or_zero(value) == of(0)
    assert not same_quantity(value, value)


def test_an_amount_is_not_negative() -> None:
    assert parse_amount("0") == of(0)
    with pytest.raises(QuantityInvalid, match="must not be negative"):
        parse_amount("-1", field="status.capacity.cpu")


def test_arithmetic_is_exact() -> None:
    assert of(1) + of_milli(500) == parse_quantity("1.5")
    assert of(1) - of_milli(1) == parse_quantity("999m")
    assert of_milli(333) * 3 == parse_quantity("999m")
    assert -of(2) < of(-1) < of(0)
    assert not of(0)
    assert of(9223372036854775807) * 1_600_000 == Quantity(9223372036854775807 * 1_600_000 * NANO)
    assert (of(1) == 1) is False


@pytest.mark.parametrize(
    ("text", "ceil", "floor", "milli"),
    [
        ("1500m", 2, 1, 1500),
        ("-1500m", -1, -2, -1500),
        ("1n", 1, 0, 1),
        ("2", 2, 2, 2000),
        ("1Gi", 1 << 30, 1 << 30, 1000 << 30),
    ],
)
def test_rounding(text: str, ceil: int, floor: int, milli: int) -> None:
    quantity = parse_quantity(text)
    assert (quantity.ceil(), quantity.floor(), quantity.ceil_milli()) == (ceil, floor, milli)
    assert quantity.is_whole == (ceil == floor)


MEMORY = {
    0: "0",
    1: "1Mi",
    512: "512Mi",
    15360: "15Gi",
    23028: "22Gi",
    24564: "24Gi",
    24576: "24Gi",
    46068: "45Gi",
    65520: "64Gi",
    81559: "80Gi",
    81920: "80Gi",
    143771: "140Gi",
    196608: "192Gi",
}


@pytest.mark.parametrize(("mib", "label"), MEMORY.items())
def test_memory_label(mib: int, label: str) -> None:
    assert memory_label(mib) == label


@pytest.mark.parametrize(
    ("label", "mib"),
    [("24Gi", 24576), ("24G", 22888), ("24576Mi", 24576), ("1.5Gi", 1536), ("0", 0), ("", 0), ("24GB", 0), ("-1Gi", 0)],
)
def test_memory_label_reads_mistyped_quantities(label: str, mib: int) -> None:
    assert memory_label_mib(label) == mib


@pytest.mark.parametrize(
    ("text", "want"),
    [("1500", "2k"), ("999", "999"), ("1499", "1k"), ("1500M", "2G"), ("2E", "2E"), ("1023Ki", "1023Ki"), ("0", "0")],
)
def test_rounded_text(text: str, want: str) -> None:
    assert rounded_text(parse_quantity(text)) == want


@given(st.integers(-(10**40), 10**40), st.sampled_from([Format.DECIMAL_SI, Format.DECIMAL_EXPONENT]))
def test_decimal_quantities_round_trip(nano: int, style: Format) -> None:
    assert parse_quantity(canonical(Quantity(nano, style))).nano == nano


@given(st.integers(-(2**63) + 1, 2**63 - 1))
def test_binary_quantities_round_trip(value: int) -> None:
    quantity = of_bytes(value)
    assert parse_quantity(canonical(quantity)) == quantity


@given(st.integers(0, 10**12))
def test_mib_round_trip(mib: int) -> None:
    assert of_mib(mib).mib() == mib


@given(st.text(alphabet="0123456789.+-eEKMGTPinumk ", max_size=12))
def test_whatever_parses_prints_something_that_parses_to_it(text: str) -> None:
    try:
        quantity = parse_quantity(text)
    except QuantityInvalid:
        return
    assert parse_quantity(canonical(quantity)) == quantity


@given(st.text())
def test_any_text_is_a_quantity_or_refused(text: str) -> None:
    assert isinstance(quantity_or_zero(text), Quantity)
