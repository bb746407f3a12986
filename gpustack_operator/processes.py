"""What every long-running process does at its start.

For: `commands/`. In: options and the environment. Out: logging set up, a client, the registry of manufacturers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from gpustack_operator.config import KubeOptions, LogOptions
from kube.client import Client
from kube.connection import Connection
from kube.credentials import find_credentials
from kube.logs import set_up
from nodefeature.environment import environment_problems
from nodefeature.manufacturers import Manufacturers, build_manufacturers

log = logging.getLogger(__name__)


def start_logging(options: LogOptions) -> None:
    """Send this process's records to standard error."""
    set_up(style="json" if options.log_format == "json" else "text", level=options.log_level.upper())


def environment_of(environ: Mapping[str, str]) -> Manufacturers:
    """Return the manufacturers as the environment overrides them; what cannot be used is logged, the default stays."""
    registry = build_manufacturers(environ)
    for problem in (*environment_problems(environ), *registry.problems):
        log.warning("environment variable left aside", extra={"reason": str(problem)})
    return registry


def check_credentials(options: KubeOptions, environ: Mapping[str, str]) -> None:
    """Read the credentials once, before anything starts; CredentialsError says what is wrong with them."""
    asyncio.run(find_credentials(kubeconfig=options.kubeconfig, environ=environ).current())


def connect(options: KubeOptions, environ: Mapping[str, str]) -> Client:
    """Return a client of the cluster the options name; nothing is sent yet."""
    source = find_credentials(kubeconfig=options.kubeconfig, environ=environ)
    return Client(Connection(source), deadline_s=options.kube_conn_timeout)
