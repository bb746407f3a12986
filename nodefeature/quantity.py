"""Kubernetes quantities as exact integers.

For: capacities, requests, credits and memory labels, wherever text such as `1600k`, `1.5Gi` or `100m` is read or
written (case B020).
In: a quantity's text, or a JSON number. Out: an exact count of billionths and the text the API server would print.
Promises:
  - no binary fraction is ever computed with: values are integers at nano scale, of any size;
  - text finer than one nano is rounded away from zero, as the API server does;
  - what does not parse raises `QuantityInvalid`, naming field and value;
  - the text form is the API server's canonical one in all three formats, and reads back to the same value.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache, total_ordering

NANO = 10**9
_MICRO = 10**6
_MAX_TEXT = 128  # longer text is no quantity anybody means, and bounds the work of a hostile one
_MAX_EXPONENT = 99
_MAX_INT64 = 2**63 - 1

# ASCII digits by name: `\d` would take other alphabets' digits.
_TEXT = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>[0-9]*)(?:\.(?P<part>[0-9]*))?"
    r"(?:(?P<suffix>[KMGTPE]i|[numkMGTPE])|[eE](?P<exponent>[+-]?[0-9]{1,9}))?"
)
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY_SUFFIXES = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL_SUFFIXES = {exponent: suffix for suffix, exponent in _DECIMAL.items()}


class QuantityInvalid(ValueError):
    """A value is not a Kubernetes quantity; the message names field and value."""


class Format(Enum):
    """How a quantity was written, and so how it is printed."""

    DECIMAL_SI = "DecimalSI"
    BINARY_SI = "BinarySI"
    DECIMAL_EXPONENT = "DecimalExponent"


@total_ordering
@dataclass(frozen=True, slots=True, eq=False)
class Quantity:
    """An exact amount in billionths. Equality and order look at the amount, never at the format."""

    nano: int
    format: Format = Format.DECIMAL_SI

    def __eq__(self, other: object) -> bool:
        return self.nano == other.nano if isinstance(other, Quantity) else NotImplemented

    def __lt__(self, other: Quantity) -> bool:
        return self.nano < other.nano

    def __hash__(self) -> int:
        return hash(self.nano)

    def __add__(self, other: Quantity) -> Quantity:
        return Quantity(self.nano + other.nano, self.format)

    def __sub__(self, other: Quantity) -> Quantity:
        return Quantity(self.nano - other.nano, self.format)

    def __mul__(self, factor: int) -> Quantity:
        return Quantity(self.nano * factor, self.format)

    def __neg__(self) -> Quantity:
        return Quantity(-self.nano, self.format)

    def __bool__(self) -> bool:
        return self.nano != 0

    def __str__(self) -> str:
        return canonical(self)

    @property
    def is_whole(self) -> bool:
        """Say whether the amount is an integer."""
        return self.nano % NANO == 0

    def ceil(self) -> int:
        """Return the amount rounded up to an integer (what the API machinery calls the value)."""
        return -(-self.nano // NANO)

    def floor(self) -> int:
        """Return the amount rounded down to an integer."""
        return self.nano // NANO

    def ceil_milli(self) -> int:
        """Return the amount in thousandths, rounded up."""
        return -(-self.nano // _MICRO)

    def mib(self) -> int:
        """Return an amount of bytes in whole MiB, rounded down."""
        return self.nano // (NANO << 20)


def of(value: int) -> Quantity:
    """Return an integer amount in decimal format."""
    return Quantity(value * NANO)


def of_milli(value: int) -> Quantity:
    """Return an amount given in thousandths, in decimal format."""
    return Quantity(value * _MICRO)


def of_micro(value: int) -> Quantity:
    """Return an amount given in millionths, in decimal format."""
    return Quantity(value * 1000)


def of_bytes(value: int) -> Quantity:
    """Return an amount of bytes in binary format."""
    return Quantity(value * NANO, Format.BINARY_SI)


def of_mib(value: int) -> Quantity:
    """Return an amount of MiB in binary format."""
    return of_bytes(value << 20)


ZERO = Quantity(0)
ONE = Quantity(NANO)


def parse_quantity(value: object, *, field: str = "quantity") -> Quantity:
    """Return the quantity written as `value`: its text, or a JSON number.

    Raises `QuantityInvalid` naming `field` for anything else, booleans and nulls included.
    """
    try:
        if isinstance(value, str):
            return _parse_text(value)
        if isinstance(value, int) and not isinstance(value, bool):
            return Quantity(value * NANO)
        if isinstance(value, float):
            # The shortest text of a JSON number is the number that was written; nothing is computed in binary.
            return _parse_text(repr(value))
    except QuantityInvalid as refused:
        raise QuantityInvalid(f"{field}: {refused}") from None
    raise QuantityInvalid(f"{field}: {value!r} is not a quantity; write a number such as 4, 500m or 16Gi")


def quantity_or_zero(value: object) -> Quantity:
    """Return the quantity written as `value`, zero for anything that is none."""
    try:
        return parse_quantity(value)
    except QuantityInvalid:
        return ZERO


def parse_amount(value: object, *, field: str = "quantity") -> Quantity:
    """Return a capacity or a request: a quantity that is not negative."""
    quantity = parse_quantity(value, field=field)
    if quantity.nano < 0:
        raise QuantityInvalid(f"{field}: {value!r} must not be negative")
    return quantity


def is_exactly(value: object, number: int) -> bool:
    """Say whether `value` is a quantity equal to the integer `number` (`1`, `"1"` and `"1000m"` are exactly 1)."""
    try:
        return parse_quantity(value).nano == number * NANO
    except QuantityInvalid:
        return False


def same_quantity(left: object, right: object) -> bool:
    """Say whether both are quantities of the same amount, however they are written."""
    try:
        return parse_quantity(left).nano == parse_quantity(right).nano
    except QuantityInvalid:
        return False


@lru_cache(maxsize=8192)
def _parse_text(text: str) -> Quantity:
    # Nearly all quantities of a cluster are plain integers, and nearly all of them repeat.
    if text.isdigit() and text.isascii() and len(text) <= _MAX_TEXT:
        return Quantity(int(text) * NANO)
    match = _TEXT.fullmatch(text) if len(text) <= _MAX_TEXT else None
    whole, part = (match["whole"], match["part"] or "") if match else ("", "")
    if match is None or not whole + part:
        raise QuantityInvalid(f"{text[:_MAX_TEXT]!r} is not a quantity; write a number such as 4, 500m or 16Gi")
    digits = int(whole + part)
    if match["exponent"] is not None:
        exponent, style = int(match["exponent"]), Format.DECIMAL_EXPONENT
        if abs(exponent) > _MAX_EXPONENT:
            raise QuantityInvalid(f"{text!r} has an exponent beyond {_MAX_EXPONENT}")
    elif (match["suffix"] or "") in _BINARY:
        exponent, style = 0, Format.BINARY_SI
        digits <<= _BINARY[match["suffix"]]
    else:
        exponent, style = _DECIMAL[match["suffix"] or ""], Format.DECIMAL_SI
    nano = _scaled(digits, exponent + 9 - len(part))
    if style is Format.BINARY_SI:
        # The API server caps binary amounts, and prints those below 1 in decimal.
        nano = min(nano, _MAX_INT64 * NANO)
        style = Format.DECIMAL_SI if 0 < nano < NANO else style
    return Quantity(-nano if match["sign"] == "-" else nano, style)


def _scaled(digits: int, exponent: int) -> int:
    """Return digits x 10^exponent, rounded up."""
    if exponent >= 0:
        return digits * int(10**exponent)
    return -(-digits // int(10**-exponent))


def canonical(quantity: Quantity) -> str:
    """Return the text the API server prints for a quantity."""
    nano = quantity.nano
    if nano == 0:
        return "0"
    if quantity.format is Format.BINARY_SI and nano % NANO == 0 and abs(nano) >= 1024 * NANO:
        return _canonical_binary(nano // NANO)
    exponent = -9
    while nano % 1000 == 0 and (exponent < 18 or quantity.format is Format.DECIMAL_EXPONENT):
        nano //= 1000
        exponent += 3
    if quantity.format is Format.DECIMAL_EXPONENT:
        return f"{nano}e{exponent}" if exponent else str(nano)
    return f"{nano}{_DECIMAL_SUFFIXES[exponent]}"


def _canonical_binary(value: int) -> str:
    step = 0
    while value % 1024 == 0 and step < len(_BINARY_SUFFIXES) - 1:
        value //= 1024
        step += 1
    return f"{value}{_BINARY_SUFFIXES[step]}"


def rounded_text(quantity: Quantity) -> str:
    """Return the lossy form used in labels: the nearest count of the largest unit that fits (spec 01 §3.4)."""
    value = quantity.ceil()
    if quantity.format is Format.BINARY_SI:
        units = [(1 << bits, suffix) for suffix, bits in _BINARY.items()]
    else:
        units = [(10**exponent, suffix) for suffix, exponent in _DECIMAL.items() if exponent > 0]
    for unit, suffix in reversed(units):
        if value >= unit:
            return f"{(value + unit // 2) // unit}{suffix}"
    return str(value)


def memory_label(mib: int) -> str:
    """Return the value of a `.memory` label for an amount of MiB: 24564 -> `24Gi`, 0 -> `0`."""
    return rounded_text(of_mib(mib)) if mib > 0 else "0"


def memory_label_mib(label: str) -> int:
    """Return the MiB a `.memory` label stands for, rounded down; 0 when it is missing, negative or no quantity."""
    return max(quantity_or_zero(label).mib(), 0)
