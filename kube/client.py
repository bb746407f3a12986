"""Typed verbs over one API server.

For: reconcilers, agents, informers, leader election, tests. Objects stay raw dicts.
In: a `Connection` (who we are and how bytes travel), a field manager, optionally a fence.
Out: decoded objects, or an error of `kube.errors`.
Promises:
- every call has a deadline;
- a refusal because of an old token leads to one re-read of the credentials and one retry;
- a safe request is repeated a bounded number of times after 429, 503 or no answer, not before the server's Retry-After;
- a write is never repeated by itself, save after a 401 (the server did nothing);
- every write of a fenced client passes the fence, and its deadline ends before the lease can be taken.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias

import orjson

from kube import requests
from kube.connection import Connection
from kube.errors import Expired, MalformedAnswer, NotLeader
from kube.reconciler import Object
from kube.requests import ListOptions, PatchType, Request, WriteOptions
from nodefeature.fields import as_list, as_str, at, name_of, namespace_of
from nodefeature.kinds import Kind

Objects: TypeAlias = list[Object]  # inside the class, `list` is the verb

PAGE_SIZE = 250
"""Objects asked for in one page: decoding one of fat Nodes stays near 10 ms."""


class Fence(Protocol):
    """Says how long this process may still write."""

    def remaining(self) -> float:
        """Return seconds of leadership left; zero or less when it is gone."""


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a collection; `resource_version` is the list's, never an item's."""

    items: list[Object]
    resource_version: str
    continue_token: str


