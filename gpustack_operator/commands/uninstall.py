"""`gpustack-operator uninstall`: no APIService and no webhook of ours stays behind (cases B021, B032).

A dead APIService holds up the deletion of every namespace of the cluster, a dead webhook refuses Pods. A server that
lives takes them away when its namespace goes; this command does it in every other case: before the server is removed (a
living server would put them back within half a minute, so remove it right after), after it has gone, or for a server
that crashed for good.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version

import uvloop

from apiserver.installers.api_services import ApiServiceInstaller
from apiserver.installers.webhooks import WebhookInstaller
from gpustack_operator.config import KubeOptions, LogOptions, ServiceOptions
from gpustack_operator.processes import connect, start_logging


def run(kube: KubeOptions, service: ServiceOptions, logs: LogOptions, *, environ: Mapping[str, str]) -> None:
    """Remove what leads to our Service; absent is done."""
    start_logging(logs)

    async def remove() -> None:
        client = connect(kube, environ)
        try:
            where = {"service": service.service_name, "namespace": kube.namespace}
            await WebhookInstaller(client, **where, version=version("gpustack-operator")).remove()
            await ApiServiceInstaller(client, **where).remove()
        finally:
            await client.connection.close()

    uvloop.run(remove())
