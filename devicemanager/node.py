"""The second half of a node's agent: who holds which card, and the device plugin.

For: `serve`. In: a client, the node's name, where the kubelet listens, what acts on the host.
Out: runs until cancelled.
Promises: no plugin is served before the node's Pods and inventory are known; the ledger is published also where no
kubelet can be reached; on a recorded machine partitions are simulated and files go to a folder of their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from api.devices import iter_cards
from api.ledger.modes import Mode
from devicemanager.answers import RawCard
from devicemanager.injection.entrance import Drivers, HostInjector
from devicemanager.injection.host import Host
from devicemanager.injection.reclaim import SgpuReclaimer, SmluReclaimer
from devicemanager.injection.recorded_host import RecordedHost, host_drivers, recorded_drivers
from devicemanager.injection.site import CONTAINERD_FOLDER, LIBRARY_ROOT, PODS_ROOT, Site
from devicemanager.kubelet.allocator import Allocator, AllocatorOptions
from devicemanager.kubelet.grant import Injector, Partitions
from devicemanager.kubelet.plugin_manager import MODES, PluginManager
from devicemanager.kubelet.pod_resources import PodResources
from devicemanager.kubelet.serving import KubeletSocket
from devicemanager.kubelet.visibility import Shower
from devicemanager.ledger.kubelet_word import Kubelet, KubeletWord
from devicemanager.ledger.node_ledger import NodeLedger
from devicemanager.ledger.publishing import LedgerPublisher
from devicemanager.partitions.binder import ClaimedCards, NodePartitions
from devicemanager.partitions.dmi import DmiDriver
from devicemanager.partitions.keeper import Keeper
from devicemanager.partitions.markers import Markers
from devicemanager.partitions.mig import nvidia_driver, thead_driver
from devicemanager.partitions.port import PartitionDriver
from devicemanager.partitions.simulated import simulate
from devicemanager.partitions.work_folders import WorkFolders
from kube.client import Client
from kube.clock import Clock
from kube.reconciler import Key, Selection
from kube.runtime import Manager, freeze_caches
from kube.tasks import Health
from nodefeature.fields import as_str, at
from nodefeature.kinds import DEVICES, POD
from nodefeature.manufacturers import Manufacturers


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginOptions:
    """How a node's device plugin works."""

    registry: Manufacturers
    manufacturers: Collection[str]
    socket: KubeletSocket
    modes: Sequence[Mode] = MODES
    identify_by_kubelet: bool = True
    sliced_gate: bool = True
    release_terminated: bool = True

    @property
    def pod_resources(self) -> Path:
        """Return the socket that lists who holds what; it stands beside the plugins' folder."""
        return self.socket.folder.parent / "pod-resources" / "kubelet.sock"


class SilentKubelet:
    """A kubelet that is not to be asked."""

    async def word(self) -> KubeletWord | None:
        """Return nothing."""
        return None

    async def close(self) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True)
class HostActors:
    """What acts on the host."""

    injector: Injector
    partitions: Partitions
    run: Callable[[], Coroutine[Any, Any, None]]
    """Gives back, every minute, what dead Pods held; until cancelled."""
    heed: Callable[[ClaimedCards], None]
    """Hears who claims cards; only then are partitions destroyed that nobody marked."""


def host_actors(
    clock: Clock,
    registry: Manufacturers,
    *,
    library_root: str = LIBRARY_ROOT,
    containerd: str = CONTAINERD_FOLDER,
    hygon_buses: Callable[[], Mapping[str, str]] = dict,
) -> HostActors:
    """Return what acts on this machine's own hardware. Hygon's library knows cards by bus address alone."""
    host, site = Host(), Site(registry=registry, library_root=library_root, containerd=containerd)
    partitioning: dict[str, PartitionDriver] = {
        "nvidia": nvidia_driver(),
        "thead": thead_driver(),
        "hygon": DmiDriver(hygon_buses, host),
    }
    return _actors(clock, host, site, host_drivers(), partitioning, pods_root=Path(PODS_ROOT))


def recorded_actors(clock: Clock, registry: Manufacturers, cards: Sequence[RawCard], root: Path) -> HostActors:
    """Return what acts on a recorded machine: simulated drivers, files below `root`."""
    makers = sorted({card.manufacturer for card in cards if card.partition_mode == "enabled"})
    partitioning = {maker: simulate(card for card in cards if card.manufacturer == maker) for maker in makers}
    host, site, drivers = RecordedHost(root, cards), Site(registry=registry), recorded_drivers(cards)
    return _actors(
        clock,
        host,
        site,
        drivers,
        partitioning,
        pods_root=root / PODS_ROOT.lstrip("/"),
        reclaimers=_reclaimers(host, site, drivers, cards),
    )


