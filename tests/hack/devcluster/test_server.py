"""Who may ask, what is shown, and the process itself."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from api.crds import crd_manifests
from hack.devcluster.foreign_crds import foreign_manifests
from kube.client import Client
from kube.connection import Connection
from kube.credentials import find_credentials
from nodefeature.kinds import CONFIG_MAP, NODE
from tests.apiserver.rest.asgi import Browser
from tests.hack.devcluster.cluster import CONFIG_MAPS, THINGS, Cluster, config_map, node, run, thing_crd

CORE = "/openapi/v3/api/v1"


def test_only_the_token_opens_the_door() -> None:
    async def test(cluster: Cluster) -> None:
        app = cluster.server.app
        for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "Basic dDBrZW4="}):
            answer = await Browser(app, headers)("GET", CONFIG_MAPS)
            assert (answer.code, answer.json["reason"]) == (401, "Unauthorized")
        for path in ("/healthz", "/livez", "/readyz", "/version"):
            assert (await Browser(app, {})("GET", path)).code == 200
        assert (await Browser(app, {})("GET", "/metrics")).code == 401

    run(test)


def test_the_version_says_what_it_is() -> None:
    async def test(cluster: Cluster) -> None:
        version = await cluster.ok("GET", "/version")
        assert version["gitVersion"].endswith("+devcluster")

    run(test)


def test_metrics_count_writes_by_client() -> None:
    async def test(cluster: Cluster) -> None:
        await cluster.ok("POST", f"{CONFIG_MAPS}?fieldManager=me", config_map())
        await cluster.refused(404, "GET", f"{CONFIG_MAPS}/none")
        text = (await cluster.ask("GET", "/metrics")).body.decode()
        assert 'verb="create",resource="configmaps",client="me",code="201"} 1\n' in text
        assert 'verb="get",resource="configmaps",client="test",code="404"} 1\n' in text
        assert f"devcluster_resource_version {cluster.server.store.version}\n" in text

    run(test)


def test_b023_discovery_is_the_same_in_both_forms() -> None:
    async def test(cluster: Cluster) -> None:
        aggregated: set[tuple[str, str, str]] = set()
        for path in ("/api", "/apis"):
            accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
            for group in (await cluster.ok("GET", path, accept=accept))["items"]:
                for version in group["versions"]:
                    names = {r["resource"] for r in version["resources"]}
                    names |= {
                        f"{r['resource']}/{s['subresource']}"
                        for r in version["resources"]
                        for s in r.get("subresources", ())
                    }
                    aggregated |= {(group["metadata"].get("name", ""), version["version"], name) for name in names}
        legacy: set[tuple[str, str, str]] = set()
        groups = (await cluster.ok("GET", "/apis"))["groups"]
        paths = [("", "v1", "/api/v1")] + [
            (group["name"], version["version"], f"/apis/{version['groupVersion']}")
            for group in groups
            for version in group["versions"]
        ]
        for group, version, path in paths:
            legacy |= {(group, version, r["name"]) for r in (await cluster.ok("GET", path))["resources"]}
        assert legacy == aggregated
        assert ("worker.gpustack.ai", "v1alpha1", "instances/status") in legacy

    run(test, crds=[*foreign_manifests(), *crd_manifests()])


def test_openapi_names_every_kind() -> None:
    async def test(cluster: Cluster) -> None:
        root = await cluster.ok("GET", "/openapi/v3")
        url = root["paths"]["apis/example.com/v1"]["serverRelativeURL"]
        document = await cluster.ok("GET", url)
        schema = document["components"]["schemas"]["com.example.v1.Thing"]
        assert schema["x-kubernetes-group-version-kind"] == [{"group": "example.com", "version": "v1", "kind": "Thing"}]
        assert schema["properties"]["spec"]["required"] == ["a"]
        patch = document["paths"]["/apis/example.com/v1/namespaces/{namespace}/things/{name}"]["patch"]
        assert patch["parameters"][0]["name"] == "fieldValidation"
        answer = await cluster.ask("GET", CORE)
        assert (await cluster.ask("GET", CORE, headers={"if-none-match": answer.headers["etag"]})).code == 304
        assert (
            await cluster.ask("GET", CORE, accept="application/com.github.proto-openapi.spec.v3@v1.0+protobuf")
        ).code == 406
        assert (await cluster.ok("GET", "/openapi/v2"))["swagger"] == "2.0"
        await cluster.refused(404, "GET", "/openapi/v3/apis/none/v1")

    run(test, crds=[thing_crd()])


REFUSED: list[tuple[str, str, Any, str, int]] = [
    ("exec", "/api/v1/namespaces/default/pods/p/exec", b"", "application/json", 404),
    (
        "admission policies",
        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
        {},
        "application/json",
        404,
    ),
    ("deployments", "/apis/apps/v1/namespaces/default/deployments", {}, "application/json", 404),
    ("protobuf", CONFIG_MAPS, b"k8s\x00", "application/vnd.kubernetes.protobuf", 415),
    ("10 MB", CONFIG_MAPS, b"x" * 10_000_000, "application/json", 413),
    ("invalid UTF-8", CONFIG_MAPS, b'{"kind":"\xff"}', "application/json", 400),
    (
        "nesting that could not be stored",
        THINGS,
        b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"data":' + b"[" * 400 + b"]" * 400 + b"}",
        "application/json",
        400,
    ),
]


@pytest.mark.parametrize("row", REFUSED, ids=lambda row: row[0])
def test_what_the_devcluster_does_not_do_is_refused(row: tuple[str, str, Any, str, int]) -> None:
    async def test(cluster: Cluster) -> None:
        await cluster.refused(row[4], "POST", row[1], row[2], content_type=row[3])

    run(test, crds=[thing_crd()])


def test_deep_nesting_in_a_kept_field_is_400() -> None:
    async def test(cluster: Cluster) -> None:
        body = b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"data":' + b"[" * 400 + b"]" * 400 + b"}"
        await cluster.refused(400, "POST", CONFIG_MAPS, body)
        assert (await cluster.ok("GET", CONFIG_MAPS))["items"] == []

    run(test)


class Process:
    """`python -m hack.devcluster` on a data directory."""

    def __init__(self, folder: Path, port: int = 0) -> None:
        self.folder = folder
        command = [sys.executable, "-m", "hack.devcluster", "--data-dir", str(folder), "--port", str(port)]
        self.child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self.child.stdout is not None
        self.line = self.child.stdout.readline()
        found = re.search(r"https://127\.0\.0\.1:(\d+)", self.line)
        assert found is not None, self.child.communicate()[1]
        self.port = int(found[1])

    def end(self, number: int) -> int:
        os.kill(self.child.pid, number)
        self.child.communicate(timeout=15)
        return self.child.returncode

    async def client(self) -> tuple[Client, Connection]:
        connection = Connection(find_credentials(kubeconfig=str(self.folder / "kubeconfig")))
        return Client(connection).as_manager("test"), connection


@pytest.mark.component
def test_a_killed_process_comes_back_with_everything_it_answered(tmp_path: Path) -> None:
    first = Process(tmp_path)
    assert "+devcluster ready on" in first.line

    async def write(process: Process) -> list[Any]:
        client, connection = await process.client()
        made = [await client.create(NODE, node(f"n{i}")) for i in range(9)]
        await connection.close()
        return made

    async def read(process: Process) -> list[Any]:
        client, connection = await process.client()
        found = await client.list(NODE)
        obj = {**config_map("late"), "metadata": {"name": "late", "namespace": "default"}}
        late = await client.create(CONFIG_MAP, obj)
        await connection.close()
        return [*found, late]

    made = asyncio.run(write(first))
    first.end(signal.SIGKILL)
    second = Process(tmp_path, first.port)
    *found, late = asyncio.run(read(second))
    assert sorted(made, key=lambda obj: str(obj["metadata"]["name"])) == found
    assert int(late["metadata"]["resourceVersion"]) > max(int(obj["metadata"]["resourceVersion"]) for obj in found)
    assert second.end(signal.SIGTERM) == 0
    assert (tmp_path / "kubeconfig").stat().st_mode & 0o077 == 0
    assert (tmp_path / "server.key").stat().st_mode & 0o077 == 0
