"""Moore Threads: sixteen hard slices on every physical card (spec 06 §2.7); virtual devices of a guest are skipped."""

from __future__ import annotations

from devicemanager.manufacturers.rules import Rules, always, library_verdict, slices_of

RULES = Rules(manufacturer="mthreads", slices=always(slices_of("mthreads")), unhealthy=library_verdict)
