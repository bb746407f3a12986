"""The v1 views over our CRDs: every verb forwarded, only the version differs."""

from __future__ import annotations

import asyncio
import gzip
from typing import Any

import httpx
import orjson
import pytest

from apiserver.forwarding.strategic import merged
from tests.apiserver.resources.cluster import (
    ALPHA,
    APPLY,
    JSON_PATCH,
    MERGE,
    METADATA,
    METADATA_LIST,
    STRATEGIC,
    TABLE,
    V1,
    Server,
    instance,
    run,
)

ONES = f"{V1}/namespaces/team/instances"
BELOW = f"{ALPHA}/namespaces/team/instances"


def renamed(obj: Any) -> Any:
    return {**obj, "apiVersion": "worker.gpustack.ai/v1"}


def test_every_verb() -> None:
    async def test(server: Server) -> None:
        created = await server.ask("POST", ONES, instance())
        assert created.code == 201
        stored = await server.stored(f"{BELOW}/a")
        assert created.json == renamed(stored)
        assert await server.ok("GET", f"{ONES}/a") == renamed(stored)
        listed = await server.ok("GET", ONES)
        assert (listed["apiVersion"], listed["kind"]) == ("worker.gpustack.ai/v1", "InstanceList")
        assert listed["items"] == [renamed(stored)]
        assert (await server.ok("GET", f"{V1}/instances"))["items"] == [renamed(stored)]
        changed = await server.ok("PUT", f"{ONES}/a", {**created.json, "spec": {**stored["spec"], "description": "x"}})
        assert changed["spec"]["description"] == "x"
        status = await server.ok("PATCH", f"{ONES}/a/status", {"status": {"phase": "Ready"}}, content_type=MERGE)
        assert status["status"]["phase"] == "Ready"
        assert status["apiVersion"] == "worker.gpustack.ai/v1"
        assert (await server.ok("DELETE", f"{ONES}/a"))["status"] == "Success"
        await server.refused(404, "GET", f"{ONES}/a")
        await server.ok("POST", ONES, instance("b"))
        assert [item["apiVersion"] for item in (await server.ok("DELETE", ONES))["items"]] == ["worker.gpustack.ai/v1"]

    run(test)


@pytest.mark.parametrize(
    ("type_", "patch"),
    [
        (MERGE, {"apiVersion": "worker.gpustack.ai/v1", "spec": {"description": "x"}}),
        (STRATEGIC, {"spec": {"description": "x"}}),
        (STRATEGIC, {"spec": {"description": "x"}, "metadata": {"finalizers": ["example.com/b"]}}),
        (JSON_PATCH, [{"op": "test", "path": "/apiVersion", "value": "worker.gpustack.ai/v1"},
                      {"op": "add", "path": "/spec/description", "value": "x"}]),
    ],
    ids=["merge", "strategic", "strategic with finalizers", "json"],
)  # fmt: skip
def test_patches(type_: str, patch: Any) -> None:
    async def test(server: Server) -> None:
        await server.ok("POST", ONES, instance(finalizers=["example.com/a"]))
        patched = await server.ok("PATCH", f"{ONES}/a", patch, content_type=type_)
        assert patched["spec"]["description"] == "x"
        extra = ["example.com/b"] if "metadata" in patch else []
        assert patched["metadata"]["finalizers"] == ["example.com/a", *extra]

    run(test)


def test_a_strategic_patch_is_retried_on_conflict() -> None:
    async def test(server: Server) -> None:
        await server.ok("POST", ONES, instance())
        left = [2]

        def fault(request: httpx.Request) -> httpx.Response | None:
            if request.method != "PATCH" or not left[0]:
                return None
            left[0] -= 1
            return httpx.Response(409, json={"kind": "Status", "apiVersion": "v1", "reason": "Conflict", "code": 409})

        server.wire.faults.append(fault)
        patch = {"metadata": {"finalizers": ["example.com/a"]}}
        patched = await server.ok("PATCH", f"{ONES}/a", patch, content_type=STRATEGIC)
        assert left == [0]
        assert patched["metadata"]["finalizers"] == ["example.com/a"]

    run(test)


