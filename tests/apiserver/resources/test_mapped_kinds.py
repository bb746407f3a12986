"""Every mapped kind passes one table of the protocol, and its own rows of the specification."""

from __future__ import annotations

import asyncio
import base64
from dataclasses import dataclass, field
from typing import Any

import orjson
import pytest

from apiserver.mapping.stream import EmptyStream
from tests.apiserver.resources.cluster import (
    APPLY,
    JSON_PATCH,
    MERGE,
    METADATA,
    METADATA_LIST,
    STRATEGIC,
    SYSTEM,
    TABLE,
    V1,
    Server,
    run,
)

SECRETS = "/api/v1/namespaces/team/secrets"
CLAIMS = "/api/v1/namespaces/team/persistentvolumeclaims"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
FLAVORS = "/apis/kueue.x-k8s.io/v1beta2/resourceflavors"
SETTINGS = f"/apis/gpustack.ai/v1/namespaces/{SYSTEM}/settings"
SETTINGS_SECRET = f"/api/v1/namespaces/{SYSTEM}/secrets"
MARK = "resource.gpustack.ai/type"


@dataclass(frozen=True)
class Case:
    """One mapped kind under the shared table."""

    plural: str
    kind: str
    spec: dict[str, Any]
    backing: str
    namespaced: bool = True
    shown: dict[str, Any] = field(default_factory=dict)
    """What of the spec reads back, when it is not all of it."""

    @property
    def path(self) -> str:
        return f"{V1}/namespaces/team/{self.plural}" if self.namespaced else f"{V1}/{self.plural}"

    def object(self, name: str = "a", **metadata: Any) -> dict[str, Any]:
        return {
            "apiVersion": "worker.gpustack.ai/v1",
            "kind": self.kind,
            "metadata": {"name": name, **metadata},
            "spec": self.spec,
        }


CREDENTIALS = {"registry": "reg.example.com", "username": "bob", "password": "s3"}
NFS = {"server": "10.0.0.1", "share": "/exports"}
S3 = {"endpoint": "https://s3.example.com", "region": "eu", "bucket": "data", "accessKey": "AK1", "secretKey": "SK1"}
CASES = (
    Case("instancesshpublickeys", "InstanceSSHPublicKey", {"displayName": "mine", "data": "ssh-ed25519 AAA"}, SECRETS),
    Case(
        "instanceimagepullsecrets",
        "InstanceImagePullSecret",
        {"displayName": "mine", **CREDENTIALS},
        SECRETS,
        shown={"displayName": "mine"},
    ),
    Case(
        "instancepersistentvolumes",
        "InstancePersistentVolume",
        {"displayName": "mine", "type": "fast", "capacity": "1Gi", "accessMode": "ReadWriteOnce"},
        CLAIMS,
    ),
    Case(
        "instancepersistentvolumetypes",
        "InstancePersistentVolumeType",
        {"displayName": "mine", "nfs": {**NFS, "mountOptions": ["hard"]}},
        CLASSES,
        namespaced=False,
    ),
)
every_kind = pytest.mark.parametrize("case", CASES, ids=lambda case: case.plural)


async def prepare(server: Server) -> None:
    body = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "fast"}, "provisioner": "p"}
    await server.put_below(CLASSES, body)


def names(listed: Any) -> list[str]:
    return [item["metadata"]["name"] for item in listed["items"]]


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


def test_ssh_keys_live_in_marked_secrets() -> None:
    async def test(server: Server) -> None:
        await server.ok("POST", CASES[0].path, CASES[0].object())
        stored = await server.stored(f"{SECRETS}/a")
        assert base64.b64decode(stored["data"]["authorized-keys"]) == b"ssh-ed25519 AAA"
        assert stored["metadata"]["labels"] == {MARK: "instancesshpublickeys"}

    run(test)


def test_pull_secrets_ask_for_credentials_and_hide_them() -> None:
    async def test(server: Server) -> None:
        case = CASES[1]
        await server.ok("POST", case.path, case.object())
        stored = await server.stored(f"{SECRETS}/a")
        config = orjson.loads(base64.b64decode(stored["data"][".dockerconfigjson"]))
        assert config == {"auths": {"reg.example.com": {"auth": "Ym9iOnMz"}}}
        partial = {**case.object("b"), "spec": {"username": "bob", "password": "s3"}}
        refused = await server.refused(400, "POST", case.path, partial)
        assert refused["reason"] == "Invalid"
        assert refused["details"]["causes"][0]["field"] == "spec.registry"
        everything = await server.refused(422, "PUT", f"{case.path}/a", {**case.object(), "spec": {}})
        fields = {cause["field"] for cause in everything["details"]["causes"]}
        assert fields == {"spec.registry", "spec.username", "spec.password"}
        plain = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "foreign"}}
        plain |= {"type": "kubernetes.io/dockerconfigjson", "data": {".dockerconfigjson": "e30="}}
        await server.put_below(SECRETS, plain)
        assert names(await server.ok("GET", case.path)) == ["a", "foreign"]

    run(test)


