"""`gpustack-operator device-manager serve`: one node's agent, or in tests and benches a fleet's."""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import uvloop
from prometheus_client import CollectorRegistry

from api.ledger.modes import Mode
from devicemanager.agent import AgentOptions as Agent
from devicemanager.detection import DetectionOptions
from devicemanager.detectors.recorded import RecordedDetector
from devicemanager.exporter.exporter import Identity
from devicemanager.exporter.on_node import node_exporter
from devicemanager.fleet import NODE_WORD
from devicemanager.kubelet.plugin_manager import MODES
from devicemanager.kubelet.serving import KubeletSocket
from devicemanager.node import NodePlugins, host_actors, recorded_actors
from devicemanager.node import PluginOptions as Plugins
from devicemanager.serve import open_detector, serve_fleet, serve_node
from devicemanager.usage import Meter
from gpustack_operator.config import (
    AgentOptions,
    DetectorOptions,
    HealthOptions,
    InjectionOptions,
    KubeOptions,
    LogOptions,
    ManufacturerOptions,
    PluginOptions,
    SecureOptions,
)
from gpustack_operator.processes import check_credentials, connect, environment_of, start_logging
from kube.client import Client
from kube.clock import Clock, SystemClock
from kube.serving import HealthServer, Page
from kube.tasks import Health
from kube.tls import server_context
from nodefeature.environment import POD_NAME, POD_NAMESPACE, is_group_id_with_memory


def run(
    kube: KubeOptions,
    manufacturers: ManufacturerOptions,
    detector: DetectorOptions,
    agent: AgentOptions,
    plugin: PluginOptions,
    injection: InjectionOptions,
    secure: SecureOptions,
    health: HealthOptions,
    logs: LogOptions,
    *,
    environ: Mapping[str, str],
) -> None:
    """Publish, allocate and measure until SIGTERM."""
    start_logging(logs)
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # its lines are no records of ours, one for each kubelet that goes
    if agent.fleet or detector.node_name:  # a missing name is the agent's own, plainer refusal
        check_credentials(kube, environ)
    registry = environment_of(environ)
    detection = DetectionOptions(
        manufacturers=manufacturers.manufacturer, registry=registry, id_with_memory=is_group_id_with_memory(environ)
    )
    options = Agent(detection=detection, period_s=detector.monitor_period, no_fast_failed=detector.no_fast_failed)

    async def serve() -> None:
        client = connect(kube, environ).as_manager("gpustack-device-manager")
        told, shown = Health(), Shown(CollectorRegistry())
        identity = Identity(detector.node_name, POD_NAME.read(environ), POD_NAMESPACE.read(environ))
        node = Node(client, SystemClock(), identity, kube.namespace, told, shown)
        work = (
            _serve_fleet(node, Path(agent.fleet), options, plugin)
            if agent.fleet
            else _serve_node(node, detector, options, plugin, injection)
        )
        try:
            async with AsyncExitStack() as listeners:
                for listener in _listeners(told, shown, health, secure):
                    await listeners.enter_async_context(listener)
                await _until_told(work)
        finally:
            await client.connection.close()

    uvloop.run(serve())


def _listeners(told: Health, shown: Shown, health: HealthOptions, secure: SecureOptions) -> list[HealthServer]:
    """Return the plain listener, and the HTTPS one where a port is named for it."""
    pages = {"/monitor/snapshot": shown.page}
    made = [HealthServer(told, shown.registry, host=health.health_address, port=health.health_port, pages=pages)]
    if secure.secure_port:
        tls = _certificate(secure)
        made.append(
            HealthServer(told, shown.registry, host=secure.bind_address, port=secure.secure_port, pages=pages, tls=tls)
        )
    return made


def _certificate(secure: SecureOptions) -> ssl.SSLContext:
    """Return the HTTPS listener's certificate: the one that was brought, else one that lives as long as this process.

    Readers do not verify it (spec 05 §12.2): they reach a Pod by its address.
    """
    if secure.cert_dir:
        folder = Path(secure.cert_dir)
        texts = [(folder / name).read_text(encoding="utf-8") for name in ("tls.crt", "tls.key")]
        return server_context(certificate_pem=texts[0], key_pem=texts[1])
    # Imported here: without an HTTPS port an agent issues nothing, and saves 8 MiB.
    from kube.certs.authority import issue_leaf, new_authority

    now = datetime.now(UTC)
    leaf = issue_leaf(new_authority("gpustack-device-manager", now), ("gpustack-device-manager",), now)
    return server_context(certificate_pem=leaf.certificate, key_pem=leaf.key)


