"""CRDs: served at once, refused when they ask for more than the devcluster does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from api.crds import crd_manifests
from hack.devcluster.foreign_crds import FOREIGN, foreign_manifests
from hack.devcluster.store import Store
from tests.hack.devcluster.cluster import CRDS, MERGE, THINGS, Cluster, run, thing, thing_crd

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


def test_a_crd_is_served_as_soon_as_it_is_stored() -> None:
    async def test(cluster: Cluster) -> None:
        await cluster.refused(404, "GET", THINGS)
        made = await cluster.ok("POST", CRDS, thing_crd())
        assert {c["type"]: c["status"] for c in made["status"]["conditions"]} == {
            "NamesAccepted": "True",
            "Established": "True",
        }
        assert made["spec"]["names"] | {"singular": "thing", "listKind": "ThingList"} == made["spec"]["names"]
        assert (await cluster.ok("GET", THINGS))["kind"] == "ThingList"
        assert (await cluster.ok("POST", THINGS, thing()))["spec"] == {"a": "x", "b": 3}
        resources = await cluster.ok("GET", "/apis/example.com/v1")
        assert [entry["name"] for entry in resources["resources"]] == ["things", "things/status"]

    run(test)


def test_objects_are_validated_with_every_error() -> None:
    async def test(cluster: Cluster) -> None:
        refused = await cluster.refused(422, "POST", THINGS, thing(a="z", b=99))
        assert [cause["field"] for cause in refused["details"]["causes"]] == ["spec.a", "spec.b"]
        await cluster.ok("POST", THINGS, thing())
        await cluster.refused(422, "PATCH", f"{THINGS}/t", {"spec": {"a": None}}, content_type=MERGE)

    run(test, crds=[thing_crd()])


@pytest.mark.parametrize(("validation", "code"), [("", 201), ("Warn", 201), ("Ignore", 201), ("Strict", 400)])
def test_unknown_fields_are_pruned_told_or_refused(validation: str, code: int) -> None:
    async def test(cluster: Cluster) -> None:
        query = f"?fieldValidation={validation}" if validation else ""
        answer = await cluster.ask("POST", f"{THINGS}{query}", thing(zzz=1))
        assert answer.code == code
        if code == 201:
            assert "zzz" not in answer.json["spec"]
            warned = "" if validation == "Ignore" else '299 - "unknown field \\"spec.zzz\\""'
            assert answer.headers.get("warning", "") == warned
        else:
            assert "spec.zzz" in answer.json["message"]

    run(test, crds=[thing_crd()])


def test_printer_columns_make_the_table() -> None:
    columns = [
        {"name": "A", "type": "string", "jsonPath": ".spec.a"},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp", "priority": 1},
    ]

    async def test(cluster: Cluster) -> None:
        await cluster.ok("POST", THINGS, thing())
        table = await cluster.ok("GET", THINGS, accept=TABLE)
        assert [(c["name"], c["priority"]) for c in table["columnDefinitions"]] == [("Name", 0), ("A", 0), ("Age", 1)]
        assert table["rows"][0]["cells"] == ["t", "x", "0s"]

    run(test, crds=[thing_crd(additionalPrinterColumns=columns)])


def changed(**spec: Any) -> dict[str, Any]:
    crd = thing_crd()
    return {**crd, "spec": {**crd["spec"], **spec}}


VERSION = thing_crd()["spec"]["versions"][0]
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("two served versions", changed(versions=[VERSION, {**VERSION, "name": "v2"}]), "spec.versions"),
    ("no version", changed(versions=[]), "spec.versions"),
    ("conversion webhook", changed(conversion={"strategy": "Webhook"}), "spec.conversion.strategy"),
    ("unknown scope", changed(scope="Galaxy"), "spec.scope"),
    ("other name", {**thing_crd(), "metadata": {"name": "x.example.com"}}, "metadata.name"),
    ("no names", changed(names={}), "spec.names.plural"),
    ("no schema", changed(versions=[{**VERSION, "schema": {}}]), "spec.versions[0].schema.openAPIV3Schema"),
    ("CEL", thing_crd({"type": "object", "x-kubernetes-validations": []}), "spec.versions[0]"),
    ("scale", thing_crd(subresources={"scale": {}}), "spec.versions[0].subresources.scale"),
    (
        "column path",
        thing_crd(additionalPrinterColumns=[{"name": "X", "type": "string", "jsonPath": ".a["}]),
        "spec.versions[0]",
    ),
]


@pytest.mark.parametrize("row", REFUSED, ids=lambda row: row[0])
def test_crds_that_are_refused(row: tuple[str, dict[str, Any], str]) -> None:
    async def test(cluster: Cluster) -> None:
        refused = await cluster.refused(422, "POST", CRDS, row[1])
        assert row[2] in [cause["field"] for cause in refused["details"]["causes"]]

    run(test)


def test_an_update_changes_what_is_served() -> None:
    async def test(cluster: Cluster) -> None:
        await cluster.ok("POST", THINGS, thing())
        wider = thing_crd({"type": "object", "x-kubernetes-preserve-unknown-fields": True})
        body = {"spec": {"versions": wider["spec"]["versions"]}}
        await cluster.ok("PATCH", f"{CRDS}/things.example.com", body, content_type=MERGE)
        assert (await cluster.ok("POST", THINGS, thing("u", a="zzz")))["spec"] == {"a": "zzz"}
        assert len((await cluster.ok("GET", THINGS))["items"]) == 2

    run(test, crds=[thing_crd()])


def test_fields_that_become_selectable_select_what_is_there() -> None:
    async def test(cluster: Cluster) -> None:
        await cluster.ok("POST", THINGS, thing("x"))
        await cluster.ok("POST", THINGS, thing("y", a="y"))
        target = f"{THINGS}?fieldSelector=spec.a%3Dy"
        await cluster.refused(400, "GET", target)
        wider = thing_crd(selectableFields=[{"jsonPath": ".spec.a"}])
        body = {"spec": {"versions": wider["spec"]["versions"]}}
        await cluster.ok("PATCH", f"{CRDS}/things.example.com", body, content_type=MERGE)
        assert [item["metadata"]["name"] for item in (await cluster.ok("GET", target))["items"]] == ["y"]

    run(test, crds=[thing_crd()])


def test_deleting_a_crd_deletes_its_objects_first() -> None:
    async def test(cluster: Cluster) -> None:
        held = thing()
        held["metadata"]["finalizers"] = ["example.com/hold"]
        await cluster.ok("POST", THINGS, held)
        await cluster.ok("POST", THINGS, thing("free"))
        await cluster.ok("DELETE", f"{CRDS}/things.example.com")
        await cluster.settle()
        left = await cluster.ok("GET", THINGS)
        assert [item["metadata"]["name"] for item in left["items"]] == ["t"]
        await cluster.ok("PATCH", f"{THINGS}/t", {"metadata": {"finalizers": None}}, content_type=MERGE)
        await cluster.settle()
        await cluster.refused(404, "GET", f"{CRDS}/things.example.com")
        await cluster.refused(404, "GET", THINGS)
        await cluster.ok("POST", CRDS, thing_crd())
        assert (await cluster.ok("GET", THINGS))["items"] == []

    run(test, crds=[thing_crd()])


def test_crds_and_their_objects_survive_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"

    async def before(cluster: Cluster) -> None:
        await cluster.ok("POST", THINGS, thing())

    async def after(cluster: Cluster) -> None:
        assert [item["spec"]["b"] for item in (await cluster.ok("GET", THINGS))["items"]] == [3]
        await cluster.refused(422, "POST", THINGS, thing("u", a="z"))

    for test, crds in ((before, [thing_crd()]), (after, [])):
        store = Store(path)
        run(test, store=store, crds=crds)
        store.close()


def test_installing_again_writes_nothing() -> None:
    store = Store()
    manifests = [*foreign_manifests(), *crd_manifests()]

    async def nothing(cluster: Cluster) -> None:
        versions.append(cluster.server.store.version)

    versions: list[int] = []
    run(nothing, store=store, crds=manifests)
    run(nothing, store=store, crds=manifests)
    assert versions[0] == versions[1]
    store.close()


def test_foreign_kinds_keep_any_spec() -> None:
    async def test(cluster: Cluster) -> None:
        for foreign in FOREIGN:
            kind = foreign.kind
            scope = "/namespaces/default" if kind.namespaced else ""
            base = f"/apis/{kind.api_version}{scope}/{kind.plural}"
            obj = {
                "apiVersion": kind.api_version,
                "kind": kind.kind,
                "metadata": {"name": "x"},
                "spec": {"a": [{"b": 1}]},
            }
            assert (await cluster.ok("POST", base, obj))["spec"] == obj["spec"]
            body = {"status": {"conditions": [{"type": "A"}], "more": {"x": 1}}}
            answer = await cluster.ask("PATCH", f"{base}/x/status", body, content_type=MERGE)
            assert answer.code == (200 if foreign.status else 404)
            if foreign.status:
                assert answer.json["status"] == body["status"]

    run(test, crds=foreign_manifests())