def test_volumes_default_from_the_class_and_never_change() -> None:
    async def test(server: Server) -> None:
        case = CASES[2]
        bare = {**case.object("b"), "spec": {}}
        refused = await server.refused(400, "POST", case.path, bare)
        assert "no default storage class" in refused["message"]
        refused = await server.refused(400, "POST", case.path, {**case.object(), "spec": {"type": "absent"}})
        assert refused["details"]["causes"][0]["field"] == "spec.type"
        storage_class = {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": "d", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
            "provisioner": "p",
            "allowVolumeExpansion": True,
        }
        await server.put_below(CLASSES, storage_class)
        created = await server.ok("POST", case.path, bare)
        assert created["spec"] == {"capacity": "20Gi", "accessMode": "ReadWriteOnce"}
        assert created["status"] == {"phase": "Pending"}
        assert "storageClassName" not in (await server.stored(f"{CLAIMS}/b"))["spec"]
        for spec in ({"capacity": "30Gi"}, {"accessMode": "ReadWriteMany"}, {"type": "d"}):
            refused = await server.refused(400, "PATCH", f"{case.path}/b", {"spec": spec}, content_type=MERGE)
            assert refused["details"]["causes"][0]["reason"] == "FieldValueForbidden"
        await server.ok("PATCH", f"{case.path}/b", {"spec": {"capacity": "20480Mi"}}, content_type=MERGE)
        table = await server.ok("GET", case.path, accept=TABLE)
        assert table["rows"][0]["cells"][:5] == ["b", None, "20Gi", "ReadWriteOnce", "Pending"]

    run(test)


@pytest.mark.parametrize("stopped", [False, True])
def test_a_volume_in_use_stays(stopped: bool) -> None:
    async def test(server: Server) -> None:
        await prepare(server)
        case = CASES[2]
        await server.ok("POST", case.path, case.object("data"))
        spec = {"type": "cards", "image": "i", "volume": {"persistent": {"name": "data"}}, "stop": stopped}
        body = {"apiVersion": "worker.gpustack.ai/v1", "kind": "Instance", "metadata": {"name": "box"}, "spec": spec}
        await server.ok("POST", f"{V1}/namespaces/team/instances", body)
        refused = await server.refused(409, "DELETE", f"{case.path}/data")
        assert "'box'" in refused["message"]
        await server.refused(409, "DELETE", case.path)
        await server.ok("DELETE", f"{V1}/namespaces/team/instances/box")
        await server.ok("DELETE", f"{case.path}/data")

    run(test)


def test_s3_types_keep_credentials_in_a_secret_of_their_own() -> None:
    async def test(server: Server) -> None:
        case = CASES[3]
        secret = f"{SETTINGS_SECRET}/gpustack-pvt-s3-a"
        body = {**case.object(), "spec": {"s3": S3}}
        assert (await server.ask("POST", f"{case.path}?dryRun=All", body)).code == 201
        assert (await server.below("GET", secret)).code == 404
        created = await server.ok("POST", case.path, body)
        assert "secretKey" not in created["spec"]["s3"]
        assert created["spec"]["s3"]["mounter"] == "geesefs"
        stored = await server.stored(secret)
        assert base64.b64decode(stored["data"]["secretAccessKey"]) == b"SK1"
        assert stored["metadata"]["ownerReferences"][0]["uid"] == created["metadata"]["uid"]
        parameters = (await server.stored(f"{CLASSES}/a"))["parameters"]
        assert parameters["csi.storage.k8s.io/node-stage-secret-name"] == "gpustack-pvt-s3-a"
        moved = {"spec": {"s3": {"endpoint": "https://other.example.com", "region": None}}}
        await server.ok("PATCH", f"{case.path}/a", moved, content_type=MERGE)
        data = (await server.stored(secret))["data"]
        assert base64.b64decode(data["endpoint"]) == b"https://other.example.com"
        assert base64.b64decode(data["secretAccessKey"]) == b"SK1"
        assert "region" not in data
        await server.refused(400, "PATCH", f"{case.path}/a", {"spec": {"s3": {"bucket": "other"}}}, content_type=MERGE)
        exchanged = {"spec": {"s3": None, "nfs": NFS}}
        await server.refused(400, "PATCH", f"{case.path}/a", exchanged, content_type=MERGE)
        table = await server.ok("GET", case.path, accept=TABLE)
        assert table["rows"][0]["cells"][1:4] == ["S3", "https://other.example.com ([data])", "AK1"]

    run(test)


