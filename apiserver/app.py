"""The whole application, from the outermost layer in (design §6).

A request's way: health paths are answered at once -> 503 while not everything stands -> webhooks, which ask for no
credentials -> compression, if asked for ->
the engine: one reading of the path, who asks, may they, limits -> a resource, discovery, OpenAPI, or the shell's pages.
For: `process`. In: a client with the server's own identity, what the cluster says about callers. Out: one ASGI
application and what a shutdown needs to know of it.
Promises: layers are plain ASGI and hold nothing back; until callers can be recognised and every route stands, an
answer is 503, never 404 or 403, which garbage collection and discovery would act on (case B023).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Counter

from apiserver.authn.access_review import AccessReviews
from apiserver.authn.authenticator import Authenticator
from apiserver.authn.request_header import Trust
from apiserver.authn.token_review import TokenReviews
from apiserver.context import Context
from apiserver.forwarding.openapi import crd_documents
from apiserver.health import Check, HealthEndpoints
from apiserver.installers.api_services import GROUPS, VERSION
from apiserver.resources import build_resources
from apiserver.rest import status
from apiserver.rest.app import App
from apiserver.rest.openapi import OpenApi
from apiserver.rest.request_info import RequestInfo
from apiserver.rest.responses import Receive, Scope, Send, send_refusal
from apiserver.rest.storage import Catalog, Resource
from apiserver.serving.compression import Compression
from apiserver.serving.shutdown import Stream
from apiserver.shell import Shell
from apiserver.webhooks.cached_world import CachedWorld
from apiserver.webhooks.route import Webhooks
from kube.client import Client
from kube.clock import Clock
from nodefeature.labels import SYSTEM_NAMESPACE
from nodefeature.manufacturers import Manufacturers, build_manufacturers


@dataclass(frozen=True, slots=True, kw_only=True)
class AppOptions:
    """What an administrator may choose. Times in seconds."""

    namespace: str = SYSTEM_NAMESPACE
    version: str = "0.0.0"
    impersonate: bool = False
    token_ttl_s: float = 10.0
    allowed_ttl_s: float = 10.0
    denied_ttl_s: float = 10.0
    review_deadline_s: float = 10.0
    manufacturers: Manufacturers = field(default_factory=lambda: build_manufacturers({}))


class Application:
    """The ASGI application."""

    def __init__(
        self,
        client: Client,
        options: AppOptions,
        *,
        world: CachedWorld,
        trust: Callable[[], Trust],
        clock: Clock,
        rng: random.Random,
        live: Mapping[str, Check],
        ready: Mapping[str, Check],
        registry: CollectorRegistry,
        resources: Callable[[Context], Sequence[Resource]] = build_resources,
    ) -> None:
        reviewer = Client(client.connection, field_manager=client.field_manager, deadline_s=options.review_deadline_s)
        access = AccessReviews(reviewer, clock, allowed_ttl_s=options.allowed_ttl_s, denied_ttl_s=options.denied_ttl_s)
        self.context = Context(
            client=client,
            authorize=access.authorize,
            clock=clock,
            system_namespace=options.namespace,
            impersonate=options.impersonate,
            manufacturers=options.manufacturers,
        )
        catalog = Catalog(resources(self.context))
        openapi = OpenApi(catalog, f"v{options.version}", bases=crd_documents(self.context))
        prefixes = [f"/apis/{group}/{VERSION}" for group in GROUPS]
        shell = Shell(version=options.version, prefixes=prefixes, document=openapi.combined, registry=registry)
        self._requests = Counter(
            "apiserver_request", "Finished requests.", ("verb", "group", "resource", "code"), registry=registry
        )
        self._engine = App(
            catalog,
            authenticate=Authenticator(trust, TokenReviews(reviewer, clock, ttl_s=options.token_ttl_s), clock),
            authorize=access.authorize,
            clock=clock,
            rng=rng,
            paths=dict.fromkeys(shell.paths, shell.serve),
            fallback=openapi.serve,
            on_done=self._count,
        )
        self._catalog = catalog
        self._serving = Compression(self._engine)
        self._webhooks = Webhooks(world, fault=world.fault, registry=registry)
        self._health = HealthEndpoints(live, ready)
        self.is_open = False
        """Requests are served; before, they are 503."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""
        if scope["type"] != "http":
            return
        if self._health.serves(scope):
            await self._health(scope, send)
        elif not self.is_open:
            await send_refusal(send, status.unavailable("the server is starting; not every route stands yet"))
        elif self._webhooks.serves(scope):
            await self._webhooks(scope, receive, send)
        else:
            await self._serving(scope, receive, send)

    def streams(self) -> list[Stream]:
        """Return what is open and must be ended for a shutdown."""
        return [*self._engine.open_streams(), *self.context.open_streams.all()]

    def refuse_streams(self) -> None:
        """Let no further watch or log begin."""
        self._engine.refuse_streams()
        self.context.open_streams.refuse_new()

    def _count(self, info: RequestInfo, code: int, _agent: str) -> None:
        served = info.is_resource and self._catalog.find(info.group, info.version, info.resource) is not None
        group, resource = (info.group, info.resource) if served else ("", "")
        verb = info.verb if info.verb in _VERBS else "other"
        self._requests.labels(verb, group, resource, str(code)).inc()


_VERBS = frozenset({"get", "head", "list", "watch", "create", "update", "patch", "delete", "deletecollection"})
"""Verbs that may become a label: a client's own words may not, they would never end."""
