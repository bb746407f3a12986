"""The partitions of a node, as the device plugin asks for them.

For: the device plugin (`devicemanager.kubelet.grant.Partitions`). In: requests; the live Pods; a clock.
Out: bound partitions; dead Pods' partitions and working folders are given back.
Promises: drivers are called in threads, never under the event loop; nothing is reclaimed before live Pods were heard
of; one manufacturer's trouble holds up no other's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial

from devicemanager.injection.driver_faults import DriverFault
from devicemanager.injection.request import InjectionRefused
from devicemanager.injection.request import Partition as Live
from devicemanager.kubelet.grant import Partition, PartitionRefused, PartitionRequest
from devicemanager.partitions.keeper import Keeper
from devicemanager.partitions.port import Bound, Origin, PartitionClaim
from devicemanager.partitions.reclaim import Reclaimer
from devicemanager.partitions.work_folders import WorkFolders
from kube.clock import Clock

log = logging.getLogger(__name__)

PERIOD_S = 60.0
ClaimedCards = Callable[[], frozenset[str] | None]
"""Returns the cards that any Pod of the node claims; None while that is not known for sure."""


class NodePartitions:
    """Every manufacturer's keeper, and what reclaims."""

    def __init__(
        self,
        keepers: Iterable[Keeper],
        folders: WorkFolders,
        clock: Clock,
        *,
        reclaimers: Iterable[Callable[[frozenset[str]], None]] = (),
    ) -> None:
        self._keepers = {keeper.manufacturer: keeper for keeper in keepers}
        self._reclaimers = [Reclaimer(keeper) for keeper in self._keepers.values()]
        self._others = tuple(reclaimers)
        self._folders = folders
        self._clock = clock
        self._claimed_cards: ClaimedCards = lambda: None
        self._pods: frozenset[str] | None = None
        self._passing = asyncio.Lock()

    def heed(self, claimed_cards: ClaimedCards) -> None:
        """Hear from now on who claims cards; until then no instance without a marker is destroyed."""
        self._claimed_cards = claimed_cards

    async def bind(self, request: PartitionRequest) -> Partition:
        """Return the container's partition, made when there is none; PartitionRefused when it cannot be had."""
        keeper = self._keeper(request.manufacturer)
        bound = await asyncio.to_thread(keeper.ensure, _claim(request))
        return Partition(
            placement=bound.partition.placement,
            physical_id=bound.partition.uuid,
            created=bound.origin is Origin.CREATED,
            rebound=bound.origin is Origin.REBOUND,
        )

    async def unbind(self, request: PartitionRequest, partition: Partition) -> None:
        """Undo a bind; what cannot be undone now is reclaimed once the Pod is gone."""
        if partition.rebound:
            return
        await asyncio.to_thread(self._undo, request, partition)

    async def live(self, pods: frozenset[str]) -> None:
        """Hear which Pods are alive, and run a pass."""
        self._pods = pods
        await self._pass()

    async def run(self) -> None:
        """Run a pass every minute, once live Pods were heard of, until cancelled."""
        while True:
            await self._clock.sleep(PERIOD_S)
            await self._pass()

    def proves(self, manufacturer: str, card_id: str, partition: Live) -> bool:
        """Say whether a recorded partition is alive; a manufacturer without a keeper proves nothing."""
        keeper = self._keepers.get(manufacturer)
        try:
            return keeper is not None and keeper.proves(card_id, partition)
        except DriverFault:
            return False

    async def _pass(self) -> None:
        if self._pods is None:
            return
        async with self._passing:
            pods, claimed = self._pods, self._claimed_cards()
            passes = [partial(reclaimer.pass_over, pods, claimed) for reclaimer in self._reclaimers]
            passes += [partial(reclaim, pods) for reclaim in (*self._others, self._folders.pass_over)]
            for one in passes:
                try:
                    await asyncio.to_thread(one)
                except Exception:  # a library's nonsense ends this one's pass, neither the others' nor the agent
                    log.exception("nothing reclaimed in this pass")

    def _keeper(self, manufacturer: str) -> Keeper:
        keeper = self._keepers.get(manufacturer)
        if keeper is None:
            raise PartitionRefused(f"{manufacturer}: partitions of this manufacturer are not served on this node")
        return keeper

    def _undo(self, request: PartitionRequest, partition: Partition) -> None:
        keeper = self._keeper(request.manufacturer)
        claim = _claim(request)
        try:
            marker = keeper.markers.own(claim.pod_uid, claim.container, claim.card_id)
            if marker is None or marker.partition.uuid != partition.physical_id:
                return
            origin = Origin.CREATED if partition.created else Origin.BOUND
            keeper.undo(Bound(claim, marker.partition, origin))
        except (DriverFault, InjectionRefused) as error:
            log.warning("partition not undone", extra={"card": claim.card_id, "reason": str(error)})


def _claim(request: PartitionRequest) -> PartitionClaim:
    card_id = str(request.card.get("id", ""))
    return PartitionClaim(request.pod_uid, request.container, card_id, request.profile, request.placement)
