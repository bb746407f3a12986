"""The questions that every manufacturer answers differently.

For: the nine modules beside this one, which each build one `Rules`; `devicemanager.inventory`, which asks.
In: one `RawCard`. Out: plain values; the empty string and 0 mean "not known" or "not offered".
Promises: pure; a missing reading is never taken for a good or a bad one; defaults are the common rule.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from devicemanager.answers import RawCard
from nodefeature.manufacturers import DEFAULT_MANUFACTURERS


@dataclass(frozen=True, slots=True)
class Slices:
    """Logical (software) slices one card offers; a count of 0 is "none"."""

    count: int = 0
    overcommit: bool = False


NO_SLICES = Slices()


def slices_of(manufacturer: str) -> Slices:
    """Return what a manufacturer's sliceable card offers, as the one registry says (decision 0460)."""
    known = DEFAULT_MANUFACTURERS.get(manufacturer)
    return Slices(known.max_slices, known.overcommits_cores) if known else NO_SLICES


def partitioned(card: RawCard) -> bool:
    """Say whether the card is in hardware partition mode now; a pending change does not count."""
    return card.partition_mode == "enabled"


def unless_partitioned(slices: Slices) -> Callable[[RawCard], Slices]:
    """Return the rule "these slices, but none while the card is in hardware partition mode"."""

    def rule(card: RawCard) -> Slices:
        return NO_SLICES if partitioned(card) else slices

    return rule


def always(slices: Slices) -> Callable[[RawCard], Slices]:
    """Return the rule "these slices on every card"."""

    def rule(_card: RawCard) -> Slices:
        return slices

    return rule


def positive(reading: int | None) -> bool:
    """Say whether a counter was read and is above zero."""
    return reading is not None and reading > 0


def uncorrected_errors(card: RawCard) -> bool:
    """Unhealthy by the volatile uncorrected error counter; by the library's verdict where it shows no counter."""
    return library_verdict(card) if card.ecc_uncorrected is None else card.ecc_uncorrected > 0


def library_verdict(card: RawCard) -> bool:
    """Unhealthy when the library itself says so."""
    return card.health == "unhealthy"


def _nothing(_card: RawCard) -> str:
    return ""


def _memory_as_reported(card: RawCard) -> int | None:
    return card.memory_mib


def _cores_as_reported(card: RawCard) -> int | None:
    return card.cores


def _driver_as_reported(card: RawCard) -> str:
    return card.driver_version or ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """One manufacturer's reading of its own cards (spec 06 §2.2-§2.7)."""

    manufacturer: str
    slices: Callable[[RawCard], Slices]
    unhealthy: Callable[[RawCard], bool]
    family: Callable[[RawCard], str] = _nothing
    memory_mib: Callable[[RawCard], int | None] = _memory_as_reported
    cores: Callable[[RawCard], int | None] = _cores_as_reported
    driver_version: Callable[[RawCard], str] = _driver_as_reported
    skipped: Callable[[RawCard], bool] = lambda card: card.virtual
