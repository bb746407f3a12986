"""Keeping the Service of an Instance's Pod (spec 05 §8.4, §9 step 9).

For: the instance controller. In: an Instance and its Pod. Out: the Pod's Service, created where it is missing.
Promises: a Service of an earlier Pod is deleted, not taken over; somebody else's Service of that name is left alone and
named in an Event, once a Pod; without ports there is none.
State: of which Pods the Event was written, in this process.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from api.instance_conditions import EventReason
from controllers.instance_service import (
    is_instance_service,
    is_service_of,
    published_ports,
    render_service,
    service_ports,
)
from controllers.reports import Reports
from kube.client import Client
from kube.errors import AlreadyExists, Conflict, Forbidden, Invalid, NotFound
from kube.events import EventRecorder
from kube.reconciler import Caches, Key, Object, Rule
from nodefeature.fields import as_map, at, is_deleting, name_of, namespace_of, uid_of
from nodefeature.kinds import SERVICE

log = logging.getLogger(__name__)

SERVICE_RBAC = (Rule("", "services", ("get", "list", "watch", "create", "delete")),)
SOON_S = 2.0
REFUSED_S = 60.0


@dataclass(frozen=True, slots=True)
class Found:
    """A Pod's Service, and in how many seconds to look again (None: only when something changes)."""

    found: Object | None = None
    wait_s: float | None = None


class Services:
    """Keeps one Service a Pod."""

    def __init__(self, client: Client, caches: Caches, events: EventRecorder) -> None:
        self._client = client
        self._caches = caches
        self._events = events
        self._reports = Reports()

    async def ensure(self, instance: Object, pod: Object) -> Found:
        """Return the Service of a Pod, created if need be."""
        if not service_ports(pod) or is_deleting(pod):
            return Found()
        service = self._caches[SERVICE].get(Key(name_of(pod), namespace_of(pod)))
        if service is None:
            return await self._create(instance, pod)
        return await self._judge(instance, pod, service)

    def forget(self, key: Key) -> None:
        """Drop what is remembered of an Instance that is gone."""
        self._reports.forget(str(key))

    async def _create(self, instance: Object, pod: Object) -> Found:
        try:
            service = await self._client.create(SERVICE, render_service(instance, pod))
        except AlreadyExists:
            try:
                stored = await self._client.get(SERVICE, name_of(pod), namespace_of(pod))
            except NotFound:
                return Found(wait_s=SOON_S)
            return await self._judge(instance, pod, stored)
        except NotFound:
            return Found()  # the namespace is gone
        except (Forbidden, Invalid) as refused:
            if "NamespaceTerminating" in refused.causes():
                return Found()
            await self._report(instance, pod, f"the Service was refused: {refused}")
            return Found(wait_s=REFUSED_S)
        log.info("service created", extra={"kind": SERVICE.kind})
        return _published(instance, service)

    async def _judge(self, instance: Object, pod: Object, service: Object) -> Found:
        if is_deleting(service):
            return Found(wait_s=SOON_S)
        if is_service_of(service, pod):
            self.forget(Key(name_of(instance), namespace_of(instance)))
            return _published(instance, service)
        if not is_instance_service(service):
            await self._report(instance, pod, f'the Service "{name_of(service)}" is not this Instance\'s: no ports')
            return Found(wait_s=REFUSED_S)
        with suppress(NotFound, Conflict):
            await self._client.delete(SERVICE, name_of(service), namespace_of(service), uid=uid_of(service))
        return Found(wait_s=SOON_S)

    async def _report(self, instance: Object, pod: Object, message: str) -> None:
        subject = str(Key(name_of(instance), namespace_of(instance)))
        for sentence in self._reports.news(subject, (message,)):
            await self._events.record(
                instance, EventReason.NO_PORTS, sentence, event_type="Warning", subject=uid_of(pod)
            )


def _published(instance: Mapping[str, Any], service: Object) -> Found:
    """A Service whose node ports are not all there yet is looked at again soon."""
    complete = published_ports(as_map(at(instance, "spec")), service) is not None
    return Found(service, None if complete else SOON_S)
