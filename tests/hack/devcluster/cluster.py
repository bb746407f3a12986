"""A devcluster in this process, driven without sockets."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from hack.devcluster.access import Account
from hack.devcluster.server import DevCluster
from hack.devcluster.store import Store
from tests.apiserver.rest.asgi import Answer, Browser
from tests.builders.virtual_clock import VirtualClock

TOKEN = "t0ken"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
NODES = "/api/v1/nodes"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
THINGS = "/apis/example.com/v1/namespaces/default/things"


class Cluster:
    """Requests against one devcluster; every helper returns the decoded answer."""

    def __init__(self, server: DevCluster, clock: VirtualClock) -> None:
        self.server = server
        self.clock = clock
        self.browser = Browser(server.app, {"user-agent": "test/1.0", "authorization": f"Bearer {TOKEN}"})
        self.watch = self.browser.watch

    async def ask(self, method: str, target: str, body: Any = b"", **more: Any) -> Answer:
        return await self.browser(method, target, body, **more)

    async def ok(self, method: str, target: str, body: Any = b"", **more: Any) -> Any:
        answer = await self.ask(method, target, body, **more)
        assert answer.code < 300, answer.body
        return answer.json

    async def refused(self, code: int, method: str, target: str, body: Any = b"", **more: Any) -> Any:
        answer = await self.ask(method, target, body, **more)
        assert answer.code == code, answer.body
        return answer.json

    async def settle(self) -> None:
        """Let the collector finish."""
        for _ in range(20):
            await asyncio.sleep(0)


Test = Callable[[Cluster], Awaitable[None]]


def run(
    test: Test,
    *,
    store: Store | None = None,
    crds: Iterable[Mapping[str, Any]] = (),
    accounts: Iterable[Account] = (),
) -> None:
    """Run a test against a fresh devcluster (or one over an existing store)."""

    async def body() -> None:
        clock = VirtualClock()
        server = DevCluster(
            store or Store(), token=TOKEN, clock=clock, rng=random.Random(1), crds=crds, accounts=accounts
        )
        async with server.running():
            await test(Cluster(server, clock))

    asyncio.run(body())


def config_map(name: str = "a", **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def pod(name: str = "p", **spec: Any) -> dict[str, Any]:
    containers = [{"name": "c", "image": "i"}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": containers, **spec}}


def node(name: str = "n", **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, **metadata}}


def owned(obj: dict[str, Any], *owners: Any) -> dict[str, Any]:
    """Return `obj` with owner references to `owners`."""
    refs = [
        {
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
        }
        for owner in owners
    ]
    return {**obj, "metadata": {**obj["metadata"], "ownerReferences": refs}}


SPEC_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["a"],
    "properties": {
        "a": {"type": "string", "enum": ["x", "y"]},
        "b": {"type": "integer", "default": 3, "minimum": 0, "maximum": 9},
        "ports": {
            "type": "array",
            "maxItems": 3,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {"name": {"type": "string"}, "port": {"type": "integer"}},
            },
        },
    },
}


def thing_crd(spec: dict[str, Any] | None = None, **version: Any) -> dict[str, Any]:
    """Return the CRD of the test kind."""
    properties = {
        "spec": spec or SPEC_SCHEMA,
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing", "shortNames": ["th"]},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}},
                    **version,
                }
            ],
        },
    }


def thing(name: str = "t", **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": name}, "spec": {"a": "x", **spec}}
