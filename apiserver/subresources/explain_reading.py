"""Reads what an explanation is made of: a dozen single objects, and two bounded lists.

For: the sub-resource `instances/explain`; the command `explain`, for Pods, with the rights of whoever runs it.
In: a client, a name. Out: evidence. Raises what the client raises only for the Instance or Pod itself.
Promises: whatever else cannot be read is named in the evidence and costs no error; a list is read only where its
figures are shown; no name that a tenant wrote leads further than to one path segment.
Trusts: the label `app.kubernetes.io/part-of` says whose Pod it is, as for the other sub-resources.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from api.explain.asking import demands
from api.explain.evidence import Evidence
from apiserver.subresources.explain_lists import Listed, SharedLists, slim_devices, slim_workload
from kube.client import Client
from kube.clock import Clock
from kube.errors import InvalidRequest, NotFound, OperatorError
from kube.reconciler import Rule
from kube.requests import ListOptions, select_labels
from nodefeature.fields import as_map, as_maps, as_str, at, has_condition, labels_of, namespace_of, uid_of
from nodefeature.kinds import (
    CLUSTER_QUEUE,
    DEVICES,
    INSTANCE,
    INSTANCE_TYPE,
    LOCAL_QUEUE,
    NODE,
    POD,
    RESOURCE_FLAVOR,
    WORKLOAD,
    Kind,
)
from nodefeature.labels import PART_OF, QUEUE_NAME
from nodefeature.manufacturers import Manufacturers
from nodefeature.pool import pool_devices_selector

JOB_UID = "kueue.x-k8s.io/job-uid"
"""Kueue's label on the Workload of a single Pod."""
UNADMITTED = "status.admission.clusterQueue="
"""Selects Workloads without a reservation, where Kueue's CRD lets one select by that field."""
LIST_S = 4.0
"""Deadline of one list; single objects have the client's."""
MAX_FLAVORS = 8
_OWN_PAGE = 200
_PLAIN = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
RBAC = (
    Rule(INSTANCE.group, "instances", ("get",)),
    Rule(INSTANCE_TYPE.group, "instancetypes", ("get",)),
    Rule(DEVICES.group, "devices", ("list",)),
    Rule("", "pods", ("get",)),
    Rule("", "nodes", ("get",)),
    Rule(CLUSTER_QUEUE.group, "clusterqueues", ("get",)),
    Rule(LOCAL_QUEUE.group, "localqueues", ("get",)),
    Rule(RESOURCE_FLAVOR.group, "resourceflavors", ("get",)),
    Rule(WORKLOAD.group, "workloads", ("list",)),
)
Object = Mapping[str, Any]


