"""Rows of spec 03 B3 and case B023: the same kinds in every form, 503 before routes stand."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from apiserver.rest.discovery import Discovery, version_order
from apiserver.rest.storage import Catalog, Resource
from tests.apiserver.rest.asgi import Browser
from tests.apiserver.rest.memory_storage import MemoryStorage, serve, widgets

V2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
V2BETA1 = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"


def get(path: str, accept: str = "", headers: dict[str, str] | None = None) -> Any:
    return asyncio.run(Browser(serve(MemoryStorage()))("GET", path, accept=accept, headers=headers))


def test_legacy_documents() -> None:
    groups = get("/apis").json
    assert (groups["kind"], [group["name"] for group in groups["groups"]]) == ("APIGroupList", ["example.com"])
    assert get("/apis/example.com").json["preferredVersion"]["groupVersion"] == "example.com/v1"
    resources = get("/apis/example.com/v1").json
    assert [(r["name"], r["kind"], r["namespaced"]) for r in resources["resources"]] == [
        ("widgets", "Widget", True),
        ("widgets/status", "Widget", True),
    ]
    first = resources["resources"][0]
    assert (first["singularName"], first["shortNames"], first["categories"]) == ("widget", ["wd"], ["all"])
    assert first["verbs"] == sorted(first["verbs"])


@pytest.mark.parametrize(
    "accept",
    [V2, V2BETA1, f"{V2},{V2BETA1},application/json", f"{V2BETA1},application/json"],
    ids=["v2", "v2beta1", "new kubectl", "old kubectl"],
)
def test_aggregated_documents_name_the_same_kinds(accept: str) -> None:
    answer = get("/apis", accept)
    assert answer.headers["content-type"] == (V2 if accept.startswith(V2) else V2BETA1)
    (group,) = answer.json["items"]
    (version,) = group["versions"]
    (resource,) = version["resources"]
    assert (group["metadata"]["name"], version["version"], version["freshness"]) == ("example.com", "v1", "Current")
    assert resource["responseKind"] == {"group": "example.com", "version": "v1", "kind": "Widget"}
    assert resource["subresources"][0]["responseKind"]["kind"] == "Widget"
    assert resource["scope"] == "Namespaced"
    assert answer.headers["vary"] == "Accept"


def test_an_unknown_form_falls_back_or_is_406() -> None:
    assert get("/apis", "application/json;g=other;v=v2;as=X,application/json").json["kind"] == "APIGroupList"
    assert get("/apis", "application/json;g=other;v=v2;as=X").code == 406


@pytest.mark.parametrize("path", ["/api", "/apis", "/apis/example.com", "/apis/example.com/v1"])
def test_an_unchanged_document_is_304(path: str) -> None:
    first = get(path, V2)
    again = get(path, V2, {"if-none-match": first.headers["etag"]})
    assert (again.code, again.body, again.headers["etag"]) == (304, b"", first.headers["etag"])


@pytest.mark.parametrize("path", ["/api/v1", "/apis/none", "/apis/none/v1", "/apis/example.com/v9", "/else"])
def test_unknown_paths_are_404_when_routes_stand(path: str) -> None:
    assert get(path).code == 404


@pytest.mark.parametrize("path", ["/apis", "/apis/none/v1", "/apis/none/v1/things", "/else"])
def test_unknown_paths_are_503_before_that(path: str) -> None:
    app = serve(MemoryStorage())
    app.catalog.ready = False
    answer = asyncio.run(Browser(app)("GET", path))
    assert (answer.code, answer.headers["retry-after"]) == (503, "1")


def test_a_group_without_versions_is_not_shown() -> None:
    catalog = Catalog([widgets(MemoryStorage())])
    discovery = Discovery(catalog)
    assert discovery.groups() == ["example.com"]
    before = discovery.answer("/apis", "")
    catalog.remove("example.com", "v1", "widgets")
    after = discovery.answer("/apis", "")
    assert discovery.groups() == []
    assert before is not None
    assert after is not None
    assert before[2] != after[2]


def test_versions_are_in_kubernetes_order() -> None:
    names = ["v1alpha1", "v2", "v1", "v10", "v1beta2", "v1beta1", "strange"]
    want = ["v10", "v2", "v1", "v1beta2", "v1beta1", "v1alpha1", "strange"]
    assert sorted(names, key=version_order) == want


def test_the_preferred_version_is_the_stable_one() -> None:
    base = widgets(MemoryStorage())
    alpha = Resource("example.com", "v1alpha1", "widgets", "Widget", namespaced=True, storage=base.storage)
    answer = Discovery(Catalog([alpha, base])).answer("/apis/example.com", "")
    assert answer is not None
    assert b'"preferredVersion":{"groupVersion":"example.com/v1",' in answer[0]
