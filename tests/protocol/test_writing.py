"""Creates and updates: who sets what, conflicts, status isolation, generation, dry run."""

from __future__ import annotations

import re

import pytest

from nodefeature.fields import as_maps, at
from nodefeature.kinds import CONFIG_MAP, INSTANCE
from tests.protocol.samples import Shelf, change, status
from tests.protocol.wire import Server, version_of

UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


def test_the_server_names_a_new_object(shelf: Shelf) -> None:
    answer = shelf.server.ask(
        "POST", shelf.path, shelf.object("a", uid="mine", creationTimestamp="2001-01-01T00:00:00Z")
    )
    assert answer.code == 201
    meta = answer.json["metadata"]
    assert UUID.fullmatch(meta["uid"])
    assert TIME.fullmatch(meta["creationTimestamp"])
    assert not meta["creationTimestamp"].startswith("2001")
    assert int(meta["resourceVersion"]) > 0


def test_only_kinds_with_a_status_have_a_generation(shelf: Shelf) -> None:
    created = shelf.create("a")
    assert created["metadata"].get("generation") == (None if shelf.kind == CONFIG_MAP else 1)


def test_a_name_is_taken_once(shelf: Shelf) -> None:
    shelf.create("a")
    answer = shelf.server.ask("POST", shelf.path, shelf.object("a"))
    assert (answer.code, answer.reason) == (409, "AlreadyExists")
    assert answer.json["details"]["name"] == shelf.name("a")


def test_a_name_is_generated(shelf: Shelf) -> None:
    body = shelf.object("a")
    body["metadata"] |= {"generateName": shelf.name("made-")}
    del body["metadata"]["name"]
    first, second = (shelf.server.ok("POST", shelf.path, body) for _ in range(2))
    names = [obj["metadata"]["name"] for obj in (first, second)]
    assert len(set(names)) == 2
    for name in names:
        assert re.fullmatch(re.escape(shelf.name("made-")) + "[bcdfghjklmnpqrstvwxz2456789]{5}", name)


def test_a_nameless_object_is_invalid(shelf: Shelf) -> None:
    body = shelf.object("a")
    del body["metadata"]["name"]
    answer = shelf.server.ask("POST", shelf.path, body)
    assert (answer.code, answer.reason) == (422, "Invalid")
    assert answer.causes["metadata.name"] == "FieldValueRequired"


@pytest.mark.parametrize("name", ["Upper", "under_score", "-dash", "a" * 254])
def test_a_bad_name_is_invalid(shelf: Shelf, name: str) -> None:
    body = shelf.object("a")
    body["metadata"]["name"] = name
    answer = shelf.server.ask("POST", shelf.path, body)
    assert (answer.code, answer.reason) == (422, "Invalid")
    assert answer.causes == {"metadata.name": "FieldValueInvalid"}


@pytest.mark.parametrize(
    ("labels", "field"),
    [
        ({"a": "not ok"}, "metadata.labels"),
        ({"a/b/c": "x"}, "metadata.labels"),
        ({"a" * 64: "x"}, "metadata.labels"),
        ({"a": "x" * 64}, "metadata.labels"),
    ],
)
def test_bad_labels_are_invalid(shelf: Shelf, labels: dict[str, str], field: str) -> None:
    answer = shelf.server.ask("POST", shelf.path, shelf.object("a", labels=labels))
    assert (answer.code, answer.reason) == (422, "Invalid")
    assert answer.causes == {field: "FieldValueInvalid"}


def test_a_namespace_that_does_not_fit_the_path_is_refused(server: Server, namespace: str) -> None:
    shelf = Shelf(server, INSTANCE, namespace)
    answer = server.ask("POST", shelf.path, shelf.object("a", namespace="elsewhere"))
    assert (answer.code, answer.reason) == (400, "BadRequest")


def test_a_namespace_must_exist(server: Server) -> None:
    shelf = Shelf(server, INSTANCE, "nowhere")
    answer = server.ask("POST", shelf.path, shelf.object("a"))
    assert (answer.code, answer.reason) == (404, "NotFound")
    assert answer.json["details"] == {"name": "nowhere", "kind": "namespaces"}


def test_a_body_of_another_kind_is_refused(shelf: Shelf) -> None:
    body = shelf.object("a") | {"apiVersion": "v1", "kind": "Secret"}
    assert shelf.server.ask("POST", shelf.path, body).code == 400


@pytest.mark.parametrize("body", [b"", b"{", b"[]"], ids=["empty", "broken", "list"])
def test_a_body_that_is_no_object_is_refused(shelf: Shelf, body: bytes) -> None:
    answer = shelf.server.ask("POST", shelf.path, body)
    assert (answer.code, answer.reason) == (400, "BadRequest")


def test_a_null_body(shelf: Shelf) -> None:
    code = shelf.server.ask("POST", shelf.path, b"null").code
    assert code == (shelf.server.answer_of("null-body-of-built-in-kinds") if shelf.kind == CONFIG_MAP else 400)


def test_an_update_replaces(shelf: Shelf) -> None:
    created = shelf.create("a", annotations={"note": "1"})
    del created["metadata"]["annotations"]
    updated = shelf.server.ok("PUT", shelf.at("a"), created)
    assert "annotations" not in updated["metadata"]
    assert int(version_of(updated)) > int(version_of(created))


