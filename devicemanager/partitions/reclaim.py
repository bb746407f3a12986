"""Gives back the partitions of Pods that are gone (spec 06 §10).

For: `binder`, which runs a pass at every broadcast of live Pods and every minute.
In: the live Pods, the cards that somebody claims, markers, the driver. Out: instances destroyed, markers removed.
Promises:
  - nothing before three passes in a row missed the Pod, or the owner of an unmarked instance;
  - an instance is destroyed only while number, uuid and place are those recorded and no live Pod's marker overlaps it;
  - a pass that cannot read the markers or a card's instances changes nothing there;
  - an instance in use is kept and tried again in every pass; that is logged once, at the eighth.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable

from api.ledger.placements import is_free
from devicemanager.injection.driver_faults import DriverFault
from devicemanager.injection.request import InjectionRefused
from devicemanager.partitions.keeper import Keeper, find_instance
from devicemanager.partitions.markers import Corrupt, Found, Marker
from devicemanager.partitions.port import Gone, InUse, LiveInstance

log = logging.getLogger(__name__)

MISSES = 3
LOUD_AT = 8


class Reclaimer:
    """Counts absences between passes. `pass_over` blocks."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self._missed: Counter[str] = Counter()
        self._stuck: Counter[str] = Counter()

    def pass_over(self, live_pods: frozenset[str], claimed_cards: frozenset[str] | None = None) -> None:
        """Run one pass. Unmarked instances are judged only when it is known which cards are claimed."""
        try:
            found = self._keeper.markers.find()
        except InjectionRefused as error:
            log.warning("partitions not reclaimed", extra={"reason": str(error)})
            return
        dead = [marker for marker in found.markers if marker.pod_uid not in live_pods]
        corrupt = [one for one in found.corrupt if one.pod_uid not in live_pods]
        unmarked = list(self._unmarked(found, claimed_cards))
        due = self._count([m.path for m in dead], [c.path for c in corrupt], [_key(*one) for one in unmarked])
        for marker in dead:
            if marker.path in due:
                self._reclaim(marker, found, live_pods)
        for one in corrupt:
            if one.path in due:
                self._drop(one)
        for card, instance in unmarked:
            if _key(card, instance) in due:
                self._destroy_unmarked(card, instance)

    def _count(self, *seen: list[str]) -> set[str]:
        keys = {key for group in seen for key in group}
        self._missed = Counter({key: self._missed[key] + 1 for key in keys})
        return {key for key in keys if self._missed[key] >= MISSES}

    def _reclaim(self, marker: Marker, found: Found, live_pods: frozenset[str]) -> None:
        card = marker.card_id
        held = [m.partition.placement for m in found.markers if m.card_id == card and m.pod_uid in live_pods]
        with self._keeper.lock(card):
            try:
                instance = find_instance(self._keeper.driver.read(card), marker.partition)
                if instance is not None and is_free(instance.placement, held):
                    self._keeper.driver.destroy(card, instance)
            except Gone:
                pass
            except InUse as error:
                self._keep(marker.path, str(error))
                return
            except DriverFault as error:
                log.warning("partition not reclaimed", extra={"card": card, "reason": str(error)})
                return
            self._forget(marker.path)

    def _drop(self, corrupt: Corrupt) -> None:
        log.warning("corrupt partition marker removed", extra={"card": corrupt.card_id, "reason": corrupt.reason})
        self._forget(corrupt.path)

    def _forget(self, path: str) -> None:
        try:
            self._keeper.markers.remove(path)
        except InjectionRefused as error:
            log.warning("partition marker not removed", extra={"reason": str(error)})
            return
        self._stuck.pop(path, None)
        log.info("partition marker removed", extra={"reason": path})

    def _unmarked(self, found: Found, claimed_cards: frozenset[str] | None) -> Iterable[tuple[str, LiveInstance]]:
        if claimed_cards is None:
            return
        held = {m.card_id for m in found.markers} | {c.card_id for c in found.corrupt} | claimed_cards
        try:
            cards = [card for card in self._keeper.driver.cards() if card not in held]
        except DriverFault as error:
            log.warning("partitions not reclaimed", extra={"reason": str(error)})
            return
        for card in cards:
            try:
                state = self._keeper.driver.read(card)
            except DriverFault as error:
                log.warning("partitions not reclaimed", extra={"card": card, "reason": str(error)})
                continue
            yield from ((card, instance) for instance in state.instances)

    def _destroy_unmarked(self, card: str, instance: LiveInstance) -> None:
        with self._keeper.lock(card):
            try:
                if any(marker.card_id == card for marker in self._keeper.markers.find().markers):
                    return
                self._keeper.driver.destroy(card, instance)
            except Gone:
                return
            except InUse as error:
                self._keep(_key(card, instance), str(error))
                return
            except (DriverFault, InjectionRefused) as error:
                log.warning("partition not reclaimed", extra={"card": card, "reason": str(error)})
                return
        log.info("unowned partition destroyed", extra={"card": card, "reason": instance.uuid or "nameless"})

    def _keep(self, key: str, reason: str) -> None:
        self._stuck[key] += 1
        if self._stuck[key] == LOUD_AT:
            log.error("partition of a dead Pod is still in use", extra={"reason": f"{key}: {reason}"})


def _key(card: str, instance: LiveInstance) -> str:
    return f"{card}/{instance.gpu_instance}/{instance.uuid}"
