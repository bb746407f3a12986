"""Writes as a kube-apiserver does them (spec 03 B8)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.hack.devcluster.cluster import (
    CONFIG_MAPS,
    JSON_PATCH,
    MERGE,
    NODES,
    PODS,
    THINGS,
    Cluster,
    config_map,
    node,
    pod,
    run,
    thing,
    thing_crd,
)


def test_create_fills_in_what_is_the_servers() -> None:
    async def test(cluster: Cluster) -> None:
        obj = config_map("a", x="y")
        obj["metadata"] |= {"uid": "mine", "creationTimestamp": "1999-01-01T00:00:00Z", "resourceVersion": "77"}
        made = await cluster.ok("POST", CONFIG_MAPS, obj)
        meta = made["metadata"]
        assert meta["uid"] != "mine"
        assert (meta["creationTimestamp"], meta["namespace"]) == ("2026-01-01T00:00:00Z", "default")
        assert meta["resourceVersion"] != "77"
        assert list(made)[:3] == ["apiVersion", "kind", "metadata"]
        assert await cluster.ok("GET", f"{CONFIG_MAPS}/a") == made

    run(test)


def test_names_are_generated_checked_and_taken_once() -> None:
    async def test(cluster: Cluster) -> None:
        generated = {**config_map(), "metadata": {"generateName": "x-"}}
        first = await cluster.ok("POST", CONFIG_MAPS, generated)
        second = await cluster.ok("POST", CONFIG_MAPS, generated)
        assert first["metadata"]["name"].startswith("x-")
        assert first["metadata"]["name"] != second["metadata"]["name"]
        await cluster.ok("POST", CONFIG_MAPS, config_map("a"))
        taken = await cluster.refused(409, "POST", CONFIG_MAPS, config_map("a"))
        assert taken["reason"] == "AlreadyExists"
        for name in ("A", "a_b", "-a", "x" * 254, ""):
            refused = await cluster.refused(422, "POST", CONFIG_MAPS, config_map(name))
            assert refused["details"]["causes"][0]["field"] == "metadata.name"

    run(test)


@pytest.mark.parametrize(
    ("word", "key", "value"),
    [
        ("labels", "a b", "x"),
        ("labels", "a", "x y"),
        ("labels", "a", "x" * 64),
        ("labels", "n" * 64, "x"),
        ("labels", "-/x", "x"),
        ("labels", "a", 5),
        ("annotations", "a b", "x"),
        ("annotations", "a", "x" * 300_000),
    ],
)
def test_labels_and_annotations_are_checked(word: str, key: str, value: Any) -> None:
    async def test(cluster: Cluster) -> None:
        obj = config_map()
        obj["metadata"][word] = {key: value}
        refused = await cluster.refused(422, "POST", CONFIG_MAPS, obj)
        assert refused["details"]["causes"][0]["field"].startswith(f"metadata.{word}")

    run(test)


def test_a_write_that_changes_nothing_stores_nothing() -> None:
    async def test(cluster: Cluster) -> None:
        made = await cluster.ok("POST", CONFIG_MAPS, config_map("a", x="1"))
        version = cluster.server.store.version
        assert await cluster.ok("PUT", f"{CONFIG_MAPS}/a", made) == made
        assert await cluster.ok("PATCH", f"{CONFIG_MAPS}/a", {"data": {"x": "1"}}, content_type=MERGE) == made
        assert cluster.server.store.version == version

    run(test)


def test_one_and_true_are_different() -> None:
    async def test(cluster: Cluster) -> None:
        await cluster.ok("POST", CONFIG_MAPS, {**config_map("a"), "odd": 1})
        changed = await cluster.ok("PATCH", f"{CONFIG_MAPS}/a", {"odd": True}, content_type=MERGE)
        assert changed["odd"] is True

    run(test)


def test_stale_versions_and_other_uids_conflict() -> None:
    async def test(cluster: Cluster) -> None:
        old = await cluster.ok("POST", CONFIG_MAPS, config_map("a", x="1"))
        await cluster.ok("PATCH", f"{CONFIG_MAPS}/a", {"data": {"x": "2"}}, content_type=MERGE)
        stale = await cluster.refused(409, "PUT", f"{CONFIG_MAPS}/a", old)
        assert "please apply your changes to the latest version" in stale["message"]
        body = {"metadata": {"resourceVersion": old["metadata"]["resourceVersion"]}}
        await cluster.refused(409, "PATCH", f"{CONFIG_MAPS}/a", body, content_type=MERGE)
        await cluster.refused(422, "PATCH", f"{CONFIG_MAPS}/a", {"metadata": {"uid": "other"}}, content_type=MERGE)
        await cluster.refused(404, "PATCH", f"{CONFIG_MAPS}/none", {}, content_type=MERGE)
        await cluster.refused(404, "PUT", f"{CONFIG_MAPS}/none", config_map("none"))

    run(test)


def test_an_update_cannot_change_what_is_the_servers() -> None:
    async def test(cluster: Cluster) -> None:
        made = await cluster.ok("POST", CONFIG_MAPS, config_map("a"))
        wanted = {"creationTimestamp": None, "generation": 9, "deletionTimestamp": "2026-01-01T00:00:00Z"}
        same = await cluster.ok("PATCH", f"{CONFIG_MAPS}/a", {"metadata": wanted}, content_type=MERGE)
        assert same == made
        for change in ({"metadata": {"name": "b"}}, {"metadata": {"namespace": "x"}}, {"kind": "Secret"}):
            await cluster.refused(400, "PATCH", f"{CONFIG_MAPS}/a", change, content_type=MERGE)

    run(test)


def test_status_and_spec_are_kept_apart() -> None:
    async def test(cluster: Cluster) -> None:
        made = await cluster.ok("POST", THINGS, {**thing(), "status": {"early": True}})
        assert "status" not in made
        assert made["metadata"]["generation"] == 1
        body = {"status": {"x": 1}, "spec": {"a": "y"}, "metadata": {"labels": {"l": "m"}}}
        after = await cluster.ok("PATCH", f"{THINGS}/t/status", body, content_type=MERGE)
        assert (after["status"], after["spec"]["a"], after["metadata"].get("labels")) == ({"x": 1}, "x", None)
        assert after["metadata"]["generation"] == 1
        body["status"] = {"x": 2}
        after = await cluster.ok("PATCH", f"{THINGS}/t", body, content_type=MERGE)
        assert (after["status"], after["spec"]["a"], after["metadata"]["labels"]) == ({"x": 1}, "y", {"l": "m"})
        assert after["metadata"]["generation"] == 2
        after = await cluster.ok("PATCH", f"{THINGS}/t", {"metadata": {"labels": None}}, content_type=MERGE)
        assert after["metadata"]["generation"] == 2

    run(test, crds=[thing_crd()])


def test_a_node_brings_its_status_along() -> None:
    async def test(cluster: Cluster) -> None:
        made = await cluster.ok("POST", NODES, {**node(), "status": {"capacity": {"cpu": "4"}}})
        assert made["status"]["capacity"] == {"cpu": "4"}

    run(test)


def test_json_patches_apply_to_the_live_object() -> None:
    async def test(cluster: Cluster) -> None:
        await cluster.ok("POST", CONFIG_MAPS, config_map("a", x="1"))
        ops = [{"op": "test", "path": "/data/x", "value": "1"}, {"op": "add", "path": "/data/y", "value": "2"}]
        after = await cluster.ok("PATCH", f"{CONFIG_MAPS}/a", ops, content_type=JSON_PATCH)
        assert after["data"] == {"x": "1", "y": "2"}
        ops[0]["value"] = "9"
        await cluster.refused(422, "PATCH", f"{CONFIG_MAPS}/a", ops, content_type=JSON_PATCH)
        await cluster.refused(
            415, "PATCH", f"{CONFIG_MAPS}/a", {}, content_type="application/strategic-merge-patch+json"
        )

    run(test)


def test_dry_runs_answer_and_store_nothing() -> None:
    async def test(cluster: Cluster) -> None:
        made = await cluster.ok("POST", f"{CONFIG_MAPS}?dryRun=All", config_map("a"))
        assert made["metadata"]["uid"]
        await cluster.refused(404, "GET", f"{CONFIG_MAPS}/a")
        await cluster.ok("POST", CONFIG_MAPS, config_map("a", x="1"))
        version = cluster.server.store.version
        after = await cluster.ok("PATCH", f"{CONFIG_MAPS}/a?dryRun=All", {"data": {"x": "2"}}, content_type=MERGE)
        assert after["data"]["x"] == "2"
        await cluster.ok("DELETE", f"{CONFIG_MAPS}/a?dryRun=All")
        assert (await cluster.ok("GET", f"{CONFIG_MAPS}/a"))["data"]["x"] == "1"
        assert cluster.server.store.version == version

    run(test)


def test_deletes_check_their_preconditions() -> None:
    async def test(cluster: Cluster) -> None:
        made = await cluster.ok("POST", CONFIG_MAPS, config_map("a"))
        for wrong in ({"uid": "other"}, {"resourceVersion": "1"}):
            await cluster.refused(409, "DELETE", f"{CONFIG_MAPS}/a", {"preconditions": wrong})
        gone = await cluster.ok("DELETE", f"{CONFIG_MAPS}/a", {"preconditions": {"uid": made["metadata"]["uid"]}})
        assert (gone["status"], gone["details"]["uid"]) == ("Success", made["metadata"]["uid"])
        await cluster.refused(404, "DELETE", f"{CONFIG_MAPS}/a")

    run(test)


def test_finalizers_hold_an_object_until_the_last_is_gone() -> None:
    async def test(cluster: Cluster) -> None:
        obj = config_map("a")
        obj["metadata"]["finalizers"] = ["example.com/one", "example.com/two"]
        await cluster.ok("POST", CONFIG_MAPS, obj)
        marked = await cluster.ok("DELETE", f"{CONFIG_MAPS}/a")
        assert (marked["kind"], marked["metadata"]["deletionGracePeriodSeconds"]) == ("ConfigMap", 0)
        again = await cluster.ok("DELETE", f"{CONFIG_MAPS}/a")
        assert again == marked
        more = {"metadata": {"finalizers": ["example.com/one", "example.com/two", "example.com/three"]}}
        refused = await cluster.refused(422, "PATCH", f"{CONFIG_MAPS}/a", more, content_type=MERGE)
        assert "no new finalizers" in refused["message"]
        one = {"metadata": {"finalizers": ["example.com/two"], "deletionTimestamp": None}}
        still = await cluster.ok("PATCH", f"{CONFIG_MAPS}/a", one, content_type=MERGE)
        assert still["metadata"]["deletionTimestamp"]
        await cluster.ok("PATCH", f"{CONFIG_MAPS}/a", {"metadata": {"finalizers": None}}, content_type=MERGE)
        await cluster.refused(404, "GET", f"{CONFIG_MAPS}/a")

    run(test)


def test_a_pod_on_a_node_waits_for_its_kubelet() -> None:
    async def test(cluster: Cluster) -> None:
        await cluster.ok("POST", PODS, pod("free"))
        await cluster.ok("DELETE", f"{PODS}/free")
        await cluster.refused(404, "GET", f"{PODS}/free")
        await cluster.ok("POST", PODS, pod("bound", nodeName="n"))
        marked = await cluster.ok("DELETE", f"{PODS}/bound")
        assert marked["metadata"]["deletionGracePeriodSeconds"] == 30
        assert marked["metadata"]["deletionTimestamp"] == "2026-01-01T00:00:30Z"
        await cluster.ok("PATCH", f"{PODS}/bound/status", {"status": {"phase": "Failed"}}, content_type=MERGE)
        await cluster.ok("DELETE", f"{PODS}/bound", {"gracePeriodSeconds": 0})
        await cluster.refused(404, "GET", f"{PODS}/bound")

    run(test)


def test_binding_gives_a_pod_its_node_once() -> None:
    async def test(cluster: Cluster) -> None:
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": {"name": "n"}}
        await cluster.ok("POST", PODS, pod("p"))
        await cluster.ok("POST", f"{PODS}/p/binding", binding)
        bound = await cluster.ok("GET", f"{PODS}/p")
        assert bound["spec"]["nodeName"] == "n"
        assert [c["type"] for c in bound["status"]["conditions"]] == ["PodScheduled"]
        await cluster.refused(409, "POST", f"{PODS}/p/binding", binding)
        await cluster.ok("POST", PODS, pod("gated", schedulingGates=[{"name": "g"}]))
        await cluster.refused(409, "POST", f"{PODS}/gated/binding", binding)
        await cluster.refused(400, "POST", f"{PODS}/gated/binding", {**binding, "target": {}})

    run(test)


def test_secrets_fold_their_text() -> None:
    async def test(cluster: Cluster) -> None:
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"a": "b"}}
        made = await cluster.ok("POST", "/api/v1/namespaces/default/secrets", secret)
        assert (made["data"], made["type"], "stringData" in made) == ({"a": "Yg=="}, "Opaque", False)

    run(test)


def test_creating_in_a_missing_or_ending_namespace_is_refused() -> None:
    async def test(cluster: Cluster) -> None:
        await cluster.refused(404, "POST", "/api/v1/namespaces/none/configmaps", config_map())
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "end"}}
        await cluster.ok("POST", "/api/v1/namespaces", space)
        held = config_map("held")
        held["metadata"]["finalizers"] = ["example.com/hold"]
        await cluster.ok("POST", "/api/v1/namespaces/end/configmaps", held)
        await cluster.ok("DELETE", "/api/v1/namespaces/end")
        refused = await cluster.refused(403, "POST", "/api/v1/namespaces/end/configmaps", config_map())
        assert refused["details"]["causes"][0]["reason"] == "NamespaceTerminating"

    run(test)


def test_nulls_and_wrong_types_in_metadata_are_answers_not_faults() -> None:
    async def test(cluster: Cluster) -> None:
        for meta in (
            {"name": "a", "labels": None, "annotations": None, "ownerReferences": None, "finalizers": None},
            {"name": "b", "labels": "x"},
            {"name": "c", "ownerReferences": [{"name": "x"}]},
            {"name": "d", "finalizers": [5]},
            {"name": 5},
            {"name": "e", "ownerReferences": "x"},
            {"name": "f", "finalizers": {"a": 1}},
        ):
            answer = await cluster.ask("POST", CONFIG_MAPS, {**config_map(), "metadata": meta})
            assert answer.code in (201, 400, 422), answer.body

    run(test)