def test_owner_references_merge_by_uid() -> None:
    stored = {"ownerReferences": [{"uid": "u1", "name": "a", "controller": True}], "resourceVersion": "7"}
    patch = {"metadata": {"ownerReferences": [{"uid": "u1", "controller": False}, {"uid": "u2", "name": "b"}]}}
    assert merged(patch, stored)["metadata"] == {
        "ownerReferences": [{"uid": "u1", "name": "a", "controller": False}, {"uid": "u2", "name": "b"}],
        "resourceVersion": "7",
    }


@pytest.mark.parametrize(
    "patch",
    [
        {"metadata": {"ownerReferences": [{"$patch": "delete", "uid": "u1"}]}},
        {"spec": {"$retainKeys": ["type"]}},
        {"$patch": "replace"},
        {"spec": {"$setElementOrder/env": []}},
    ],
)
def test_what_a_strategic_patch_cannot_say_is_415(patch: Any) -> None:
    async def test(server: Server) -> None:
        await server.ok("POST", ONES, instance())
        refused = await server.refused(415, "PATCH", f"{ONES}/a", patch, content_type=STRATEGIC)
        assert refused["reason"] == "UnsupportedMediaType"

    run(test)


def test_apply_creates_and_updates() -> None:
    async def test(server: Server) -> None:
        body = orjson.dumps(instance())
        target = f"{ONES}/a?fieldManager=ui"
        assert (await server.ask("PATCH", target, body, content_type=APPLY)).code == 201
        applied = await server.ask("PATCH", target, body, content_type=APPLY)
        assert applied.code == 200
        assert applied.json["apiVersion"] == "worker.gpustack.ai/v1"
        # B041: the entries name the stored version, whichever way the apply came.
        entries = (await server.stored(f"{BELOW}/a"))["metadata"]["managedFields"]
        assert {entry["apiVersion"] for entry in entries} == {"worker.gpustack.ai/v1alpha1"}
        await server.refused(422, "PATCH", f"{ONES}/a", body, content_type=APPLY)

    run(test)


def test_apply_without_create_only_updates() -> None:
    async def test(server: Server) -> None:
        server.denied.add("create")
        body, target = orjson.dumps(instance()), f"{ONES}/a?fieldManager=ui&force=true"
        refused = await server.refused(403, "PATCH", target, body, content_type=APPLY)
        assert refused["reason"] == "Forbidden"
        stored = await server.put_below(BELOW, instance(version="v1alpha1"))
        sent: list[bytes] = []

        def look(request: httpx.Request) -> None:
            if request.method == "PATCH":
                sent.append(request.content)

        server.wire.faults.append(look)
        for claim in ({}, {"uid": ""}, {"uid": None}):
            body = orjson.dumps(instance(**claim))
            await server.ok("PATCH", target, body, content_type=APPLY)
            assert orjson.loads(sent.pop())["metadata"]["uid"] == stored["metadata"]["uid"], claim
        foreign = await server.ask("PATCH", target, orjson.dumps(instance(uid="other")), content_type=APPLY)
        assert foreign.code in (409, 422)

    run(test)


def test_forms() -> None:
    async def test(server: Server) -> None:
        await server.ok("POST", ONES, instance())
        table = await server.ok("GET", ONES, accept=TABLE)
        assert (table["kind"], table["rows"][0]["cells"][0]) == ("Table", "a")
        assert [column["name"] for column in table["columnDefinitions"]][:5] == [
            "Name",
            "Type",
            "Access",
            "Port(s)",
            "Phase",
        ]
        whole = await server.ok("GET", f"{ONES}?includeObject=Object", accept=TABLE)
        assert whole["rows"][0]["object"]["apiVersion"] == "worker.gpustack.ai/v1"
        assert (await server.ok("GET", f"{ONES}/a", accept=METADATA))["kind"] == "PartialObjectMetadata"
        assert (await server.ok("GET", ONES, accept=METADATA_LIST))["kind"] == "PartialObjectMetadataList"
        text = await server.ask("GET", f"{ONES}/a", accept="application/yaml")
        assert text.headers["content-type"] == "application/yaml"
        assert text.body.startswith(b"apiVersion: worker.gpustack.ai/v1\n")
        chosen = await server.ask("GET", ONES, accept="application/vnd.kubernetes.protobuf, application/json;q=0.5")
        assert chosen.headers["content-type"] == "application/json"
        await server.refused(406, "GET", ONES, accept="application/vnd.kubernetes.protobuf")
        await server.refused(400, "GET", f"{ONES}?includeObject=Some", accept=TABLE)

    run(test)


