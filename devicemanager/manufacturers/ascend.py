"""Ascend: SoC table, health by single- and double-bit errors, slices by family and toolkit (spec 06 §2.5-§2.7).

Promises: the family comes from the SoC's name (`Ascend910_9382`), never from the product, which may be the bare word
`Ascend910`; an unknown SoC has no family and no slices.
"""

from __future__ import annotations

import re

from devicemanager.answers import RawCard
from devicemanager.manufacturers.rules import NO_SLICES, Rules, Slices, library_verdict, positive, slices_of

_SOC_NUMBERS: dict[str, int] = {
    **dict.fromkeys(("910premiuma", "910prob", "910proa", "910a", "910b"), 100),
    **{f"310p{n}": 200 for n in range(1, 8)},
    **dict.fromkeys(("910b1", "910b2", "910b2c", "910b3", "910b4", "910b4-1"), 220),
    **{f"310b{n}": 240 for n in range(1, 5)},
    **{f"910_{n}": 250 for n in (9391, 9392, 9381, 9382, 9372, 9362, 9363)},
    "910": 250,
    **dict.fromkeys(("910_9579", "910_95", "950"), 260),
}
_FALLBACKS = (
    (re.compile(r"^950"), 260),
    (re.compile(r"^(310p\d?|i2\d?)"), 200),
    (re.compile(r"310b"), 240),
    (re.compile(r"^(910b\d|a2g\d)"), 220),
    (re.compile(r"^910"), 100),
)
_FAMILY_BELOW = ((200, "910"), (220, "310P"), (240, "910B"), (250, "310B"), (260, "910C"), (270, "950"))
_TOOLKIT_MAJORS = {"910B": (8, 9), "910C": (8, 9), "950": (9,), "310P": (9,)}
_DEFAULT_TOOLKIT_MAJOR = 8


def family(card: RawCard) -> str:
    """Return the generation of the card's SoC; of its product when the library names no SoC."""
    name = (card.soc or card.product or "").strip().lower().removeprefix("ascend")
    number = _SOC_NUMBERS.get(name)
    if number is None:
        number = next((value for pattern, value in _FALLBACKS if pattern.search(name)), None)
    if number is None:
        return ""
    return next((word for limit, word in _FAMILY_BELOW if number < limit), "")


def toolkit_major(card: RawCard) -> int:
    """Return the first component of the toolkit's version; 8 when it is not known."""
    major = (card.runtime_version or "").partition(".")[0].strip()
    return int(major) if major.isascii() and major.isdecimal() else _DEFAULT_TOOLKIT_MAJOR


def slices(card: RawCard) -> Slices:
    """Return 63 slices where a slicing library exists for this family and toolkit."""
    if toolkit_major(card) in _TOOLKIT_MAJORS.get(family(card), ()):
        return slices_of("ascend")
    return NO_SLICES


def unhealthy(card: RawCard) -> bool:
    """Unhealthy when ECC is on and any error was counted: here a corrected one counts too.

    Where the library shows no counters, its verdict speaks.
    """
    if card.ecc_uncorrected is None and card.ecc_corrected is None:
        return library_verdict(card)
    return card.ecc_enabled is True and (positive(card.ecc_corrected) or positive(card.ecc_uncorrected))


RULES = Rules(manufacturer="ascend", slices=slices, unhealthy=unhealthy, family=family)
