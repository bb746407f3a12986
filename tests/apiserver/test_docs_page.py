"""The page for people."""

from __future__ import annotations

import re
from typing import Any

from apiserver.docs_page import POLICY, page

GVK = {"group": "g", "version": "v1", "kind": "Thing"}
DOCUMENT: dict[str, Any] = {
    "paths": {
        "/apis/g/v1/things": {
            "get": {"x-kubernetes-group-version-kind": GVK, "parameters": [{"name": "tailLines", "in": "query"}]},
            "post": {},
            "parameters": [{"name": "follow", "in": "query"}, {"name": "namespace", "in": "path"}],
        }
    },
    "components": {
        "schemas": {
            "g.v1.Thing": {
                "description": "A <thing>.",
                "x-kubernetes-group-version-kind": [GVK],
                "required": ["spec"],
                "properties": {
                    "spec": {
                        "type": "object",
                        "properties": {
                            "ports": {"type": "array", "items": {"properties": {"port": {"type": "integer"}}}}
                        },
                    }
                },
            }
        }
    },
}


def test_it_shows_paths_kinds_and_fields() -> None:
    text = page(DOCUMENT, title="API")
    assert "<td>follow, tailLines</tr>" in text
    for part in ("/apis/g/v1/things", "GET, POST", "Thing", "<code>spec</code> object, required", "<code>port</code>"):
        assert part in text


def test_everything_is_escaped_and_nothing_is_loaded() -> None:
    hostile = {**DOCUMENT, "paths": {"/<script>alert(1)</script>": {"get": {}}}}
    text = page(hostile, title="<script>")
    assert "<script" not in text
    assert "A &lt;thing&gt;." in text
    assert re.findall(r'(?:href|src)="?([^" >]+)', text) == ["openapi.json"]
    assert "default-src 'none'" in POLICY


def test_nonsense_is_an_empty_page() -> None:
    for document in ({}, {"paths": None, "components": None}, {"paths": {"/x": None}}):
        assert page(document, title="API").endswith("</html>")
