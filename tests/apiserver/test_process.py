"""One replica from start to end, behind the devcluster's aggregator, over real TLS. Cases B022, B023, B032, B057."""

from __future__ import annotations

import asyncio
import base64
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from apiserver.process import RBAC, ApiServer, ProcessOptions, names_of
from apiserver.serving.listener import bind
from apiserver.serving.shutdown import Times
from kube.clock import SystemClock
from kube.tls import api_server_context
from nodefeature.fields import as_maps, at
from nodefeature.kinds import API_SERVICE, CONFIG_MAP, INSTANCE, SECRET
from tests.apiserver.rest.asgi import Answer, Browser
from tests.apiserver.serving.https import Client, run
from tests.builders.extension_cluster import SYSTEM, ExtensionCluster
from tests.hack.devcluster.cluster import TOKEN

pytestmark = pytest.mark.component

G = "/apis/worker.gpustack.ai/v1"
QUICK = Times(serve_s=0.1, spread_s=0.1, finish_s=1)


class Replica:
    """A replica in this process."""

    def __init__(self, cluster: ExtensionCluster, seed: int = 1) -> None:
        self.cluster = cluster
        self.server = ApiServer(
            cluster.new_client("gpustack-apiserver"),
            ProcessOptions(service="server", external_name="localhost", times=QUICK),
            bind("127.0.0.1", 0),
            clock=SystemClock(),
            rng=random.Random(seed),
        )
        self._clients: list[Client] = []

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Replica]:
        task = asyncio.create_task(self.server.run())
        await until(self.answers)
        try:
            yield self
        finally:
            self.server.shutdown.begin()
            async with asyncio.timeout(10):
                await task
            for client in self._clients:
                client.writer.transport.abort()
            await asyncio.sleep(0.01)

    async def connect(self) -> Client:
        """Dial the listener as somebody who verifies nothing."""
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self.server.listener.port, ssl=api_server_context(verify=False)
        )
        self._clients.append(Client(reader, writer))
        return self._clients[-1]

    async def get(self, path: str, *headers: str) -> tuple[int, bytes]:
        reply = await (await self.connect()).ask("GET", path, b"", *headers)
        assert reply is not None
        return reply.code, reply.body

    async def answers(self) -> bool:
        try:
            return (await self.get("/livez"))[0] == 200
        except OSError:
            return False

    async def is_ready(self) -> bool:
        return (await self.get("/readyz"))[0] == 200

    async def until_available(self) -> None:
        """Wait until the aggregator takes both APIServices for available."""

        async def both() -> bool:
            found = await self.cluster.admin.list(API_SERVICE)
            return len(found) == 2 and all(map(available, found))

        await until(both)


async def until(check: Callable[[], Awaitable[bool]]) -> None:
    """Wait for something that happens behind a socket."""
    async with asyncio.timeout(20):
        while not await check():  # noqa: ASYNC110 - what is waited for is a state of the world, not of this program
            await asyncio.sleep(0.02)


def available(obj: Any) -> bool:
    return any(
        c.get("type") == "Available" and c.get("status") == "True" for c in as_maps(at(obj, "status", "conditions"))
    )


def test(folder: Path, body: Callable[[ExtensionCluster], Awaitable[None]]) -> None:
    async def inner() -> None:
        async with ExtensionCluster(folder).running() as cluster:
            await body(cluster)

    run(inner())


test.__test__ = False  # type: ignore[attr-defined] # pytest would collect a helper of this name


def browser(cluster: ExtensionCluster) -> Browser:
    return Browser(cluster.server.app, {"user-agent": "test/1.0", "authorization": f"Bearer {TOKEN}"})


def instance(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "worker.gpustack.ai/v1",
        "kind": "Instance",
        "metadata": {"name": name},
        "spec": {"type": "t", "image": "i", "stop": True, "volume": {"ephemeral": {"capacity": "1Gi"}}},
    }


def test_from_start_to_served_through_the_aggregator(tmp_path: Path) -> None:
    async def body(cluster: ExtensionCluster) -> None:
        async with Replica(cluster).running() as replica:
            await replica.until_available()
            ask = browser(cluster)
            created = await ask("POST", f"{G}/namespaces/default/instances", instance("a"))
            assert created.code == 201, created.body
            assert created.json["apiVersion"] == "worker.gpustack.ai/v1"
            assert (await cluster.admin.get(INSTANCE, "a", "default"))["apiVersion"] == "worker.gpustack.ai/v1alpha1"
            listed = await ask("GET", f"{G}/instances")
            assert [item["metadata"]["name"] for item in listed.json["items"]] == ["a"]
            settings = await ask("GET", "/apis/gpustack.ai/v1/settings")
            assert settings.code == 200
            assert (await replica.get("/readyz")) == (200, b"ok")

    test(tmp_path, body)


