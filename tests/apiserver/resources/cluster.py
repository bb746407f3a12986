"""Our server over a devcluster, both in this process, without sockets."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

from api.crds import crd_manifests
from api.models.objects import Object
from apiserver.context import Context
from apiserver.resources import build_resources
from apiserver.rest import status
from apiserver.rest.app import App
from apiserver.rest.request_info import RequestInfo
from apiserver.rest.responses import Scope
from apiserver.rest.storage import Catalog, User
from hack.devcluster.foreign_crds import foreign_manifests
from hack.devcluster.server import DevCluster
from hack.devcluster.store import Store
from kube.client import Client
from kube.connection import Connection
from kube.credentials import Credentials, StaticCredentials
from tests.apiserver.rest.asgi import Answer, Browser
from tests.builders.app_transport import Wire, WireTransport
from tests.builders.virtual_clock import VirtualClock

TOKEN = "t0ken"
SYSTEM = "gpustack-system"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"
STRATEGIC = "application/strategic-merge-patch+json"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
METADATA = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
V1 = "/apis/worker.gpustack.ai/v1"
ALPHA = "/apis/worker.gpustack.ai/v1alpha1"


class Server:
    """Requests against our server; `below` asks the devcluster directly."""

    def __init__(self, app: App, upstream: DevCluster, context: Context, wire: Wire, clock: VirtualClock) -> None:
        self.app = app
        self.upstream = upstream
        self.context = context
        self.wire = wire
        self.clock = clock
        self.denied: set[str] = set()
        """Verbs that nobody may use."""
        self.ask = Browser(app, {"user-agent": "kubectl/v1.33 (linux)"})
        self.watch = self.ask.watch
        self.below = Browser(upstream.app, {"user-agent": "test/1.0", "authorization": f"Bearer {TOKEN}"})

    async def ok(self, method: str, target: str, body: Any = b"", **more: Any) -> Any:
        answer = await self.ask(method, target, body, **more)
        assert answer.code < 300, answer.body
        return answer.json

    async def refused(self, code: int, method: str, target: str, body: Any = b"", **more: Any) -> Any:
        answer = await self.ask(method, target, body, **more)
        assert answer.code == code, (answer.code, answer.body)
        return answer.json

    async def stored(self, target: str, **more: Any) -> Any:
        answer: Answer = await self.below("GET", target, **more)
        assert answer.code < 300, answer.body
        return answer.json

    async def put_below(self, target: str, body: Any) -> Any:
        answer: Answer = await self.below("POST", target, body)
        assert answer.code < 300, answer.body
        return answer.json


Test = Callable[[Server], Awaitable[None]]


def run(test: Test, *, impersonate: bool = False) -> None:
    """Run a test against a fresh pair of servers with namespaces `team` and the system's."""

    async def body() -> None:
        clock, wire = VirtualClock(), Wire()
        upstream = DevCluster(
            Store(), token=TOKEN, clock=clock, rng=random.Random(1), crds=(*foreign_manifests(), *crd_manifests())
        )
        wire.app = upstream.app
        source = StaticCredentials(Credentials(server="http://devcluster", token=TOKEN))
        connection = Connection(source, open_transport=lambda credentials, limit: WireTransport(wire))
        denied: set[str] = set()

        async def authorize(user: User, info: RequestInfo) -> None:
            if info.verb in denied:
                raise status.forbidden(info.resource, info.group, info.name, f"{user.name} cannot {info.verb}")

        async def authenticate(scope: Scope) -> User:
            return User("ann", uid="u1", groups=("team", "system:authenticated"), extra={"Scopes": ("a",)})

        context = Context(client=Client(connection), authorize=authorize, clock=clock, impersonate=impersonate)
        app = App(
            Catalog(build_resources(context)),
            authenticate=authenticate,
            authorize=lambda user, info: asyncio.sleep(0),
            clock=clock,
            rng=random.Random(2),
        )
        server = Server(app, upstream, context, wire, clock)
        server.denied = denied
        async with upstream.running():
            for name in ("team", SYSTEM):
                await server.put_below(
                    "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
                )
            await test(server)
            context.open_streams.close_all()
            await asyncio.sleep(0)
        await connection.close()

    asyncio.run(body())


def instance(name: str = "a", version: str = "v1", **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": f"worker.gpustack.ai/{version}",
        "kind": "Instance",
        "metadata": {"name": name, **metadata},
        "spec": {"type": "cards", "image": "registry.example/app:1", "volume": {"persistentVolume": "data"}},
    }


def assert_described(answer: Any, model: type[Object]) -> None:
    """Hold an answer against the model whose schema is published: nothing undescribed, nothing of another type."""
    assert model.model_validate(answer).model_dump(by_alias=True, exclude_unset=True) == answer
