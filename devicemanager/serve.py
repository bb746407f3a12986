"""The agent as a process: `device-manager serve` and `device-manager detect`.

For: the roof's commands. In: settled configuration, a client. Out: runs until cancelled; or text for people.
Promises: a recorded machine or fleet and the host's own hardware run through the same code; helpers end with it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import yaml

from devicemanager.agent import Agent, AgentOptions, FleetAgent
from devicemanager.answers import Detector
from devicemanager.detection import NOTHING_YET, Detection, DetectionOptions, look, next_detection
from devicemanager.detectors.helper import HelperProbes
from devicemanager.detectors.host import HostDetector
from devicemanager.detectors.recorded import RecordedDetector, load_fleet
from devicemanager.fleet import FleetPlugins
from devicemanager.node import PluginOptions
from devicemanager.own_objects import OwnObjects, selections
from devicemanager.publisher.devices import canonical_groups
from devicemanager.publisher.publish import Publisher
from kube.client import Client
from kube.clock import Clock
from kube.runtime import Manager
from kube.tasks import Health
from nodefeature.manufacturers import Manufacturers

log = logging.getLogger(__name__)


@asynccontextmanager
async def open_detector(
    clock: Clock, registry: Manufacturers, *, recorded: str = "", no_pci_check: bool = False, root: Path = Path("/")
) -> AsyncIterator[HostDetector | RecordedDetector]:
    """Open the detector, which also measures, of a recorded machine file, or of this host when none is named."""
    if recorded:
        yield RecordedDetector.load(Path(recorded))
        return
    probes = HelperProbes(clock, no_pci_check=no_pci_check)
    try:
        yield HostDetector(probes, root=root, registry=registry, no_pci_check=no_pci_check)
    finally:
        await probes.close()


async def serve_node(
    client: Client,
    clock: Clock,
    node_name: str,
    detector: Detector,
    options: AgentOptions,
    *,
    namespace: str,
    health: Health | None = None,
) -> None:
    """Run one node's agent until cancelled; NodeNameMissing when it has no name. `health` shows what it waits for."""
    agent = Agent(node_name, detector, Publisher(client, clock, namespace=namespace), clock, options)
    if health is not None:
        health.add_check("cards", lambda: agent.unready)
    objects = _objects(client, clock, {node_name: agent}, namespace=namespace, node=node_name)
    async with asyncio.TaskGroup() as group:
        group.create_task(objects.run(), name="objects")
        group.create_task(agent.run(), name="cards")


async def serve_fleet(
    client: Client,
    clock: Clock,
    fleet: Path,
    options: AgentOptions,
    *,
    namespace: str,
    plugins: PluginOptions | None = None,
    health: Health | None = None,
) -> None:
    """Run the agents of every node of a fleet file until cancelled; with `plugins`, their device plugins too."""
    detectors = load_fleet(fleet)
    agents = FleetAgent(client, clock, detectors, options, namespace=namespace)
    if health is not None:
        health.add_check("cards", lambda: f"{left} nodes left" if (left := len(agents.waiting)) else "")
    objects = _objects(client, clock, {agent.node_name: agent for agent in agents.agents}, namespace=namespace)
    async with asyncio.TaskGroup() as group:
        group.create_task(objects.run(), name="objects")
        group.create_task(agents.run(), name="cards")
        if plugins is not None:
            served = FleetPlugins(client, clock, detectors, plugins)
            if health is not None:
                served.watch_over(health)
            group.create_task(served.run(), name="plugins")


def _objects(client: Client, clock: Clock, agents: Mapping[str, Agent], *, namespace: str, node: str = "") -> Manager:
    """Return the watches that wake agents whose objects were touched."""
    manager = Manager(client, selections=selections(namespace, node), clock=clock)
    manager.add(OwnObjects(manager.caches, agents, namespace=namespace))
    return manager


async def detect_once(detector: Detector, options: DetectionOptions) -> Detection:
    """Return one pass's result; a manufacturer that could not be measured is logged and left out."""
    detection = next_detection(NOTHING_YET, await look(detector, options.manufacturers), options)
    for manufacturer, reason in sorted(detection.troubles.items()):
        log.warning("cards not measured", extra={"manufacturer": manufacturer, "reason": reason})
    return detection


def groups_as_yaml(detection: Detection) -> str:
    """Return the groups in the shape of `Devices.spec.groups`, indented by four (spec 06 §1)."""
    return yaml.dump(
        [dict(group) for group in canonical_groups(detection.all_groups())],
        Dumper=_PlainDumper,
        indent=4,
        sort_keys=False,
        allow_unicode=True,
    )


class _PlainDumper(yaml.SafeDumper):
    """Writes every value out; people do not read anchors."""

    def ignore_aliases(self, _data: object) -> bool:
        return True
