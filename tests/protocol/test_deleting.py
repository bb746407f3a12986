"""Deletes: preconditions, finalizers, collections, namespaces, garbage."""

from __future__ import annotations

import pytest

from nodefeature.kinds import CONFIG_MAP, INSTANCE
from tests.protocol.samples import Shelf
from tests.protocol.wire import MERGE, Object, Server, names, version_of


def test_a_delete_removes(shelf: Shelf) -> None:
    created = shelf.create("a")
    answer = shelf.server.ask("DELETE", shelf.at("a"))
    assert answer.code == 200
    assert (answer.json["kind"], answer.json["status"]) == ("Status", "Success")
    assert answer.json["details"]["uid"] == created["metadata"]["uid"]
    assert shelf.server.ask("GET", shelf.at("a")).code == 404


def test_a_delete_of_nothing_is_not_found(shelf: Shelf) -> None:
    answer = shelf.server.ask("DELETE", shelf.at("none"))
    assert (answer.code, answer.reason) == (404, "NotFound")


@pytest.mark.parametrize(
    "condition",
    [{"uid": "00000000-0000-0000-0000-000000000000"}, {"resourceVersion": "1"}],
    ids=["uid", "version"],
)
def test_a_precondition_that_does_not_hold_conflicts(shelf: Shelf, condition: Object) -> None:
    shelf.create("a")
    body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": condition}
    answer = shelf.server.ask("DELETE", shelf.at("a"), body)
    assert (answer.code, answer.reason) == (409, "Conflict")


def test_a_precondition_that_holds_deletes(shelf: Shelf) -> None:
    created = shelf.create("a")
    conditions = {"uid": created["metadata"]["uid"], "resourceVersion": version_of(created)}
    body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": conditions}
    assert shelf.server.ask("DELETE", shelf.at("a"), body).code == 200


def test_a_finalizer_holds_an_object(shelf: Shelf) -> None:
    server = shelf.server
    shelf.create("a", finalizers=["example.com/hold"])
    marked = server.ok("DELETE", shelf.at("a"))
    assert marked["metadata"]["deletionTimestamp"]
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 0
    again = server.ok("DELETE", shelf.at("a"))
    assert again["metadata"]["deletionTimestamp"] == marked["metadata"]["deletionTimestamp"]
    answer = server.ask(
        "PATCH", shelf.at("a"), {"metadata": {"finalizers": ["example.com/hold", "b.c/d"]}}, type_=MERGE
    )
    assert (answer.code, answer.reason) == (422, "Invalid")
    last = server.patch(shelf.at("a"), {"metadata": {"finalizers": None}})
    assert last["metadata"]["name"] == shelf.name("a")
    assert server.ask("GET", shelf.at("a")).code == 404


def test_a_deletion_raises_the_generation_of_ours(our_shelf: Shelf) -> None:
    our_shelf.create("a", finalizers=["example.com/hold"])
    marked = our_shelf.server.ok("DELETE", our_shelf.at("a"))
    assert marked["metadata"]["generation"] == 2
    our_shelf.server.patch(our_shelf.at("a"), {"metadata": {"finalizers": None}})


def test_a_bad_finalizer_is_invalid(shelf: Shelf) -> None:
    answer = shelf.server.ask("POST", shelf.path, shelf.object("a", finalizers=["not ok"]))
    assert (answer.code, answer.reason) == (422, "Invalid")


def test_a_collection_is_deleted_by_selector(shelf: Shelf) -> None:
    shelf.create("a", labels={"tier": "front"})
    shelf.create("b")
    deleted = shelf.server.ok("DELETE", shelf.path, labelSelector=f"{shelf.select},tier=front")
    assert deleted["kind"] == f"{shelf.kind.kind}List"
    assert names(shelf.list()) == [shelf.name("b")]


def test_an_unknown_propagation_is_refused(shelf: Shelf) -> None:
    shelf.create("a")
    body = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Sideways"}
    answer = shelf.server.ask("DELETE", shelf.at("a"), body)
    assert (answer.code, answer.reason) == (422, "Invalid")


