"""What `kubectl explain` reads: the CRDs' own schemas under v1, the mapped kinds' beside them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import httpx
import orjson

from apiserver.forwarding.openapi import crd_documents
from apiserver.resources import build_resources
from apiserver.rest.openapi import OpenApi
from apiserver.rest.request_info import parse
from apiserver.rest.storage import Catalog, User
from apiserver.subresources import log
from tests.apiserver.resources.cluster import Server, run

META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
KIND = {"group": "worker.gpustack.ai", "kind": "Instance", "version": "v1alpha1"}
UPSTREAM = {
    "openapi": "3.0.0",
    "paths": {
        "/apis/worker.gpustack.ai/v1alpha1/": {"get": {}},
        "/apis/worker.gpustack.ai/v1alpha1/instances": {"get": {"x-kubernetes-group-version-kind": KIND}},
    },
    "components": {
        "schemas": {
            "ai.gpustack.worker.v1alpha1.Instance": {
                "description": "from upstream",
                "properties": {"metadata": {"allOf": [{"$ref": f"#/components/schemas/{META}"}]}},
                "x-kubernetes-group-version-kind": [KIND],
            },
            "ai.gpustack.worker.v1alpha1.InstanceList": {
                "properties": {
                    "items": {"items": {"$ref": "#/components/schemas/ai.gpustack.worker.v1alpha1.Instance"}}
                }
            },
            META: {"type": "object", "description": "metadata"},
        }
    },
}


async def document(openapi: OpenApi, path: str) -> Mapping[str, Any]:
    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        raise AssertionError("a GET has no body")

    await openapi.serve(parse("GET", path.encode(), b""), User("a"), {"headers": []}, receive, send)

    found: Mapping[str, Any] = orjson.loads(sent[1]["body"])
    return found


def test_views_show_the_upstream_document_under_v1() -> None:
    async def test(server: Server) -> None:
        asked: list[str] = []

        def answer(request: httpx.Request) -> httpx.Response | None:
            if not request.url.path.startswith("/openapi/"):
                return None
            asked.append(request.url.path)
            return httpx.Response(200, json=UPSTREAM)

        server.wire.faults.append(answer)
        openapi = OpenApi(Catalog(build_resources(server.context)), "v1", bases=crd_documents(server.context))
        found = await document(openapi, "/openapi/v3/apis/worker.gpustack.ai/v1")
        schemas = found["components"]["schemas"]
        assert schemas["ai.gpustack.worker.v1.Instance"]["description"] == "from upstream"
        assert schemas["ai.gpustack.worker.v1.Instance"]["x-kubernetes-group-version-kind"][0]["version"] == "v1"
        assert "v1alpha1" not in str(found)
        assert found["paths"]["/apis/worker.gpustack.ai/v1/instances"]["get"]
        key = schemas["ai.gpustack.worker.v1.InstanceSSHPublicKey"]
        assert key["properties"]["spec"]["properties"]["data"]["type"] == "string"
        assert key["properties"]["metadata"]["allOf"] == [{"$ref": f"#/components/schemas/{META}"}]
        settings = await document(openapi, "/openapi/v3/apis/gpustack.ai/v1")
        assert META in settings["components"]["schemas"]
        assert asked == ["/openapi/v3/apis/worker.gpustack.ai/v1alpha1"]

    run(test)


def test_without_upstream_the_models_stand() -> None:
    async def test(server: Server) -> None:
        server.wire.faults.append(lambda request: httpx.Response(404, text="none"))
        openapi = OpenApi(Catalog(build_resources(server.context)), "v1", bases=crd_documents(server.context))
        found = await document(openapi, "/openapi/v3/apis/worker.gpustack.ai/v1")
        assert "spec" in found["components"]["schemas"]["ai.gpustack.worker.v1.Instance"]["properties"]

    run(test)


def test_the_devclusters_own_document_is_renamed() -> None:
    async def test(server: Server) -> None:
        openapi = OpenApi(Catalog(build_resources(server.context)), "v1", bases=crd_documents(server.context))
        found = await document(openapi, "/openapi/v3/apis/worker.gpustack.ai/v1")
        assert "ai.gpustack.worker.v1.Devices" in found["components"]["schemas"]
        assert "v1alpha1" not in str(found["paths"])

    run(test)


def test_version_2_names_every_kind_and_refers_to_nothing_outside() -> None:
    async def test(server: Server) -> None:
        resources = build_resources(server.context)
        server.wire.faults.append(
            lambda request: httpx.Response(200, json=UPSTREAM) if request.url.path.startswith("/openapi/") else None
        )
        openapi = OpenApi(Catalog(resources), "v1", bases=crd_documents(server.context))
        found = await document(openapi, "/openapi/v2")
        definitions = found["definitions"]
        for resource in resources:
            name = f"{'.'.join(reversed(resource.group.split('.')))}.v1.{resource.kind}"
            assert definitions[name]["x-kubernetes-group-version-kind"][0]["kind"] == resource.kind
            assert f"{name}List" in definitions
        assert definitions["ai.gpustack.worker.v1.Instance"]["description"] == "from upstream"
        assert definitions["ai.gpustack.worker.v1.InstanceSSHPublicKey"]["properties"]["spec"]["properties"]["data"]
        targets = set(re.findall(r'"\$ref":"#/definitions/([^"]+)"', orjson.dumps(found).decode()))
        assert targets <= set(definitions)
        assert "allOf" not in orjson.dumps(found).decode()
        one = found["paths"]["/apis/worker.gpustack.ai/v1/namespaces/{namespace}/instancesshpublickeys/{name}"]
        assert set(one) == {"get", "put", "patch", "delete", "parameters"}

    run(test)


SUBRESOURCES = {
    "instances/status": ("get", "patch", "put"),
    "instances/log": ("get",),
    "instances/events": ("get",),
    "instances/metrics": ("get",),
    "instances/explain": ("get",),
    "instancepersistentvolumes/events": ("get",),
}


def test_every_subresource_is_shown_with_what_it_takes_and_answers() -> None:
    async def test(server: Server) -> None:
        server.wire.faults.append(lambda request: httpx.Response(404, text="none"))
        openapi = OpenApi(Catalog(build_resources(server.context)), "v1", bases=crd_documents(server.context))
        found = await document(openapi, "/openapi/v3/apis/worker.gpustack.ai/v1")
        assert openapi.combined()["paths"].items() >= found["paths"].items()
        for row, wanted in SUBRESOURCES.items():
            plural, _, name = row.partition("/")
            path = found["paths"][f"/apis/worker.gpustack.ai/v1/namespaces/{{namespace}}/{plural}/{{name}}/{name}"]
            assert tuple(sorted(set(path) - {"parameters"})) == wanted
            taken = [each["name"] for each in path["parameters"] if each["in"] == "query"]
            assert taken == {"log": [each.name for each in log.PARAMETERS], "explain": ["includeObject"]}.get(name, [])
        log_of_one = found["paths"]["/apis/worker.gpustack.ai/v1/namespaces/{namespace}/instances/{name}/log"]["get"]
        assert log_of_one["responses"]["200"]["content"] == {"text/plain": {"schema": {"type": "string"}}}
        schemas = found["components"]["schemas"]
        sample = schemas["ai.gpustack.worker.v1.InstanceMetrics"]["properties"]["sample"]["properties"]
        assert sample["memoryUsedMiB"]["type"] == "integer"
        targets = set(re.findall(r'"\$ref":"#/components/schemas/([^"]+)"', orjson.dumps(found).decode()))
        assert targets <= set(schemas)

    run(test)
