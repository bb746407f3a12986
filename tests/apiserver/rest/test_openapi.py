"""OpenAPI documents over the wire: hashes, keeping, making them once (spec 03 B4)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import orjson
import pytest

from apiserver.rest import openapi
from apiserver.rest.negotiation import encode
from apiserver.rest.openapi import OpenApi
from apiserver.rest.request_info import parse
from apiserver.rest.storage import Catalog, Parameter, Resource, Subresource, User
from tests.apiserver.rest.memory_storage import MemoryStorage

KEY = "apis/example.com/v1"
PATH = f"/openapi/v3/{KEY}"


def resource(plural: str) -> Resource:
    return Resource("example.com", "v1", plural, plural.capitalize(), namespaced=True, storage=MemoryStorage([]))


def ask(served: OpenApi, target: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    sent: list[dict[str, Any]] = []
    path, _, query = target.partition("?")

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        raise AssertionError("a GET has no body")

    given = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    info = parse("GET", path.encode(), query.encode())
    asyncio.run(served.serve(info, User("a"), {"headers": given}, receive, send))
    found = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], found, sent[1]["body"]


def test_the_right_hash_may_be_kept_and_the_wrong_one_leads_to_it() -> None:
    served = OpenApi(Catalog([resource("widgets")]), "v1")
    code, headers, _ = ask(served, PATH)
    assert (code, "cache-control" in headers) == (200, False)
    right = f"{PATH}?hash={headers['etag'].strip(chr(34))}"
    assert right in ask(served, "/openapi/v3")[2].decode()
    code, headers, body = ask(served, right)
    assert (code, headers["cache-control"]) == (200, "public, immutable, max-age=31536000")
    assert body
    code, headers, _ = ask(served, f"{PATH}?hash=0A")
    assert (code, headers["location"]) == (301, right)
    assert ask(served, right, if_none_match=headers.get("etag", right.rpartition("=")[2]))[0] == 200
    assert ask(served, right, if_none_match=f'"{right.rpartition("=")[2]}"')[0] == 304


def test_a_document_is_made_once_for_each_state(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    def noted(value: Any) -> bytes:
        made.append(value)
        return encode(value)

    monkeypatch.setattr(openapi, "encode", noted)
    catalog = Catalog([resource("widgets")])
    served = OpenApi(catalog, "v1")
    first, again = ask(served, PATH), ask(served, PATH)
    assert first == again
    assert len(made) == 1
    catalog.add(resource("gadgets"))
    assert ask(served, PATH)[1]["etag"] != first[1]["etag"]
    assert len(made) == 2


GVK = {"group": "example.com", "version": "v1", "kind": "Widgets"}
ONE_OF_ONES = {"$ref": "#/components/schemas/com.example.v1.Widgets"}
DECLARED: dict[str, tuple[Subresource, dict[str, Any], dict[str, Any], list[Any]]] = {
    "text, with options": (
        Subresource(
            "log",
            "WidgetLog",
            ("get",),
            media_type="text/plain",
            parameters=(
                Parameter("follow", "boolean", "Go on"),
                Parameter("tailLines", "integer", "The last ones", least=0),
                Parameter("shown", "string", "Which", choices=("All", "Some")),
            ),
        ),
        {"get": {**GVK, "kind": "WidgetLog"}},
        {"text/plain": {"schema": {"type": "string"}}},
        [
            {"name": "follow", "in": "query", "description": "Go on", "schema": {"type": "boolean"}},
            {
                "name": "tailLines",
                "in": "query",
                "description": "The last ones",
                "schema": {"type": "integer", "minimum": 0},
            },
            {
                "name": "shown",
                "in": "query",
                "description": "Which",
                "schema": {"type": "string", "enum": ["All", "Some"]},
            },
        ],
    ),
    "a document of its own": (
        Subresource("metrics", "WidgetMetrics", ("get",), schema={"type": "object", "description": "figures"}),
        {"get": {**GVK, "kind": "WidgetMetrics"}},
        {"application/json": {"schema": {"$ref": "#/components/schemas/com.example.v1.WidgetMetrics"}}},
        [],
    ),
    "the kind's own status": (
        Subresource("status", "Widgets", ("get", "patch", "update")),
        {"get": GVK, "put": GVK, "patch": GVK},
        {"application/json": {"schema": ONE_OF_ONES}},
        [],
    ),
    "a kind of another group": (
        Subresource("eviction", "Eviction", ("create",), "policy", "v1"),
        {"post": {"group": "policy", "version": "v1", "kind": "Eviction"}},
        {"application/json": {"schema": {"$ref": "#/components/schemas/policy.v1.Eviction"}}},
        [],
    ),
}


@pytest.mark.parametrize("row", DECLARED)
def test_a_declared_subresource_shows_by_its_declaration(row: str) -> None:
    sub, kinds, content, parameters = DECLARED[row]
    served = OpenApi(Catalog([replace(resource("widgets"), subresources={sub.name: sub})]), "v1")
    found = served.combined()
    path = found["paths"][f"/apis/example.com/v1/namespaces/{{namespace}}/widgets/{{name}}/{sub.name}"]
    operations = {method: operation for method, operation in path.items() if method != "parameters"}
    assert {method: each["x-kubernetes-group-version-kind"] for method, each in operations.items()} == kinds
    assert [each["responses"]["200"]["content"] for each in operations.values()] == [content] * len(operations)
    assert [each["name"] for each in path["parameters"]][:2] == ["namespace", "name"]
    assert path["parameters"][2:] == parameters
    for method, operation in operations.items():
        assert ("fieldValidation" in str(operation["parameters"])) == (method != "get")
        assert ("requestBody" in operation) == (method != "get")
    schemas = found["components"]["schemas"]
    targets = {each["schema"]["$ref"].rpartition("/")[2] for each in content.values() if "$ref" in each["schema"]}
    assert targets <= set(schemas)
    assert set(schemas) == {"com.example.v1.Widgets", *targets}  # a text has no schema of its own
    if sub.schema:
        assert schemas["com.example.v1.WidgetMetrics"]["description"] == "figures"
    assert orjson.loads(ask(served, PATH)[2])["paths"] == found["paths"]