def test_watches() -> None:
    async def test(server: Server) -> None:
        await server.ok("POST", ONES, instance())
        query = "?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
        async with server.watch(ONES + query) as watch:
            added, mark = await watch.take(2)
            assert (added["type"], added["object"]["apiVersion"]) == ("ADDED", "worker.gpustack.ai/v1")
            assert mark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
            assert mark["object"]["apiVersion"] == "worker.gpustack.ai/v1"
            await server.ok("DELETE", f"{ONES}/a")
            assert (await watch.next())["type"] == "DELETED"
            assert len(server.context.open_streams) == 1
        assert len(server.context.open_streams) == 0
        version = (await server.ok("GET", ONES))["metadata"]["resourceVersion"]
        async with server.watch(f"{ONES}?watch=true&resourceVersion={version}", accept=TABLE) as watch:
            await server.ok("POST", ONES, instance("b"))
            assert (await watch.next())["object"]["kind"] == "Table"

    run(test)


def test_a_watch_ends_with_the_server_and_with_upstream() -> None:
    async def test(server: Server) -> None:
        async with server.watch(ONES + "?watch=true&resourceVersion=1") as watch:
            await asyncio.sleep(0)
            server.wire.cut()
            assert await watch.next() is None
        async with server.watch(ONES + "?watch=true&resourceVersion=1") as watch:
            server.context.open_streams.close_all()
            assert await watch.next() is None
        async with server.watch(ONES + "?watch=true&resourceVersion=1") as watch:
            assert watch.code == 503

    run(test)


def test_a_watch_from_a_forgotten_version_is_relayed_as_it_comes() -> None:
    async def test(server: Server) -> None:
        for turn in range(3):
            await server.ok("POST", ONES, instance(f"x{turn}"))
        server.upstream.store.forget()
        answer = await server.ask("GET", f"{ONES}?watch=true&resourceVersion=1")
        assert (answer.code, answer.json["reason"]) == (410, "Expired")

    run(test)


def test_warnings_and_audit_pass_back() -> None:
    async def test(server: Server) -> None:
        seen: list[httpx.Request] = []

        def answer(request: httpx.Request) -> httpx.Response:
            seen.append(request)
            warnings = [("warning", '299 - "a"'), ("warning", '299 - "größe 数"'.encode())]
            headers: Any = [*warnings, ("retry-after", "7"), ("audit-id", "x1")]
            return httpx.Response(
                429, headers=headers, json={"kind": "Status", "code": 429, "reason": "TooManyRequests"}
            )

        server.wire.faults.append(answer)
        found = await server.ask("POST", ONES, instance(), headers={"audit-id": "x1", "x-remote-user": "root"})
        assert found.code == 429
        assert found.headers["retry-after"] == "7"
        assert found.headers["audit-id"] == "x1"
        assert found.headers["warning"].encode("latin-1").decode() == '299 - "a", 299 - "größe 数"'
        (request,) = seen
        assert request.headers["audit-id"] == "x1"
        assert "x-remote-user" not in request.headers
        assert request.url.params["fieldManager"] == "kubectl"
        assert request.headers["accept-encoding"] == "identity"
        assert "impersonate-user" not in request.headers

    run(test)


def test_writes_may_carry_the_user() -> None:
    async def test(server: Server) -> None:
        seen: list[httpx.Request] = []

        def answer(request: httpx.Request) -> httpx.Response:
            seen.append(request)
            return httpx.Response(200, json={"kind": "Status", "apiVersion": "v1"})

        server.wire.faults.append(answer)
        await server.ok("POST", ONES, instance())
        await server.ok("GET", f"{ONES}/a")
        assert seen[0].headers["impersonate-user"] == "ann"
        assert seen[0].headers.get_list("impersonate-group") == ["team", "system:authenticated"]
        assert seen[0].headers["impersonate-extra-scopes"] == "a"
        assert "impersonate-user" not in seen[1].headers

    run(test, impersonate=True)


