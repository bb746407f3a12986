"""The exporter of one node, reading what the node's agent caches anyway.

For: `serve`. In: the client, who this manager is, a meter, the caches of this node's Pods and its Devices.
Out: an exporter, to be run. Promises: it asks the API server for nothing but the kubelet's summary.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import cast

from api.devices import DeviceGroup, spec_groups
from devicemanager.exporter.exporter import Exporter, Identity, Sources
from devicemanager.exporter.rounds import COMPONENT, COMPONENT_VALUE
from devicemanager.monitor import Monitor
from devicemanager.usage import Meter
from kube.client import Client
from kube.clock import Clock
from kube.reconciler import Caches, Key, Object
from nodefeature.fields import as_str, labels_of, namespace_of
from nodefeature.kinds import DEVICES, POD


def node_exporter(
    client: Client,
    clock: Clock,
    identity: Identity,
    meter: Meter,
    caches: Caches,
    *,
    manufacturers: Collection[str],
    period_s: float,
) -> Exporter:
    """Return the exporter. `caches` hold the Pods of this node and its Devices object."""

    def devices() -> Object:
        return caches[DEVICES].get(Key(identity.node)) or {}

    def groups() -> Sequence[DeviceGroup]:
        own = [group for group in spec_groups(devices()) if as_str(group.get("manufacturer")) in manufacturers]
        return cast(Sequence[DeviceGroup], own)

    def managers() -> list[Object]:
        return [
            pod
            for pod in caches[POD].list()
            if namespace_of(pod) == identity.namespace and labels_of(pod).get(COMPONENT) == COMPONENT_VALUE
        ]

    sources = Sources(groups=groups, pods=caches[POD].list, devices=devices, managers=managers)
    return Exporter(client, clock, identity, Monitor(meter, clock, period_s=period_s), sources)
