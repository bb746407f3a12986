"""`gpustack-operator apiserver`: one replica of the aggregated API (design §4, §6)."""

from __future__ import annotations

import os
import random
import resource
import socket
from collections.abc import Callable, Mapping
from importlib.metadata import version

import uvloop

from api.settings import seeds_of
from apiserver.app import AppOptions
from apiserver.process import ApiServer, ProcessOptions
from apiserver.serving.listener import MOST_CONNECTIONS, bind
from apiserver.serving.shutdown import Shutdown, Times
from gpustack_operator.config import ApiServerOptions, KubeOptions, LogOptions, ServiceOptions
from gpustack_operator.processes import check_credentials, connect, environment_of, start_logging
from kube.clock import SystemClock
from kube.errors import OperatorError


def run(
    kube: KubeOptions,
    service: ServiceOptions,
    options: ApiServerOptions,
    logs: LogOptions,
    *,
    environ: Mapping[str, str],
) -> None:
    """Serve until SIGTERM."""
    start_logging(logs)
    allow_connections()
    placed = placement(kube, service, options, environ)
    check_credentials(kube, environ)
    bound = bind(options.bind_address, options.secure_port)
    uvloop.run(serve(kube, placed, bound, environ=environ))


async def serve(
    kube: KubeOptions,
    placed: ProcessOptions,
    bound: socket.socket,
    *,
    environ: Mapping[str, str],
    stopped_by: Callable[[Shutdown], None] = Shutdown.on_signals,
) -> None:
    """Serve until the shutdown is through; `stopped_by` arranges that it begins."""
    client = connect(kube, environ)
    rng = random.Random(os.urandom(8))  # noqa: S311 - spreads retries; no secret depends on it
    server = ApiServer(client, placed, bound, clock=SystemClock(), rng=rng)
    stopped_by(server.shutdown)
    try:
        await server.run()
    finally:
        await client.connection.close()


def allow_connections() -> None:
    """Let this process open as many files as it may: the customary 1,024 are fewer than the listener takes."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4 * MOST_CONNECTIONS
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted if most == resource.RLIM_INFINITY else min(wanted, most), most))


def placement(
    kube: KubeOptions, service: ServiceOptions, options: ApiServerOptions, environ: Mapping[str, str]
) -> ProcessOptions:
    """Return what the options mean to a replica; OperatorError naming every bad seed."""
    seeds, problems = seeds_of(environ)
    if problems:
        raise OperatorError("\n".join(str(problem) for problem in problems))
    app = AppOptions(
        namespace=kube.namespace,
        version=version("gpustack-operator"),
        impersonate=options.impersonate_users,
        token_ttl_s=options.authentication_token_webhook_cache_ttl,
        allowed_ttl_s=options.authorization_webhook_cache_authorized_ttl,
        denied_ttl_s=options.authorization_webhook_cache_unauthorized_ttl,
        review_deadline_s=options.authentication_token_request_timeout,
        manufacturers=environment_of(environ),
    )
    delay_s = options.shutdown_delay_duration
    return ProcessOptions(
        service=service.service_name,
        service_port=options.service_port,
        external_name=options.external_name,
        cert_dir=options.cert_dir,
        app=app,
        times=Times(serve_s=delay_s, spread_s=delay_s / 2),
        seeds=seeds,
    )
