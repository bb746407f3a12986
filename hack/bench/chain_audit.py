"""What kube-apiserver's audit log tells about the chain: who wrote how much, when the last time, how soon after what.

For: `hack.bench.chain_real`. In: the audit log, which the server writes while we read. Out: counts, moments, latencies.
Promises: each request is read once; times are the server's own, so a slow reader measures nothing of itself; a lease
and its renewal are no write.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from pathlib import Path

from hack.controlplane import audit
from hack.controlplane.audit import Request

_LEASES = "leases.coordination.k8s.io"


class Follower:
    """Reads on where it stopped."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._position = 0
        self._rest = b""

    def new(self) -> list[Request]:
        """Return the requests answered since the last call."""
        with self._log.open("rb") as file:
            file.seek(self._position)
            text = self._rest + file.read()
            self._position = file.tell()
        lines = text.splitlines(keepends=True)
        self._rest = lines.pop() if lines and not lines[-1].endswith(b"\n") else b""
        return list(audit.parse(lines))


class Writes:
    """Counts the writes of some users, and keeps what was asked to be kept."""

    def __init__(self, log: Path) -> None:
        self._follower = Follower(log)
        self._kept: list[Request] = []
        self.counts: Counter[str] = Counter()
        self.last: dict[str, float] = {}
        """User -> when its last write was answered, in seconds since the epoch."""

    def read(self, keep: Callable[[Request], bool] = lambda _: False) -> None:
        """Take what is new; keep the requests that `keep` names."""
        for request in self._follower.new():
            if is_write(request):
                self.counts[request.user] += 1
                self.last[request.user] = max(self.last.get(request.user, 0.0), seconds(request.answered))
                if keep(request):
                    self._kept.append(request)

    def kept(self) -> list[Request]:
        """Return what was kept, and forget it."""
        kept, self._kept = self._kept, []
        return kept

    def last_of(self, users: Iterable[str]) -> float:
        """Return when the last of these users' writes was answered; 0 when there was none."""
        return max((self.last.get(user, 0.0) for user in users), default=0.0)


def is_write(request: Request) -> bool:
    """Say whether a request changed something of meaning."""
    return request.is_write and request.resource != _LEASES and request.code < 400


def seconds(time: str) -> float:
    """Return a time of the log as seconds since the epoch."""
    return datetime.fromisoformat(time).timestamp()


def latencies(causes: Sequence[Request], effects: Sequence[Request], *, same: Callable[[Request], str]) -> list[float]:
    """Return for each cause the seconds until its effect was answered, both as the server saw them.

    A cause's effect is the first one under the same key (`same` of the cause, the name of the effect) that came after
    the cause and before the next cause of that key; a cause without one is left out.
    """
    found: list[float] = []
    by_name: dict[str, list[Request]] = {}
    for effect in sorted(effects, key=lambda e: e.time):
        by_name.setdefault(effect.name, []).append(effect)
    ordered = sorted(causes, key=lambda c: c.time)
    for position, cause in enumerate(ordered):
        key = same(cause)
        until = next((later.time for later in ordered[position + 1 :] if same(later) == key), "9999")
        first = next((e for e in by_name.get(key, ()) if cause.time < e.time < until), None)
        if first is not None:
            found.append(seconds(first.answered) - seconds(cause.time))
    return found


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least `share` of the values do not exceed; NaN of none."""
    if not values:
        return math.nan
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]
