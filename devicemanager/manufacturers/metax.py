"""MetaX: families by product name, sGPU slices (spec 06 §2.5-§2.7)."""

from __future__ import annotations

import re

from devicemanager.answers import RawCard
from devicemanager.manufacturers.rules import Rules, always, slices_of, uncorrected_errors

_FAMILIES = ((re.compile(r"c\d{2,4}"), "MXC"), (re.compile(r"n\d{2,4}"), "MXN"), (re.compile(r"g\d{2,4}"), "MXG"))


def family(card: RawCard) -> str:
    """Return the first family whose pattern the lower-cased product holds; a renamed card has none."""
    product = (card.product or "").lower()
    return next((name for pattern, name in _FAMILIES if pattern.search(product)), "")


def _no_cores(_card: RawCard) -> int | None:
    return None  # mxsml counts no cores


RULES = Rules(
    manufacturer="metax",
    slices=always(slices_of("metax")),
    unhealthy=uncorrected_errors,
    family=family,
    cores=_no_cores,
)
