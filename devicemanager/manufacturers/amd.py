"""AMD: the family is the graphics block that the HSA library names (spec 06 §2.5-§2.7)."""

from __future__ import annotations

from devicemanager.answers import RawCard
from devicemanager.manufacturers.rules import Rules, always, slices_of, uncorrected_errors


def family(card: RawCard) -> str:
    """Return the library's own word, such as `GC 11.0.0`."""
    return card.architecture or ""


RULES = Rules(
    manufacturer="amd",
    slices=always(slices_of("amd")),
    unhealthy=uncorrected_errors,
    family=family,
)
