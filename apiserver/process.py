"""One replica of the API server, from its first second to its last.

For: the commands `apiserver` and `worker`. In: a client, options, a bound socket. Out: a served API.
The order: the listener answers probes and says 503 -> certificate, trust in callers, CRDs and settings, in any order
-> requests are served -> a probe of the listener -> APIServices and webhooks -> repair, until told to leave.
Ready means: the shared certificate is shown, callers can be recognised, what must be installed is, what webhooks ask
has been read, and it is not leaving. It never waits for Kueue, for NFD or for its own APIService (case B057).
Promises: an API server that is away is waited for, nothing here ends the process; a task that ends by itself turns
`/livez` red.
"""

from __future__ import annotations

import asyncio
import logging
import random
import socket
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from api.crds import crd_manifests
from apiserver import resources
from apiserver.app import Application, AppOptions
from apiserver.authn import access_review, front_proxy, token_review
from apiserver.authn.front_proxy import FrontProxyTrust
from apiserver.authn.request_header import Trust
from apiserver.installers import api_services, crds, edits, installation, outside_service, settings_secret, webhooks
from apiserver.installers.api_services import ApiServiceInstaller
from apiserver.installers.crds import CrdInstaller
from apiserver.installers.installation import Installation, Installers
from apiserver.installers.outside_service import OutsideService
from apiserver.installers.probe import probe
from apiserver.installers.settings_secret import SettingsInstaller
from apiserver.installers.webhooks import WebhookInstaller
from apiserver.route import Route
from apiserver.serving.certificates import ServingTls, follow_folder, follow_secret
from apiserver.serving.listener import Listener
from apiserver.serving.loop_watch import LoopWatch
from apiserver.serving.shutdown import Shutdown, Times
from apiserver.webhooks import cached_world
from apiserver.webhooks.cached_world import CachedWorld
from kube.certs import keeper
from kube.certs.keeper import CertificateKeeper
from kube.client import Client
from kube.clock import Clock
from kube.reconciler import Rule
from kube.tasks import Health, guard
from nodefeature.labels import SYSTEM_NAMESPACE