class Client:
    """One identity towards one API server. Cheap to copy; copies share the connection."""

    def __init__(
        self,
        connection: Connection,
        *,
        field_manager: str = "gpustack-operator",
        fence: Fence | None = None,
        deadline_s: float = 30.0,
    ) -> None:
        self.connection = connection
        self.field_manager = field_manager
        self._fence = fence
        self._deadline_s = deadline_s

    def as_manager(self, field_manager: str) -> Client:
        """Return a copy that writes under another field manager."""
        return Client(self.connection, field_manager=field_manager, fence=self._fence, deadline_s=self._deadline_s)

    def fenced(self, fence: Fence) -> Client:
        """Return a copy whose writes all pass `fence`."""
        return Client(self.connection, field_manager=self.field_manager, fence=fence, deadline_s=self._deadline_s)

    async def get(
        self, kind: Kind, name: str, namespace: str = "", *, subresource: str = "", resource_version: str = ""
    ) -> Object:
        """Return one object, not older than `resource_version`; NotFound when it is not there."""
        request = requests.get_object(kind, name, namespace, subresource, resource_version=resource_version)
        return self._decode(kind, await self._read(request))

    async def list(
        self, kind: Kind, namespace: str = "", *, label_selector: str = "", field_selector: str = ""
    ) -> Objects:
        """Return all objects of a collection, page by page."""
        options = ListOptions(label_selector=label_selector, field_selector=field_selector, limit=PAGE_SIZE)
        items, _ = await self.list_all(kind, namespace, options)
        return items

    async def list_all(self, kind: Kind, namespace: str, options: ListOptions) -> tuple[Objects, str]:
        """Return all objects and the version of the list. A page token that expires leads to one unpaged list."""
        items: Objects = []
        page = await self.list_page(kind, namespace, options)
        while True:
            items.extend(page.items)
            if not page.continue_token:
                return items, page.resource_version
            try:
                page = await self.list_page(kind, namespace, replace(options, continue_token=page.continue_token))
            except Expired:
                items.clear()
                page = await self.list_page(kind, namespace, replace(options, limit=0, continue_token=""))

    async def list_page(self, kind: Kind, namespace: str = "", options: ListOptions | None = None) -> Page:
        """Return one page of a collection."""
        request = requests.list_objects(kind, namespace, options)
        body = _as_object(await self._read(request), request)
        items = [complete(kind, item) for item in as_list(body.get("items")) if isinstance(item, dict)]
        return Page(
            items,
            as_str(at(body, "metadata", "resourceVersion")),
            as_str(at(body, "metadata", "continue")),
        )

    def watch(
        self, kind: Kind, namespace: str, options: ListOptions, *, timeout_s: int, initial: bool, first_s: float
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Open a watch as a stream of bytes; the answer's head must come within `first_s`."""
        request = requests.watch_objects(kind, namespace, options, timeout_s=timeout_s, initial=initial)
        return self.connection.stream(request, first_s=first_s)

    async def create(self, kind: Kind, obj: Object, *, subresource: str = "", dry_run: bool = False) -> Object:
        """Create an object; AlreadyExists when the name is taken."""
        return await self._write(
            kind, requests.create_object(kind, named(kind, obj), self._options(subresource, dry_run))
        )

    async def review(self, kind: Kind, spec: Mapping[str, Any]) -> Object:
        """Ask a review, which is stored nowhere: no fence, no field manager; asked once."""
        request = requests.ask_review(kind, spec)
        return self._decode(kind, await self.connection.ask(request, deadline_s=self._deadline_s))

    async def update(self, kind: Kind, obj: Object, *, subresource: str = "", dry_run: bool = False) -> Object:
        """Replace an object (or its status); Conflict when its resourceVersion is no longer the newest."""
        return await self._write(
            kind, requests.update_object(kind, named(kind, obj), self._options(subresource, dry_run))
        )

    async def patch(
        self,
        kind: Kind,
        name: str,
        patch: object,
        namespace: str = "",
        *,
        patch_type: PatchType = "merge",
        subresource: str = "",
        dry_run: bool = False,
    ) -> Object:
        """Change parts of an object. A `resourceVersion` inside a merge patch is a precondition."""
        options = self._options(subresource, dry_run)
        request = requests.patch_object(kind, name, namespace, patch, options, patch_type=patch_type)
        return await self._write(kind, request)

    async def apply(
        self, kind: Kind, obj: Object, *, force: bool = True, subresource: str = "", dry_run: bool = False
    ) -> Object:
        """Own the fields of `obj` by server-side apply; without `force` a foreign owner is a Conflict."""
        options = replace(self._options(subresource, dry_run), force=force)
        name, namespace = name_of(obj), namespace_of(obj)
        request = requests.patch_object(kind, name, namespace, named(kind, obj), options, patch_type="apply")
        return await self._write(kind, request)

    async def delete(
        self,
        kind: Kind,
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        resource_version: str = "",
        propagation: str = "",
        grace_s: int | None = None,
        dry_run: bool = False,
    ) -> None:
        """Delete an object; NotFound when it is not there, Conflict when a precondition does not hold."""
        request = requests.delete_object(
            kind,
            name,
            namespace,
            uid=uid,
            resource_version=resource_version,
            propagation=propagation,
            grace_s=grace_s,
            dry_run=dry_run,
        )
        await self._send_write(request)

    async def get_path(self, path: str, query: Iterable[tuple[str, str]] = ()) -> Object:
        """Read a path that is no object of a kind: discovery, `/version`."""
        request = Request(method="GET", path=path, query=tuple(query), what=f"get {path}")
        return _as_object(await self._read(request), request)

    async def close(self) -> None:
        """Close the connection that all copies share."""
        await self.connection.close()

    async def _read(self, request: Request) -> bytes:
        return await self.connection.call(request, deadline_s=self._deadline_s)

    async def _write(self, kind: Kind, request: Request) -> Object:
        return self._decode(kind, await self._send_write(request))

    async def _send_write(self, request: Request) -> bytes:
        deadline_s = self._deadline_s
        if self._fence is not None:
            deadline_s = min(deadline_s, self._fence.remaining())
            if deadline_s <= 0:
                raise NotLeader(f"{request.what}: not sent, this process does not hold the lease")
        return await self.connection.call(request, deadline_s=deadline_s)

    def _decode(self, kind: Kind, body: bytes) -> Object:
        return complete(kind, _as_object(body, None))

    def _options(self, subresource: str, dry_run: bool) -> WriteOptions:
        return WriteOptions(field_manager=self.field_manager, subresource=subresource, dry_run=dry_run)


def named(kind: Kind, obj: Object) -> Object:
    """Return `obj` with `apiVersion` and `kind`, which a writer need not repeat."""
    return {"apiVersion": kind.api_version, "kind": kind.kind, **obj}


def complete(kind: Kind, obj: Object) -> Object:
    """Add `apiVersion` and `kind`, which items of a list of built-in kinds lack."""
    obj.setdefault("apiVersion", kind.api_version)
    obj.setdefault("kind", kind.kind)
    return obj


def _as_object(body: bytes, request: Request | None) -> Object:
    what = request.what if request else "answer"
    try:
        decoded: Any = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise MalformedAnswer(f"{what}: the answer is no JSON") from error
    if not isinstance(decoded, dict):
        raise MalformedAnswer(f"{what}: the answer is no JSON object")
    return decoded
