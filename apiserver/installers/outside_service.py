"""The Service of a server that runs outside its cluster.

For: `installation`. In: a host name under which kube-apiserver reaches this process. Out: an ExternalName Service.
Promises: the way is the one used in a cluster: the APIService names the Service, the certificate is checked for
`<service>.<namespace>.svc`; a Service of another type under this name is left alone and named.
"""

from __future__ import annotations

import logging

from kube.client import Client
from kube.errors import AlreadyExists, NotFound, OperatorError
from kube.reconciler import Rule
from nodefeature.fields import at
from nodefeature.kinds import SERVICE
from nodefeature.labels import SYSTEM_NAMESPACE

RBAC = (Rule(SERVICE.group, SERVICE.plural, ("get", "create", "patch"), SYSTEM_NAMESPACE),)

log = logging.getLogger(__name__)


class OutsideService:
    """Keeps the Service."""

    def __init__(self, client: Client, *, name: str, namespace: str, host: str) -> None:
        self._client = client
        self._name = name
        self._namespace = namespace
        self._host = host

    async def ensure(self) -> None:
        """Create the Service, or let it lead here."""
        spec = {"type": "ExternalName", "externalName": self._host}
        try:
            have = await self._client.get(SERVICE, self._name, self._namespace)
        except NotFound:
            metadata = {"name": self._name, "namespace": self._namespace}
            try:
                await self._client.create(SERVICE, {"metadata": metadata, "spec": spec})
            except AlreadyExists:
                return
            log.info("Service created", extra={"kind": "Service", "object": f"{self._namespace}/{self._name}"})
            return
        if at(have, "spec", "type") != "ExternalName":
            raise OperatorError(
                f"Service {self._namespace}/{self._name} has type {at(have, 'spec', 'type')}: a server outside the "
                "cluster needs a name of its own, give --service-name"
            )
        if at(have, "spec", "externalName") != self._host:
            await self._client.patch(SERVICE, self._name, {"spec": spec}, self._namespace)
