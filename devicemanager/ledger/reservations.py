"""What was decided and is not yet, or no longer, on the Pod's annotation.

For: the allocator, which reserves before it records; `node_ledger`, which charges reservations like records.
In: decided entries. Out: for each container what overrides its annotation.
Promises: a reservation lives until the annotation says the same or the Pod is gone; a withdrawal (an entry that must no
longer count although the annotation may still hold it) lives until the annotation has lost it or the Pod is gone.
State: all of it. After a crash it is empty, and the annotations alone count; see `allocator` for why that is right.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from devicemanager.ledger.accounts import Account, ContainerKey, Entry
from nodefeature.fields import uid_of

# A Pod that was read past the cache appears in it within this time, or is gone.
_UNSEEN_S = 60.0


@dataclass(frozen=True, slots=True)
class Reservation:
    """One container's override; `entry` None withdraws what the annotation says."""

    pod: Mapping[str, Any]
    entry: Entry | None
    since: float
    seen: bool
    """The Pod stood in the cache when this was made, so its absence from now on means that it is gone."""
    unwritten: bool = False
    """Still to be written: what the annotation says meanwhile proves nothing, a write that timed out may land."""


_NONE: Mapping[str, Reservation] = {}


class Reservations:
    """All overrides of a node."""

    def __init__(self) -> None:
        self._held: dict[str, dict[str, Reservation]] = {}
        """Pod uid -> container -> override; a Pod without any is not in it."""

    def __len__(self) -> int:
        return sum(len(held) for held in self._held.values())

    def put(self, container: str, reservation: Reservation) -> None:
        """Set a container's override."""
        self._held.setdefault(uid_of(reservation.pod), {})[container] = reservation

    def drop(self, key: ContainerKey) -> None:
        """Let the annotation speak again."""
        uid, container = key
        held = self._held.get(uid, {})
        held.pop(container, None)
        if not held:
            self._held.pop(uid, None)

    def get(self, key: ContainerKey) -> Reservation | None:
        """Return a container's override."""
        return self.of_pod(key[0]).get(key[1])

    def of_pod(self, uid: str) -> Mapping[str, Reservation]:
        """Return the overrides of a Pod's containers, by container."""
        return self._held.get(uid, _NONE)

    def pods(self) -> dict[str, Mapping[str, Any]]:
        """Return the Pods that have overrides, by uid."""
        return {uid: next(iter(held.values())).pod for uid, held in self._held.items()}

    def settle(self, accounts: Mapping[str, Account], now: float) -> bool:
        """Drop what the annotations say by themselves and what belongs to Pods that are gone; say whether any was."""
        settled = [
            (uid, container)
            for uid, of_pod in self._held.items()
            for container, held in of_pod.items()
            if _is_settled(container, held, accounts.get(uid), now)
        ]
        for key in settled:
            self.drop(key)
        return bool(settled)


def _is_settled(container: str, held: Reservation, account: Account | None, now: float) -> bool:
    if account is None:
        return held.seen or now - held.since > _UNSEEN_S
    return not held.unwritten and account.entry(container) == held.entry
