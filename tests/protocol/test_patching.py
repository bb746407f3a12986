"""Merge patches, JSON patches, server-side apply."""

from __future__ import annotations

import pytest

from nodefeature.fields import as_maps, at
from nodefeature.kinds import CONFIG_MAP, INSTANCE, INSTANCE_TYPE
from tests.protocol.samples import Shelf, change, type_status
from tests.protocol.wire import APPLY, JSON_PATCH, MERGE, Object, Server, version_of


def test_a_merge_patch_sets_and_removes(shelf: Shelf) -> None:
    shelf.create("a", annotations={"keep": "1", "drop": "1"})
    patched = shelf.server.patch(shelf.at("a"), {"metadata": {"annotations": {"drop": None, "new": "1"}}})
    assert patched["metadata"]["annotations"] == {"keep": "1", "new": "1"}


def test_a_version_in_a_merge_patch_is_a_precondition(shelf: Shelf) -> None:
    created = shelf.create("a")
    meta = {"resourceVersion": version_of(created), "annotations": {"note": "1"}}
    shelf.server.patch(shelf.at("a"), {"metadata": meta})
    meta = {"resourceVersion": version_of(created), "annotations": {"note": "2"}}
    answer = shelf.server.ask("PATCH", shelf.at("a"), {"metadata": meta}, type_=MERGE)
    assert (answer.code, answer.reason) == (409, "Conflict")


def test_a_merge_patch_may_not_change_the_uid(shelf: Shelf) -> None:
    shelf.create("a")
    patch = {"metadata": {"uid": "00000000-0000-0000-0000-000000000000", "annotations": {"note": "1"}}}
    answer = shelf.server.ask("PATCH", shelf.at("a"), patch, type_=MERGE)
    assert (answer.code, answer.reason) == (422, "Invalid")
    assert answer.causes == {"metadata.uid": "FieldValueInvalid"}


def test_a_patch_of_nothing_is_not_found(shelf: Shelf) -> None:
    assert shelf.server.ask("PATCH", shelf.at("none"), {}, type_=MERGE).code == 404


def test_a_patch_that_renames_is_refused(shelf: Shelf) -> None:
    shelf.create("a")
    answer = shelf.server.ask("PATCH", shelf.at("a"), {"metadata": {"name": "other"}}, type_=MERGE)
    assert answer.code == 400


def test_a_json_patch(shelf: Shelf) -> None:
    shelf.create("a", annotations={"drop": "1"})
    operations = [
        {"op": "test", "path": "/metadata/annotations/drop", "value": "1"},
        {"op": "remove", "path": "/metadata/annotations/drop"},
        {"op": "add", "path": "/metadata/annotations/example.com~1new", "value": "1"},
    ]
    patched = shelf.server.patch(shelf.at("a"), operations, type_=JSON_PATCH)
    assert patched["metadata"]["annotations"] == {"example.com/new": "1"}


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/metadata/name", "value": "other"},
        {"op": "remove", "path": "/metadata/annotations/none"},
        {"op": "replace", "path": "/spec/none/deeper", "value": 1},
    ],
    ids=["test fails", "absent path", "absent parent"],
)
def test_a_json_patch_that_does_not_fit_is_invalid(shelf: Shelf, operation: Object) -> None:
    shelf.create("a")
    answer = shelf.server.ask("PATCH", shelf.at("a"), [operation], type_=JSON_PATCH)
    assert (answer.code, answer.reason) == (422, "Invalid")


@pytest.mark.parametrize("patch", [b"{", b'{"op": "add"}', b"[1]"], ids=["broken", "no list", "no operation"])
def test_a_json_patch_that_is_none_is_refused(shelf: Shelf, patch: bytes) -> None:
    shelf.create("a")
    answer = shelf.server.ask("PATCH", shelf.at("a"), patch, type_=JSON_PATCH)
    assert (answer.code, answer.reason) == (400, "BadRequest")


def apply(shelf: Shelf, body: Object, *, manager: str = "one", force: bool = True) -> Object:
    query = {"fieldManager": manager, **({"force": "true"} if force else {})}
    return shelf.server.ok("PATCH", shelf.at("a"), body, type_=APPLY, **query)


def test_an_apply_creates_and_changes(shelf: Shelf) -> None:
    body = shelf.object("a")
    first = shelf.server.ask("PATCH", shelf.at("a"), body, type_=APPLY, fieldManager="one", force="true")
    assert first.code == 201
    body["metadata"]["annotations"] = {"note": "1"}
    assert apply(shelf, body)["metadata"]["annotations"] == {"note": "1"}


def test_an_apply_that_changes_nothing_writes_nothing(shelf: Shelf) -> None:
    body = shelf.object("a")
    assert version_of(apply(shelf, body)) == version_of(apply(shelf, body))


