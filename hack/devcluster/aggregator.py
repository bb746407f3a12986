"""APIServices: groups that another server answers, behind the devcluster's address.

For: `server`, which runs it. In: stored APIServices and Services. Out: resources in the catalog, conditions.
Promises: as kube-aggregator does it: the extension server sees a real front-proxy client certificate and the user in
`X-Remote-*` headers, and must present a certificate for `<service>.<namespace>.svc`; `Available` says why not; what is
not available answers 503, and stays in discovery once it was there. Only Services of type ExternalName are resolved:
nothing runs behind the others here.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from apiserver.rest import status
from apiserver.rest.responses import Receive, Send, read_body
from apiserver.rest.status import Cause
from apiserver.rest.storage import Call, Catalog, Column, Resource, Subresource, Unserved, User
from apiserver.rest.table import AGE, NAME
from hack.devcluster.aggregated_openapi import AggregatedDocuments
from hack.devcluster.kinds import KindSpec
from hack.devcluster.objects import ObjectStorage
from hack.devcluster.store import Change, Entry, Object, Store
from hack.devcluster.upstream import Answer, Endpoint, UpstreamError, exchange
from kube.clock import Clock, second_time
from nodefeature.fields import as_int, as_list, as_map, as_maps, as_str, at
from nodefeature.kinds import Kind

log = logging.getLogger(__name__)

API_SERVICE = Kind("apiregistration.k8s.io", "v1", "apiservices", "APIService", namespaced=False)
RECHECK_S = 5.0
_AGGREGATOR = User("system:kube-aggregator", groups=("system:masters",))
_PASSED_ON = frozenset({b"accept", b"content-type", b"user-agent", b"if-none-match"})
_HOP = frozenset({b"connection", b"keep-alive", b"transfer-encoding", b"date", b"server"})
_AVAILABLE = '.status.conditions[?(@.type=="Available")].status'


@dataclass(frozen=True, slots=True)
class FrontProxy:
    """The devcluster's client certificate towards extension servers."""

    certificate: Path
    key: Path

    def context(self, ca_bundle: bytes) -> ssl.SSLContext:
        """Return a context that trusts `ca_bundle` only and presents the front-proxy certificate."""
        context = ssl.create_default_context(cadata=ca_bundle.decode())
        context.load_cert_chain(self.certificate, self.key)
        return context


def check_api_service(obj: Object) -> list[Cause]:
    """Return what is wrong with an APIService."""
    spec = as_map(obj.get("spec"))
    causes = []
    expected = f"{spec.get('version')}.{spec.get('group')}"
    if obj["metadata"]["name"] != expected:
        causes.append(Cause("FieldValueInvalid", f"Invalid value: must be {expected!r}", "metadata.name"))
    for field, most in (("groupPriorityMinimum", 20000), ("versionPriority", 1000)):
        if not 0 < as_int(spec.get(field)) <= most:
            causes.append(Cause("FieldValueInvalid", f"Invalid value: must be between 1 and {most}", f"spec.{field}"))
    for field in ("name", "namespace"):
        if not as_str(at(spec, "service", field)):
            causes.append(Cause("FieldValueRequired", "Required value", f"spec.service.{field}"))
    if spec.get("insecureSkipTLSVerify") or not as_str(spec.get("caBundle")):
        text = "Required value: the devcluster verifies every extension server"
        causes.append(Cause("FieldValueRequired", text, "spec.caBundle"))
    return causes


API_SERVICE_SPEC = KindSpec(
    API_SERVICE,
    status=True,
    generation=True,
    columns=(
        NAME,
        Column(
            "Service", render=lambda o: f"{at(o, 'spec', 'service', 'namespace')}/{at(o, 'spec', 'service', 'name')}"
        ),
        Column("Available", _AVAILABLE),
        AGE,
    ),
    check=check_api_service,
    categories=("api-extensions",),
)


