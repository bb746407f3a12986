"""Product names as drivers and kernels print them, made into label values and parts of keys.

For: `.product` labels (§3.1), device and CPU keys (§3.2, design §8.1) and the preset table's lookup.
In: text of any alphabet and length. Out: a legal label value, or lower-case text of `a-z 0-9 - .`.
Promises:
  - never raises; a separator never stands first, last or beside another;
  - the maker's name is trimmed from the front of a product, mid-word too (`Ascend910B2` is `910b2`);
  - a normalised name normalises to itself, save that a maker's name may come to the front again.
"""

from __future__ import annotations

import re

_ALNUM = frozenset("abcdefghijklmnopqrstuvwxyz0123456789")
_VALUE_ALNUM = _ALNUM | frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
_SEPARATORS = frozenset("-_.")
_MAX_VALUE = 63
_MARKS = re.compile(r"\((?:R|r|TM|tm)\)")
_LEADING_CRUFT = re.compile(r"(?:Genuine |[0-9]+(?:st|nd|rd|th) Gen )+")
_TRAILING_CORES = re.compile(r" [0-9]+-cores?$", re.IGNORECASE)


def label_value_of(text: str) -> str:
    """Return `text` as a label value: case kept, blanks as `-`, everything else foreign dropped (spec 01 §3.1)."""
    out: list[str] = []
    for char in text.replace(" ", "-"):
        if char in _VALUE_ALNUM or (char in _SEPARATORS and out and out[-1] not in _SEPARATORS):
            out.append(char)
        if len(out) == _MAX_VALUE:
            break
    return "".join(out).strip("-_.")


def normalize_product(name: str, *, maker: str = "", limit: int = 0, strip_cruft: bool = False) -> str:
    """Return a product name as a part of a key.

    `maker` is trimmed from the front, again and again; `limit` cuts (0: no cut); `strip_cruft` removes what CPU
    vendors add around a name. Blanks, underscores and every foreign character become one `-` (design §8.1).
    """
    maker = maker.lower()
    out: list[str] = []
    for char in _without_cruft(name) if strip_cruft else name:
        lower = char.lower() if char.isascii() else "-"
        if lower in _ALNUM:
            out.append(lower)
        elif out and out[-1] not in _SEPARATORS:
            out.append("." if lower == "." else "-")
        else:
            continue
        if maker and len(out) == len(maker) and "".join(out) == maker:
            out.clear()
        if limit > 0 and len(out) == limit:
            break
    return "".join(out).rstrip("-.")


def tokens_of(text: str) -> tuple[str, ...]:
    """Return the words of a normalised name: what stands between its separators."""
    return tuple(token for token in re.split(r"[-_.]", text) if token)


def _without_cruft(name: str) -> str:
    name = name.partition(" @ ")[0]
    name = _MARKS.sub("", name)
    leading = _LEADING_CRUFT.match(name)
    name = name[leading.end() :] if leading else name
    name = name.strip().removesuffix(" CPU").removesuffix(" Processor")
    return _TRAILING_CORES.sub("", name)
