"""The second half of many nodes' agents in one process: their ledgers and device plugins.

For: `serve` on a fleet file, in the demo, tests and benches. In: a client, each node's options and what acts on it.
Out: runs until cancelled.
Promises: one cache of Pods and one of Devices for all nodes; each node keeps a ledger, a lock, sockets and a kubelet of
its own, as if it were alone; a node whose kubelet cannot be reached is served no worse for its neighbours.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from devicemanager.detectors.recorded import RecordedDetector
from devicemanager.kubelet.plugin_manager import PluginManager
from devicemanager.kubelet.serving import KubeletSocket
from devicemanager.ledger.kubelet_word import Kubelet
from devicemanager.ledger.node_ledger import NodeLedger
from devicemanager.ledger.publishing import LedgerPublisher
from devicemanager.node import HostActors, PluginOptions, claimed_cards, kubelet_of, plugins_of, recorded_actors
from kube.client import Client
from kube.clock import Clock
from kube.runtime import Manager, freeze_caches
from kube.tasks import Health
from nodefeature.kinds import DEVICES, POD

NODE_WORD = "{node}"
"""Stands for the node's name in the path of a fleet's kubelet sockets."""


class FleetPlugins:
    """Ledgers and plugins of many recorded nodes."""

    def __init__(
        self, client: Client, clock: Clock, detectors: Mapping[str, RecordedDetector], options: PluginOptions
    ) -> None:
        self.manager = Manager(client, clock=clock, freeze=freeze_caches)
        self.ledgers: dict[str, NodeLedger] = {}
        self.plugins: dict[str, PluginManager] = {}
        self._actors: dict[str, HostActors] = {}
        self._kubelets: dict[str, Kubelet] = {}
        for node, detector in detectors.items():
            own = options_of(options, node)
            self._kubelets[node] = kubelet_of(own)
            ledger = NodeLedger(
                node, self.manager.caches, own.registry, clock, release_terminated=own.release_terminated
            )
            actors = recorded_actors(clock, own.registry, detector.cards, own.socket.folder.parent / "host")
            actors.heed(partial(claimed_cards, ledger))
            self.ledgers[node], self._actors[node] = ledger, actors
            self.plugins[node] = plugins_of(client, clock, ledger, own, actors, self._kubelets[node])
        publisher = LedgerPublisher(
            client,
            self.manager.caches,
            clock,
            ledgers=self.ledgers,
            kubelets=self._kubelets,
            live_pods=self._live,
        )
        self.manager.add(publisher, workers=16)

    @property
    def unready(self) -> str:
        """Say on how many nodes something is not served yet; empty when all is."""
        waiting = {node: trouble for node, plugins in self.plugins.items() if (trouble := plugins.unready)}
        first = next((f", {node}: {trouble}" for node, trouble in waiting.items()), "")
        served = f"{len(waiting)} nodes wait for their kubelets{first}" if waiting else ""
        return "; ".join(filter(None, [*self.manager.health.ready_faults(), served]))

    def watch_over(self, health: Health) -> None:
        """Show what is not served yet among a process's checks."""
        health.add_check("plugins", lambda: self.unready)

    async def run(self) -> None:
        """Publish and serve until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.manager.run(), name="ledgers")
                for kind in (POD, DEVICES):
                    await self.manager.synced(kind).wait()
                for node, plugins in self.plugins.items():
                    group.create_task(plugins.run(), name=f"plugins {node}")
                    group.create_task(self._actors[node].run(), name=f"reclaiming {node}")
        finally:
            for kubelet in self._kubelets.values():
                await kubelet.close()

    async def _live(self, node: str, pods: frozenset[str]) -> None:
        await self._actors[node].partitions.live(pods)


def options_of(options: PluginOptions, node: str) -> PluginOptions:
    """Return a node's own options: its kubelet's socket stands where `{node}` is its name."""
    path = Path(str(options.socket.path).replace(NODE_WORD, node))
    return replace(options, socket=KubeletSocket(path, options.socket.tick_s))
