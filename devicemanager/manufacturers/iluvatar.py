"""Iluvatar: an NVML clone whose capabilities lie outside NVIDIA's family table (spec 06 §2.6, §2.7)."""

from __future__ import annotations

from devicemanager.answers import RawCard
from devicemanager.manufacturers.rules import Rules, always, library_verdict, slices_of


def _no_cores(_card: RawCard) -> int | None:
    return None  # spec 06 §2.2: the multiprocessor count is not published


RULES = Rules(
    manufacturer="iluvatar",
    # The same slicing library as NVIDIA's serves it.
    slices=always(slices_of("iluvatar")),
    unhealthy=library_verdict,
    cores=_no_cores,
)
