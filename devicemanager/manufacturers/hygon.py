"""Hygon: node-wide MIG, hard spatial slices (spec 06 §2.6, §2.7).

Promises: with the mode on, the core count comes from the profiles, because the runtime then shows one partition's
cores only; with the mode unreadable, neither kind of slicing is offered.
"""

from __future__ import annotations

from devicemanager.answers import RawCard
from devicemanager.manufacturers.rules import NO_SLICES, Rules, Slices, partitioned, slices_of, uncorrected_errors


def slices(card: RawCard) -> Slices:
    """Return four slices when the partition mode was read and is not on."""
    if card.partition_mode in ("disabled", "unsupported"):
        return slices_of("hygon")
    return NO_SLICES


def cores(card: RawCard) -> int | None:
    """Return the compute units of the whole card: units times instances of its profiles while partitioned."""
    if not partitioned(card):
        return card.cores
    totals = [profile.cores * profile.count for profile in card.profiles if profile.cores and profile.count > 0]
    return max(totals, default=card.cores or 0) or None


def family(card: RawCard) -> str:
    """Return the library's own word for the graphics block."""
    return card.architecture or ""


RULES = Rules(manufacturer="hygon", slices=slices, unhealthy=uncorrected_errors, cores=cores, family=family)