@pytest.mark.parametrize(
    ("spec", "code", "field"),
    [
        ({"nfs": NFS, "s3": S3}, 400, ""),
        ({}, 400, ""),
        ({"s3": {"endpoint": "ftp://h"}}, 422, "spec.s3.endpoint"),
        ({"nfs": {**NFS, "mountPermissions": "999"}}, 422, "spec.nfs.mountPermissions"),
        ({"s3": {**S3, "mounter": "other"}}, 400, "spec.s3.mounter"),
    ],
)
def test_refused_types(spec: Any, code: int, field: str) -> None:
    async def test(server: Server) -> None:
        refused = await server.refused(code, "POST", CASES[3].path, {**CASES[3].object(), "spec": spec})
        assert (refused.get("details", {}).get("causes") or [{"field": ""}])[0]["field"] == field
        assert (await server.below("GET", f"{CLASSES}/a")).code == 404

    run(test)


def _flavor(name: str, **notes: str) -> dict[str, Any]:
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ResourceFlavor",
        "metadata": {
            "name": name,
            "labels": {MARK: "nodes"},
            "annotations": {f"note.gpustack.ai/{key}": value for key, value in notes.items()},
        },
        "spec": {},
    }


A10 = {"acceleratable": "true", "acceleratorGroup": "nvidia-a10g", "manufacturer": "nvidia", "generalGroup": "amd-epyc"}


def test_without_kueue_the_catalogue_is_empty_and_watches_come_again() -> None:
    async def test(server: Server) -> None:
        path = f"{V1}/instancetypeflavors"
        crd = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/resourceflavors.kueue.x-k8s.io"
        assert (await server.below("DELETE", crd)).code == 200
        assert (await server.below("GET", FLAVORS)).code == 404
        listed = await server.ok("GET", path)
        assert (listed["items"], bool(listed["metadata"]["resourceVersion"])) == ([], True)
        query = "?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
        async with server.watch(path + query) as watch:
            assert (await watch.next())["type"] == "BOOKMARK"
        await server.refused(404, "GET", f"{path}/x")

    run(test)


def test_an_empty_stream_ends_by_itself() -> None:
    async def test() -> None:
        stream = EmptyStream("7", lasts_s=0.01)
        assert [await stream.next(60), await stream.next(60)] == [(), None]

    asyncio.run(test())


def test_flavors_are_computed_and_watched() -> None:
    async def test(server: Server) -> None:
        path = f"{V1}/instancetypeflavors"
        assert (await server.ok("GET", path))["items"] == []
        await server.put_below(FLAVORS, _flavor("f1", **A10))
        listed = await server.ok("GET", path)
        assert names(listed) == ["gpustack-nvidia-a10g"]
        version = listed["metadata"]["resourceVersion"]
        query = "?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
        async with server.watch(path + query) as watch:
            added, mark = await watch.take(2)
            assert (added["type"], mark["type"]) == ("ADDED", "BOOKMARK")
            await server.put_below(FLAVORS, _flavor("f2", **A10))  # collapses: nothing changes
            await server.put_below(FLAVORS, _flavor("f3", acceleratable="false"))
            event = await watch.next()
            assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "gpustack-generic")
            assert (await server.below("DELETE", f"{FLAVORS}/f3")).code == 200
            event = await watch.next()
            assert (event["type"], event["object"]["metadata"]["name"]) == ("DELETED", "gpustack-generic")
        async with server.watch(f"{path}?watch=true&resourceVersion={version}") as watch:
            # What led here is told again as it is now: the first row stands, the second is gone.
            told = [(e["type"], e["object"]["metadata"]["name"]) for e in await watch.take(3)]
            assert told == [
                ("MODIFIED", "gpustack-nvidia-a10g"),
                ("DELETED", "gpustack-generic"),
                ("DELETED", "gpustack-generic"),
            ]
        assert (await server.ok("GET", f"{path}/gpustack-nvidia-a10g"))["kind"] == "InstanceTypeFlavor"
        table = await server.ok("GET", path, accept=TABLE)
        assert table["rows"][0]["cells"][1:5] == [None, "nvidia-a10g", True, "nvidia"]
        await server.refused(405, "POST", path, {})
        await server.refused(404, "GET", f"{path}/none")

    run(test)


