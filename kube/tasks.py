"""Every task has an owner and a name; a task that ends is noticed.

For: `kube.runtime`, processes that start tasks of their own. `Health` is what `/livez` and `/readyz` show.
Promises:
- a guarded task that ends by itself, with or without an error, is logged once and turns `/livez` red by name;
- a cancelled task is no fault.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine

log = logging.getLogger(__name__)

Check = Callable[[], str]
"""Answers what is wrong; empty when nothing is."""


class Health:
    """What is wrong with this process: tasks that are gone, and checks of readiness."""

    def __init__(self) -> None:
        self._gone: dict[str, str] = {}
        self._checks: dict[str, Check] = {}

    def task_gone(self, name: str, why: str) -> None:
        """Remember that a task that should run for ever has ended."""
        self._gone[name] = why

    def add_check(self, name: str, check: Check) -> None:
        """Declare a condition of readiness."""
        self._checks[name] = check

    def live_faults(self) -> list[str]:
        """Return what a restart would mend."""
        return [f"{name}: {why}" for name, why in self._gone.items()]

    def ready_faults(self) -> list[str]:
        """Return what keeps this process from serving."""
        answers = ((name, check()) for name, check in self._checks.items())
        return self.live_faults() + [f"{name}: {why}" for name, why in answers if why]


async def guard(
    name: str,
    work: Coroutine[object, object, object],
    health: Health,
    *,
    may_end: Callable[[], bool] = lambda: False,
) -> None:
    """Run something that should never end, save when `may_end` says so then; name it when it does."""
    try:
        await work
    except Exception as error:  # the guard is the last owner: its end must be seen, not awaited by nobody
        log.exception("task ended with an error", extra={"task": name})
        health.task_gone(name, f"ended with {type(error).__name__}")
    else:
        if not may_end():
            log.error("task ended", extra={"task": name})
            health.task_gone(name, "ended")
