"""Cambricon: health is a verdict, versions are short (spec 06 §2.2, §2.6, §2.7)."""

from __future__ import annotations

from devicemanager.answers import RawCard
from devicemanager.manufacturers.rules import Rules, always, library_verdict, slices_of


def driver_version(card: RawCard) -> str:
    """Return `major.minor` of a version printed as `v6.2.29`."""
    return ".".join((card.driver_version or "").removeprefix("v").split(".")[:2])


def _no_cores(_card: RawCard) -> int | None:
    return None  # cnDev counts no cores


RULES = Rules(
    manufacturer="cambricon",
    slices=always(slices_of("cambricon")),
    unhealthy=library_verdict,
    driver_version=driver_version,
    cores=_no_cores,
)
