"""`gpustack-operator device-manager serve`: one node's agent, or in tests and benches a fleet's."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

import uvloop
from prometheus_client import CollectorRegistry

from api.ledger.modes import Mode
from devicemanager.agent import AgentOptions as Agent
from devicemanager.detection import DetectionOptions
from devicemanager.detectors.recorded import RecordedDetector
from devicemanager.kubelet.plugin_manager import MODES
from devicemanager.kubelet.serving import KubeletSocket
from devicemanager.node import NodePlugins, host_actors, recorded_actors
from devicemanager.node import PluginOptions as Plugins
from devicemanager.serve import open_detector, serve_fleet, serve_node
from gpustack_operator.config import (
    AgentOptions,
    DetectorOptions,
    HealthOptions,
    KubeOptions,
    LogOptions,
    ManufacturerOptions,
    PluginOptions,
)
from gpustack_operator.processes import connect, environment_of, start_logging
from kube.client import Client
from kube.clock import SystemClock
from kube.serving import HealthServer
from kube.tasks import Health
from nodefeature.environment import is_group_id_with_memory


def run(
    kube: KubeOptions,
    manufacturers: ManufacturerOptions,
    detector: DetectorOptions,
    agent: AgentOptions,
    plugin: PluginOptions,
    health: HealthOptions,
    logs: LogOptions,
    *,
    environ: Mapping[str, str],
) -> None:
    """Publish and allocate until SIGTERM."""
    start_logging(logs)
    registry = environment_of(environ)
    detection = DetectionOptions(
        manufacturers=manufacturers.manufacturer, registry=registry, id_with_memory=is_group_id_with_memory(environ)
    )
    options = Agent(detection=detection, period_s=detector.monitor_period, no_fast_failed=detector.no_fast_failed)

    async def serve() -> None:
        client = connect(kube, environ).as_manager("gpustack-device-manager")
        told = Health()
        work = (
            serve_fleet(client, SystemClock(), Path(agent.fleet), options, namespace=kube.namespace, health=told)
            if agent.fleet
            else _serve_node(client, kube, detector, options, plugin, told)
        )
        try:
            async with HealthServer(told, CollectorRegistry(), host=health.health_address, port=health.health_port):
                await _until_told(work)
        finally:
            await client.connection.close()

    uvloop.run(serve())


async def _serve_node(
    client: Client,
    kube: KubeOptions,
    detector: DetectorOptions,
    options: Agent,
    plugin: PluginOptions,
    health: Health,
) -> None:
    clock, registry = SystemClock(), options.detection.registry
    async with open_detector(clock, registry, recorded=detector.recorded, no_pci_check=detector.no_pci_check) as opened:
        work = [serve_node(client, clock, detector.node_name, opened, options, namespace=kube.namespace, health=health)]
        if plugin.kube_socket or not detector.recorded:
            settled = _plugin_options(plugin, options.detection)
            if isinstance(opened, RecordedDetector):
                root = settled.socket.folder.parent / "host"
                actors = recorded_actors(clock, registry, opened.cards, root)
            else:
                actors = host_actors(clock, registry)
            plugins = NodePlugins(client, clock, detector.node_name, settled, actors)
            plugins.watch_over(health)
            work.append(plugins.run())
        await _first_to_end(work)


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
