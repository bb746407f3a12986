"""Kinds that are kept in other objects, through our views, over any server."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from nodefeature.fields import at
from tests.protocol.differences import DEVCLUSTER, VIEW_OF
from tests.protocol.wire import (
    APPLY,
    JSON_PATCH,
    MERGE,
    METADATA_LIST,
    STRATEGIC,
    TABLE,
    Object,
    Server,
    names,
    version_of,
)

pytestmark = pytest.mark.views
ROOT = "/apis/worker.gpustack.ai/v1alpha1"
GROUP = "worker.gpustack.ai/v1alpha1"
CLASS = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "fast"},
    "provisioner": "p",
    "volumeBindingMode": "WaitForFirstConsumer",  # no controller writes to a claim that waits
}
NFS = {"nfs": {"server": "10.0.0.1", "share": "/exports", "mountOptions": ["hard"]}}
ROWS: dict[str, tuple[str, Object, str]] = {
    "instancesshpublickeys": ("InstanceSSHPublicKey", {"data": "ssh-ed25519 AAA"}, "secrets"),
    "instanceimagepullsecrets": (
        "InstanceImagePullSecret",
        {"registry": "reg.example.com", "username": "bob", "password": "s3"},
        "secrets",
    ),
    "instancepersistentvolumes": (
        "InstancePersistentVolume",
        {"type": "fast", "capacity": "1Gi", "accessMode": "ReadWriteOnce"},
        "persistentvolumeclaims",
    ),
    "instancepersistentvolumetypes": ("InstancePersistentVolumeType", NFS, "storageclasses"),
}


class Kept:
    """One mapped kind in one namespace."""

    def __init__(self, server: Server, plural: str, namespace: str) -> None:
        self.server = server
        self.plural = plural
        self.prefix = namespace
        self.kind, self.spec, backing = ROWS[plural]
        cluster = plural == "instancepersistentvolumetypes"
        self.path = f"{ROOT}/{plural}" if cluster else f"{ROOT}/namespaces/{namespace}/{plural}"
        self.backing = (
            "/apis/storage.k8s.io/v1/storageclasses" if cluster else f"/api/v1/namespaces/{namespace}/{backing}"
        )

    def at(self, word: str) -> str:
        return f"{self.path}/{self.prefix}-{word}"

    def stored(self, word: str) -> Object:
        return self.server.ok("GET", f"{self.backing}/{self.prefix}-{word}")

    def object(self, word: str, **metadata: Any) -> Object:
        meta = {"name": f"{self.prefix}-{word}", "labels": {"test": self.prefix}, **metadata}
        return {"apiVersion": GROUP, "kind": self.kind, "metadata": meta, "spec": self.spec}

    def create(self, word: str, **metadata: Any) -> Object:
        return self.server.ok("POST", self.path, self.object(word, **metadata))


@pytest.fixture(params=ROWS)
def kept(request: pytest.FixtureRequest, server: Server, namespace: str) -> Kept:
    """Return each mapped kind in turn."""
    if server.ask("GET", "/apis/storage.k8s.io/v1/storageclasses/fast").code == 404:
        server.ok("POST", "/apis/storage.k8s.io/v1/storageclasses", CLASS)
    return Kept(server, request.param, namespace)


def test_create_read_and_list(kept: Kept) -> None:
    created = kept.create("a", annotations={"a": "b"})
    assert kept.server.ok("GET", kept.at("a")) == created
    kept.create("b")
    kept.create("c")
    selector = {"labelSelector": f"test={kept.prefix}"}
    whole = kept.server.ok("GET", kept.path, **selector)
    assert names(whole) == [f"{kept.prefix}-{word}" for word in "abc"]
    first = kept.server.ok("GET", kept.path, limit="2", **selector)
    second = kept.server.ok("GET", kept.path, limit="2", **selector, **{"continue": first["metadata"]["continue"]})
    assert names(first) + names(second) == names(whole)
    assert version_of(first) == version_of(second)
    assert kept.server.ok("GET", kept.path, accept=TABLE, **selector)["kind"] == "Table"
    assert len(kept.server.ok("GET", kept.path, accept=METADATA_LIST, **selector)["items"]) == 3
    # an informer's restart
    again = kept.server.ok("GET", kept.path, resourceVersion=version_of(whole), resourceVersionMatch="NotOlderThan")
    assert names(whole)[0] in names(again)


def test_streaming_list_and_watch(kept: Kept) -> None:
    created = kept.create("a")
    query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    with kept.server.watch(kept.path, labelSelector=f"test={kept.prefix}", **query) as events:
        assert next(events).object == created
        assert next(events).is_end
        kept.server.patch(kept.at("a"), {"metadata": {"labels": {"x": "y"}}})
        assert next(events).type == "MODIFIED"
    with kept.server.watch(kept.path, resourceVersion=version_of(created)) as events:
        assert at(next(events).object, "metadata", "labels", "x") == "y"


def test_writes(kept: Kept) -> None:
    created = kept.create("a")
    described = {**kept.spec, "description": "text"}
    updated = kept.server.ok("PUT", kept.at("a"), {**created, "spec": described})
    assert updated["spec"]["description"] == "text"
    assert kept.server.ask("PUT", kept.at("a"), {**created, "spec": described}).code == 409
    patched = kept.server.patch(kept.at("a"), {"spec": {**kept.spec, "description": "more"}})
    assert patched["spec"]["description"] == "more"
    added = [{"op": "add", "path": f"/spec/{key}", "value": value} for key, value in kept.spec.items()]
    assert kept.server.patch(kept.at("a"), added, type_=JSON_PATCH)["metadata"]["uid"] == created["metadata"]["uid"]
    dry = kept.server.patch(kept.at("a"), {"metadata": {"labels": {"dry": "run"}}}, dryRun="All")
    assert dry["metadata"]["labels"]["dry"] == "run"
    assert "dry" not in kept.server.ok("GET", kept.at("a"))["metadata"]["labels"]


def test_the_garbage_collectors_patch(kept: Kept) -> None:
    # An owner that exists, so that nothing is collected meanwhile.
    home = kept.server.ok("GET", f"/api/v1/namespaces/{kept.prefix}")["metadata"]
    owner = {"apiVersion": "v1", "kind": "Namespace", "name": home["name"], "uid": home["uid"]}
    created = kept.create("a", ownerReferences=[owner])
    uid = created["metadata"]["uid"]
    patch = {"metadata": {"uid": uid, "ownerReferences": [{"$patch": "delete", "uid": home["uid"]}]}}
    answer = kept.server.ask("PATCH", kept.at("a"), patch, type_=STRATEGIC)
    if VIEW_OF[kept.server.backend] == DEVCLUSTER:
        assert answer.code == 415
        merge = {"metadata": {"uid": uid, "ownerReferences": [], "resourceVersion": version_of(created)}}
        answer = kept.server.ask("PATCH", kept.at("a"), merge, type_=MERGE)
    assert answer.code == 200, answer.json
    assert not kept.server.ok("GET", kept.at("a"))["metadata"].get("ownerReferences")


def test_apply_owns_fields_of_the_backing_object(kept: Kept) -> None:
    target = kept.at("a")
    body = {**kept.object("a"), "spec": {**kept.spec, "description": "mine"}}
    first = kept.server.ask("PATCH", target, body, type_=APPLY, fieldManager="ui")
    assert first.code == 201, first.json
    second = kept.server.ask("PATCH", target, kept.object("a"), type_=APPLY, fieldManager="ui")
    assert second.code == 200, second.json
    assert "description" not in second.json["spec"]  # given up, owned by nobody else
    other = {**kept.object("a", labels={"test": "other"})}
    conflict = kept.server.ask("PATCH", target, other, type_=APPLY, fieldManager="gitops")
    assert (conflict.code, conflict.reason) == (409, "Conflict")
    forced = kept.server.ok("PATCH", target, other, type_=APPLY, fieldManager="gitops", force="true")
    assert forced["metadata"]["labels"] == {"test": "other"}
    kept.server.patch(target, {"metadata": {"annotations": {"a": "b"}}})


def test_deletes(kept: Kept) -> None:
    created = kept.create("a", finalizers=["example.com/hold"])
    wrong = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": "other"}}
    assert kept.server.ask("DELETE", kept.at("a"), wrong).code == 409
    gone = kept.server.ok("DELETE", kept.at("a"), {"kind": "DeleteOptions", "propagationPolicy": "Background"})
    assert gone["metadata"]["uid"] == created["metadata"]["uid"]
    assert gone["metadata"]["deletionTimestamp"]
    kept.server.patch(kept.at("a"), {"metadata": {"finalizers": None}})
    kept.server.until(kept.at("a"), lambda answer: answer.code == 404)
    kept.create("b")
    kept.server.ok("DELETE", kept.path, labelSelector=f"test={kept.prefix}")
    kept.server.until(kept.at("b"), lambda answer: answer.code == 404)


def test_settings(server: Server) -> None:
    home, name = "/api/v1/namespaces/gpustack-system", "node-management-manual"
    server.ask("POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": home[19:]}})
    data = {name: base64.b64encode(b"false").decode()}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "gpustack-settings"}, "data": data}
    server.ok("POST", f"{home}/secrets", secret)
    path = f"/apis/gpustack.ai/v1/namespaces/{home[19:]}/settings"
    listed = server.ok("GET", path)
    assert names(listed) == [name]
    with server.watch(path, resourceVersion=version_of(listed)) as events:
        server.patch(f"{path}/{name}", {"spec": {"value": "true"}})
        assert at(next(events).object, "status", "value") == "true"
    refused = server.ask("PATCH", f"{path}/{name}", {"spec": {"value": "x"}}, type_=MERGE)
    assert (refused.code, refused.reason) == (409, "Conflict")


def test_flavors(server: Server) -> None:
    """There are none; where Kueue is not installed either (decision 0470)."""
    assert server.ok("GET", f"{ROOT}/instancetypeflavors")["items"] == []


def test_two_managers_of_one_instance(server: Server, namespace: str) -> None:
    """Case B041: one manager applies through the view, another through the CRD."""
    below = server.below
    assert below is not None
    path = f"{ROOT}/namespaces/{namespace}/instances/shared-edit"
    spec: Object = {
        "type": "gpustack-generic-linux-amd64",
        "image": "registry.example/app:1",
        "env": [{"name": "A", "value": "1"}],
        "volume": {"ephemeral": {"capacity": "1Gi"}},
        "stop": True,
    }
    head: Object = {
        "apiVersion": GROUP,
        "kind": "Instance",
        "metadata": {"name": "shared-edit", "namespace": namespace},
    }
    server.ok("PATCH", path, {**head, "spec": spec}, type_=APPLY, fieldManager="ui")
    theirs = {"description": "owned by gitops", "env": [{"name": "B", "value": "2"}]}
    below.ok("PATCH", path, {**head, "spec": theirs}, type_=APPLY, fieldManager="gitops")
    less = {key: value for key, value in spec.items() if key != "env"}
    merged = server.ok("PATCH", path, {**head, "spec": less}, type_=APPLY, fieldManager="ui")
    assert merged["spec"]["env"] == [{"name": "B", "value": "2"}]
    assert merged["spec"]["description"] == "owned by gitops"
    managers = {entry["manager"]: entry["apiVersion"] for entry in merged["metadata"]["managedFields"]}
    assert managers == {"ui": GROUP, "gitops": GROUP}
    assert server.patch(path, {"metadata": {"labels": {"third": "client"}}})["metadata"]["labels"]
    grabbed = {**head, "spec": {"image": "registry.example/app:2"}}
    conflict = below.ask("PATCH", path, grabbed, type_=APPLY, fieldManager="gitops")
    assert (conflict.code, conflict.causes) == (409, {".spec.image": "FieldManagerConflict"})
    assert '"ui"' in conflict.json["details"]["causes"][0]["message"]
