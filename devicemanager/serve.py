"""The agent as a process: `device-manager serve` and `device-manager detect`.

For: the roof's commands. In: settled configuration, a client. Out: runs until cancelled; or text for people.
Promises: a recorded machine or fleet and the host's own hardware run through the same code; helpers end with it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import yaml

from devicemanager.agent import Agent, AgentOptions, FleetAgent
from devicemanager.answers import Detector
from devicemanager.detection import NOTHING_YET, Detection, DetectionOptions, look, next_detection
from devicemanager.detectors.helper import HelperProbes
from devicemanager.detectors.host import HostDetector
from devicemanager.detectors.recorded import RecordedDetector, load_fleet
from devicemanager.publisher.devices import canonical_groups
from devicemanager.publisher.publish import Publisher
from kube.client import Client
from kube.clock import Clock
from nodefeature.manufacturers import Manufacturers


@asynccontextmanager
async def open_detector(
    clock: Clock, registry: Manufacturers, *, recorded: str = "", no_pci_check: bool = False, root: Path = Path("/")
) -> AsyncIterator[Detector]:
    """Open the detector of a recorded machine file, or of this host when none is named."""
    if recorded:
        yield RecordedDetector.load(Path(recorded))
        return
    probes = HelperProbes(clock, no_pci_check=no_pci_check)
    try:
        yield HostDetector(probes, root=root, registry=registry, no_pci_check=no_pci_check)
    finally:
        await probes.close()


async def serve_node(
    client: Client, clock: Clock, node_name: str, detector: Detector, options: AgentOptions, *, namespace: str
) -> None:
    """Run one node's agent until cancelled; NodeNameMissing when it has no name."""
    await Agent(node_name, detector, Publisher(client, clock, namespace=namespace), clock, options).run()


async def serve_fleet(client: Client, clock: Clock, fleet: Path, options: AgentOptions, *, namespace: str) -> None:
    """Run the agents of every node of a fleet file until cancelled."""
    await FleetAgent(client, clock, load_fleet(fleet), options, namespace=namespace).run()


async def detect_once(detector: Detector, options: DetectionOptions) -> Detection:
    """Return one pass's result."""
    return next_detection(NOTHING_YET, await look(detector, options.manufacturers), options)


def groups_as_yaml(detection: Detection) -> str:
    """Return the groups in the shape of `Devices.spec.groups`, indented by four (spec 06 §1)."""
    groups = [dict(group) for group in canonical_groups(detection.all_groups())]
    return yaml.safe_dump(groups, indent=4, sort_keys=False, allow_unicode=True)
