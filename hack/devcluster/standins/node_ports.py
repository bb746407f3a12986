"""Stand-in for kube-apiserver's allocation of node ports.

For: the devcluster, which stores Services as they come. In: Services of type NodePort. Out: node ports from 30000 on,
each given once. Kept: a port that is there stays. Left out: cluster addresses, ranges, Services that name a port.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from kube.client import Client
from kube.errors import Conflict, NotFound
from kube.reconciler import DONE, Caches, Index, Key, Object, Outcome, Rule, Watch
from nodefeature.fields import as_int, as_maps, at, name_of, namespace_of
from nodefeature.kinds import SERVICE, Kind

FIRST, LAST = 30000, 32767


def _without_port(_: Object | None, new: Object | None, __: Caches) -> Iterable[Key]:
    return [Key(name_of(new), namespace_of(new))] if new is not None and _lacks(new) else []


def _lacks(service: Object) -> bool:
    ports = as_maps(at(service, "spec", "ports"))
    return at(service, "spec", "type") == "NodePort" and any(not port.get("nodePort") for port in ports)


class NodePorts:
    """Reconciles one Service's node ports. One at a time: no port is given twice."""

    NAME: ClassVar[str] = "standin-node-ports"
    WATCHES: ClassVar[tuple[Watch, ...]] = (Watch(SERVICE, _without_port),)
    READS: ClassVar[tuple[Kind, ...]] = ()
    INDEXES: ClassVar[tuple[Index, ...]] = ()
    RBAC: ClassVar[tuple[Rule, ...]] = ()

    def __init__(self, client: Client, caches: Caches) -> None:
        self._client = client
        self._caches = caches
        # The cache lags behind our own writes.
        self._given: set[int] = set()

    async def reconcile(self, key: Key) -> Outcome:
        """Give a Service's ports their node ports."""
        service = self._caches[SERVICE].get(key)
        if service is None or not _lacks(service):
            return DONE
        taken = {
            as_int(port.get("nodePort"))
            for other in self._caches[SERVICE].list()
            for port in as_maps(at(other, "spec", "ports"))
        }
        taken |= self._given
        free = (port for port in range(FIRST, LAST + 1) if port not in taken)
        ports = [{**port, "nodePort": port.get("nodePort") or next(free)} for port in as_maps(service["spec"]["ports"])]
        self._given |= {port["nodePort"] for port in ports}
        meta = {"resourceVersion": at(service, "metadata", "resourceVersion")}
        try:
            await self._client.patch(SERVICE, key.name, {"metadata": meta, "spec": {"ports": ports}}, key.namespace)
        except (Conflict, NotFound):
            return DONE
        return DONE
