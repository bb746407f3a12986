"""The Pod behind an Instance.

For: the sub-resources of Instances. In: an Instance's name. Out: the Instance and its Pod.
Promises: a Pod counts only if it is of this very Instance (`app.kubernetes.io/part-of` is the Instance's uid): someone
who may read an Instance's log must not read another Pod that has the same name.
Trusts: that label, which whoever may write the Pod could forge, only to show them their own Pod.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from apiserver.mapping.refusals import not_found, translated
from apiserver.rest import status
from apiserver.rest.request_info import RequestInfo
from kube.client import Client
from kube.errors import NotFound
from nodefeature.fields import labels_of, uid_of
from nodefeature.kinds import INSTANCE, POD
from nodefeature.labels import PART_OF

CONTAINER = "main"
Object = Mapping[str, Any]


async def instance_and_pod(client: Client, info: RequestInfo) -> tuple[Object, Object | None]:
    """Return an Instance and its Pod, None while it has none; raises Refusal 404 without an Instance."""
    with translated(info, INSTANCE):
        try:
            instance = await client.get(INSTANCE, info.name, info.namespace)
        except NotFound as error:
            raise not_found(info) from error
    with translated(info, POD):
        try:
            pod = await client.get(POD, info.name, info.namespace)
        except NotFound:
            return instance, None
    return instance, pod if labels_of(pod).get(PART_OF) == uid_of(instance) else None


async def pod_of(client: Client, info: RequestInfo) -> Object:
    """Return the Pod of an Instance; raises Refusal 404 that names what is missing."""
    _, pod = await instance_and_pod(client, info)
    if pod is None:
        refusal = not_found(info)
        raise status.Refusal(404, "NotFound", f'pods "{info.name}" not found', details=refusal.details)
    return pod