class Aggregator:
    """Keeps the catalog and the conditions in step with the APIServices."""

    def __init__(
        self, store: Store, catalog: Catalog, storage: ObjectStorage, *, proxy: FrontProxy, clock: Clock
    ) -> None:
        self._store = store
        self._catalog = catalog
        self._storage = storage
        self._proxy = proxy
        self._clock = clock
        self._served: dict[str, list[tuple[str, str, str]]] = {}
        self._changed = asyncio.Event()
        self.documents = AggregatedDocuments()
        for _, name in self._storage.shelf.entries:
            self._announce(name)
        store.listen(self._note)

    def _announce(self, name: str) -> None:
        version, _, group = name.partition(".")
        self._catalog.relays[group, version] = _Relay(self, name)

    def _note(self, resource: str, change: Change) -> None:
        if resource in (API_SERVICE.group_resource, "services"):
            self._changed.set()
        if resource == API_SERVICE.group_resource:
            version, _, group = change.entry.name.partition(".")
            if change.type != "DELETED":
                self._announce(change.entry.name)
                return
            self._catalog.relays.pop((group, version), None)
            self.documents.forget(f"apis/{group}/{version}")
            for place in self._served.pop(change.entry.name, ()):
                self._catalog.remove(*place)

    async def run(self) -> None:
        """Check every APIService now, on each change, and every few seconds."""
        while True:
            self._changed.clear()
            for entry in tuple(self._storage.shelf.entries.values()):
                await self.check(entry)
            try:
                async with asyncio.timeout(RECHECK_S):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def check(self, entry: Entry) -> None:
        """Ask one extension server for its resources and write what came of it."""
        obj = entry.load()
        spec = obj["spec"]
        path = f"/apis/{spec['group']}/{spec['version']}"
        try:
            endpoint = self.endpoint(spec)
            headers = [(b"accept", b"application/json"), *_identity(_AGGREGATOR)]
            async with exchange(endpoint, "GET", path.encode(), headers=headers, deadline_s=5) as answer:
                body = b"".join([piece async for piece in answer.pieces()])
            if answer.code != 200:
                raise UpstreamError(f"GET {path} answered {answer.code}")
            self._serve(entry.name, spec, as_maps(orjson.loads(body).get("resources")))
            await self.documents.refresh(path.removeprefix("/"), endpoint, headers)
        except status.Refusal as refusal:
            self._report(entry, available=False, reason="ServiceNotFound", message=refusal.message)
        except (UpstreamError, OSError, ValueError, AttributeError) as error:
            self._report(entry, available=False, reason="FailedDiscoveryCheck", message=str(error)[:256])
        else:
            self._report(entry, available=True, reason="Passed", message="all checks passed")

    def endpoint(self, spec: Mapping[str, Any]) -> Endpoint:
        """Return where an APIService's server listens; raises Refusal 503."""
        namespace, name = as_str(at(spec, "service", "namespace")), as_str(at(spec, "service", "name"))
        service = self._store.shelf("services").entries.get((namespace, name))
        host = as_str(at(service.load(), "spec", "externalName")) if service is not None else ""
        if not host:
            raise status.unavailable(f"service {namespace}/{name} does not exist or is not of type ExternalName")
        port = as_int(at(spec, "service", "port")) or 443
        context = self._proxy.context(base64.b64decode(as_str(spec.get("caBundle"))))
        return Endpoint(host, port, f"{name}.{namespace}.svc", context)

    def _serve(self, name: str, spec: Object, entries: list[Mapping[str, Any]]) -> None:
        """Put the resources of a discovery document into the catalog."""
        connector = _Relay(self, name)
        places = []
        for entry in entries:
            plural, slash, _ = as_str(entry.get("name")).partition("/")
            if slash:
                continue
            subs = [e for e in entries if as_str(e.get("name")).startswith(plural + "/")]
            resource = Resource(
                group=spec["group"],
                version=spec["version"],
                plural=plural,
                kind=as_str(entry.get("kind")),
                namespaced=entry.get("namespaced") is True,
                storage=Unserved(),
                singular=as_str(entry.get("singularName")),
                verbs=tuple(as_list(entry.get("verbs"))),
                short_names=tuple(as_list(entry.get("shortNames"))),
                categories=tuple(as_list(entry.get("categories"))),
                subresources={sub.name: sub for sub in map(_subresource, subs)},
                connector=connector,
            )
            places.append((resource.group, resource.version, plural))
            known = self._catalog.find(*places[-1])
            if known is None or known.connector != connector or known.verbs != resource.verbs:
                self._catalog.add(resource)
        for gone in set(self._served.get(name, ())) - set(places):
            self._catalog.remove(*gone)
        self._served[name] = places

    def _report(self, entry: Entry, *, available: bool, reason: str, message: str) -> None:
        current = self._storage.shelf.entries.get(entry.place)
        if current is not entry:
            return  # it changed while we asked; the change wakes us again
        obj = entry.load()
        word = "True" if available else "False"
        old = next((c for c in as_maps(at(obj, "status", "conditions")) if c.get("type") == "Available"), None)
        if old is not None and (old.get("status"), old.get("reason"), old.get("message")) == (word, reason, message):
            return
        condition = {"type": "Available", "status": word, "reason": reason, "message": message}
        condition["lastTransitionTime"] = second_time(self._clock.time())
        self._storage.edit(entry, {**obj, "status": {"conditions": [condition]}})

    async def relay(self, name: str, call: Call, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Send one request on and stream the answer back."""
        entry = self._storage.shelf.entries.get(("", name))
        if entry is None:
            raise status.path_not_found()
        endpoint = self.endpoint(entry.load()["spec"])
        body = await read_body(receive)
        headers = [(key, value) for key, value in scope["headers"] if key in _PASSED_ON]
        query = b"?" + scope["query_string"] if scope["query_string"] else b""
        target = scope["raw_path"] + query
        try:
            async with exchange(
                endpoint, scope["method"], target, headers=[*headers, *_identity(call.user)], body=body
            ) as answer:
                await _stream(answer, receive, send)
        except UpstreamError as error:
            raise status.unavailable(f"error trying to reach service: {error}") from error


@dataclass(frozen=True, slots=True)
class _Relay:
    """The connector of every resource of one APIService."""

    aggregator: Aggregator
    name: str

    async def __call__(self, call: Call, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        await self.aggregator.relay(self.name, call, scope, receive, send)


async def _stream(answer: Answer, receive: Receive, send: Send) -> None:
    async def leave() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        answer.close()

    gone = asyncio.create_task(leave(), name="relay-disconnect")
    try:
        kept = [(key, value) for key, value in answer.headers if key not in _HOP]
        await send({"type": "http.response.start", "status": answer.code, "headers": kept})
        async for piece in answer.pieces():
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
    finally:
        gone.cancel()


def _subresource(entry: Mapping[str, Any]) -> Subresource:
    name = as_str(entry.get("name")).partition("/")[2]
    # Any of an extension server's sub-resources may be a stream (logs): it ends them itself.
    return Subresource(
        name,
        as_str(entry.get("kind")),
        tuple(as_list(entry.get("verbs"))),
        as_str(entry.get("group")),
        as_str(entry.get("version")),
        long_running=True,
    )


def _identity(user: User) -> list[tuple[bytes, bytes]]:
    groups = [(b"x-remote-group", group.encode()) for group in user.groups]
    return [(b"x-remote-user", user.name.encode()), (b"x-remote-uid", user.uid.encode()), *groups]
