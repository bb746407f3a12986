"""Plain request data from a call. No I/O.

For: `kube.client`, which only sends; tests that look at a request without sending it.
In: a kind, names, options, an object. Out: a frozen `Request`.
Promises:
- a name or namespace that is no path segment is refused before anything is sent;
- a namespace for a cluster-scoped kind, or none for a namespaced object, is refused;
- an option that is empty is not sent;
- every create, update, patch and apply names its field manager.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote

import orjson

from kube.errors import InvalidRequest
from kube.reconciler import Object
from nodefeature.fields import as_str, name_of, namespace_of
from nodefeature.kinds import Kind

JSON = "application/json"
PATCH_TYPES: Mapping[str, str] = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}
PatchType = Literal["merge", "json", "strategic", "apply"]
Query = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One HTTP request as data. `what` says it in words, for errors and logs."""

    method: str
    path: str
    what: str
    query: Query = ()
    content: bytes | None = None
    content_type: str = JSON
    headers: Query = ()
    """Headers beside those of the connection; a lower-case `accept` replaces its own. Names may repeat."""

    @property
    def safe(self) -> bool:
        """Say whether sending it twice changes nothing."""
        return self.method == "GET"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOptions:
    """What a list or a watch selects."""

    label_selector: str = ""
    field_selector: str = ""
    limit: int = 0
    continue_token: str = ""
    resource_version: str = ""
    resource_version_match: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """What accompanies a write."""

    field_manager: str
    subresource: str = ""
    dry_run: bool = False
    force: bool = False


def check_segment(value: str, what: str) -> str:
    """Return `value` quoted for a path; refuse what a server or proxy could read as more than one segment."""
    if value in {"", ".", ".."} or any(c in "/%\\?#" or not c.isprintable() or c.isspace() for c in value):
        raise InvalidRequest(f"{what} {value!r} is not a path segment; give one plain name")
    return quote(value, safe="")


def collection_path(kind: Kind, namespace: str = "") -> str:
    """Return the path of a collection; an empty namespace means all of them."""
    root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    if not namespace:
        return f"{root}/{kind.plural}"
    if not kind.namespaced:
        raise InvalidRequest(f"{kind} is cluster-scoped; namespace {namespace!r} must be left out")
    return f"{root}/namespaces/{check_segment(namespace, 'namespace')}/{kind.plural}"


def object_path(kind: Kind, name: str, namespace: str = "", subresource: str = "") -> str:
    """Return the path of one object, or of one of its sub-resources."""
    if kind.namespaced and not namespace:
        raise InvalidRequest(f"{kind} {name!r} needs a namespace")
    path = f"{collection_path(kind, namespace)}/{check_segment(name, f'name of {kind}')}"
    return f"{path}/{check_segment(subresource, 'sub-resource')}" if subresource else path


def select_labels(labels: Mapping[str, str]) -> str:
    """Return the selector of objects that carry all of `labels`."""
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))


def get_object(
    kind: Kind, name: str, namespace: str = "", subresource: str = "", *, resource_version: str = ""
) -> Request:
    """Read one object, not older than `resource_version`."""
    path = object_path(kind, name, namespace, subresource)
    query: Query = (("resourceVersion", resource_version),) if resource_version else ()
    return Request(method="GET", path=path, query=query, what=f"get {kind} {_words(name, namespace)}")


def list_objects(kind: Kind, namespace: str = "", options: ListOptions | None = None) -> Request:
    """Read one page of a collection, or all of it when no limit is given."""
    query = _list_query(options or ListOptions())
    return Request(method="GET", path=collection_path(kind, namespace), query=query, what=f"list {kind}")


def watch_objects(
    kind: Kind, namespace: str = "", options: ListOptions | None = None, *, timeout_s: int, initial: bool = False
) -> Request:
    """Follow a collection; `initial` asks for a streaming list first. `timeout_s` ends it on the server's side."""
    query: Query = (
        ("watch", "true"),
        ("allowWatchBookmarks", "true"),
        ("timeoutSeconds", str(timeout_s)),
        *((("sendInitialEvents", "true"),) if initial else ()),
        *_list_query(options or ListOptions()),
    )
    return Request(method="GET", path=collection_path(kind, namespace), query=query, what=f"watch {kind}")


