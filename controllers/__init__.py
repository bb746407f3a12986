"""Reconcilers of the chain, Instances and gate 3: one module each.

For: the `controllers` command, which hands them to `kube.runtime.Manager`.
In: a client, caches, what the process was configured with. Out: the reconcilers, sharing one `LiveSettings`.
Promises: building them does no I/O.
"""

from __future__ import annotations

from collections.abc import Mapping

from controllers.instance import Instance
from controllers.instance_type import InstanceType
from controllers.node_capacity import NodeCapacity
from controllers.node_devices import NodeDevices
from controllers.node_devices_admission import NodeDevicesAdmission
from controllers.node_devices_admission_check import NodeDevicesAdmissionCheck
from controllers.node_feature import NodeFeature
from controllers.node_fit import NodeFit
from controllers.node_flavor import NodeFlavorController
from controllers.node_queue import NodeQueue
from controllers.node_queue_entrance import NodeQueueEntrance
from controllers.selections import SELECTIONS, selections
from controllers.settings import LiveSettings, SettingsWatch
from kube.client import Client
from kube.clock import Clock
from kube.reconciler import Caches, Reconciler
from nodefeature.labels import SYSTEM_NAMESPACE
from nodefeature.manufacturers import Manufacturers
from nodefeature.presets import Presets

__all__ = ["RECONCILERS", "SELECTIONS", "build_reconcilers", "selections"]

RECONCILERS: tuple[type[Reconciler], ...] = (
    SettingsWatch,
    NodeFeature,
    NodeCapacity,
    NodeDevices,
    NodeFlavorController,
    InstanceType,
    NodeQueue,
    NodeQueueEntrance,
    NodeFit,
    NodeDevicesAdmissionCheck,
    NodeDevicesAdmission,
    Instance,
)
"""All classes: what RBAC, watches and caches of the process are the sum of."""


def build_reconcilers(
    client: Client,
    caches: Caches,
    *,
    clock: Clock,
    manufacturers: Manufacturers,
    presets: Presets,
    namespace: str = SYSTEM_NAMESPACE,
    seeds: Mapping[str, str] | None = None,
) -> list[Reconciler]:
    """Return one of each reconciler. `seeds` are the settings' defaults that the environment gave."""
    settings = LiveSettings(caches, namespace=namespace, seeds=seeds)
    return [
        SettingsWatch(client, caches, settings=settings, clock=clock),
        NodeFeature(client, caches, settings=settings, clock=clock, namespace=namespace),
        NodeCapacity(client, caches, manufacturers=manufacturers, clock=clock),
        NodeDevices(client, caches),
        NodeFlavorController(
            client, caches, settings=settings, manufacturers=manufacturers, presets=presets, clock=clock
        ),
        InstanceType(client, caches, settings=settings),
        NodeQueue(client, caches, settings=settings, clock=clock),
        NodeQueueEntrance(client, caches, namespace=namespace),
        NodeFit(client, caches, manufacturers=manufacturers),
        NodeDevicesAdmissionCheck(client, caches, clock=clock),
        NodeDevicesAdmission(client, caches, manufacturers=manufacturers, clock=clock),
        Instance(client, caches, settings=settings, manufacturers=manufacturers, clock=clock),
    ]
