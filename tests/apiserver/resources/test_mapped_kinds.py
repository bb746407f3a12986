"""Every kind that is stored in one of Kubernetes' own passes one table of the protocol."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from tests.apiserver.resources.cluster import (
    APPLY,
    JSON_PATCH,
    MERGE,
    METADATA,
    METADATA_LIST,
    STRATEGIC,
    TABLE,
    Server,
    run,
)
from tests.apiserver.resources.mapped_cases import (
    CASES,
    CLAIMS,
    CLASSES,
    CREDENTIALS,
    MARK,
    SECRETS,
    Case,
    names,
    prepare,
)

every_kind = pytest.mark.parametrize("case", CASES, ids=lambda case: case.plural)


@every_kind
def test_create_and_read(case: Case) -> None:
    async def test(server: Server) -> None:
        await prepare(server)
        created = await server.ask("POST", case.path, case.object(labels={"tier": "x"}, annotations={"a": "b"}))
        assert created.code == 201, created.body
        obj = created.json
        assert obj["spec"] == (case.shown or case.spec)
        assert obj["metadata"]["labels"] == {"tier": "x"}
        assert obj["metadata"]["annotations"] == {"a": "b"}
        assert await server.ok("GET", f"{case.path}/a") == obj
        stored = await server.stored(f"{case.backing}/a")
        assert stored["metadata"]["uid"] == obj["metadata"]["uid"]
        assert stored["metadata"]["annotations"]["note.gpustack.ai/displayName"] == "mine"
        refused = await server.refused(409, "POST", case.path, case.object())
        assert refused["reason"] == "AlreadyExists"
        assert refused["details"] == {"name": "a", "group": "worker.gpustack.ai", "kind": case.plural}
        assert refused["message"] == f'{case.plural}.worker.gpustack.ai "a" already exists'

    run(test)


@every_kind
def test_lists_pages_and_selectors(case: Case) -> None:
    async def test(server: Server) -> None:
        await prepare(server)
        for name in "cab":
            await server.ok("POST", case.path, case.object(name, labels={"is": name}))
        foreign = {"metadata": {"name": "foreign"}}
        if case.backing == CLASSES:
            foreign |= {"provisioner": "p"}  # type: ignore[dict-item]  # a class needs one
        await server.put_below(case.backing, {"apiVersion": _version(case), "kind": _kind(case), **foreign})
        listed = await server.ok("GET", case.path)
        assert names(listed) == ["a", "b", "c"]
        assert listed["kind"] == f"{case.kind}List"
        assert int(listed["metadata"]["resourceVersion"]) > 0
        found, query = [], "limit=2"
        for _ in range(2):
            page = await server.ok("GET", f"{case.path}?{query}")
            found += names(page)
            query = f"limit=2&continue={page['metadata'].get('continue', '')}"
        assert found == ["a", "b", "c"]
        assert names(await server.ok("GET", f"{case.path}?labelSelector=is%20in%20(a,c)")) == ["a", "c"]
        assert names(await server.ok("GET", f"{case.path}?fieldSelector=metadata.name%3Db")) == ["b"]
        assert names(await server.ok("GET", f"{case.path}?resourceVersion=0")) == ["a", "b", "c"]
        await server.refused(400, "GET", f"{case.path}?fieldSelector=spec.type%3Db")
        for verb in ("GET", "DELETE", "PATCH"):
            body = {"spec": {}} if verb == "PATCH" else b""
            await server.refused(404, verb, f"{case.path}/foreign", body, content_type=MERGE if body else "")

    run(test)


def _version(case: Case) -> str:
    return "storage.k8s.io/v1" if case.backing == CLASSES else "v1"


def _kind(case: Case) -> str:
    return {SECRETS: "Secret", CLAIMS: "PersistentVolumeClaim", CLASSES: "StorageClass"}[case.backing]


@every_kind
def test_forms(case: Case) -> None:
    async def test(server: Server) -> None:
        await prepare(server)
        await server.ok("POST", case.path, case.object())
        table = await server.ok("GET", case.path, accept=TABLE)
        columns = [column["name"] for column in table["columnDefinitions"]]
        assert (columns[0], columns[-1], table["rows"][0]["cells"][0]) == ("Name", "Age", "a")
        assert table["columnDefinitions"][-1]["priority"] == 1
        assert (await server.ok("GET", f"{case.path}/a", accept=METADATA))["metadata"]["name"] == "a"
        assert len((await server.ok("GET", case.path, accept=METADATA_LIST))["items"]) == 1

    run(test)


@every_kind
def test_watches(case: Case) -> None:
    async def test(server: Server) -> None:
        await prepare(server)
        query = "?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
        async with server.watch(case.path + query) as watch:
            mark = await watch.next()
            assert mark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        await server.ok("POST", case.path, case.object())
        listed = await server.ok("GET", case.path)
        async with server.watch(case.path + query) as watch:
            added, mark = await watch.take(2)
            assert added["object"] == {**listed["items"][0]}
            assert mark["object"]["metadata"]["resourceVersion"] == listed["metadata"]["resourceVersion"]
            await server.ok("PATCH", f"{case.path}/a", {"metadata": {"labels": {"x": "y"}}}, content_type=MERGE)
            assert (await watch.next())["type"] == "MODIFIED"
            await server.ok("DELETE", f"{case.path}/a")
            assert (await watch.next())["type"] in ("DELETED", "MODIFIED")
        start = listed["metadata"]["resourceVersion"]
        async with server.watch(f"{case.path}?watch=true&resourceVersion={start}", accept=METADATA) as watch:
            changed = await watch.next()
            assert (changed["type"], changed["object"]["kind"]) == ("MODIFIED", "PartialObjectMetadata")
        server.upstream.store.forget()
        answer = await server.ask("GET", f"{case.path}?watch=true&resourceVersion=1")
        assert (answer.code, answer.json["reason"]) == (410, "Expired")

    run(test)


@every_kind
def test_writes(case: Case) -> None:
    async def test(server: Server) -> None:
        await prepare(server)
        created = await server.ok("POST", case.path, case.object())
        full = {**created, "spec": {**case.spec, "displayName": "other"}}
        updated = await server.ok("PUT", f"{case.path}/a", full)
        assert updated["spec"]["displayName"] == "other"
        refused = await server.refused(409, "PUT", f"{case.path}/a", full)
        assert refused["reason"] == "Conflict"
        zero = {**full, "metadata": {**full["metadata"], "resourceVersion": "0"}}
        refused = await server.refused(422, "PUT", f"{case.path}/a", zero)
        assert refused["details"]["causes"][0]["field"] == "metadata.resourceVersion"
        body = {"spec": {**case.spec, "displayName": "merged"}}
        for content_type in (MERGE, STRATEGIC):
            merged = await server.ok("PATCH", f"{case.path}/a", body, content_type=content_type)
            assert merged["spec"]["displayName"] == "merged"
        operations: list[Any] = [{"op": "add", "path": "/spec/displayName", "value": "json"}]
        operations += [
            {"op": "add", "path": f"/spec/{k}", "value": v} for k, v in case.spec.items() if k in CREDENTIALS
        ]
        assert (await server.ok("PATCH", f"{case.path}/a", operations, content_type=JSON_PATCH))["spec"][
            "displayName"
        ] == "json"
        await server.refused(409, "PATCH", f"{case.path}/a", {"metadata": {"uid": "x"}}, content_type=MERGE)
        await server.refused(404, "PATCH", f"{case.path}/none", {"metadata": {}}, content_type=MERGE)
        await server.refused(404, "PUT", f"{case.path}/none", case.object("none"))

    run(test)


@every_kind
def test_metadata_patches_go_as_they_are_and_marks_stay(case: Case) -> None:
    async def test(server: Server) -> None:
        await prepare(server)
        created = await server.ok("POST", case.path, case.object(labels={"a": "b"}))
        target, uid = f"{case.path}/a", created["metadata"]["uid"]
        patched = await server.ok(
            "PATCH", target, {"metadata": {"uid": uid, "finalizers": ["e.com/x"]}}, content_type=MERGE
        )
        assert patched["metadata"]["finalizers"] == ["e.com/x"]
        operations = [{"op": "remove", "path": "/metadata/finalizers/0"}]
        emptied = await server.ok("PATCH", target, operations, content_type=JSON_PATCH)
        assert not emptied["metadata"].get("finalizers")
        if case.plural != "instanceimagepullsecrets":  # it has to bring its credentials again
            cleared = await server.ok("PATCH", target, {"metadata": {"labels": None}}, content_type=MERGE)
            assert "labels" not in cleared["metadata"]
        for patch in ({"labels": {MARK: None}}, {"annotations": {"note.gpustack.ai/x": "y"}}):
            answer = await server.ask("PATCH", target, {"metadata": patch, "spec": case.spec}, content_type=MERGE)
            assert answer.code in (200, 400)
        stored = await server.stored(f"{case.backing}/a")
        assert stored["metadata"].get("labels", {}).get(MARK, case.plural) == case.plural
        assert "note.gpustack.ai/x" not in stored["metadata"]["annotations"]
        assert (await server.ok("GET", target))["metadata"]["uid"] == uid
        refused = await server.refused(400, "POST", case.path, case.object("b", labels={MARK: "x"}))
        assert refused["details"]["causes"][0]["field"] == "metadata.labels"

    run(test)


@every_kind
def test_the_garbage_collectors_patch_reaches_the_backing_api(case: Case) -> None:
    async def test(server: Server) -> None:
        await prepare(server)
        created = await server.ok("POST", case.path, case.object())
        patch = {"metadata": {"uid": created["metadata"]["uid"], "ownerReferences": [{"$patch": "delete", "uid": "u"}]}}
        # The devcluster does not merge built-ins strategically; what matters is that its own answer comes back.
        await server.refused(415, "PATCH", f"{case.path}/a", patch, content_type=STRATEGIC)

    run(test)


@every_kind
def test_apply(case: Case) -> None:
    async def test(server: Server) -> None:
        await prepare(server)
        target = f"{case.path}/a?fieldManager=ui&force=true"
        first = await server.ask("PATCH", target, orjson.dumps(case.object()), content_type=APPLY)
        assert first.code == 201, first.body
        changed = {**case.object(labels={"x": "y"}), "spec": {**case.spec, "displayName": "applied"}}
        second = await server.ask("PATCH", target, orjson.dumps(changed), content_type=APPLY)
        assert second.code == 200, second.body
        assert second.json["spec"]["displayName"] == "applied"
        assert second.json["metadata"]["labels"] == {"x": "y"}
        assert "managedFields" not in second.json["metadata"]
        await server.refused(422, "PATCH", f"{case.path}/a", orjson.dumps(changed), content_type=APPLY)
        server.denied.add("create")
        await server.ok("PATCH", target, orjson.dumps(case.object()), content_type=APPLY)
        await server.refused(
            403, "PATCH", f"{case.path}/b?fieldManager=ui", orjson.dumps(case.object("b")), content_type=APPLY
        )
        foreign = {"apiVersion": _version(case), "kind": _kind(case), "metadata": {"name": "f"}, "provisioner": "p"}
        await server.put_below(case.backing, foreign)
        body = orjson.dumps(case.object("f"))
        await server.refused(409, "PATCH", f"{case.path}/f?fieldManager=ui", body, content_type=APPLY)

    run(test)


@every_kind
def test_dry_run_stores_nothing(case: Case) -> None:
    async def test(server: Server) -> None:
        await prepare(server)
        assert (await server.ask("POST", f"{case.path}?dryRun=All", case.object())).code == 201
        await server.refused(404, "GET", f"{case.path}/a")
        await server.ok("POST", case.path, case.object())
        before = await server.stored(f"{case.backing}/a")
        change = {"metadata": {"labels": {"x": "y"}}, "spec": {**case.spec, "displayName": "z"}}
        changed = await server.ok("PATCH", f"{case.path}/a?dryRun=All", change, content_type=MERGE)
        assert changed["spec"]["displayName"] == "z"
        await server.ok("DELETE", f"{case.path}/a?dryRun=All")
        assert await server.stored(f"{case.backing}/a") == before
        await server.refused(422, "POST", f"{case.path}?dryRun=Some", case.object("b"))

    run(test)


@every_kind
def test_deletes(case: Case) -> None:
    async def test(server: Server) -> None:
        await prepare(server)
        created = await server.ok("POST", case.path, case.object(finalizers=["e.com/x"]))
        wrong = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": "x"}}
        await server.refused(409, "DELETE", f"{case.path}/a", wrong)
        gone = await server.ok("DELETE", f"{case.path}/a")
        assert gone["kind"] == case.kind
        assert gone["metadata"]["deletionTimestamp"]
        await server.ok("PATCH", f"{case.path}/a", {"metadata": {"finalizers": []}}, content_type=MERGE)
        await server.refused(404, "GET", f"{case.path}/a")
        await server.ok("POST", case.path, case.object("b"))
        done = await server.ok("DELETE", f"{case.path}/b")
        assert (done["status"], done["details"]["kind"], done["details"]["name"]) == ("Success", case.plural, "b")
        assert created["metadata"]["uid"] != done["details"]["uid"]
        for name in ("c", "d"):
            await server.ok("POST", case.path, case.object(name, labels={"is": name}))
        assert names(await server.ok("DELETE", f"{case.path}?labelSelector=is%3Dc")) == ["c"]
        assert names(await server.ok("GET", case.path)) == ["d"]

    run(test)


@every_kind
def test_unknown_fields(case: Case) -> None:
    async def test(server: Server) -> None:
        await prepare(server)
        body = case.object()
        body["spec"] = {**case.spec, "colour": "red"}
        refused = await server.refused(400, "POST", f"{case.path}?fieldValidation=Strict", body)
        assert refused["message"] == 'strict decoding error: unknown field "spec.colour"'
        warned = await server.ask("POST", case.path, body)
        assert warned.headers["warning"] == '299 - "unknown field \\"spec.colour\\""'
        body["spec"] = {**case.spec, "co\r\nlour": "red", "c" * 1000: 1}
        cut = await server.ask("PUT", f"{case.path}/a", body)
        assert cut.headers["warning"].isprintable(), "as part of a header it would break the connection"
        assert max(map(len, cut.headers["warning"].split(", "))) < 300
        quiet = await server.ask("PUT", f"{case.path}/a?fieldValidation=Ignore", body)
        assert (quiet.code, quiet.headers.get("warning")) == (200, None)

    run(test)


@every_kind
@pytest.mark.parametrize("spec", [None, [], "x", {"displayName": 5}, {"displayName": "x" * 65}], ids=repr)
def test_bad_shapes(case: Case, spec: Any) -> None:
    async def test(server: Server) -> None:
        await prepare(server)
        sent = {**case.spec, **spec} if isinstance(spec, dict) else spec
        answer = await server.ask("POST", case.path, {**case.object(), "spec": sent})
        assert answer.code in (400, 422), answer.body
        assert answer.json["reason"] in ("Invalid", "BadRequest")

    run(test)


def test_conflicts_between_are_computed_again() -> None:
    async def test(server: Server) -> None:
        case = CASES[0]
        await server.ok("POST", case.path, case.object())
        left = [2]

        def meddle(request: Any) -> None:
            if request.method == "PUT" and left[0]:
                left[0] -= 1
                shelf = server.upstream.store.shelf("secrets")
                entry = shelf.entries["team", "a"]
                server.upstream.store.put(shelf, entry.load(), entry)

        server.wire.faults.append(meddle)
        patched = await server.ok("PATCH", f"{case.path}/a", {"spec": {"data": "new"}}, content_type=MERGE)
        assert (patched["spec"]["data"], left) == ("new", [0])

    run(test)
