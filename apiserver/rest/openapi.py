"""OpenAPI, as much as kubectl needs (spec 03 B4).

For: the devcluster and the aggregated server. In: the catalog, documents that others wrote. Out: `/openapi/v2`,
`/openapi/v3` and one v3 document per group version; all of them in one for people.
Promises: every kind and sub-resource, its operations and what they take are named, so that kubectl knows that the
server validates fields; a schema is shown as the resource gives it; a kind without one says so; a document is made once
for each state of what it describes, since everybody may ask; one that is asked for by its hash may be kept for ever, an
old hash leads to the new one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from apiserver.rest import openapi_v2, status
from apiserver.rest.negotiation import clauses, encode
from apiserver.rest.openapi_v2 import ON_COLLECTIONS, ON_OBJECTS, ON_SUBRESOURCES, Actions, definition_name, gvk_of
from apiserver.rest.request_info import RequestInfo
from apiserver.rest.responses import NO_CACHE, Receive, Send, send_bytes
from apiserver.rest.storage import Catalog, Parameter, Resource, Subresource, User

_ROOT = "/openapi/v3"
_QUOTE = '"'
_FOR_EVER = (b"cache-control", b"public, immutable, max-age=31536000")
_FIELD_VALIDATION = {"name": "fieldValidation", "in": "query", "schema": {"type": "string", "uniqueItems": True}}
_JSON = "application/json"
_WRITES = frozenset({"post", "put", "patch"})


Bases = Callable[[], Awaitable[Mapping[str, Mapping[str, Any]]]]
"""Documents by group version that others wrote: their paths and schemas stand before those made here."""
_META = "io.k8s.apimachinery."
_META_OBJECT = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"


class OpenApi:
    """OpenAPI answers over a catalog."""

    def __init__(self, catalog: Catalog, version: str, *, bases: Bases | None = None) -> None:
        self._catalog = catalog
        self._version = version
        self._bases = bases
        self._known: Mapping[str, Mapping[str, Any]] = {}
        self._made: dict[str, tuple[bytes, str]] = {}
        self._made_of: tuple[int, Mapping[str, Any]] = (-1, self._known)

    async def serve(
        self, info: RequestInfo, user: User, scope: Mapping[str, Any], receive: Receive, send: Send
    ) -> None:
        """Answer an OpenAPI path; any other path is 404."""
        if info.verb not in ("get", "head") or not info.path.startswith("/openapi/"):
            raise status.path_not_found()
        headers = dict(scope["headers"])
        accept = headers.get(b"accept", b"").decode("latin-1")
        types = [clause.media_type for clause in clauses(accept)]
        if types and not any(kind in ("application/json", "application/*", "*/*") for kind in types):
            raise status.not_acceptable(("application/json",))
        if self._bases is not None:
            self._known = await self._bases()
        found = self._found(info.path)
        if found is None:
            raise status.path_not_found()
        (body, etag), asked = found, info.query.get("hash", "")
        if asked and asked != etag.strip(_QUOTE) and info.path.startswith(_ROOT + "/"):
            await _send_elsewhere(send, f"{info.path}?hash={etag.strip(_QUOTE)}")
            return
        if etag.encode() in headers.get(b"if-none-match", b""):
            await send_bytes(send, b"", code=304, headers=[(b"etag", etag.encode())])
            return
        headers_of_it = [(b"etag", etag.encode()), (b"vary", b"Accept"), *((_FOR_EVER,) if asked else ())]
        await send_bytes(send, body, headers=headers_of_it)

    def _found(self, path: str) -> tuple[bytes, str] | None:
        """Return a document and its ETag, made anew only when what it describes has changed."""
        generation, known = self._made_of
        if generation != self._catalog.generation or known is not self._known:
            self._made_of = (self._catalog.generation, self._known)
            self._made = {}
        if path not in self._made:
            document = self._document(path)
            if document is None:
                return None
            body = encode(document)
            self._made[path] = (body, _etag(body))
        return self._made[path]

    def combined(self) -> dict[str, Any]:
        """Return the documents of all group versions as one."""
        paths: dict[str, Any] = {}
        schemas: dict[str, Any] = {}
        for key in self._keys():
            document = self._group_document(key)
            paths |= document["paths"]
            schemas |= document["components"]["schemas"]
        info = {"title": "Kubernetes", "version": self._version}
        return {"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": schemas}}

    def _document(self, path: str) -> dict[str, Any] | None:
        if path == "/openapi/v2":
            known = self._base_schemas()
            return openapi_v2.document(
                self._catalog.all(),
                lambda resource: known.get(definition_name(resource)) or _schema(resource),
                version=self._version,
            )
        if path == _ROOT:
            return {
                "paths": {key: {"serverRelativeURL": f"{_ROOT}/{key}?hash={self._hash(key)}"} for key in self._keys()}
            }
        key = path.removeprefix(_ROOT + "/")
        return self._group_document(key) if key in self._keys() else None

    def _keys(self) -> list[str]:
        return list(dict.fromkeys(_key(resource) for resource in self._catalog.all()))

    def _hash(self, key: str) -> str:
        found = self._found(f"{_ROOT}/{key}")
        return found[1].strip(_QUOTE) if found is not None else ""

    def _group_document(self, key: str) -> dict[str, Any]:
        resources = [resource for resource in self._catalog.all() if _key(resource) == key]
        paths: dict[str, Any] = {}
        for resource in resources:
            paths |= _paths(resource, key)
        kinds = [*(kind for resource in resources for kind in _kinds_below(resource)), *resources]
        schemas = {definition_name(kind): _schema(kind) for kind in kinds}
        base = self._known.get(key, {})
        shared = {name: schema for name, schema in self._base_schemas().items() if name.startswith(_META)}
        if _META_OBJECT in shared:
            schemas = {name: _with_metadata(schema) for name, schema in schemas.items()}
        return {
            "openapi": "3.0.0",
            "info": {"title": "Kubernetes", "version": self._version},
            "paths": {**paths, **base.get("paths", {})},
            "components": {"schemas": {**schemas, **shared, **_schemas_of(base)}},
        }

    def _base_schemas(self) -> dict[str, Any]:
        return {name: schema for base in self._known.values() for name, schema in _schemas_of(base).items()}


def _schemas_of(document: Mapping[str, Any]) -> Mapping[str, Any]:
    components = document.get("components", {})
    return components.get("schemas", {}) if isinstance(components, Mapping) else {}


def _with_metadata(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a kind's schema whose metadata is described, as `kubectl explain` shows it."""
    described = {"allOf": [{"$ref": f"#/components/schemas/{_META_OBJECT}"}], "default": {}}
    return {**schema, "properties": {**schema.get("properties", {}), "metadata": described}}


