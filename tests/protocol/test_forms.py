"""Tables, metadata-only objects, media types."""

from __future__ import annotations

import pytest

from nodefeature.kinds import CONFIG_MAP, INSTANCE, INSTANCE_TYPE
from tests.protocol.differences import VIEW_OF
from tests.protocol.samples import Shelf, type_status
from tests.protocol.wire import METADATA, METADATA_LIST, STRATEGIC, TABLE, Server, version_of

COLUMNS = {
    CONFIG_MAP: ["Name", "Data", "Age"],
    INSTANCE: ["Name", "Type", "Access", "Port(s)", "Phase", "Age"],
    INSTANCE_TYPE: [
        "Name",
        "Entrance",
        "Unit(CPU/RAM)/Storage",
        "Accelerator(EX/SH/SL/PT)",
        "CPU",
        "Phase",
        "Partitions",
        "Age",
    ],
}


def test_a_table_of_a_list(shelf: Shelf) -> None:
    shelf.create("a")
    table = shelf.server.ok("GET", shelf.path, accept=TABLE, labelSelector=shelf.select)
    assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    assert int(version_of(table)) > 0
    columns = [column["name"] for column in table["columnDefinitions"]]
    if shelf.kind == CONFIG_MAP:
        assert columns == shelf.server.answer_of("columns-of-config-maps")
    else:
        assert columns == COLUMNS[shelf.kind]
    (row,) = table["rows"]
    assert len(row["cells"]) == len(columns)
    assert row["cells"][0] == shelf.name("a")
    assert row["object"]["kind"] == "PartialObjectMetadata"
    assert row["object"]["metadata"]["name"] == shelf.name("a")


def test_cells_come_from_the_status(server: Server, namespace: str) -> None:
    shelf = Shelf(server, INSTANCE_TYPE, namespace)
    shelf.create("a")
    server.patch(shelf.at("a", "status"), {"status": type_status(summary={"unit": "4/16Gi/100Gi"})})
    table = server.ok("GET", shelf.at("a"), accept=TABLE)
    assert table["rows"][0]["cells"][:6] == [shelf.name("a"), None, "4/16Gi/100Gi", None, None, "Active"]


def test_column_priorities_and_kinds(our_shelf: Shelf) -> None:
    table = our_shelf.server.ok("GET", our_shelf.path, accept=TABLE)
    name, *_, age = table["columnDefinitions"]
    assert (name["type"], name["format"], name["priority"]) == ("string", "name", 0)
    assert (age["type"], age["priority"] > 0) == ("date", True)


@pytest.mark.parametrize(("include", "kind"), [("None", ""), ("Object", "own"), ("Metadata", "PartialObjectMetadata")])
def test_a_table_includes_what_is_asked(shelf: Shelf, include: str, kind: str) -> None:
    shelf.create("a")
    query = {"labelSelector": shelf.select, "includeObject": include}
    (row,) = shelf.server.ok("GET", shelf.path, accept=TABLE, **query)["rows"]
    found = (row.get("object") or {}).get("kind", "")
    assert found == (shelf.kind.kind if kind == "own" else kind)


def test_an_unknown_inclusion_is_refused(shelf: Shelf) -> None:
    answer = shelf.server.ask("GET", shelf.path, accept=TABLE, includeObject="Everything")
    assert answer.code == 400


def test_metadata_of_one_object(shelf: Shelf) -> None:
    created = shelf.create("a")
    partial = shelf.server.ok("GET", shelf.at("a"), accept=METADATA)
    metadata = {key: value for key, value in created["metadata"].items() if key != "managedFields"}
    found = {key: value for key, value in partial["metadata"].items() if key != "managedFields"}
    assert partial["kind"] == "PartialObjectMetadata"
    assert set(partial) == {"kind", "apiVersion", "metadata"}
    assert found == metadata