def test_refused_credentials_of_ours_are_not_the_clients_fault() -> None:
    async def test(server: Server) -> None:
        server.wire.faults.append(lambda request: httpx.Response(401, json={"kind": "Status", "code": 401}))
        await server.refused(503, "GET", ONES)
        server.wire.faults[:] = []
        server.wire.app = None
        refused = await server.refused(503, "GET", ONES)
        assert refused["details"]["retryAfterSeconds"] == 1

    run(test)


HOSTILE: dict[str, tuple[int, str, str, Any, str]] = {
    "encoded slash": (400, "GET", f"{ONES}/..%2f..%2fsecrets", b"", ""),
    "encoded dot": (400, "GET", f"{ONES}/%2e%2e", b"", ""),
    "double encoding": (400, "GET", f"{ONES}/%252e", b"", ""),
    "nul": (400, "GET", f"{ONES}/a%00", b"", ""),
    "blank": (400, "GET", f"{ONES}/a%20b", b"", ""),
    "300 characters": (404, "GET", f"{ONES}/{'a' * 300}", b"", ""),
    "another version": (400, "POST", ONES, {"apiVersion": "worker.gpustack.ai/v1alpha1", "kind": "Instance"}, ""),
    "not utf-8": (400, "POST", ONES, b'{"apiVersion":"worker.gpustack.ai/v1","kind":"\xff"}', ""),
    "not utf-8 in a value": (400, "PATCH", f"{ONES}/a", b'{"spec":{"displayName":"\xff"}}', MERGE),
    "nested": (400, "POST", ONES, b"[" * 10_000, ""),
    "merge patch, nested": (400, "PATCH", f"{ONES}/a", b'{"spec":' + b'{"a":' * 1000 + b"1" + b"}" * 1001, MERGE),
    "apply, nested": (400, "PATCH", f"{ONES}/a?fieldManager=m", b"spec: " + b"[" * 1000 + b"]" * 1000, APPLY),
    "object, nested": (400, "POST", ONES, b'{"spec":' + b'{"a":' * 1000 + b"1" + b"}" * 1001, ""),
    "apply without a manager": (400, "PATCH", f"{ONES}/a", b"kind: Instance\nmetadata: null", APPLY),
    "nan": (400, "POST", ONES, b'{"apiVersion":"worker.gpustack.ai/v1","kind":"Instance","spec":NaN}', ""),
    "too large": (413, "POST", ONES, b" " * (3 * 1024 * 1024 + 1), ""),
    "protobuf": (415, "POST", ONES, b"k8s\0", "application/vnd.kubernetes.protobuf"),
    "unknown patch": (415, "PATCH", f"{ONES}/a", {}, "application/foo"),
    "patch of nothing": (404, "PATCH", f"{ONES}/a", {"spec": {}}, MERGE),
    "strategic patch of nothing": (404, "PATCH", f"{ONES}/a", {"metadata": {"finalizers": []}}, STRATEGIC),
    "strategic list": (400, "PATCH", f"{ONES}/a", [], STRATEGIC),
    "many operations": (413, "PATCH", f"{ONES}/a", [{"op": "test", "path": "/apiVersion"}] * 10_001, JSON_PATCH),
    "continue by hand": (400, "GET", f"{ONES}?limit=1&continue=abc", b"", ""),
    "selector": (400, "GET", f"{ONES}?labelSelector=a%20in%20b", b"", ""),
    "version abc": (400, "GET", f"{ONES}?resourceVersion=abc", b"", ""),
    "version abc of one": (400, "GET", f"{ONES}/a?resourceVersion=abc", b"", ""),
    "version abc of a watch": (400, "GET", f"{ONES}?watch=true&resourceVersion=abc", b"", ""),
    "version of the future": (504, "GET", f"{ONES}?resourceVersion=99999&resourceVersionMatch=NotOlderThan", b"", ""),
    "delete of another kind": (400, "DELETE", f"{ONES}/a", {"kind": "Pod"}, ""),
    "both policies": (422, "DELETE", f"{ONES}/a", {"propagationPolicy": "Orphan", "orphanDependents": True}, ""),
    "undeclared sub-resource": (404, "GET", f"{ONES}/a/exec", b"", ""),
    "status of nothing": (405, "DELETE", f"{ONES}/a/status", b"", ""),
}