class ExplainReader:
    """Reads evidence about one Instance or Pod at a time; lists are shared between them."""

    def __init__(self, client: Client, registry: Manufacturers, clock: Clock) -> None:
        self._client = client
        self._registry = registry
        self._lists = SharedLists(client, clock)

    async def of_instance(self, namespace: str, name: str) -> Evidence:
        """Return the evidence about an Instance; NotFound when there is none."""
        reading = _Reading(self._client)
        instance = await self._client.get(INSTANCE, name, namespace)
        pod = await reading.get(POD, name, namespace)
        if pod is not None and labels_of(pod).get(PART_OF) != uid_of(instance):
            pod = None
        return await self._about(reading, namespace, instance=instance, pod=pod)

    async def of_pod(self, namespace: str, name: str) -> Evidence:
        """Return the evidence about a Pod; NotFound when there is none."""
        pod = await self._client.get(POD, name, namespace)
        return await self._about(_Reading(self._client), namespace, instance=None, pod=pod)

    async def _about(
        self, reading: _Reading, namespace: str, *, instance: Object | None, pod: Object | None
    ) -> Evidence:
        queue, kind, local = await self._queue(reading, namespace, instance, pod)
        workload, node = await asyncio.gather(self._workload(reading, pod), self._node(reading, instance, pod))
        evidence = Evidence(
            registry=self._registry,
            instance=instance,
            pod=pod,
            instance_type=kind,
            cluster_queue=queue,
            local_queue=local,
            workload=workload,
            node=node,
            flavors=await self._flavors(reading, workload),
        )
        rivals, devices = await asyncio.gather(self._rivals(reading, evidence), self._devices(reading, evidence))
        partial = {plural for plural, each in ((WORKLOAD.plural, rivals), (DEVICES.plural, devices)) if each.partial}
        return replace(
            evidence,
            rivals=rivals.items,
            devices=devices.items,
            partial=frozenset(partial),
            unread=reading.unread,
        )

    async def _queue(
        self, reading: _Reading, namespace: str, instance: Object | None, pod: Object | None
    ) -> tuple[Object | None, Object | None, Object | None]:
        """Return the ClusterQueue, the InstanceType of its name, and the namespace's way to it."""
        entrance = labels_of(pod).get(QUEUE_NAME, "")
        if instance is None:
            local = await reading.get(LOCAL_QUEUE, entrance, namespace)
            name = as_str(at(local, "spec", "clusterQueue"))
            queue, kind = await asyncio.gather(reading.get(CLUSTER_QUEUE, name), reading.get(INSTANCE_TYPE, name))
            return queue, kind, local
        name = as_str(at(instance, "spec", "type"))
        queue, kind = await asyncio.gather(reading.get(CLUSTER_QUEUE, name), reading.get(INSTANCE_TYPE, name))
        local = await reading.get(LOCAL_QUEUE, entrance or as_str(at(kind, "status", "entrance")), namespace)
        return queue, kind, local

    async def _workload(self, reading: _Reading, pod: Object | None) -> Object | None:
        """Return the Workload that a Pod belongs to: by Kueue's label, else by its owners."""
        uid = uid_of(pod)
        if pod is None or not _PLAIN.fullmatch(uid):
            return None
        for selector in (f"{JOB_UID}={uid}", ""):
            found = await reading.page(WORKLOAD, namespace_of(pod), selector)
            owned = [
                each
                for each in found.items
                if any(owner.get("uid") == uid for owner in as_maps(at(each, "metadata", "ownerReferences")))
            ]
            if owned:
                return max(owned, key=lambda each: as_str(at(each, "metadata", "creationTimestamp")))
        if found.partial:
            reading.unread[WORKLOAD.plural] = f"only the first {_OWN_PAGE} of the namespace were looked at"
        return None

    async def _node(self, reading: _Reading, instance: Object | None, pod: Object | None) -> Object | None:
        name = as_str(at(pod, "spec", "nodeName")) or as_str(at(instance, "spec", "nodeName"))
        return await reading.get(NODE, name)

    async def _flavors(self, reading: _Reading, workload: Object | None) -> list[Object]:
        assigned = as_maps(at(workload, "status", "admission", "podSetAssignments"))
        names = dict.fromkeys(as_str(name) for row in assigned for name in as_map(row.get("flavors")).values())
        found = await asyncio.gather(*(reading.get(RESOURCE_FLAVOR, name) for name in list(names)[:MAX_FLAVORS]))
        return [flavor for flavor in found if flavor is not None]

    async def _rivals(self, reading: _Reading, evidence: Evidence) -> Listed:
        """Return the Workloads that wait at the same entrance, while this one does."""
        own = evidence.workload
        if own is None or has_condition(own, "QuotaReserved"):
            return Listed()
        found = await reading.shared(self._lists.of(WORKLOAD, slim_workload, fields=UNADMITTED), WORKLOAD)
        # One name in every namespace: it is made of the ClusterQueue's (`nodefeature.queue_names`).
        entrance = as_str(at(own, "spec", "queueName"))
        return replace(found, items=tuple(each for each in found.items if at(each, "spec", "queueName") == entrance))

    async def _devices(self, reading: _Reading, evidence: Evidence) -> Listed:
        """Return the pool's ledgers, while cards are asked for and not granted yet."""
        if has_condition(evidence.workload, "Admitted") or not demands(evidence):
            return Listed()
        selector = pool_devices_selector(labels_of(evidence.cluster_queue))
        if selector is None:
            return Listed()
        return await reading.shared(self._lists.of(DEVICES, slim_devices, labels=select_labels(selector)), DEVICES)


@dataclass(slots=True)
class _Reading:
    """One question's reads, and what went wrong with them."""

    client: Client
    unread: dict[str, str] = field(default_factory=dict)

    async def get(self, kind: Kind, name: str, namespace: str = "") -> Object | None:
        """Return an object; None when it is not there, cannot be there, or cannot be read (then it is remembered)."""
        if not name:
            return None
        try:
            return await self.client.get(kind, name, namespace)
        except (NotFound, InvalidRequest):
            return None
        except OperatorError as error:
            self.unread[kind.plural] = str(error)
            return None

    async def page(self, kind: Kind, namespace: str, selector: str) -> Listed:
        """Return the first page of a namespace's objects."""
        options = ListOptions(label_selector=selector, limit=_OWN_PAGE)
        try:
            found = await self.client.list_page(kind, namespace, options)
        except NotFound:
            return Listed()
        except OperatorError as error:
            self.unread[kind.plural] = str(error)
            return Listed()
        return Listed(tuple(found.items), partial=bool(found.continue_token))

    async def shared(self, listing: Awaitable[Listed], kind: Kind) -> Listed:
        """Return a list; an empty one when it cannot be read in time (then it is remembered)."""
        try:
            async with asyncio.timeout(LIST_S):
                return await listing
        except TimeoutError:
            self.unread[kind.plural] = f"no answer within {LIST_S:.0f} s"
        except NotFound:
            return Listed()
        except OperatorError as error:
            self.unread[kind.plural] = str(error)
        return Listed(partial=True)
