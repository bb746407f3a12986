"""`gpustack-operator worker`: apiserver and controllers in one process, outside a cluster (design §4).

One ends the other: a signal stops both, and a failure of either ends the process, so that whatever started it can start
it again.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Mapping

import uvloop

from api.settings import seeds_of
from apiserver.process import ProcessOptions
from apiserver.serving.listener import bind
from apiserver.serving.shutdown import Shutdown
from gpustack_operator.commands import apiserver, controllers
from gpustack_operator.config import (
    ApiServerOptions,
    ElectionOptions,
    HealthOptions,
    KubeOptions,
    LogOptions,
    ManufacturerOptions,
    ServiceOptions,
)
from gpustack_operator.packaged import unit_resource_presets
from gpustack_operator.processes import check_credentials, environment_of, start_logging
from kube.runtime import Manager


def run(
    kube: KubeOptions,
    service: ServiceOptions,
    options: ApiServerOptions,
    election: ElectionOptions,
    manufacturers: ManufacturerOptions,
    health: HealthOptions,
    logs: LogOptions,
    *,
    environ: Mapping[str, str],
) -> None:
    """Serve and reconcile until SIGTERM."""
    start_logging(logs)
    apiserver.allow_connections()
    placed: ProcessOptions = apiserver.placement(kube, service, options, environ)
    check_credentials(kube, environ)
    registry = environment_of(environ)
    presets = unit_resource_presets()
    seeds, _ = seeds_of(environ)
    bound = bind(options.bind_address, options.secure_port)

    async def both() -> None:
        stops: list[Callable[[], None]] = []

        def stop() -> None:
            for each in stops:
                each()

        def stop_manager(manager: Manager) -> None:
            stops.append(manager.stop)

        def begin_shutdown(shutdown: Shutdown) -> None:
            stops.append(shutdown.begin)

        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop)
        reconciling = controllers.serve(
            kube,
            election,
            health,
            environ=environ,
            registry=registry,
            names=manufacturers.manufacturer,
            presets=presets,
            seeds=seeds,
            stopped_by=stop_manager,
        )
        serving = apiserver.serve(kube, placed, bound, environ=environ, stopped_by=begin_shutdown)
        async with asyncio.TaskGroup() as group:
            group.create_task(serving, name="apiserver")
            group.create_task(reconciling, name="controllers")

    uvloop.run(both())