def test_documents_for_people_with_the_rights_of_whoever_asks(tmp_path: Path) -> None:
    async def body(cluster: ExtensionCluster) -> None:
        async with Replica(cluster).running() as replica:
            await replica.until_available()
            ask = browser(cluster)
            page = await ask("GET", f"{G}/docs")
            assert (page.code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
            assert b"Instance" in page.body
            document: Answer = await ask("GET", f"{G}/openapi.json")
            assert f"{G}/namespaces/{{namespace}}/instances" in document.json["paths"]
            for path in ("/docs", "/openapi.json", "/metrics", f"{G}/docs"):
                assert (await replica.get(path))[0] == 403
                assert (await replica.get(path, f"Authorization: Bearer {TOKEN}"))[0] == 200
            assert (await replica.get("/docs", "Authorization: Bearer wrong"))[0] == 401
            code, body = await replica.get("/version", f"Authorization: Bearer {TOKEN}")
            assert (code, json.loads(body)["gitVersion"]) == (200, "v0.0.0")
            code, body = await replica.get("/metrics", f"Authorization: Bearer {TOKEN}")
            assert b"apiserver_request_total" in body

    test(tmp_path, body)


def test_b022_absent_config_map_waits_and_says_so(tmp_path: Path) -> None:
    async def body(cluster: ExtensionCluster) -> None:
        name = "extension-apiserver-authentication"
        kept = await cluster.admin.get(CONFIG_MAP, name, "kube-system")
        await cluster.admin.delete(CONFIG_MAP, name, "kube-system")
        async with Replica(cluster).running() as replica:

            async def installed() -> bool:
                return b"[-]installed" not in (await replica.get("/readyz"))[1]

            await until(installed)
            code, text = await replica.get("/readyz")
            assert code == 500
            assert (
                b"[-]front-proxy failed: ConfigMap kube-system/extension-apiserver-authentication does not exist"
                in text
            )
            assert (await replica.get("/livez"))[0] == 200
            code, text = await replica.get(f"{G}/instances")
            assert (code, json.loads(text)["reason"]) == (503, "ServiceUnavailable")
            assert await cluster.admin.list(API_SERVICE) == []
            del kept["metadata"]["resourceVersion"], kept["metadata"]["uid"]
            await cluster.admin.create(CONFIG_MAP, kept)
            await replica.until_available()

    test(tmp_path, body)


def test_b023_503_never_404_or_403_before_routes_stand(tmp_path: Path) -> None:
    async def body(cluster: ExtensionCluster) -> None:
        app, cluster.wire.app = cluster.wire.app, None
        async with Replica(cluster).running() as replica:
            for path in ("/apis", G, f"{G}/instances", "/openapi/v3", "/version", "/nothing", "/"):
                code, text = await replica.get(path)
                assert (code, json.loads(text)["code"]) == (503, 503)
            assert (await replica.get("/livez"))[0] == 200
            cluster.wire.app = app
            await replica.until_available()
            assert (await replica.get("/nothing", f"Authorization: Bearer {TOKEN}"))[0] == 404

    test(tmp_path, body)


def test_two_replicas_share_a_certificate_and_either_may_leave(tmp_path: Path) -> None:
    async def body(cluster: ExtensionCluster) -> None:
        async with Replica(cluster).running() as first:
            await first.until_available()
            async with Replica(cluster, seed=2).running() as second:
                await until(second.is_ready)
                assert first.server._tls.bundle == second.server._tls.bundle
                published = (await cluster.admin.get(API_SERVICE, "v1.gpustack.ai"))["spec"]["caBundle"]
                assert base64.b64decode(published).decode() == first.server._tls.bundle
            assert len(await cluster.admin.list(API_SERVICE)) == 2
            assert (await first.get("/readyz"))[0] == 200
        secrets = [obj["metadata"]["name"] for obj in await cluster.admin.list(SECRET, SYSTEM)]
        assert sorted(secrets) == ["gpustack-settings", "server-serving"]

    test(tmp_path, body)


def test_leaving_turns_ready_red_and_ends_a_watch_cleanly(tmp_path: Path) -> None:
    async def body(cluster: ExtensionCluster) -> None:
        async with Replica(cluster).running() as replica:
            await replica.until_available()
            client = await replica.connect()
            watching = asyncio.create_task(
                client.ask("GET", f"{G}/instances?watch=1", b"", f"Authorization: Bearer {TOKEN}")
            )

            async def watched() -> bool:
                return bool(replica.server.app.streams())

            await until(watched)
            replica.server.shutdown.begin()
            code, text = await replica.get("/readyz")
            assert code == 500
            assert b"[-]shutdown failed: leaving" in text
            ended = await watching
            assert ended is not None
            assert ended.code == 200

    test(tmp_path, body)


def test_what_the_certificate_is_for() -> None:
    assert names_of(ProcessOptions(service="s"))[:2] == ("s.gpustack-system.svc", "s.gpustack-system")


def test_no_rule_is_wholesale() -> None:
    assert all(rule.verbs and "*" not in rule.verbs and rule.resource != "*" for rule in RBAC)
