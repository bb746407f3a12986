"""NVIDIA: families by compute capability, ECC's share of GDDR, MIG (spec 06 §2.5-§2.7).

Promises: memory is raised only where parity is known to be carved out of it: ECC on, a bus narrower than HBM's, and
a generation whose parity is not kept on the die. GDDR7 (compute capability 10 and later) keeps it on the die: 97887
MiB are reported of 98304 fitted, and the 16/15 rule would invent 6 GiB.
"""

from __future__ import annotations

from devicemanager.answers import RawCard
from devicemanager.manufacturers.rules import Rules, slices_of, uncorrected_errors, unless_partitioned

_HBM_BUS_BITS = 1024
_ON_DIE_PARITY_SINCE = 10
_FAMILIES = {
    1: "Tesla",
    2: "Fermi",
    3: "Kepler",
    5: "Maxwell",
    6: "Pascal",
    9: "Hopper",
    10: "Blackwell",
    12: "Blackwell",
}


def capability(card: RawCard) -> tuple[int, int] | None:
    """Return (major, minor) of the compute capability, or None when it is absent or not two numbers."""
    major, dot, minor = (card.compute_capability or "").partition(".")
    if not (dot and major.isascii() and major.isdecimal() and minor.isascii() and minor.isdecimal()):
        return None
    return int(major), int(minor)


def family(card: RawCard) -> str:
    """Return the architecture's name by compute capability; empty when the table has none."""
    version = capability(card)
    if version is None:
        return ""
    major, minor = version
    if major == 7:
        return "Volta" if minor < 5 else "Turing"
    if major == 8:
        return "Ada-Lovelace" if minor == 9 else "Ampere"
    return _FAMILIES.get(major, "")


def memory_mib(card: RawCard) -> int | None:
    """Return MiB fitted: what ECC took of GDDR5/6 is added back (times 16/15)."""
    reported, bus = card.memory_mib, card.memory_bus_bits
    if reported is None or card.ecc_enabled is not True or bus is None or not 0 < bus < _HBM_BUS_BITS:
        return reported
    version = capability(card)
    if version is not None and version[0] >= _ON_DIE_PARITY_SINCE:
        return reported
    return reported * 16 // 15


RULES = Rules(
    manufacturer="nvidia",
    slices=unless_partitioned(slices_of("nvidia")),
    unhealthy=uncorrected_errors,
    family=family,
    memory_mib=memory_mib,
)
