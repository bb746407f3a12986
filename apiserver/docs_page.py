"""The page that `/docs` shows: our OpenAPI document for people.

For: `shell`. In: an OpenAPI v3 document. Out: one HTML page.
Promises: the page loads nothing from anywhere, runs no script, and links only to the document beside it, so it works
through `kubectl proxy` and in clusters without a way out; every text in it is escaped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from nodefeature.fields import as_map, as_maps, as_str, at

POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_STYLE = (
    "body{font:15px/1.5 sans-serif;max-width:70em;margin:2em auto;padding:0 1em}table{border-collapse:collapse}"
    "td,th{border:1px solid #ccc;padding:.2em .6em;text-align:left;vertical-align:top}code{font-size:90%}"
    "details{margin:.3em 0 .3em 1em}summary{cursor:pointer}"
)
_METHODS = ("get", "post", "put", "patch", "delete")
_DEEPEST = 12


def page(document: Mapping[str, Any], *, title: str) -> str:
    """Return the page."""
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{_STYLE}</style>'
    body = [
        f"<h1>{escape(title)}</h1>",
        '<p>The document behind this page: <a href="openapi.json">openapi.json</a>. In a terminal: '
        "<code>kubectl explain instances</code>, <code>kubectl get instancetypes</code>.</p>",
        "<h2>Paths</h2><table><tr><th>Path</th><th>Methods</th><th>Kind</th><th>Query</th></tr>",
        *_paths(as_map(document.get("paths"))),
        "</table><h2>Kinds</h2>",
        *_kinds(as_map(at(document, "components", "schemas"))),
    ]
    return f"<!doctype html><html lang=en><head>{head}</head><body>{''.join(body)}</body></html>"


def _paths(paths: Mapping[str, Any]) -> Iterator[str]:
    for path in sorted(paths):
        methods = [method for method in _METHODS if method in as_map(paths[path])]
        kinds = {as_str(at(paths[path], method, "x-kubernetes-group-version-kind", "kind")) for method in methods}
        words = ", ".join(method.upper() for method in methods)
        query = escape(", ".join(sorted(_query(as_map(paths[path]), methods))))
        yield f"<tr><td><code>{escape(path)}</code><td>{words}<td>{escape(', '.join(sorted(kinds)))}<td>{query}</tr>"


def _query(path: Mapping[str, Any], methods: list[str]) -> set[str]:
    parameters = [each for one in (path, *map(path.get, methods)) for each in as_maps(as_map(one).get("parameters"))]
    return {as_str(each.get("name")) for each in parameters if each.get("in") == "query"}


def _kinds(schemas: Mapping[str, Any]) -> Iterator[str]:
    for name in sorted(schemas):
        schema = as_map(schemas[name])
        for kind in as_maps(schema.get("x-kubernetes-group-version-kind")):
            yield f"<h3>{escape(as_str(kind.get('kind')))} <small>{escape(as_str(kind.get('group')))}</small></h3>"
        yield f"<p>{escape(as_str(schema.get('description')))}</p>"
        yield from _fields(schema, depth=0)


def _fields(schema: Mapping[str, Any], *, depth: int) -> Iterator[str]:
    required = schema.get("required") or ()
    for name, raw in as_map(schema.get("properties")).items():
        field = as_map(raw)
        words = [as_str(field.get("type")) or "any", *(["required"] if name in required else [])]
        line = f"<code>{escape(name)}</code> {escape(', '.join(words))}. {escape(as_str(field.get('description')))}"
        inner = field if field.get("properties") else as_map(field.get("items") or field.get("additionalProperties"))
        if inner.get("properties") and depth < _DEEPEST:
            yield f"<details><summary>{line}</summary>"
            yield from _fields(inner, depth=depth + 1)
            yield "</details>"
        else:
            yield f"<div style='margin-left:1.2em'>{line}</div>"
