"""APIServices in front of a real extension server on loopback."""

from __future__ import annotations

import asyncio
import base64
import random
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
import trustme
import uvicorn

from hack.devcluster.certificates import PROXY_CA_FILE
from hack.devcluster.server import DevCluster
from hack.devcluster.store import Store
from tests.apiserver.rest.memory_storage import MemoryStorage, serve, widget
from tests.builders.virtual_clock import VirtualClock
from tests.hack.devcluster.cluster import TOKEN, Cluster

API_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
WIDGETS = "/apis/example.com/v1/namespaces/ns/widgets"
SERVER_NAME = "ext.system.svc"


class Quiet(uvicorn.Server):
    """A server that leaves signals alone."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Extension:
    """An extension API server that believes only the front proxy, and remembers who asked."""

    def __init__(self) -> None:
        self.storage = MemoryStorage([widget("w", size=1)])
        self.app = serve(self.storage)
        self.ca = trustme.CA()
        self.seen: list[dict[str, list[str]]] = []
        self.port = 0
        self.openapi: dict[str, Any] | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        headers: dict[str, list[str]] = {}
        for key, value in scope["headers"]:
            headers.setdefault(key.decode(), []).append(value.decode())
        self.seen.append(headers)
        if self.openapi is not None and scope["path"] == "/openapi/v3/apis/example.com/v1":
            await self._describe(headers, send)
        else:
            await self.app(scope, receive, send)

    async def _describe(self, headers: dict[str, list[str]], send: Any) -> None:
        tag = str(len(self.openapi or {})).encode()
        known = headers.get("if-none-match") == [tag.decode()]
        start = {"type": "http.response.start", "status": 304 if known else 200, "headers": [(b"etag", tag)]}
        await send(start)
        await send({"type": "http.response.body", "body": b"" if known else orjson.dumps(self.openapi)})

    @asynccontextmanager
    async def listening(self, client_ca: Path) -> AsyncIterator[None]:
        config = uvicorn.Config(self, lifespan="off", log_config=None, access_log=False, timeout_graceful_shutdown=1)
        config.load()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.ca.issue_cert(SERVER_NAME).configure_cert(context)
        context.load_verify_locations(client_ca)
        context.verify_mode = ssl.CERT_REQUIRED
        config.ssl = context
        listener = socket.socket()
        listener.bind(("127.0.0.1", self.port))
        listener.listen()
        self.port = listener.getsockname()[1]
        server = Quiet(config)
        task = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            yield
        finally:
            self.app.drain()
            server.should_exit = True
            await task
            listener.close()

    def api_service(self, **spec: Any) -> dict[str, Any]:
        return {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": "v1.example.com"},
            "spec": {
                "group": "example.com",
                "version": "v1",
                "groupPriorityMinimum": 1100,
                "versionPriority": 100,
                "caBundle": base64.b64encode(self.ca.cert_pem.bytes()).decode(),
                "service": {"name": "ext", "namespace": "system", "port": self.port},
                **spec,
            },
        }


def service() -> dict[str, Any]:
    spec = {"type": "ExternalName", "externalName": "127.0.0.1"}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "ext"}, "spec": spec}


async def condition(cluster: Cluster) -> Any:
    aggregator = cluster.server.aggregator
    assert aggregator is not None
    for entry in tuple(cluster.server.store.shelf("apiservices.apiregistration.k8s.io").entries.values()):
        await aggregator.check(entry)
    obj = await cluster.ok("GET", f"{API_SERVICES}/v1.example.com")
    return obj["status"]["conditions"][0]


def run(tmp_path: Path, test: Callable[[Cluster, Extension], Awaitable[None]]) -> None:
    async def body() -> None:
        clock = VirtualClock()
        store = Store()
        server = DevCluster(store, token=TOKEN, clock=clock, rng=random.Random(1), front_proxy=tmp_path)
        extension = Extension()
        async with server.running():
            cluster = Cluster(server, clock)
            space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "system"}}
            await cluster.ok("POST", "/api/v1/namespaces", space)
            await cluster.ok("POST", "/api/v1/namespaces/system/services", service())
            await test(cluster, extension)
        store.close()

    asyncio.run(body())


@pytest.mark.component
def test_requests_reach_the_extension_server_with_the_users_identity(tmp_path: Path) -> None:
    async def test(cluster: Cluster, extension: Extension) -> None:
        async with extension.listening(tmp_path / PROXY_CA_FILE):
            await cluster.ok("POST", API_SERVICES, extension.api_service())
            assert (await condition(cluster))["reason"] == "Passed"
            names = [r["name"] for r in (await cluster.ok("GET", "/apis/example.com/v1"))["resources"]]
            assert names == ["widgets", "widgets/status"]
            assert await cluster.ok("GET", f"{WIDGETS}/w") == widget("w", size=1)
            # The aggregator asks for itself whether the server is there, at any moment.
            last = next(h for h in reversed(extension.seen) if h.get("x-remote-user") != ["system:kube-aggregator"])
            assert (last["x-remote-user"], last["x-remote-group"]) == (
                ["kubernetes-admin"],
                ["system:masters", "system:authenticated"],
            )
            assert "authorization" not in last
            made = await cluster.ask("POST", f"{WIDGETS}?fieldManager=me", widget("n"))
            assert (made.code, extension.storage.calls[-1][1].field_manager) == (201, "me")
            await cluster.refused(404, "GET", f"{WIDGETS}/none")
            await cluster.refused(404, "GET", f"{WIDGETS}/w/log")
            await cluster.refused(400, "GET", f"{WIDGETS}/..%2f..%2fsecrets")

    run(tmp_path, test)


def described(**properties: dict[str, str]) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties}
    return {"openapi": "3.0.0", "paths": {}, "components": {"schemas": {"com.example.v1.Widget": schema}}}


@pytest.mark.component
def test_an_extension_servers_kinds_are_described_as_it_describes_them(tmp_path: Path) -> None:
    async def shown(cluster: Cluster) -> Any:
        document = await cluster.ok("GET", "/openapi/v3/apis/example.com/v1")
        return document["components"]["schemas"]["com.example.v1.Widget"].get("properties")

    async def test(cluster: Cluster, extension: Extension) -> None:
        async with extension.listening(tmp_path / PROXY_CA_FILE):
            await cluster.ok("POST", API_SERVICES, extension.api_service())
            assert (await condition(cluster))["status"] == "True"
            assert await shown(cluster) is None  # it has no document, and is available all the same
            extension.openapi = described(size={"type": "integer"})
            assert (await condition(cluster))["status"] == "True"
            assert await shown(cluster) == {"size": {"type": "integer"}}
            extension.openapi = {**described(name={"type": "string"}), "info": {}}
            for _ in range(2):  # the second time it has not changed
                await condition(cluster)
                assert await shown(cluster) == {"name": {"type": "string"}}
        await condition(cluster)
        assert await shown(cluster) == {"name": {"type": "string"}}
        await cluster.ok("DELETE", f"{API_SERVICES}/v1.example.com")
        await cluster.refused(404, "GET", "/openapi/v3/apis/example.com/v1")

    run(tmp_path, test)


@pytest.mark.component
def test_watches_stream_through_and_end_on_both_sides(tmp_path: Path) -> None:
    async def test(cluster: Cluster, extension: Extension) -> None:
        async with extension.listening(tmp_path / PROXY_CA_FILE):
            await cluster.ok("POST", API_SERVICES, extension.api_service())
            await condition(cluster)
            query = "watch=1&allowWatchBookmarks=1&sendInitialEvents=1&resourceVersionMatch=NotOlderThan"
            async with cluster.watch(f"{WIDGETS}?{query}") as watch:
                assert [line["type"] for line in await watch.take(2)] == ["ADDED", "BOOKMARK"]
            async with cluster.watch(f"{WIDGETS}?watch=1&resourceVersion=7") as watch:
                extension.app.drain()
                assert await watch.next() is None

    run(tmp_path, test)


@pytest.mark.component
def test_what_is_not_available_is_503_and_says_why(tmp_path: Path) -> None:
    async def test(cluster: Cluster, extension: Extension) -> None:
        async with extension.listening(tmp_path / PROXY_CA_FILE):
            foreign = base64.b64encode(trustme.CA().cert_pem.bytes()).decode()
            await cluster.ok("POST", API_SERVICES, extension.api_service(caBundle=foreign))
            assert (await condition(cluster))["reason"] == "FailedDiscoveryCheck"
            await cluster.refused(503, "GET", WIDGETS)
            await cluster.ok("DELETE", f"{API_SERVICES}/v1.example.com")
            await cluster.refused(404, "GET", WIDGETS)
            await cluster.ok("POST", API_SERVICES, extension.api_service())
            assert (await condition(cluster))["status"] == "True"
            await cluster.ok("GET", WIDGETS)
        assert (await condition(cluster))["reason"] == "FailedDiscoveryCheck"
        await cluster.refused(503, "GET", WIDGETS)
        assert "example.com" in [g["name"] for g in (await cluster.ok("GET", "/apis"))["groups"]]
        await cluster.ok("DELETE", "/api/v1/namespaces/system/services/ext")
        assert (await condition(cluster))["reason"] == "ServiceNotFound"

    run(tmp_path, test)


def test_the_front_proxy_is_published(tmp_path: Path) -> None:
    async def test(cluster: Cluster, extension: Extension) -> None:
        path = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
        data = (await cluster.ok("GET", path))["data"]
        assert data["requestheader-client-ca-file"] == (tmp_path / PROXY_CA_FILE).read_text()
        assert data["requestheader-allowed-names"] == '["front-proxy-client"]'

    run(tmp_path, test)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"group": "other.com"}, "metadata.name"),
        ({"groupPriorityMinimum": 0}, "spec.groupPriorityMinimum"),
        ({"versionPriority": 1001}, "spec.versionPriority"),
        ({"service": {}}, "spec.service.name"),
        ({"insecureSkipTLSVerify": True}, "spec.caBundle"),
        ({"caBundle": ""}, "spec.caBundle"),
    ],
)
def test_api_services_that_are_refused(tmp_path: Path, change: dict[str, Any], field: str) -> None:
    async def test(cluster: Cluster, extension: Extension) -> None:
        refused = await cluster.refused(422, "POST", API_SERVICES, extension.api_service(**change))
        assert field in [cause["field"] for cause in refused["details"]["causes"]]

    run(tmp_path, test)