def create_object(kind: Kind, obj: Object, options: WriteOptions) -> Request:
    """Create an object, or post to the sub-resource of an existing one."""
    namespace, name = namespace_of(obj), name_of(obj)
    if kind.namespaced and not namespace:
        raise InvalidRequest(f"{kind} {name!r} needs a namespace")
    if options.subresource:
        path = object_path(kind, name, namespace, options.subresource)
    else:
        path = collection_path(kind, namespace)
    return _write("POST", path, obj, options, what=f"create {kind} {_words(name, namespace)}")


def ask_review(kind: Kind, spec: Mapping[str, Any]) -> Request:
    """Ask a review: an object that is answered and stored nowhere."""
    body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {}, "spec": spec}
    path = collection_path(kind)
    return Request(method="POST", path=path, content=orjson.dumps(body), what=f"ask {kind}")


def update_object(kind: Kind, obj: Object, options: WriteOptions) -> Request:
    """Replace an object; its resourceVersion, when present, is the precondition."""
    name, namespace = name_of(obj), namespace_of(obj)
    path = object_path(kind, name, namespace, options.subresource)
    return _write("PUT", path, obj, options, what=f"update {kind} {_words(name, namespace)}")


def patch_object(
    kind: Kind, name: str, namespace: str, patch: object, options: WriteOptions, *, patch_type: PatchType
) -> Request:
    """Change parts of an object."""
    return _write(
        "PATCH",
        object_path(kind, name, namespace, options.subresource),
        patch,
        options,
        what=f"{'apply' if patch_type == 'apply' else 'patch'} {kind} {_words(name, namespace)}",
        content_type=PATCH_TYPES[patch_type],
    )


def delete_object(
    kind: Kind,
    name: str,
    namespace: str = "",
    *,
    uid: str = "",
    resource_version: str = "",
    propagation: str = "",
    grace_s: int | None = None,
    dry_run: bool = False,
) -> Request:
    """Delete an object; `uid` and `resource_version` are preconditions."""
    preconditions = {k: v for k, v in (("uid", uid), ("resourceVersion", resource_version)) if v}
    body: dict[str, Any] = {"kind": "DeleteOptions", "apiVersion": "v1"}
    if preconditions:
        body["preconditions"] = preconditions
    if propagation:
        body["propagationPolicy"] = propagation
    if grace_s is not None:
        body["gracePeriodSeconds"] = grace_s
    if dry_run:
        body["dryRun"] = ["All"]
    path = object_path(kind, name, namespace)
    what = f"delete {kind} {_words(name, namespace)}"
    return Request(method="DELETE", path=path, content=orjson.dumps(body), what=what)


def _write(
    method: str, path: str, body: object, options: WriteOptions, *, what: str, content_type: str = JSON
) -> Request:
    if not options.field_manager:
        raise InvalidRequest(f"{what}: a write needs a field manager")
    query = (
        ("fieldManager", options.field_manager),
        *((("dryRun", "All"),) if options.dry_run else ()),
        *((("force", "true"),) if options.force else ()),
    )
    content = orjson.dumps(body)
    return Request(method=method, path=path, query=query, content=content, content_type=content_type, what=what)


def _list_query(options: ListOptions) -> Query:
    pairs = (
        ("labelSelector", options.label_selector),
        ("fieldSelector", options.field_selector),
        ("limit", str(options.limit) if options.limit else ""),
        ("continue", options.continue_token),
        ("resourceVersion", options.resource_version),
        ("resourceVersionMatch", options.resource_version_match),
    )
    return tuple((key, as_str(value)) for key, value in pairs if value)


def _words(name: str, namespace: str) -> str:
    return f"{namespace}/{name}" if namespace else name
