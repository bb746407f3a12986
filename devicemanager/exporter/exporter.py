"""The background loop behind `/metrics` and `/monitor/snapshot`.

For: `serve`. In: the monitor, this node's Pods and Devices from caches, the kubelet through the API server, a clock.
Out: rounds in a collector. Promises: one reading of hardware and kubelet a period, whatever is scraped; a round that
fails publishes its verdict alone; the loop outlives every failure.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from api.devices import DeviceGroup
from devicemanager.exporter.attribution import NO_SHARES, Shares, attribute, container_owners, read_cgroups
from devicemanager.exporter.families import InstanceCollector
from devicemanager.exporter.instance_pods import InstancePod, instance_pods
from devicemanager.exporter.rounds import NO_ROUND, PodUsage, Round, exports_pods, kubelet_usage
from devicemanager.monitor import Monitor, Snapshot, snapshot_body
from kube.client import Client
from kube.clock import Clock
from kube.errors import OperatorError
from kube.reconciler import Rule
from nodefeature.kinds import NODE

log = logging.getLogger(__name__)

# Reading the summary through the API server needs the kubelet's proxy; no narrower right covers that path.
RBAC: tuple[Rule, ...] = (Rule(NODE.group, f"{NODE.plural}/proxy", ("get",)),)
KUBELET_TIMEOUT_S = 10.0
Objects = Callable[[], Iterable[Mapping[str, Any]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Where a round reads: all but the kubelet are caches. A callable raises OperatorError when it cannot say."""

    groups: Callable[[], Sequence[DeviceGroup]]
    pods: Objects
    """All Pods of this node."""
    devices: Callable[[], Mapping[str, Any]]
    managers: Objects
    """The device managers' Pods of this node."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who this manager is."""

    node: str
    pod: str
    namespace: str


class Exporter:
    """Runs rounds."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        identity: Identity,
        monitor: Monitor,
        sources: Sources,
        *,
        root: Path = Path("/"),
    ) -> None:
        self.monitor = monitor
        self.collector = InstanceCollector(identity.node, monitor)
        self._client = client
        self._clock = clock
        self._identity = identity
        self._sources = sources
        self._root = root
        self._trouble = ""

    async def run(self) -> None:
        """Run a round every period until cancelled."""
        while True:
            try:
                await self.run_round()
            except Exception:  # the loop must outlive a defect in one round; it is logged with its trace
                log.exception("metrics round failed", extra={"node": self._identity.node})
                self.collector.round = NO_ROUND
            await self._clock.sleep(self.monitor.period_s)

    async def run_round(self) -> None:
        """Measure, and publish what was measured."""
        groups = self._sources.groups()
        self.collector.has_cards = bool(groups)
        if not groups:
            return
        snapshot = await self.monitor.sample(groups)
        try:
            self.collector.round = await self._round(snapshot)
        except OperatorError as error:
            self._say(str(error))
            self.collector.round = NO_ROUND
            return

    def snapshot_text(self) -> Mapping[str, Any] | None:
        """Return the body of `/monitor/snapshot`; None before the first sample."""
        snapshot = self.monitor.snapshot
        return None if snapshot is None else snapshot_body(snapshot, _records(self.collector.round.shares))

    async def _round(self, snapshot: Snapshot) -> Round:
        pods = list(self._sources.pods())
        found = instance_pods(pods, self._sources.devices())
        shares = await self._shares(snapshot, pods)
        if not self._exports(self._sources.managers()):
            return Round(found, exports_pods=False, shares=shares)
        began = self._clock.now()
        usage = await self._kubelet(found)
        return Round(found, kubelet=usage, kubelet_seconds=self._clock.now() - began, shares=shares)

    async def _shares(self, snapshot: Snapshot, pods: Sequence[Mapping[str, Any]]) -> Shares:
        if not snapshot.cards:
            return NO_SHARES
        cgroups: Mapping[int, str | None] = {}
        if any(card.usage.processes for card in snapshot.cards):
            cgroups = await asyncio.to_thread(read_cgroups, snapshot.cards, self._root)
        return attribute(snapshot.cards, cgroups, container_owners(pods))

    def _exports(self, managers: Iterable[Mapping[str, Any]]) -> bool:
        identity = self._identity
        if not identity.pod or not identity.namespace:
            self._say("KUBERNETES_POD_NAME or KUBERNETES_POD_NAMESPACE is not set: Pods' families are not exported")
            return False
        return exports_pods(identity.pod, identity.namespace, managers)

    async def _kubelet(self, pods: Sequence[InstancePod]) -> Mapping[str, PodUsage] | None:
        if not pods:
            return {}
        try:
            async with self._clock.timeout(KUBELET_TIMEOUT_S):
                summary = await self._client.get_path(f"/api/v1/nodes/{self._identity.node}/proxy/stats/summary")
        except (OperatorError, TimeoutError) as error:
            self._say(f"the kubelet's summary could not be read: {error}")
            return None
        self._say("")
        return kubelet_usage(summary)

    def _say(self, trouble: str) -> None:
        if trouble and trouble != self._trouble:
            log.warning("metrics incomplete", extra={"node": self._identity.node, "reason": trouble})
        self._trouble = trouble


def _records(shares: Shares) -> list[dict[str, Any]]:
    rows = (
        {
            "podUID": share.owner.pod_uid,
            "container": share.owner.container,
            "id": share.card_id,
            "memoryUsage": share.memory_mib,
            "coresUtilization": share.cores,
        }
        for share in shares.shares
    )
    return [{name: value for name, value in row.items() if value is not None} for row in rows]
