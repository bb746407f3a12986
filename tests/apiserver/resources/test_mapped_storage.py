"""Keys, pull secrets and volumes: each kind's own rows of the specification."""

from __future__ import annotations

import base64
from typing import Any

import orjson
import pytest

from tests.apiserver.resources.cluster import MERGE, TABLE, V1, Server, run
from tests.apiserver.resources.mapped_cases import (
    CASES,
    CLAIMS,
    CLASSES,
    MARK,
    NFS,
    S3,
    SECRETS,
    SETTINGS_SECRET,
    names,
    prepare,
)


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
