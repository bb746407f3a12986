"""What an Instance stands on, read from the caches, and live where a missing answer would do harm.

For: the instance controller. In: an Instance or its Pod. Out: the objects around it; None where there are none.
Promises: writes nothing, remembers nothing; a cache that is behind never makes a type, a Pod or a Node look gone: these
are asked for once more (spec 05 §8.1, §9).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from controllers.card_claims import WORKLOADS_BY_OWNER
from controllers.instance_placement import Placement, Volumes, found
from controllers.instance_pod import is_own_pod
from controllers.instance_resources import is_accelerated, manufacturer_of
from kube.client import Client
from kube.reconciler import Caches, Key, Object
from nodefeature.fields import as_map, as_str, at, labels_of, name_of, namespace_of, uid_of
from nodefeature.kinds import CLUSTER_QUEUE, DEVICES, INSTANCE_TYPE, NODE, POD, RUNTIME_CLASS, WORKLOAD
from nodefeature.labels import HOSTNAME
from nodefeature.manufacturers import Manufacturers


class Lookups:
    """Reads around one Instance."""

    def __init__(self, client: Client, caches: Caches) -> None:
        self._client = client
        self._caches = caches
        self._volumes = Volumes(client)

    async def type_of(self, instance: Mapping[str, Any]) -> Object | None:
        """Return an Instance's type; None when there is none, the server's word."""
        name = as_str(at(instance, "spec", "type"))
        return self._caches[INSTANCE_TYPE].get(Key(name)) or await found(self._client, INSTANCE_TYPE, name)

    def queue_of(self, instance: Mapping[str, Any]) -> Object | None:
        """Return the ClusterQueue of an Instance's pool; it has the type's name."""
        return self._caches[CLUSTER_QUEUE].get(Key(as_str(at(instance, "spec", "type"))))

    async def pod(self, instance: Mapping[str, Any]) -> Object | None:
        """Return the Pod of an Instance's name, whoever's it is, as the server has it."""
        return await found(self._client, POD, name_of(instance), namespace_of(instance))

    async def own_pod(self, instance: Mapping[str, Any]) -> Object | None:
        """Return an Instance's own Pod as the server has it."""
        pod = await self.pod(instance)
        return pod if is_own_pod(instance, pod) else None

    async def placement(self, instance: Mapping[str, Any], *, restricts: bool) -> Placement:
        """Return what the Instance's volumes say; without `restricts` they are not even looked at."""
        if not restricts:
            return Placement()
        return await self._volumes.placement(as_map(at(instance, "spec")), namespace_of(instance))

    async def hostname(self, instance: Mapping[str, Any]) -> str:
        """Return the host name label of the pinned node, its name where that is not to be had; empty without a pin."""
        name = as_str(at(instance, "spec", "nodeName"))
        if not name:
            return ""
        node = self._caches[NODE].get(Key(name)) or await found(self._client, NODE, name)
        return labels_of(node).get(HOSTNAME) or name

    async def runtime_class(self, instance_type: Mapping[str, Any], registry: Manufacturers) -> str:
        """Return the RuntimeClass of a pool's cards where the cluster has it."""
        name = registry.runtime_class(manufacturer_of(instance_type)) if is_accelerated(instance_type) else ""
        return name if name and await found(self._client, RUNTIME_CLASS, name) is not None else ""

    async def node_of(self, pod: Mapping[str, Any]) -> Object | None:
        """Return the node that a Pod runs on."""
        name = as_str(at(pod, "spec", "nodeName"))
        if not name or at(pod, "status", "phase") != "Running":
            return None
        return self._caches[NODE].get(Key(name)) or await found(self._client, NODE, name)

    def devices_of(self, pod: Mapping[str, Any]) -> Object | None:
        """Return the cards of the node that a Pod runs on."""
        name = as_str(at(pod, "spec", "nodeName"))
        return self._caches[DEVICES].get(Key(name)) if name else None

    def workload_of(self, pod: Mapping[str, Any]) -> Object | None:
        """Return the Workload that Kueue made of a Pod."""
        return next(iter(self._caches[WORKLOAD].by(WORKLOADS_BY_OWNER.name, uid_of(pod))), None)