def owned_by(owner: Object, **more: object) -> Object:
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        **more,
    }


@pytest.fixture
def maps(server: Server, namespace: str) -> Shelf:
    return Shelf(server, CONFIG_MAP, namespace)


@pytest.fixture
def instances(server: Server, namespace: str) -> Shelf:
    return Shelf(server, INSTANCE, namespace)


def test_garbage_is_collected_in_the_background(maps: Shelf, instances: Shelf) -> None:
    owner = instances.create("owner")
    maps.create("owned", ownerReferences=[owned_by(owner)])
    maps.server.ok("DELETE", instances.at("owner"))
    maps.server.until(maps.at("owned"), lambda answer: answer.code == 404)


def test_an_owner_waits_in_the_foreground(maps: Shelf, instances: Shelf) -> None:
    owner = instances.create("owner")
    maps.create("owned", ownerReferences=[owned_by(owner, blockOwnerDeletion=True)], finalizers=["example.com/hold"])
    body = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Foreground"}
    marked = maps.server.ok("DELETE", instances.at("owner"), body)
    assert marked["metadata"]["finalizers"] == ["foregroundDeletion"]
    maps.server.until(maps.at("owned"), lambda answer: "deletionTimestamp" in answer.json["metadata"])
    assert maps.server.ask("GET", instances.at("owner")).code == 200
    maps.server.patch(maps.at("owned"), {"metadata": {"finalizers": None}})
    maps.server.until(instances.at("owner"), lambda answer: answer.code == 404)


def test_orphans_stay(maps: Shelf) -> None:
    # Owner and owned are of one kind: the collector hears of them in this order.
    owner = maps.create("owner")
    maps.create("owned", ownerReferences=[owned_by(owner)])
    body = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Orphan"}
    maps.server.ok("DELETE", maps.at("owner"), body)
    maps.server.until(maps.at("owner"), lambda answer: answer.code == 404)
    kept = maps.server.ok("GET", maps.at("owned"))
    assert not kept["metadata"].get("ownerReferences")


def test_an_object_with_two_owners_outlives_one(maps: Shelf, instances: Shelf) -> None:
    first, second = instances.create("first"), instances.create("second")
    maps.create("owned", ownerReferences=[owned_by(first), owned_by(second)])
    maps.server.ok("DELETE", instances.at("first"))
    left = maps.server.until(maps.at("owned"), lambda answer: len(answer.json["metadata"]["ownerReferences"]) == 1)
    assert left.json["metadata"]["ownerReferences"][0]["uid"] == second["metadata"]["uid"]


def test_a_dangling_owner_takes_its_object_along(maps: Shelf) -> None:
    ghost = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "ghost", "uid": "ghost"}}
    maps.create("owned", ownerReferences=[owned_by(ghost)])
    maps.server.until(maps.at("owned"), lambda answer: answer.code == 404)


def test_a_namespace_takes_everything_along(server: Server, namespace: str, maps: Shelf, instances: Shelf) -> None:
    maps.create("a")
    instances.create("a", finalizers=["example.com/hold"])
    marked = server.ok("DELETE", f"/api/v1/namespaces/{namespace}")
    assert marked["status"]["phase"] == "Terminating"
    server.until(maps.at("a"), lambda answer: answer.code == 404)
    answer = server.ask("POST", maps.path, maps.object("late"))
    assert (answer.code, answer.reason) == (403, "Forbidden")
    assert answer.json["details"]["causes"][0]["reason"] == "NamespaceTerminating"
    assert server.ask("GET", f"/api/v1/namespaces/{namespace}").code == 200
    server.until(instances.at("a"), lambda answer: "deletionTimestamp" in answer.json["metadata"])
    server.patch(instances.at("a"), {"metadata": {"finalizers": None}})
    server.until(f"/api/v1/namespaces/{namespace}", lambda answer: answer.code == 404)
