"""`gpustack-operator device-manager serve`: one node's agent, or in tests and benches a fleet's."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any

import uvloop
from prometheus_client import CollectorRegistry

from devicemanager.agent import AgentOptions as Agent
from devicemanager.detection import DetectionOptions
from devicemanager.serve import open_detector, serve_fleet, serve_node
from gpustack_operator.config import (
    AgentOptions,
    DetectorOptions,
    HealthOptions,
    KubeOptions,
    LogOptions,
    ManufacturerOptions,
)
from gpustack_operator.processes import connect, environment_of, start_logging
from kube.client import Client
from kube.clock import SystemClock
from kube.serving import HealthServer
from kube.tasks import Health
from nodefeature.environment import is_group_id_with_memory
from nodefeature.manufacturers import Manufacturers


def run(
    kube: KubeOptions,
    manufacturers: ManufacturerOptions,
    detector: DetectorOptions,
    agent: AgentOptions,
    health: HealthOptions,
    logs: LogOptions,
    *,
    environ: Mapping[str, str],
) -> None:
    """Publish until SIGTERM."""
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
            else _serve_node(client, kube, detector, options, registry, told)
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
    registry: Manufacturers,
    health: Health,
) -> None:
    clock = SystemClock()
    async with open_detector(clock, registry, recorded=detector.recorded, no_pci_check=detector.no_pci_check) as opened:
        await serve_node(client, clock, detector.node_name, opened, options, namespace=kube.namespace, health=health)


async def _until_told(work: Coroutine[Any, Any, None]) -> None:
    """Run `work` until it fails or a signal cancels it."""
    task = asyncio.create_task(work, name="agent")
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    await asyncio.wait({task})
    if not task.cancelled():
        task.result()
