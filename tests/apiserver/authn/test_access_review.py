"""What is asked about a request, and what comes of the answer (spec 03 B2.6)."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from apiserver.authn.access_review import AccessReviews
from apiserver.authn.request_header import Trust, user_from_headers
from apiserver.rest.access import Attributes
from apiserver.rest.request_info import parse
from apiserver.rest.status import Refusal
from apiserver.rest.storage import User
from tests.builders.virtual_clock import VirtualClock
from tests.kube.wire import Handler, Wire, answer, client_over, fail, refuse

BOB = User("bob", "u1", ("dev", "ops"), {"acme.com/project": ("p1",)})
G = "/apis/worker.gpustack.ai/v1"
INSTANCES = {"group": "worker.gpustack.ai", "version": "v1", "resource": "instances"}
YES = answer({"status": {"allowed": True}}, 201)
NO = answer({"status": {"allowed": False, "reason": "no rule"}}, 201)


def asked(method: str, target: str) -> dict[str, Any] | None:
    """Return the attributes of the review of a request, or None when nobody was asked."""

    async def test() -> dict[str, Any] | None:
        clock, wire = VirtualClock(), Wire(YES)
        reviews = AccessReviews(client_over(wire, clock), clock, allowed_ttl_s=10, denied_ttl_s=10)
        path, _, query = target.partition("?")
        await reviews.authorize(BOB, parse(method, path.encode(), query.encode()))
        if not wire.requests:
            return None
        spec: dict[str, Any] = orjson.loads(wire.requests[0].content)["spec"]
        who = {key: spec.pop(key) for key in ("user", "uid", "groups", "extra")}
        assert who == {"user": "bob", "uid": "u1", "groups": ["dev", "ops"], "extra": {"acme.com/project": ["p1"]}}
        return spec

    return asyncio.run(test())


def resource(verb: str, **more: Any) -> dict[str, Any]:
    return {"resourceAttributes": {"verb": verb, **INSTANCES, **more}}


ROWS: dict[str, tuple[str, str, dict[str, Any] | None]] = {
    "list everywhere": ("GET", f"{G}/instances", resource("list")),
    "list": ("GET", f"{G}/namespaces/n/instances", resource("list", namespace="n")),
    "watch": ("GET", f"{G}/namespaces/n/instances?watch=1", resource("watch", namespace="n")),
    "watch, old form": ("GET", f"{G}/watch/namespaces/n/instances", resource("watch", namespace="n")),
    "list of one name": (
        "GET",
        f"{G}/namespaces/n/instances?fieldSelector=metadata.name%3Dx",
        resource("list", namespace="n", name="x", fieldSelector={"rawSelector": "metadata.name=x"}),
    ),
    "list of some": (
        "GET",
        f"{G}/instances?labelSelector=a%3Db",
        resource("list", labelSelector={"rawSelector": "a=b"}),
    ),
    "get": ("GET", f"{G}/namespaces/n/instances/x", resource("get", namespace="n", name="x")),
    "head": ("HEAD", f"{G}/namespaces/n/instances/x", resource("get", namespace="n", name="x")),
    "create": ("POST", f"{G}/namespaces/n/instances", resource("create", namespace="n")),
    "update": ("PUT", f"{G}/namespaces/n/instances/x", resource("update", namespace="n", name="x")),
    "patch": ("PATCH", f"{G}/namespaces/n/instances/x", resource("patch", namespace="n", name="x")),
    "delete": ("DELETE", f"{G}/namespaces/n/instances/x", resource("delete", namespace="n", name="x")),
    "deletecollection": ("DELETE", f"{G}/namespaces/n/instances", resource("deletecollection", namespace="n")),
    "a sub-resource": (
        "GET",
        f"{G}/namespaces/n/instances/x/log?follow=true",
        resource("get", namespace="n", name="x", subresource="log"),
    ),
    "status": (
        "PATCH",
        f"{G}/namespaces/n/instances/x/status",
        resource("patch", namespace="n", name="x", subresource="status"),
    ),
    "encoded letters are what they mean": (
        "GET",
        f"{G}/namespaces/n/%69nstances/x",
        resource("get", namespace="n", name="x"),
    ),
    "documents below a group version": (
        "GET",
        f"{G}/docs",
        {"resourceAttributes": {"verb": "list", "group": "worker.gpustack.ai", "version": "v1", "resource": "docs"}},
    ),
    "discovery": ("GET", G, {"nonResourceAttributes": {"path": G, "verb": "get"}}),
    "documents": ("GET", "/docs", {"nonResourceAttributes": {"path": "/docs", "verb": "get"}}),
    "the OpenAPI document for people": (
        "GET",
        "/openapi.json",
        {"nonResourceAttributes": {"path": "/openapi.json", "verb": "get"}},
    ),
    "metrics": ("GET", "/metrics", {"nonResourceAttributes": {"path": "/metrics", "verb": "get"}}),
    "another method": ("POST", "/metrics", {"nonResourceAttributes": {"path": "/metrics", "verb": "post"}}),
    "schemas": ("GET", "/openapi/v3/apis/worker.gpustack.ai/v1?hash=A", None),
    "schemas, older": ("GET", "/openapi/v2", None),
    "health": ("GET", "/readyz", None),
    "one check": ("GET", "/livez/ping", None),
    "what only looks like an open path": (
        "GET",
        "/livezzz",
        {"nonResourceAttributes": {"path": "/livezzz", "verb": "get"}},
    ),
    "writing to an open path": ("POST", "/livez", {"nonResourceAttributes": {"path": "/livez", "verb": "post"}}),
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
def test_what_is_asked(row: tuple[str, str, dict[str, Any] | None]) -> None:
    method, target, want = row
    assert asked(method, target) == want


ANSWERS: dict[str, tuple[Handler, int]] = {
    "yes": (YES, 0),
    "no": (NO, 403),
    "no opinion": (answer({"status": {}}, 201), 403),
    "no status": (answer({}, 201), 403),
    "yes as text": (answer({"status": {"allowed": "true"}}, 201), 403),
    "one authorizer denies": (answer({"status": {"allowed": True, "denied": True}}, 201), 403),
    "forbidden to ask": (refuse(403, "Forbidden"), 500),
    "the server fails": (refuse(500, "InternalError"), 500),
    "the server is away": (fail(OSError("refused")), 500),
    "no JSON": (lambda _request: __import__("httpx").Response(201, content=b"<html>"), 500),
}


@pytest.mark.parametrize("row", ANSWERS.values(), ids=ANSWERS.keys())
def test_what_comes_of_an_answer(row: tuple[Handler, int]) -> None:
    handler, want = row

    async def test() -> int:
        clock = VirtualClock()
        reviews = AccessReviews(client_over(handler, clock), clock, allowed_ttl_s=10, denied_ttl_s=10)
        try:
            await reviews.authorize(BOB, parse("GET", f"{G}/namespaces/n/instances/x".encode(), b""))
        except Refusal as refusal:
            return refusal.code
        return 0

    assert asyncio.run(test()) == want


def test_the_words_of_a_refusal() -> None:
    async def test() -> Refusal:
        clock = VirtualClock()
        reviews = AccessReviews(client_over(NO, clock), clock, allowed_ttl_s=10, denied_ttl_s=10)
        with pytest.raises(Refusal) as refused:
            await reviews.authorize(BOB, parse("GET", f"{G}/namespaces/n/instances/x/log".encode(), b""))
        return refused.value

    document = asyncio.run(test()).document()
    assert document["message"] == (
        'instances.worker.gpustack.ai "x" is forbidden: User "bob" cannot get resource "instances/log" in API group '
        '"worker.gpustack.ai" in the namespace "n": no rule'
    )
    assert (document["code"], document["reason"]) == (403, "Forbidden")


def test_answers_are_remembered_by_the_whole_question() -> None:
    async def test() -> None:
        clock, wire = VirtualClock(), Wire(YES)
        reviews = AccessReviews(client_over(wire, clock), clock, allowed_ttl_s=10, denied_ttl_s=10)
        info = parse("GET", f"{G}/namespaces/n/instances/x".encode(), b"")
        for user in (BOB, BOB, User("bob", "u1", ("dev",)), User("bob", "u2", ("dev", "ops"))):
            await reviews.authorize(user, info)
        assert len(wire.requests) == 3
        await clock.advance(10.1)
        await reviews.authorize(BOB, info)
        assert len(wire.requests) == 4
        await reviews.authorize(BOB, parse("GET", b"/" + b"a" * 100_000, b""))
        assert {len(key) for key in reviews._cache._answers} == {32}, "a path of a stranger is not kept"

    asyncio.run(test())


def test_rights_that_a_url_does_not_show() -> None:
    async def test() -> None:
        clock, wire = VirtualClock(), Wire(YES, NO)
        reviews = AccessReviews(client_over(wire, clock), clock, allowed_ttl_s=10, denied_ttl_s=10)
        create = Attributes("create", "worker.gpustack.ai", "instances", namespace="n")
        assert await reviews.allows(BOB, create)
        assert not await reviews.allows(User("eve"), create)

    asyncio.run(test())


def test_what_the_front_proxy_says_of_a_user_is_what_is_asked_about() -> None:
    async def test() -> dict[str, Any]:
        clock, wire = VirtualClock(), Wire(YES)
        reviews = AccessReviews(client_over(wire, clock), clock, allowed_ttl_s=10, denied_ttl_s=10)
        headers = [
            (b"x-remote-user", b"bob"),
            (b"x-remote-uid", b"u1"),
            (b"x-remote-group", b"dev"),
            (b"x-remote-group", b"ops"),
            (b"x-remote-extra-authentication.kubernetes.io%2fcredential-id", b"JTI=1"),
            (b"x-remote-extra-scopes", b"a"),
            (b"x-remote-extra-scopes", b"b"),
        ]
        trust = Trust(
            user_headers=("x-remote-user",),
            uid_headers=("x-remote-uid",),
            group_headers=("x-remote-group",),
            extra_prefixes=("x-remote-extra-",),
        )
        user = user_from_headers(headers, trust)
        assert user is not None
        await reviews.authorize(user, parse("GET", f"{G}/instances".encode(), b""))
        spec: dict[str, Any] = orjson.loads(wire.requests[0].content)["spec"]
        return spec

    spec = asyncio.run(test())
    assert (spec["user"], spec["uid"], spec["groups"]) == ("bob", "u1", ["dev", "ops"])
    assert spec["extra"] == {"authentication.kubernetes.io/credential-id": ["JTI=1"], "scopes": ["a", "b"]}