async def _send_elsewhere(send: Send, location: str) -> None:
    await send_bytes(send, b"", code=301, headers=[(b"location", location.encode()), NO_CACHE])


def _etag(body: bytes) -> str:
    return '"' + hashlib.sha512(body).hexdigest().upper() + '"'


def _key(resource: Resource) -> str:
    return f"apis/{resource.group}/{resource.version}" if resource.group else f"api/{resource.version}"


def _schema(resource: Resource) -> dict[str, Any]:
    known = (
        dict(resource.schema) if resource.schema else {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    )
    return {**known, "x-kubernetes-group-version-kind": [gvk_of(resource)]}


def _kinds_below(resource: Resource) -> Iterable[Resource]:
    """Return the kinds that sub-resources answer with, each like a resource of that kind."""
    return (_shown_by(resource, sub) for sub in resource.subresources.values() if sub.media_type == _JSON)


def _shown_by(resource: Resource, sub: Subresource) -> Resource:
    group, version = sub.group or resource.group, sub.version or resource.version
    return replace(resource, group=group, version=version, kind=sub.kind, verbs=sub.verbs, schema=sub.schema)


def _paths(resource: Resource, key: str) -> dict[str, Any]:
    scope = "/namespaces/{namespace}" if resource.namespaced else ""
    base = f"/{key}{scope}/{resource.plural}"
    one = f"{base}/{{name}}"
    parameters = [_in_path("namespace")] if resource.namespaced else []
    named = [*parameters, _in_path("name")]
    paths = {
        base: {**_operations(resource, ON_COLLECTIONS), "parameters": parameters},
        one: {**_operations(resource, ON_OBJECTS), "parameters": named},
    }
    for sub in resource.subresources.values():
        operations = _operations(_shown_by(resource, sub), ON_SUBRESOURCES, sub.media_type)
        paths[f"{one}/{sub.name}"] = {**operations, "parameters": [*named, *map(_in_query, sub.parameters)]}
    return paths


def _operations(kind: Resource, actions: Actions, media_type: str = _JSON) -> dict[str, Any]:
    content = {"schema": {"$ref": f"#/components/schemas/{definition_name(kind)}"}}
    answered = content if media_type == _JSON else {"schema": {"type": "string"}}
    return {
        method: {
            "parameters": [_FIELD_VALIDATION] if method in _WRITES else [],
            **_body(method, content),
            "responses": {"200": {"description": "OK", "content": {media_type: answered}}},
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": gvk_of(kind),
        }
        for method, verb, action, _ in actions
        if verb in kind.verbs
    }


def _in_query(parameter: Parameter) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": parameter.type}
    if parameter.least is not None:
        schema["minimum"] = parameter.least
    if parameter.choices:
        schema["enum"] = list(parameter.choices)
    return {"name": parameter.name, "in": "query", "description": parameter.description, "schema": schema}


def _in_path(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", "uniqueItems": True}}


def _body(method: str, content: Mapping[str, Any]) -> dict[str, Any]:
    if method in ("post", "put"):
        return {"requestBody": {"required": True, "content": {_JSON: content}}}
    if method == "patch":
        anything = {"schema": {"type": "object"}}
        return {"requestBody": {"required": True, "content": {"application/merge-patch+json": anything}}}
    return {}
