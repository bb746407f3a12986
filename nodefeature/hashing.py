"""FNV-64a, the hash inside generated names.

For: names that must stay short (LocalQueues, topology profiles, cut keys; spec 01 §3.5).
In: text. Out: 16 lower-case hex digits, leading zeros kept.
Promises: 64-bit FNV-1a over the UTF-8 bytes; the same text gives the same name in every process and version.
"""

from __future__ import annotations

_OFFSET_BASIS = 0xCBF29CE484222325
_PRIME = 0x100000001B3
_MASK = 0xFFFFFFFFFFFFFFFF


def fnv64(text: str) -> str:
    """Return the FNV-64a hash of `text` as 16 hex digits."""
    value = _OFFSET_BASIS
    # A lone surrogate (JSON may carry one) has no UTF-8 form; it still must not stop a name from being made.
    for byte in text.encode("utf-8", "surrogatepass"):
        value = ((value ^ byte) * _PRIME) & _MASK
    return f"{value:016x}"