def _reclaimers(
    host: Host, site: Site, drivers: Drivers, cards: Sequence[RawCard]
) -> list[Callable[[frozenset[str]], None]]:
    buses = [card.pci_address for card in cards if card.manufacturer == "metax"]
    numbers = [card.physical_indexes[0] for card in cards if card.manufacturer == "cambricon" and card.physical_indexes]
    found: list[Callable[[frozenset[str]], None]] = []
    if drivers.sgpu is not None and buses:
        found.append(SgpuReclaimer(site, host, drivers.sgpu, lambda: buses))
    if drivers.smlu is not None and numbers:
        found.append(SmluReclaimer(site, host, drivers.smlu, lambda: numbers))
    return found


def _actors(
    clock: Clock,
    host: Host,
    site: Site,
    drivers: Drivers,
    partitioning: Mapping[str, PartitionDriver],
    *,
    pods_root: Path,
    reclaimers: Sequence[Callable[[frozenset[str]], None]] = (),
) -> HostActors:
    keepers = [Keeper(maker, driver, Markers(host, site.pods_root, maker)) for maker, driver in partitioning.items()]
    partitions = NodePartitions(keepers, WorkFolders(pods_root), clock, reclaimers=reclaimers)
    return HostActors(
        HostInjector(site, host, drivers, proves=partitions.proves), partitions, partitions.run, partitions.heed
    )


class NodePlugins:
    """One node's ledger and plugins."""

    def __init__(
        self, client: Client, clock: Clock, node_name: str, options: PluginOptions, actors: HostActors
    ) -> None:
        self._actors = actors
        self._node_name = node_name
        self.manager = Manager(
            client,
            selections={
                POD: Selection(field_selector=f"spec.nodeName={node_name}"),
                DEVICES: Selection(field_selector=f"metadata.name={node_name}"),
            },
            clock=clock,
            freeze=freeze_caches,
        )
        self._kubelet = kubelet = kubelet_of(options)
        self.ledger = NodeLedger(
            node_name, self.manager.caches, options.registry, clock, release_terminated=options.release_terminated
        )
        self.publisher = LedgerPublisher(
            client,
            self.manager.caches,
            clock,
            ledgers={node_name: self.ledger},
            kubelets={node_name: kubelet},
            live_pods=self._live,
        )
        self.manager.add(self.publisher)
        self.plugins = plugins_of(client, clock, self.ledger, options, actors, kubelet)
        actors.heed(lambda: claimed_cards(self.ledger))

    @property
    def unready(self) -> str:
        """Say what is not served yet; empty when all is."""
        return "; ".join(filter(None, [*self.manager.health.ready_faults(), self.plugins.unready]))

    def watch_over(self, health: Health) -> None:
        """Show what is not served yet among a process's checks."""
        health.add_check("plugins", lambda: self.unready)

    async def run(self) -> None:
        """Publish and serve until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.manager.run(), name="ledger")
                for kind in (POD, DEVICES):
                    await self.manager.synced(kind).wait()
                group.create_task(self.plugins.run(), name="plugins")
                group.create_task(self._actors.run(), name="reclaiming")
        finally:
            await self._kubelet.close()

    def buses(self, manufacturer: str) -> dict[str, str]:
        """Return the bus addresses of a manufacturer's published cards, by id."""
        devices = self.manager.caches[DEVICES].get(Key(self._node_name)) or {}
        return {
            as_str(card.get("id")): as_str(at(card, "topology", "pciBusId"))
            for group, card in iter_cards(devices)
            if group.get("manufacturer") == manufacturer
        }

    async def _live(self, _node: str, pods: frozenset[str]) -> None:
        await self._actors.partitions.live(pods)


def plugins_of(
    client: Client, clock: Clock, ledger: NodeLedger, options: PluginOptions, actors: HostActors, kubelet: Kubelet
) -> PluginManager:
    """Return a node's plugins, not running yet."""
    injector, partitions = actors.injector, actors.partitions
    allocator = Allocator(
        ledger,
        client,
        clock,
        kubelet=kubelet,
        injector=injector,
        partitions=partitions,
        options=AllocatorOptions(sliced_gate=options.sliced_gate),
    )
    return PluginManager(
        ledger,
        allocator,
        Shower(ledger, clock, kubelet=kubelet, injector=injector),
        clock,
        socket=options.socket,
        manufacturers=options.manufacturers,
        modes=options.modes,
    )


def kubelet_of(options: PluginOptions) -> Kubelet:
    """Return whom a node asks who holds what."""
    return PodResources(options.pod_resources) if options.identify_by_kubelet else SilentKubelet()


def claimed_cards(ledger: NodeLedger) -> frozenset[str] | None:
    """Return the cards that Pods claim; None while any Pod's record is in doubt."""
    shown = ledger.current()
    if shown.problems or shown.disagreements:
        return None
    return frozenset(record.card_id for _, record in shown.records)