def test_what_is_no_longer_applied_goes(shelf: Shelf) -> None:
    body = shelf.object("a", annotations={"mine": "1", "also": "1"})
    apply(shelf, body)
    shelf.server.patch(shelf.at("a"), {"metadata": {"annotations": {"theirs": "1"}}}, fieldManager="two")
    del body["metadata"]["annotations"]["also"]
    assert apply(shelf, body)["metadata"]["annotations"] == {"mine": "1", "theirs": "1"}


def test_an_apply_over_another_applier_conflicts_until_forced(shelf: Shelf) -> None:
    apply(shelf, shelf.object("a", annotations={"note": "1"}))
    body = {
        "apiVersion": shelf.kind.api_version,
        "kind": shelf.kind.kind,
        "metadata": {"name": shelf.name("a"), "annotations": {"note": "2"}},
    }
    answer = shelf.server.ask("PATCH", shelf.at("a"), body, type_=APPLY, fieldManager="two")
    assert (answer.code, answer.reason) == (409, "Conflict")
    (cause,) = as_maps(at(answer.json, "details", "causes"))
    assert (cause["reason"], cause["field"]) == ("FieldManagerConflict", ".metadata.annotations.note")
    assert 'conflict with "one"' in cause["message"]
    assert apply(shelf, body, manager="two")["metadata"]["annotations"] == {"note": "2"}


def test_an_apply_of_what_another_applied_alike_shares_it(shelf: Shelf) -> None:
    body = shelf.object("a", annotations={"note": "1"})
    apply(shelf, body)
    apply(shelf, body, manager="two", force=False)
    del body["metadata"]["annotations"]
    assert apply(shelf, body)["metadata"]["annotations"] == {"note": "1"}


def test_an_apply_wants_a_manager(shelf: Shelf) -> None:
    answer = shelf.server.ask("PATCH", shelf.at("a"), shelf.object("a"), type_=APPLY)
    assert (answer.code, answer.reason) == (422, "Invalid")


def test_an_apply_of_another_name_is_refused(shelf: Shelf) -> None:
    answer = shelf.server.ask("PATCH", shelf.at("a"), shelf.object("b"), type_=APPLY, fieldManager="one", force="true")
    assert (answer.code, answer.reason) == (400, "BadRequest")


def test_an_apply_brings_no_managed_fields(shelf: Shelf) -> None:
    created = shelf.create("a")
    entry = {"manager": "one", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {}}
    created["metadata"]["managedFields"] = [entry]
    answer = shelf.server.ask("PATCH", shelf.at("a"), created, type_=APPLY, fieldManager="one", force="true")
    assert answer.code == 400


def test_an_applied_status_is_its_own(server: Server, namespace: str) -> None:
    shelf = Shelf(server, INSTANCE_TYPE, namespace)
    apply(shelf, shelf.object("a"))
    body = {
        "apiVersion": INSTANCE_TYPE.api_version,
        "kind": "InstanceType",
        "metadata": {"name": shelf.name("a")},
        "status": type_status(),
    }
    query = {"fieldManager": "state", "force": "true"}
    applied = server.ok("PATCH", shelf.at("a", "status"), body, type_=APPLY, **query)
    assert applied["status"] == type_status()
    assert applied["spec"]["os"] == "linux"
    assert apply(shelf, shelf.object("a"))["status"] == type_status()


def test_a_list_map_is_applied_by_key(server: Server, namespace: str) -> None:
    shelf = Shelf(server, INSTANCE, namespace)
    first = shelf.object("a")
    first["spec"]["env"] = [{"name": "A", "value": "1"}]
    apply(shelf, first)
    second = {**first, "spec": {"env": [{"name": "B", "value": "2"}]}}
    applied = apply(shelf, second, manager="two")
    assert applied["spec"]["env"] == [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]


def test_an_apply_of_an_unknown_field(server: Server, namespace: str) -> None:
    shelf = Shelf(server, INSTANCE, namespace)
    body = shelf.object("a")
    body["spec"]["colour"] = "red"
    answer = server.ask("PATCH", shelf.at("a"), body, type_=APPLY, fieldManager="one", force="true")
    assert answer.code == server.answer_of("apply-of-an-unknown-field")


def test_a_plain_write_owns_fields_too(server: Server, namespace: str) -> None:
    shelf = Shelf(server, CONFIG_MAP, namespace)
    shelf.create("a")
    body = {**shelf.object("a"), **change(CONFIG_MAP, "b")}
    answer = server.ask("PATCH", shelf.at("a"), body, type_=APPLY, fieldManager="two")
    assert answer.code == server.answer_of("apply-over-a-plain-write")