async def _settings(server: Server, **values: str) -> None:
    data = {key.replace("_", "-"): base64.b64encode(value.encode()).decode() for key, value in values.items()}
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "gpustack-settings"}, "data": data}
    await server.put_below(SETTINGS_SECRET, body)


MANUAL = "node-management-manual"


def test_settings_read_and_write_one_key() -> None:
    async def test(server: Server) -> None:
        assert (await server.ok("GET", SETTINGS))["items"] == []
        await server.refused(404, "GET", f"{SETTINGS}/{MANUAL}")
        await _settings(server, node_management_manual="false", image_pull_policy="IfNotPresent", nobody="x")
        listed = await server.ok("GET", "/apis/gpustack.ai/v1/settings")
        assert names(listed) == ["image-pull-policy", MANUAL]
        secret = await server.stored(f"{SETTINGS_SECRET}/gpustack-settings")
        one = await server.ok("GET", f"{SETTINGS}/{MANUAL}")
        assert one["status"]["value"] == "false"
        assert one["metadata"]["resourceVersion"] == secret["metadata"]["resourceVersion"]
        target = f"{SETTINGS}/{MANUAL}"
        patched = await server.ok("PATCH", target, {"spec": {"value": "true"}}, content_type=MERGE)
        assert (patched["status"]["value"], "spec" in patched) == ("true", False)
        await server.refused(409, "PUT", target, {**one, "spec": {"value": "false"}})
        unchanged = await server.ok("PATCH", target, {"spec": {}}, content_type=MERGE)
        assert unchanged == patched
        dry = await server.ok("PATCH", f"{target}?dryRun=All", {"spec": {"value": "false"}}, content_type=MERGE)
        assert dry["status"]["value"] == "false"
        assert (await server.ok("GET", target))["status"]["value"] == "true"
        refused = await server.refused(409, "PATCH", target, {"spec": {"value": "maybe"}}, content_type=MERGE)
        assert (refused["reason"], "must be true or false" in refused["message"]) == ("Conflict", True)
        await server.refused(400, "PATCH", target, {"spec": {"value": 5}}, content_type=MERGE)
        await server.refused(404, "PATCH", f"{SETTINGS}/unknown", {"spec": {"value": "x"}}, content_type=MERGE)
        away = "/apis/gpustack.ai/v1/namespaces/team/settings"
        assert (await server.ok("GET", away))["items"] == []
        await server.refused(404, "PATCH", f"{away}/{MANUAL}", {"spec": {"value": "x"}}, content_type=MERGE)
        await server.refused(405, "POST", SETTINGS, {})
        await server.refused(405, "DELETE", target)
        table = await server.ok("GET", SETTINGS, accept=TABLE)
        assert table["rows"][1]["cells"][:2] == [MANUAL, "true"]
        applied = {"apiVersion": "gpustack.ai/v1", "kind": "Setting", "metadata": {"name": MANUAL}}
        body = orjson.dumps({**applied, "spec": {"value": "false"}})
        again = await server.ok("PATCH", f"{target}?fieldManager=ui", body, content_type=APPLY)
        assert again["status"]["value"] == "false"

    run(test)


def test_settings_are_watched() -> None:
    async def test(server: Server) -> None:
        query = "?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
        async with server.watch(SETTINGS + query) as watch:
            assert (await watch.next())["type"] == "BOOKMARK"
        await _settings(server, node_management_manual="false", image_pull_policy="IfNotPresent")
        version = (await server.ok("GET", SETTINGS))["metadata"]["resourceVersion"]
        async with server.watch(SETTINGS + query) as watch:
            assert [event["type"] for event in await watch.take(3)] == ["ADDED", "ADDED", "BOOKMARK"]
            change = {"spec": {"value": "true"}}
            await server.ok("PATCH", f"{SETTINGS}/{MANUAL}", change, content_type=MERGE)
            event = await watch.next()
            assert (event["type"], event["object"]["metadata"]["name"]) == ("MODIFIED", MANUAL)
        async with server.watch(f"{SETTINGS}?watch=true&resourceVersion={version}") as watch:
            told = {e["object"]["metadata"]["name"]: e["object"]["status"]["value"] for e in await watch.take(2)}
            assert told[MANUAL] == "true"

    run(test)


def test_awareness_answers_with_a_warning() -> None:
    async def test(server: Server) -> None:
        await _settings(server, instance_type_aware_cpu_manufacturer="false")
        target = f"{SETTINGS}/instance-type-aware-cpu-manufacturer"
        answer = await server.ask("PATCH", target, {"spec": {"value": "true"}}, content_type=MERGE)
        assert "queues drain" in answer.headers["warning"]

    run(test)
