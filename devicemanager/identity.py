"""Which of a library's ids name one card and no other.

For: `inventory`, which publishes no card without an identity (design §7).
In: the uuid as the library printed it. Out: an id that fits label-free text, file names and device-plugin tokens.
Promises: an id never holds a blank or a colon; placeholders (`GPU-XX`, all zeroes, a PCI device number) are no ids,
because every card of the product carries the same one.
"""

from __future__ import annotations

import re

_FOREIGN = re.compile(r"[^A-Za-z0-9._-]+")
_MAKER_PREFIX = re.compile(r"^(?:GPU|MLU|PPU|DCU|NPU|MIG|0x)-?", re.IGNORECASE)
_DEVICE_NUMBER = re.compile(r"^0x[0-9a-f]{1,4}$", re.IGNORECASE)
_MAX = 63
# A serial is at least this long; a short row of zeroes is a number somebody gave.
_SERIAL = 8


def card_id(uuid: str | None) -> str:
    """Return the id to publish for a uuid, blanks turned to dashes; empty when the uuid names no single card."""
    text = _FOREIGN.sub("-", (uuid or "").strip()).strip("-._")
    bare = _MAKER_PREFIX.sub("", text).replace("-", "")
    if not bare or len(text) > _MAX or _DEVICE_NUMBER.match(text):
        return ""
    letters = set(bare.lower())
    placeholder = letters == {"x"} or (letters in ({"0"}, {"f"}) and len(bare) >= _SERIAL)
    return "" if placeholder else text
