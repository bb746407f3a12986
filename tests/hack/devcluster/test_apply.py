"""Server-side apply, as far as it goes."""

from __future__ import annotations

from typing import Any

import pytest

from hack.devcluster import apply
from tests.hack.devcluster.cluster import APPLY, CONFIG_MAPS, MERGE, THINGS, Cluster, config_map, run, thing_crd


def configured(labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    meta: dict[str, Any] = {"name": "t", **({"labels": labels} if labels else {})}
    return {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": meta, "spec": {"a": "x", **spec}}


async def applied(cluster: Cluster, body: Any, manager: str = "one", *, force: bool = True, path: str = "") -> Any:
    query = f"?fieldManager={manager}" + ("&force=true" if force else "")
    return await cluster.ok("PATCH", f"{THINGS}/t{path}{query}", body, content_type=APPLY)


def managers(obj: dict[str, Any]) -> dict[str, Any]:
    return {entry["manager"]: entry["fieldsV1"] for entry in obj["metadata"]["managedFields"]}


def test_apply_creates_with_201_and_records_its_manager() -> None:
    async def test(cluster: Cluster) -> None:
        answer = await cluster.ask("PATCH", f"{THINGS}/t?fieldManager=one", configured({"l": "m"}), content_type=APPLY)
        assert answer.code == 201
        assert managers(answer.json) == {"one": {"f:metadata": {"f:labels": {"f:l": {}}}, "f:spec": {"f:a": {}}}}
        assert answer.json["spec"] == {"a": "x", "b": 3}

    run(test, crds=[thing_crd()])


def test_applying_the_same_again_writes_nothing() -> None:
    async def test(cluster: Cluster) -> None:
        first = await applied(cluster, configured())
        await cluster.clock.advance(60)
        assert await applied(cluster, configured()) == first

    run(test, crds=[thing_crd()])


def test_what_is_no_longer_applied_goes_unless_another_applies_it() -> None:
    async def test(cluster: Cluster) -> None:
        await applied(cluster, configured({"mine": "1", "both": "2"}, b=5))
        await applied(cluster, {**configured({"both": "2"}), "spec": {}}, "two")
        after = await applied(cluster, configured())
        assert after["metadata"]["labels"] == {"both": "2"}
        assert after["spec"] == {"a": "x", "b": 3}

    run(test, crds=[thing_crd()])


def test_force_takes_over_and_without_it_owners_conflict() -> None:
    async def test(cluster: Cluster) -> None:
        await applied(cluster, configured())
        target = f"{THINGS}/t?fieldManager=two"
        refused = await cluster.refused(409, "PATCH", target, configured(a="y"), content_type=APPLY)
        (cause,) = refused["details"]["causes"]
        assert (cause["reason"], cause["field"], cause["message"]) == (
            "FieldManagerConflict",
            ".spec.a",
            'conflict with "one"',
        )
        after = await applied(cluster, configured(a="y"), "two")
        assert after["spec"]["a"] == "y"
        assert list(managers(after)) == ["two"]

    run(test, crds=[thing_crd()])


def test_an_unforced_apply_over_plain_writes_is_501() -> None:
    async def test(cluster: Cluster) -> None:
        await cluster.ok("POST", CONFIG_MAPS, config_map("a", x="1"))
        body = config_map("a", x="2")
        await cluster.refused(501, "PATCH", f"{CONFIG_MAPS}/a?fieldManager=one", body, content_type=APPLY)
        forced = await cluster.ok("PATCH", f"{CONFIG_MAPS}/a?fieldManager=one&force=1", body, content_type=APPLY)
        assert forced["data"] == {"x": "2"}

    run(test)


def test_a_plain_write_takes_a_field_away_from_its_applier() -> None:
    async def test(cluster: Cluster) -> None:
        await applied(cluster, configured(b=5))
        edited = await cluster.ok("PATCH", f"{THINGS}/t", {"spec": {"b": 6}}, content_type=MERGE)
        assert managers(edited) == {"one": {"f:spec": {"f:a": {}}}}
        after = await applied(cluster, configured())
        assert after["spec"]["b"] == 6

    run(test, crds=[thing_crd()])


def test_keyed_lists_merge_by_key() -> None:
    async def test(cluster: Cluster) -> None:
        await applied(cluster, configured(ports=[{"name": "p", "port": 1}]))
        both = await applied(cluster, {**configured(), "spec": {"ports": [{"name": "q", "port": 2}]}}, "two")
        assert both["spec"]["ports"] == [{"name": "p", "port": 1}, {"name": "q", "port": 2}]
        after = await applied(cluster, configured())
        assert after["spec"]["ports"] == [{"name": "q", "port": 2}]

    run(test, crds=[thing_crd()])


def test_conditions_of_two_managers_stand_side_by_side() -> None:
    async def test(cluster: Cluster) -> None:
        await applied(cluster, configured())
        head = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t"}}
        for manager in ("one", "two"):
            body = {**head, "status": {"conditions": [{"type": manager, "status": "True"}]}}
            after = await applied(cluster, body, manager, path="/status")
        assert [c["type"] for c in after["status"]["conditions"]] == ["one", "two"]
        assert after["spec"]["a"] == "x"

    run(test, crds=[thing_crd()])


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"apiVersion": "v1", "kind": "Thing", "metadata": {"name": "t"}}, 400),
        ({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "other"}}, 400),
        ({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t", "uid": "x"}}, 409),
        ({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"managedFields": [{}]}}, 400),
    ],
)
def test_applies_that_do_not_fit(body: Any, code: int) -> None:
    async def test(cluster: Cluster) -> None:
        await cluster.refused(code, "PATCH", f"{THINGS}/t?fieldManager=one&force=1", body, content_type=APPLY)

    run(test, crds=[thing_crd()])


def test_field_paths_survive_their_document() -> None:
    value = {
        "spec": {"a": 1, "l": [1, 2], "e": {}, "ports": [{"name": "p", "port": 1}]},
        "metadata": {"finalizers": ["x/y"]},
    }
    paths = set(apply.leaves(value, {"spec.ports": ("name",)}))
    assert set(apply.from_fields_v1(apply.to_fields_v1(sorted(paths)))) == paths
    assert {apply.dotted_path(path) for path in paths} == {
        ".spec.a",
        ".spec.l",
        ".spec.e",
        '.spec.ports[{"name":"p"}].name',
        '.spec.ports[{"name":"p"}].port',
        '.metadata.finalizers["x/y"]',
    }
