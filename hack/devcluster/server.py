"""The devcluster as one object: catalog, storages, collector, ASGI application.

For: `__main__`, tests (in process, without sockets). In: a store, a clock, users. Out: `app`.
Promises: everything it serves is listed here; what it does not do answers 404, 406, 415 or 501.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from apiserver.rest import status
from apiserver.rest.access import attributes_of, denied
from apiserver.rest.app import App
from apiserver.rest.negotiation import encode
from apiserver.rest.openapi import OpenApi
from apiserver.rest.options import WriteOptions
from apiserver.rest.patch import Patch, PatchType
from apiserver.rest.request_info import RequestInfo, parse
from apiserver.rest.responses import Receive, Scope, Send, send_bytes
from apiserver.rest.storage import Call, Catalog, Resource, Subresource, User
from hack.devcluster import certificates
from hack.devcluster.access import AccessReviews, Account, Accounts, TokenReviews
from hack.devcluster.admission import CONFIGURATIONS
from hack.devcluster.aggregator import API_SERVICE_SPEC, Aggregator, FrontProxy
from hack.devcluster.collector import Collector
from hack.devcluster.crds import CrdInstaller, crd_spec
from hack.devcluster.kinds import BUILT_INS, FIRST_NAMESPACES, KindSpec
from hack.devcluster.objects import ObjectStorage
from hack.devcluster.store import Store
from kube.clock import Clock, SystemClock
from nodefeature.fields import name_of

VERSION = "v1.33.0+devcluster"
ADMIN = User("kubernetes-admin", groups=("system:masters", "system:authenticated"))
_OPEN_PATHS = frozenset({"/healthz", "/livez", "/readyz", "/version"})
_ANONYMOUS = User("system:anonymous", groups=("system:unauthenticated",))


class DevCluster:
    """One API server over one store."""

    def __init__(
        self,
        store: Store,
        *,
        token: str,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        crds: Iterable[Mapping[str, Any]] = (),
        accounts: Iterable[Account] = (),
        front_proxy: Path | None = None,
    ) -> None:
        self.store = store
        self.catalog = Catalog()
        self.requests: Counter[tuple[str, str, str, int]] = Counter()
        """Finished requests by (verb, resource, client, code): what `/metrics` shows."""
        self._accounts = Accounts([Account(ADMIN, token), *accounts])
        self._crd_manifests = tuple(crds)
        self._clock = clock or SystemClock()
        self._rng = rng or random.Random()
        for row in (*BUILT_INS, *CONFIGURATIONS, crd_spec(self._clock)):
            self._serve(row)
        self._serve_reviews()
        self.crds = CrdInstaller(store, self.catalog, clock=self._clock, rng=self._rng)
        self.aggregator = self._serve_api_services(front_proxy) if front_proxy is not None else None
        self._front_proxy = front_proxy
        self.collector = Collector(store, self.catalog)
        openapi = OpenApi(self.catalog, VERSION, bases=self.aggregator.documents if self.aggregator else None)
        self.app = App(
            self.catalog,
            authenticate=self._authenticate,
            authorize=self._authorize,
            clock=self._clock,
            rng=self._rng,
            paths={
                "/version": _show_version,
                "/healthz": _show_ok,
                "/livez": _show_ok,
                "/readyz": _show_ok,
                "/metrics": self._show_metrics,
            },
            fallback=openapi.serve,
            on_done=self._count,
        )

    def _serve_api_services(self, folder: Path) -> Aggregator:
        certificates.ensure_front_proxy(folder)
        proxy = FrontProxy(folder / certificates.PROXY_CERT_FILE, folder / certificates.PROXY_KEY_FILE)
        storage = self._serve(API_SERVICE_SPEC)
        return Aggregator(self.store, self.catalog, storage, proxy=proxy, clock=self._clock)

    def _serve(self, row: KindSpec) -> ObjectStorage:
        kind = row.kind
        storage = ObjectStorage(self.store, row, clock=self._clock, rng=self._rng)
        subs = {sub.name: sub for sub in row.subresources}
        if row.status:
            subs["status"] = Subresource("status", kind.kind, ("get", "patch", "update"))
        self.catalog.add(
            Resource(
                group=kind.group,
                version=kind.version,
                plural=kind.plural,
                kind=kind.kind,
                namespaced=kind.namespaced,
                storage=storage,
                verbs=row.verbs,
                short_names=row.short_names,
                categories=row.categories,
                subresources=subs,
                columns=row.columns,
                fields=frozenset({"metadata.name", "metadata.namespace", *row.fields}),
            )
        )
        return storage

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Fill in the first namespaces and run the collector."""
        await self._make_namespaces()
        for manifest in self._crd_manifests:
            await self.install_crd(manifest)
        workers = [asyncio.create_task(self.collector.run(), name="collector")]
        if self.aggregator is not None:
            await self._publish_front_proxy()
            workers.append(asyncio.create_task(self.aggregator.run(), name="aggregator"))
        try:
            yield
        finally:
            self.app.drain()
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)

    async def _publish_front_proxy(self) -> None:
        """Tell extension servers whom to believe, as kube-apiserver does."""
        resource = self.catalog.find("", "v1", "configmaps")
        home, name = "kube-system", "extension-apiserver-authentication"
        if resource is None or self._front_proxy is None or (home, name) in self.store.shelf("configmaps").entries:
            return
        data = {
            "requestheader-client-ca-file": (self._front_proxy / certificates.PROXY_CA_FILE).read_text("ascii"),
            "requestheader-allowed-names": f'["{certificates.FRONT_PROXY_NAME}"]',
            "requestheader-username-headers": '["X-Remote-User"]',
            "requestheader-uid-headers": '["X-Remote-Uid"]',
            "requestheader-group-headers": '["X-Remote-Group"]',
            "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
        }
        call = Call(parse("POST", f"/api/v1/namespaces/{home}/configmaps".encode(), b""), ADMIN)
        obj: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}
        await resource.storage.create(call, obj, WriteOptions())

    async def install_crd(self, manifest: Mapping[str, Any]) -> None:
        """Create a CRD, or bring the stored one up to date."""
        resource = self.catalog.find("apiextensions.k8s.io", "v1", "customresourcedefinitions")
        name = name_of(manifest)
        base = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        if resource is None:
            return
        stored = self.store.shelf("customresourcedefinitions.apiextensions.k8s.io").entries.get(("", name))
        if stored is None:
            await resource.storage.create(
                Call(parse("POST", base.encode(), b""), ADMIN), dict(manifest), WriteOptions()
            )
            return
        update = Call(parse("PATCH", f"{base}/{name}".encode(), b""), ADMIN)
        patch = Patch(PatchType.MERGE, {"spec": {"versions": manifest["spec"]["versions"]}})
        await resource.storage.patch(update, patch, WriteOptions())

    async def _make_namespaces(self) -> None:
        resource = self.catalog.find("", "v1", "namespaces")
        if resource is None:
            return
        call = Call(parse("POST", b"/api/v1/namespaces", b""), ADMIN)
        for name in FIRST_NAMESPACES:
            if ("", name) not in self.store.shelf("namespaces").entries:
                obj: dict[str, Any] = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
                await resource.storage.create(call, obj, WriteOptions())

    async def _authenticate(self, scope: Scope) -> User:
        given = [value for key, value in scope["headers"] if key == b"authorization"]
        if not given:
            return _ANONYMOUS
        word, _, token = given[0].decode("latin-1").partition(" ")
        user = self._accounts.by_token(token.strip()) if word.lower() == "bearer" else None
        if user is None:
            raise status.unauthorized()
        if any(key.startswith(b"impersonate-") for key, _ in scope["headers"]):
            raise status.not_implemented("the devcluster does not impersonate")
        return user

    async def _authorize(self, user: User, info: RequestInfo) -> None:
        if info.path in _OPEN_PATHS:
            return
        if user is _ANONYMOUS:
            raise status.unauthorized()
        asked = attributes_of(info)
        if not self._accounts.allows(user.name, user.groups, asked):
            raise denied(user.name, asked)

    def _serve_reviews(self) -> None:
        for group, plural, kind, storage in (
            ("authentication", "tokenreviews", "TokenReview", TokenReviews(self._accounts)),
            ("authorization", "subjectaccessreviews", "SubjectAccessReview", self._reviews(of_caller=False)),
            ("authorization", "selfsubjectaccessreviews", "SelfSubjectAccessReview", self._reviews(of_caller=True)),
        ):
            name = f"{group}.k8s.io"
            resource = Resource(name, "v1", plural, kind, namespaced=False, storage=storage, verbs=("create",))
            self.catalog.add(resource)

    def _reviews(self, *, of_caller: bool) -> AccessReviews:
        return AccessReviews(self._accounts, of_caller=of_caller)

    def _count(self, info: RequestInfo, code: int, agent: str) -> None:
        word = f"{info.resource}.{info.group}".rstrip(".") if info.is_resource else "none"
        word = f"{word}/{info.subresource}" if info.subresource else word
        client = info.query.get("fieldManager", "") or agent.partition("/")[0]
        self.requests[info.verb, word, client, code] += 1

    async def _show_metrics(
        self, info: RequestInfo, user: User, scope: Mapping[str, Any], receive: Receive, send: Send
    ) -> None:
        lines = ["# TYPE apiserver_request_total counter"]
        lines += [
            f'apiserver_request_total{{verb="{verb}",resource="{resource}",client="{client}",code="{code}"}} {count}'
            for (verb, resource, client, code), count in sorted(self.requests.items())
        ]
        lines += ["# TYPE devcluster_resource_version gauge", f"devcluster_resource_version {self.store.version}", ""]
        await send_bytes(send, "\n".join(lines).encode(), content_type="text/plain; version=0.0.4")


async def _show_ok(info: RequestInfo, user: User, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
    await send_bytes(send, b"ok", content_type="text/plain; charset=utf-8")


async def _show_version(info: RequestInfo, user: User, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
    major, minor = VERSION.removeprefix("v").split(".")[:2]
    document = {
        "major": major,
        "minor": minor,
        "gitVersion": VERSION,
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "",
        "platform": "devcluster",
    }
    await send_bytes(send, encode(document))
