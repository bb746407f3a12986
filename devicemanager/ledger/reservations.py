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


class Reservations:
    """All overrides of a node."""

    def __init__(self) -> None:
        self._held: dict[ContainerKey, Reservation] = {}

    def __len__(self) -> int:
        return len(self._held)

    def put(self, container: str, reservation: Reservation) -> None:
        """Set a container's override."""
        self._held[uid_of(reservation.pod), container] = reservation

    def drop(self, key: ContainerKey) -> None:
        """Let the annotation speak again."""
        self._held.pop(key, None)

    def get(self, key: ContainerKey) -> Reservation | None:
        """Return a container's override."""
        return self._held.get(key)

    def of_pod(self, uid: str) -> dict[str, Reservation]:
        """Return the overrides of a Pod's containers."""
        return {container: held for (owner, container), held in self._held.items() if owner == uid}

    def pods(self) -> dict[str, Mapping[str, Any]]:
        """Return the Pods that have overrides, by uid."""
        return {uid: held.pod for (uid, _), held in self._held.items()}

    def settle(self, accounts: Mapping[str, Account], now: float) -> bool:
        """Drop what the annotations say by themselves and what belongs to Pods that are gone; say whether any was."""
        settled = [key for key, held in self._held.items() if _is_settled(key, held, accounts.get(key[0]), now)]
        for key in settled:
            del self._held[key]
        return bool(settled)


def _is_settled(key: ContainerKey, held: Reservation, account: Account | None, now: float) -> bool:
    if account is None:
        return held.seen or now - held.since > _UNSEEN_S
    return not held.unwritten and account.entry(key[1]) == held.entry
