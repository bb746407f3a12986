"""`events`: what the cluster says about the object behind an Instance or a volume (spec 02 §7.2).

For: the resource modules. In: a call. Out: InstanceEvents, InstancePersistentVolumeEvents.
Promises: only Events about this very object (its uid), oldest first; 404 while there is no such object.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from api.models.answers import InstanceEvents, InstancePersistentVolumeEvents
from api.schema import structural
from apiserver.context import Context
from apiserver.mapping.refusals import not_found, translated
from apiserver.rest.request_info import RequestInfo
from apiserver.rest.responses import Send
from apiserver.rest.storage import Call, Subresource
from apiserver.subresources.answering import send_document
from apiserver.subresources.pods import pod_of
from kube.client import Client
from kube.errors import NotFound
from kube.reconciler import Rule
from nodefeature.fields import as_map, as_str, at, labels_of, name_of, namespace_of, uid_of
from nodefeature.kinds import EVENT, INSTANCE, PERSISTENT_VOLUME_CLAIM, POD, Kind
from nodefeature.labels import RESOURCE_TYPE

RBAC = (
    Rule(INSTANCE.group, "instances", ("get",)),
    Rule("", "pods", ("get",)),
    Rule("", "persistentvolumeclaims", ("get",)),
    Rule("", "events", ("list",)),
)
Object = Mapping[str, Any]
Find = Callable[[Client, RequestInfo], Awaitable[Object]]


@dataclass(frozen=True, slots=True)
class Events:
    """The connector."""

    client: Client
    kind: str
    about: Kind
    find: Find

    async def __call__(self, call: Call, scope: Mapping[str, Any], receive: Any, send: Send) -> None:
        """Answer with the Events about the found object."""
        obj = await self.find(self.client, call.info)
        terms = {"name": name_of(obj), "namespace": namespace_of(obj), "kind": self.about.kind, "uid": uid_of(obj)}
        selector = ",".join(f"involvedObject.{key}={value}" for key, value in terms.items())
        with translated(call.info, EVENT):
            items = await self.client.list(EVENT, call.info.namespace, field_selector=selector)
        document = {
            "kind": self.kind,
            "apiVersion": call.info.api_version,
            "metadata": {key: value for key, value in as_map(obj.get("metadata")).items() if key != "managedFields"},
            "items": sorted(items, key=_when),
        }
        await send_document(scope, send, document)


def _when(event: Object) -> str:
    return (
        as_str(event.get("lastTimestamp"))
        or as_str(event.get("eventTime"))
        or as_str(at(event, "metadata", "creationTimestamp"))
    )


async def _claim(client: Client, info: RequestInfo) -> Object:
    with translated(info, PERSISTENT_VOLUME_CLAIM):
        try:
            claim = await client.get(PERSISTENT_VOLUME_CLAIM, info.name, info.namespace)
        except NotFound as error:
            raise not_found(info) from error
    if labels_of(claim).get(RESOURCE_TYPE) != info.resource:
        raise not_found(info)
    return claim


def events_of_pod(context: Context) -> Subresource:
    """Return `instances/events`."""
    kind = "InstanceEvents"
    connector = Events(context.client, kind, POD, pod_of)
    return Subresource("events", kind, ("get",), connector=connector, schema=structural(InstanceEvents))


def events_of_claim(context: Context) -> Subresource:
    """Return `instancepersistentvolumes/events`."""
    kind = "InstancePersistentVolumeEvents"
    connector = Events(context.client, kind, PERSISTENT_VOLUME_CLAIM, _claim)
    schema = structural(InstancePersistentVolumeEvents)
    return Subresource("events", kind, ("get",), connector=connector, schema=schema)
