"""Saying a thing once.

For: reconcilers that leave out a bad item and must name it, at every run, without filling the log.
In: a subject and the sentences that hold for it now. Out: those not said before.
Promises: a sentence is news again after it stopped being true; a forgotten subject holds no memory.
State: per subject the sentences said, in this process only (after a restart each is said once more).
"""

from __future__ import annotations

from collections.abc import Iterable


class Reports:
    """Remembers what was said about each subject."""

    def __init__(self) -> None:
        self._said: dict[str, frozenset[str]] = {}

    def news(self, subject: str, problems: Iterable[str]) -> list[str]:
        """Return the sentences about `subject` that were not said yet, sorted; none at all forgets the subject."""
        now = frozenset(problems)
        before = self._said.get(subject, frozenset())
        if now:
            self._said[subject] = now
        else:
            self._said.pop(subject, None)
        return sorted(now - before)

    def forget(self, subject: str) -> None:
        """Drop the memory of a subject that is gone."""
        self._said.pop(subject, None)