def test_an_update_that_changes_nothing_writes_nothing(shelf: Shelf) -> None:
    created = shelf.create("a")
    assert version_of(shelf.server.ok("PUT", shelf.at("a"), created)) == version_of(created)
    assert version_of(shelf.server.patch(shelf.at("a"), {})) == version_of(created)


def test_a_stale_update_conflicts(shelf: Shelf) -> None:
    created = shelf.create("a")
    shelf.server.patch(shelf.at("a"), change(shelf.kind, "b"))
    answer = shelf.server.ask("PUT", shelf.at("a"), created)
    assert (answer.code, answer.reason) == (409, "Conflict")


def test_an_update_without_version(shelf: Shelf) -> None:
    created = shelf.create("a")
    del created["metadata"]["resourceVersion"]
    created["metadata"]["annotations"] = {"note": "1"}
    answer = shelf.server.ask("PUT", shelf.at("a"), created)
    assert answer.code == (200 if shelf.kind == CONFIG_MAP else 422)


def test_an_update_of_another_uid_conflicts(shelf: Shelf) -> None:
    created = shelf.create("a")
    created["metadata"]["uid"] = "00000000-0000-0000-0000-000000000000"
    answer = shelf.server.ask("PUT", shelf.at("a"), created)
    assert (answer.code, answer.reason) == (409, "Conflict")


def test_an_update_creates_nothing(shelf: Shelf) -> None:
    answer = shelf.server.ask("PUT", shelf.at("a"), shelf.object("a"))
    assert (answer.code, answer.reason) == (404, "NotFound")


def test_an_update_keeps_what_the_server_set(shelf: Shelf) -> None:
    created = shelf.create("a")
    body = {
        **created,
        "metadata": {**created["metadata"], "creationTimestamp": "2001-01-01T00:00:00Z", "generation": 9},
    }
    updated = shelf.server.ok("PUT", shelf.at("a"), body)
    for key in ("uid", "creationTimestamp", "generation"):
        assert updated["metadata"].get(key) == created["metadata"].get(key)


def test_a_create_brings_no_status(our_shelf: Shelf) -> None:
    body = our_shelf.object("a") | {"status": status(our_shelf.kind)}
    assert "status" not in our_shelf.server.ok("POST", our_shelf.path, body)


def test_status_and_the_rest_are_written_apart(our_shelf: Shelf) -> None:
    server = our_shelf.server
    our_shelf.create("a")
    both = {"spec": {"displayName": "new"}, "status": status(our_shelf.kind), "metadata": {"labels": {"b": "c"}}}
    after_spec = server.patch(our_shelf.at("a"), both)
    assert after_spec["spec"]["displayName"] == "new"
    assert "status" not in after_spec
    assert after_spec["metadata"]["generation"] == 2
    both["spec"] = {"displayName": "newer"}
    both["metadata"] = {"labels": {"b": "d"}, "annotations": {"note": "1"}}
    after_status = server.patch(our_shelf.at("a", "status"), both)
    assert after_status["status"] == status(our_shelf.kind)
    assert after_status["spec"]["displayName"] == "new"
    assert after_status["metadata"]["generation"] == 2
    assert after_status["metadata"]["labels"]["b"] == "c"


def test_a_stale_status_conflicts(our_shelf: Shelf) -> None:
    created = our_shelf.create("a")
    our_shelf.server.patch(our_shelf.at("a"), change(our_shelf.kind, "b"))
    created["status"] = status(our_shelf.kind)
    answer = our_shelf.server.ask("PUT", our_shelf.at("a", "status"), created)
    assert (answer.code, answer.reason) == (409, "Conflict")


def test_labels_do_not_raise_the_generation(our_shelf: Shelf) -> None:
    our_shelf.create("a")
    labelled = our_shelf.server.patch(our_shelf.at("a"), {"metadata": {"labels": {"a": "b"}}})
    assert labelled["metadata"]["generation"] == 1


def test_a_dry_run_answers_and_stores_nothing(shelf: Shelf) -> None:
    server = shelf.server
    tried = server.ok("POST", shelf.path, shelf.object("a"), dryRun="All")
    assert tried["metadata"]["uid"]
    assert server.ask("GET", shelf.at("a")).code == 404
    created = shelf.create("a")
    server.patch(shelf.at("a"), change(shelf.kind, "b"), dryRun="All")
    server.ok("DELETE", shelf.at("a"), dryRun="All")
    assert server.ok("GET", shelf.at("a")) == created


def test_an_unknown_dry_run_is_refused(shelf: Shelf) -> None:
    answer = shelf.server.ask("POST", shelf.path, shelf.object("a"), dryRun="Some")
    assert (answer.code, answer.reason) == (422, "Invalid")


def test_a_field_manager_is_recorded(shelf: Shelf) -> None:
    created = shelf.server.ok("POST", shelf.path, shelf.object("a"), fieldManager="tester")
    managers = [entry.get("manager") for entry in as_maps(at(created, "metadata", "managedFields"))]
    assert managers == shelf.server.answer_of("managers-of-a-create")


def test_an_overlong_field_manager_is_refused(shelf: Shelf) -> None:
    answer = shelf.server.ask("POST", shelf.path, shelf.object("a"), fieldManager="x" * 129)
    assert (answer.code, answer.reason) == (422, "Invalid")
