"""OpenAPI v2 of the served kinds (spec 03 B4): what older clients and policy engines read.

For: `openapi`. In: resources, and the v3 schema of each. Out: one Swagger document. Pure.
Promises: it names every kind, its list and its operations, and refers to nothing outside itself: kube-apiserver merges
it into its own document, where a definition of the same name and other content would be renamed for everybody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from apiserver.rest.storage import Resource

Schema = Mapping[str, Any]
Actions = tuple[tuple[str, str, str, bool], ...]
_DROPPED = frozenset({"nullable", "oneOf", "anyOf", "not", "allOf", "$ref"})
_JSON = ["application/json", "application/yaml"]
_PATCHES = [
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
]
ON_COLLECTIONS: Actions = (
    ("get", "list", "list", True),
    ("post", "create", "post", False),
    ("delete", "deletecollection", "deletecollection", True),
)
ON_OBJECTS: Actions = (
    ("get", "get", "get", False),
    ("put", "update", "put", False),
    ("patch", "patch", "patch", False),
    ("delete", "delete", "delete", False),
)
ON_SUBRESOURCES: Actions = (*ON_OBJECTS, ("post", "create", "post", False))
"""Method, verb, the word of `x-kubernetes-action`, and whether the answer is a list."""


def document(resources: Iterable[Resource], schema_of: Callable[[Resource], Schema], *, version: str) -> dict[str, Any]:
    """Return the Swagger document."""
    paths: dict[str, Any] = {}
    definitions: dict[str, Any] = {}
    for resource in resources:
        name = definition_name(resource)
        definitions[name] = {**plain(schema_of(resource)), "x-kubernetes-group-version-kind": [gvk_of(resource)]}
        definitions[f"{name}List"] = _list_of(resource, name)
        paths |= _paths(resource, name)
    info = {"title": "Kubernetes", "version": version}
    return {"swagger": "2.0", "info": info, "paths": paths, "definitions": definitions}


def definition_name(resource: Resource) -> str:
    """Return the name of a kind's definition: its group backwards, version, kind."""
    domain = ".".join(reversed(resource.group.split("."))) if resource.group else "io.k8s.api.core"
    return f"{domain}.{resource.version}.{resource.kind}"


def gvk_of(resource: Resource) -> dict[str, str]:
    """Return a kind as `x-kubernetes-group-version-kind` names it."""
    return {"group": resource.group, "version": resource.version, "kind": resource.kind}


def plain(schema: Schema) -> dict[str, Any]:
    """Return a v3 schema without what Swagger does not know; what it referred to becomes an object of any content."""
    out: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "properties":
            out[key] = {name: plain(child) for name, child in value.items()}
        elif key in ("items", "additionalProperties") and isinstance(value, Mapping):
            out[key] = plain(value)
        elif key not in _DROPPED and (key, value) != ("default", {}):
            out[key] = value
    if ("$ref" in schema or "allOf" in schema) and "type" not in out:
        out["type"] = "object"
    return out


def _list_of(resource: Resource, name: str) -> dict[str, Any]:
    gvk = {**gvk_of(resource), "kind": f"{resource.kind}List"}
    text = {"type": "string"}
    items = {"type": "array", "items": {"$ref": f"#/definitions/{name}"}}
    return {
        "type": "object",
        "required": ["items"],
        "properties": {"apiVersion": text, "kind": text, "metadata": {"type": "object"}, "items": items},
        "x-kubernetes-group-version-kind": [gvk],
    }


def _paths(resource: Resource, name: str) -> dict[str, Any]:
    root = f"/apis/{resource.group}" if resource.group else "/api"
    scope = "/namespaces/{namespace}" if resource.namespaced else ""
    base = f"{root}/{resource.version}{scope}/{resource.plural}"
    parameters = [_in_path("namespace")] if resource.namespaced else []
    named = [*parameters, _in_path("name")]
    return {
        base: {**dict(_operations(resource, name, ON_COLLECTIONS)), "parameters": parameters},
        f"{base}/{{name}}": {**dict(_operations(resource, name, ON_OBJECTS)), "parameters": named},
    }


def _operations(resource: Resource, name: str, actions: Actions) -> Iterator[tuple[str, Any]]:
    for method, verb, action, of_list in actions:
        if verb not in resource.verbs:
            continue
        shown = f"#/definitions/{name}{'List' if of_list else ''}"
        operation: dict[str, Any] = {
            "description": f"{action} {resource.kind}",
            "operationId": f"{action}{resource.version.title()}{resource.kind}",
            "consumes": _PATCHES if method == "patch" else _JSON,
            "produces": _JSON,
            "responses": {"200": {"description": "OK", "schema": {"$ref": shown}}},
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": gvk_of(resource),
        }
        if method in ("post", "put", "patch"):
            body = {"type": "object"} if method == "patch" else {"$ref": f"#/definitions/{name}"}
            operation["parameters"] = [{"name": "body", "in": "body", "required": True, "schema": body}]
        yield method, operation


def _in_path(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "type": "string", "uniqueItems": True}
