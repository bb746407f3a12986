"""OpenAPI documents over the wire: hashes, keeping, making them once (spec 03 B4)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from apiserver.rest import openapi
from apiserver.rest.negotiation import encode
from apiserver.rest.openapi import OpenApi
from apiserver.rest.request_info import parse
from apiserver.rest.storage import Catalog, Resource, User
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
