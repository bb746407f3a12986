"""Moore Threads: sixteen hard slices on every physical card (spec 06 §2.7); virtual devices of a guest are skipped."""

from __future__ import annotations

from devicemanager.manufacturers.rules import Rules, Slices, always, library_verdict

RULES = Rules(manufacturer="mthreads", slices=always(Slices(count=16, overcommit=False)), unhealthy=library_verdict)
