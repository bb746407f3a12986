"""How long to wait after a failure.

For: `kube.controller`. In: keys that failed. Out: seconds.
Promises: each failure of a key in a row doubles its pause up to `max_s`, spread by chance over its upper half, so that
keys which failed together do not come back together; a success forgets.
"""

from __future__ import annotations

import random

from kube.reconciler import Key


class Backoff:
    """Failures in a row, by key."""

    def __init__(self, rng: random.Random, *, first_s: float = 0.1, max_s: float = 60.0) -> None:
        self._rng = rng
        self._first_s = first_s
        self._max_s = max_s
        self._failures: dict[Key, int] = {}

    def next_s(self, key: Key) -> float:
        """Count a failure and return the seconds to wait."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        return min(self._max_s, self._first_s * 2.0 ** min(failures, 30)) * self._rng.uniform(0.5, 1.0)

    def forget(self, key: Key) -> None:
        """A run of `key` succeeded."""
        self._failures.pop(key, None)