RBAC: tuple[Rule, ...] = (
    *access_review.RBAC,
    *token_review.RBAC,
    *front_proxy.RBAC,
    *crds.RBAC,
    *settings_secret.RBAC,
    *api_services.RBAC,
    *outside_service.RBAC,
    *webhooks.RBAC,
    *edits.RBAC,
    *cached_world.RBAC,
    *installation.RBAC,
    *(Rule(rule.group, rule.resource, rule.verbs, SYSTEM_NAMESPACE) for rule in keeper.RBAC),
    *resources.RBAC,
)
"""What the server's own account needs."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessOptions:
    """Where this replica stands."""

    service: str = "gpustack-operator-worker"
    service_port: int = 443
    external_name: str = ""
    """`host[:port]` under which kube-apiserver reaches a process outside the cluster; empty inside."""
    cert_dir: str = ""
    app: AppOptions = field(default_factory=AppOptions)
    times: Times = field(default_factory=Times)
    seeds: Mapping[str, str] = field(default_factory=dict)
    """Defaults of settings that the environment gave."""


class ApiServer:
    """The replica. `shutdown.begin()` ends `run`."""

    def __init__(
        self,
        client: Client,
        options: ProcessOptions,
        bound: socket.socket,
        *,
        clock: Clock,
        rng: random.Random,
        registry: CollectorRegistry | None = None,
    ) -> None:
        registry = registry or CollectorRegistry()
        self.health = Health()
        self.shutdown = Shutdown(options.times, clock, rng)
        self._client = client
        self._options = options
        self._clock = clock
        self._rng = rng
        self._changed = asyncio.Event()
        self._tls = ServingTls(names_of(options), clock.time())
        self._tls.on_bundle = self._on_bundle
        self._trust = FrontProxyTrust(client, clock=clock, rng=rng, on_change=self._on_trust)
        self._installation = self._new_installation()
        self._world = CachedWorld(
            client,
            options.app.manufacturers,
            clock=clock,
            rng=rng,
            namespace=options.app.namespace,
            seeds=options.seeds,
        )
        self.app = Application(
            client,
            options.app,
            world=self._world,
            trust=self._trust.current,
            clock=clock,
            rng=rng,
            live={"tasks": lambda: "; ".join(self.health.live_faults())},
            ready={
                "certificate": lambda: "" if self._tls.is_shared else "no certificate that clients can verify yet",
                "front-proxy": self._trust.fault,
                "installed": lambda: "" if self._installation.prepared else "CRDs and settings are not installed yet",
                "webhooks": self._world.fault,
                "shutdown": lambda: "leaving" if self.shutdown.begun else "",
            },
            registry=registry,
        )
        self._loop_watch = LoopWatch(registry)
        self.listener = Listener(self.app, bound, self._tls.context, closing=lambda: self.shutdown.begun)

    def _new_installation(self) -> Installation:
        namespace, service = self._options.app.namespace, self._options.service
        client = self._client.as_manager("gpustack-installer")
        host = self._options.external_name.partition(":")[0]
        installers = Installers(
            crds=CrdInstaller(client, crd_manifests()),
            settings=SettingsInstaller(client, namespace=namespace, seeds=self._options.seeds),
            api_services=ApiServiceInstaller(client, service=service, namespace=namespace),
            webhooks=WebhookInstaller(client, service=service, namespace=namespace, version=self._options.app.version),
            outside=OutsideService(client, name=service, namespace=namespace, host=host) if host else None,
        )
        return Installation(installers, client, namespace=namespace, clock=self._clock, rng=self._rng)

    async def run(self) -> None:
        """Serve until the shutdown is through."""
        await self.listener.open()
        log.info("listening", extra={"port": self.listener.port})
        async with asyncio.TaskGroup() as group:

            def start(name: str, work: Coroutine[Any, Any, None], may_end: Callable[[], bool]) -> asyncio.Task[None]:
                return group.create_task(guard(name, work, self.health, may_end=may_end), name=name)

            following = [
                start("certificate", self._follow_certificate(), lambda: False),
                start("front proxy", self._trust.run(), lambda: False),
                start("namespace", self._installation.follow_namespace(), lambda: False),
                start("webhooks", self._world.run(), lambda: False),
                start("edits", self._installation.follow_webhooks(), lambda: False),
                start("loop watch", self._loop_watch.run(), lambda: False),
            ]
            installing = start("installation", self._install(), lambda: self._installation.going)
            await self.shutdown.told()
            installing.cancel()
            leaving = group.create_task(self._installation.leave(), name="leave")
            await self.shutdown.run(self.listener, streams=self.app.streams, refuse_streams=self.app.refuse_streams)
            await leaving
            for task in following:
                task.cancel()

    async def _follow_certificate(self) -> None:
        if self._options.cert_dir:
            await follow_folder(Path(self._options.cert_dir), self._tls, self._clock)
            return
        found = CertificateKeeper(
            self._client,
            name=f"{self._options.service}-serving",
            namespace=self._options.app.namespace,
            names=self._tls.names,
            clock=self._clock,
            rng=self._rng,
        )
        await follow_secret(found, self._tls)

    async def _install(self) -> None:
        await self._installation.prepare()
        while not self._tls.is_shared or self._trust.fault():
            self._changed.clear()
            await self._changed.wait()
        self.app.is_open = True
        log.info("serving")
        await self._installation.register(self._probe, self._route)
        await self._installation.repair(self._route)

    async def _probe(self) -> None:
        host, port = self.listener.address
        await probe(address=host, port=port, server_name=self._tls.names[0], bundle=self._tls.bundle)

    def _route(self) -> Route:
        host, _, port = self._options.external_name.partition(":")
        outside = int(port or self.listener.port) if host else 0
        return Route(
            service=self._options.service,
            namespace=self._options.app.namespace,
            port=outside or self._options.service_port,
            bundle=self._tls.bundle,
        )

    def _on_trust(self, trust: Trust) -> None:
        self._tls.trust(trust.bundle)
        self._changed.set()

    def _on_bundle(self) -> None:
        self._changed.set()
        self._installation.look_again()


def names_of(options: ProcessOptions) -> tuple[str, ...]:
    """Return what the certificate is issued for; the first is the name that the aggregator checks."""
    service, namespace = options.service, options.app.namespace
    return (f"{service}.{namespace}.svc", f"{service}.{namespace}", service, "localhost", "127.0.0.1")