@pytest.mark.parametrize("row", HOSTILE.values(), ids=HOSTILE)
def test_bad_input_gets_a_status(row: tuple[int, str, str, Any, str]) -> None:
    code, method, target, body, content_type = row

    async def test(server: Server) -> None:
        refused = await server.refused(code, method, target, body, content_type=content_type or "application/json")
        assert (refused["kind"], refused["code"]) == ("Status", code)

    run(test)


def test_a_selector_cannot_swallow_the_watched_name() -> None:
    async def test(server: Server) -> None:
        for name in "ab":
            await server.ok("POST", ONES, instance(name))
        swallowing = "fieldSelector=metadata.name!%3Dz%5C"
        for target in (f"{V1}/watch/namespaces/team/instances/a", f"{ONES}/a"):
            async with server.watch(f"{target}?watch=true&{swallowing}&timeoutSeconds=1") as watch:
                assert (await watch.next())["object"]["metadata"]["name"] == "a"
                await server.ok("PATCH", f"{ONES}/b", {"metadata": {"labels": {"x": "y"}}}, content_type=MERGE)
                await server.ok(
                    "PATCH", f"{ONES}/a", {"metadata": {"labels": {"x": str(len(target))}}}, content_type=MERGE
                )
                assert (await watch.next())["object"]["metadata"]["name"] == "a"

    run(test)


def test_a_thousand_selector_terms_reach_upstream() -> None:
    async def test(server: Server) -> None:
        terms = ",".join(f"k{number}=v" for number in range(1000))
        assert (await server.ok("GET", f"{ONES}?labelSelector={terms}"))["items"] == []

    run(test)


GZIP_ROWS: dict[str, tuple[str, str, bool]] = {
    "a Table": ("", TABLE, True),
    "metadata only": ("", METADATA_LIST, True),
    "rows that hold whole objects": ("?includeObject=Object", TABLE, False),
    "objects": ("", "application/json", False),
    "metadata of one": ("/a", METADATA, False),
}


@pytest.mark.parametrize("row", GZIP_ROWS.values(), ids=GZIP_ROWS.keys())
def test_a_list_in_which_nothing_is_rewritten_passes_packed(row: tuple[str, str, bool]) -> None:
    target, accept, passes = row
    asked: list[str] = []
    packed = gzip.compress(b'{"kind":"Table"}')

    def pack(request: httpx.Request) -> httpx.Response | None:
        if not request.url.path.endswith(("/instances", "/instances/a")):
            return None
        asked.append(request.headers["accept-encoding"])
        coding = {"content-encoding": "gzip", "vary": "Accept-Encoding"}
        return httpx.Response(200, stream=httpx.ByteStream(packed), headers=coding) if passes else None

    async def test(server: Server) -> None:
        await server.put_below(BELOW, instance(version="v1alpha1"))
        server.wire.faults.append(pack)
        answer = await server.ask("GET", f"{ONES}{target}", accept=accept, headers={"accept-encoding": "gzip"})
        assert asked == ["gzip" if passes else "identity"]
        assert answer.code == 200
        if passes:
            assert (answer.headers["content-encoding"], answer.headers["vary"]) == ("gzip", "Accept-Encoding")
            assert answer.body == packed
            await server.ask("GET", f"{ONES}{target}", accept=accept)
            assert asked[1:] == ["identity"]

    run(test)


PACKED_ROWS = {"one": f"{ONES}/a", "a list": ONES, "a watch": f"{ONES}?watch=true", "a Table": ONES}


@pytest.mark.parametrize("row", PACKED_ROWS)
def test_an_answer_that_comes_packed_unasked_never_passes(row: str) -> None:
    packed = gzip.compress(orjson.dumps(instance(version="v1alpha1")))
    accept = TABLE if row == "a Table" else "application/json"

    def pack(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, stream=httpx.ByteStream(packed), headers={"content-encoding": "gzip"})

    async def test(server: Server) -> None:
        server.wire.faults.append(pack)
        refused = await server.refused(503, "GET", PACKED_ROWS[row], accept=accept)
        assert "packed" in refused["message"]

    run(test)