def test_metadata_of_a_list(shelf: Shelf) -> None:
    for word in "ab":
        shelf.create(word)
    listed = shelf.server.ok("GET", shelf.path, accept=METADATA_LIST, labelSelector=shelf.select, limit="1")
    assert (listed["kind"], listed["apiVersion"]) == ("PartialObjectMetadataList", "meta.k8s.io/v1")
    (item,) = listed["items"]
    assert set(item) >= {"metadata"}
    assert "spec" not in item
    assert listed["metadata"]["continue"]


def test_metadata_of_an_empty_list(shelf: Shelf) -> None:
    listed = shelf.server.ok("GET", shelf.path, accept=METADATA_LIST, labelSelector=shelf.select)
    assert listed["items"] == shelf.server.answer_of("items-of-an-empty-metadata-list")


def test_the_first_form_that_is_known_wins(shelf: Shelf) -> None:
    accept = f"application/json;as=Chart;v=v1;g=meta.k8s.io,{TABLE},application/json"
    assert shelf.server.ok("GET", shelf.path, accept=accept)["kind"] == "Table"


@pytest.mark.parametrize("accept", ["text/html", "image/png"])
def test_a_form_nobody_makes_is_not_acceptable(shelf: Shelf, accept: str) -> None:
    answer = shelf.server.ask("GET", shelf.path, accept=accept)
    assert (answer.code, answer.reason) == (406, "NotAcceptable")


def test_any_subtype_is_acceptable(shelf: Shelf) -> None:
    code = shelf.server.ask("GET", shelf.path, accept="application/*").code
    assert code == (shelf.server.answer_of("any-subtype-of-built-in-kinds") if shelf.kind == CONFIG_MAP else 200)


@pytest.mark.parametrize("accept", ["*/*", "application/json;charset=utf-8"])
def test_any_json_is_acceptable(shelf: Shelf, accept: str) -> None:
    assert shelf.server.ok("GET", shelf.path, accept=accept)["kind"] == f"{shelf.kind.kind}List"


def test_yaml_is_served_and_taken(shelf: Shelf) -> None:
    import yaml

    body = yaml.safe_dump(shelf.object("a")).encode()
    shelf.server.ok("POST", shelf.path, body, type_="application/yaml")
    answer = shelf.server.http.get(shelf.at("a"), headers={"accept": "application/yaml"})
    assert answer.headers["content-type"].startswith("application/yaml")
    assert yaml.safe_load(answer.text)["metadata"]["name"] == shelf.name("a")


@pytest.mark.parametrize("type_", ["text/plain", "application/x-www-form-urlencoded"])
def test_a_body_of_an_unknown_type_is_refused(shelf: Shelf, type_: str) -> None:
    answer = shelf.server.ask("POST", shelf.path, shelf.object("a"), type_=type_)
    assert (answer.code, answer.reason) == (415, "UnsupportedMediaType")


def test_a_patch_of_an_unknown_type_is_refused(shelf: Shelf) -> None:
    shelf.create("a")
    answer = shelf.server.ask("PATCH", shelf.at("a"), {}, type_="application/json")
    assert (answer.code, answer.reason) == (415, "UnsupportedMediaType")


def test_a_strategic_merge_of_our_kinds_is_refused_but_by_the_views(our_shelf: Shelf) -> None:
    our_shelf.create("a")
    server, target = our_shelf.server, our_shelf.at("a")
    answer = server.ask("PATCH", target, {}, type_=STRATEGIC)
    assert answer.code == (200 if server.backend in VIEW_OF else 415)
    directive = server.ask("PATCH", target, {"metadata": {"$patch": "delete"}}, type_=STRATEGIC)
    assert (directive.code, directive.reason) == (415, "UnsupportedMediaType")


def test_a_strategic_merge_of_a_built_in_kind(server: Server, namespace: str) -> None:
    shelf = Shelf(server, CONFIG_MAP, namespace)
    shelf.create("a")
    patch = {"data": {"text": "b"}}
    answer = server.ask("PATCH", shelf.at("a"), patch, type_="application/strategic-merge-patch+json")
    assert answer.code == server.answer_of("strategic-merge-of-built-in-kinds")