@dataclass(slots=True)
class Shown:
    """What the listener shows: filled once the node's exporter is there."""

    registry: CollectorRegistry
    snapshot: Page | None = None

    def page(self) -> Mapping[str, Any] | None:
        """Return what `/monitor/snapshot` shows."""
        return self.snapshot() if self.snapshot else None


@dataclass(frozen=True, slots=True)
class Node:
    """What every part of a node's agent works with."""

    client: Client
    clock: Clock
    identity: Identity
    namespace: str
    health: Health
    shown: Shown


async def _serve_fleet(node: Node, fleet: Path, options: Agent, plugin: PluginOptions) -> None:
    """Serve a fleet's nodes; plugins only where a place for each node's kubelet is named."""
    settled = _plugin_options(plugin, options.detection) if NODE_WORD in plugin.kube_socket else None
    await serve_fleet(
        node.client, node.clock, fleet, options, namespace=node.namespace, plugins=settled, health=node.health
    )


async def _serve_node(
    node: Node, detector: DetectorOptions, options: Agent, plugin: PluginOptions, injection: InjectionOptions
) -> None:
    registry, name = options.detection.registry, node.identity.node
    async with open_detector(
        node.clock, registry, recorded=detector.recorded, no_pci_check=detector.no_pci_check
    ) as opened:
        work = [
            serve_node(node.client, node.clock, name, opened, options, namespace=node.namespace, health=node.health)
        ]
        if plugin.kube_socket or not detector.recorded:
            settled = _plugin_options(plugin, options.detection)
            if isinstance(opened, RecordedDetector):
                actors = recorded_actors(node.clock, registry, opened.cards, settled.socket.folder.parent / "host")
            else:
                actors = host_actors(
                    node.clock,
                    registry,
                    library_root=injection.library_root,
                    containerd=injection.containerd_config_dir,
                    hygon_buses=lambda: plugins.buses("hygon"),
                )
            plugins = NodePlugins(node.client, node.clock, name, settled, actors)
            plugins.watch_over(node.health)
            work += [plugins.run(), _measured(node, plugins, opened, options)]
        await _first_to_end(work)


def _measured(node: Node, plugins: NodePlugins, meter: Meter, options: Agent) -> Coroutine[Any, Any, None]:
    """Return the exporter's loop; what it measures is shown from now on."""
    exporter = node_exporter(
        node.client,
        node.clock,
        node.identity,
        meter,
        plugins.manager.caches,
        manufacturers=options.detection.manufacturers,
        period_s=options.period_s,
    )
    node.shown.registry.register(exporter.collector)
    node.shown.snapshot = exporter.snapshot_text
    return exporter.run()


def _plugin_options(plugin: PluginOptions, detection: DetectionOptions) -> Plugins:
    left_out = {
        mode
        for mode, without in (
            (Mode.SHARED, plugin.no_shared),
            (Mode.SLICED, plugin.no_sliced),
            (Mode.PARTITIONED, plugin.no_partitioned),
        )
        if without
    }
    return Plugins(
        registry=detection.registry,
        manufacturers=detection.manufacturers,
        socket=KubeletSocket(Path(plugin.kube_socket)) if plugin.kube_socket else KubeletSocket(),
        modes=tuple(mode for mode in MODES if mode not in left_out),
        identify_by_kubelet=plugin.identify_by_kubelet,
        sliced_gate=plugin.sliced_allocate_gate,
        release_terminated=plugin.release_terminated_pods,
    )


async def _first_to_end(work: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Run all until one fails, or until cancelled; the others end with it."""
    tasks = [asyncio.create_task(part) for part in work]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _until_told(work: Coroutine[Any, Any, None]) -> None:
    """Run `work` until it fails or a signal cancels it."""
    task = asyncio.create_task(work, name="agent")
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    await asyncio.wait({task})
    if not task.cancelled():
        task.result()
