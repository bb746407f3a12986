"""The smallest storage that the engine can serve: a dict, for tests of the engine alone."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

from apiserver.rest import status
from apiserver.rest.app import App, Limits
from apiserver.rest.negotiation import encode
from apiserver.rest.options import DeleteOptions, ListOptions, WatchOptions, WriteOptions
from apiserver.rest.patch import Patch
from apiserver.rest.request_info import RequestInfo
from apiserver.rest.storage import (
    Call,
    Catalog,
    Column,
    Deleted,
    Document,
    Event,
    Object,
    Page,
    Resource,
    Subresource,
    User,
    Written,
)
from kube.clock import Clock
from tests.builders.virtual_clock import VirtualClock


class MemoryStream:
    """A stream fed by hand."""

    def __init__(self, initial: Sequence[Document], version: str) -> None:
        self.initial = initial
        self.resource_version = version
        self.closed = False
        self.queue: asyncio.Queue[Sequence[Event] | None] = asyncio.Queue()
        self.error: status.Refusal | None = None

    async def next(self, wait_s: float) -> Sequence[Event] | None:
        if self.error is not None:
            raise self.error
        if self.closed:
            return None
        try:
            async with asyncio.timeout(0.01):
                return await self.queue.get()
        except TimeoutError:
            return []

    def close(self) -> None:
        self.closed = True
        self.queue.put_nowait(None)


class MemoryStorage:
    """Objects by (namespace, name)."""

    def __init__(self, objects: Sequence[Object] = ()) -> None:
        self.objects = {(o["metadata"].get("namespace", ""), o["metadata"]["name"]): o for o in objects}
        self.version = 7
        self.streams: list[MemoryStream] = []
        self.calls: list[tuple[str, Any]] = []
        self.hold: asyncio.Event | None = None

    def _find(self, call: Call) -> Object:
        info = call.info
        found = self.objects.get((info.namespace, info.name))
        if found is None:
            raise status.not_found(info.resource, info.group, info.name)
        return found

    def _selected(self, call: Call) -> list[Document]:
        wanted = call.info.namespace
        return [Document(encode(o)) for (space, _), o in sorted(self.objects.items()) if wanted in ("", space)]

    async def get(self, call: Call) -> Document:
        if self.hold is not None:
            await self.hold.wait()
        return Document(encode(self._find(call)))

    async def list(self, call: Call, options: ListOptions) -> Page:
        self.calls.append(("list", options))
        found = self._selected(call)
        if options.limit and options.limit < len(found):
            return Page(found[: options.limit], str(self.version), "next", len(found) - options.limit)
        return Page(found, str(self.version))

    async def watch(self, call: Call, options: WatchOptions) -> MemoryStream:
        self.calls.append(("watch", options))
        stream = MemoryStream(self._selected(call) if options.initial else [], str(self.version))
        self.streams.append(stream)
        return stream

    async def create(self, call: Call, obj: Object, options: WriteOptions) -> Written:
        self.calls.append(("create", options))
        return Written(Document(encode(obj)), created=True)

    async def update(self, call: Call, obj: Object, options: WriteOptions) -> Written:
        self.calls.append(("update", options))
        return Written(Document(encode(obj)))

    async def patch(self, call: Call, patch: Patch, options: WriteOptions) -> Written:
        self.calls.append(("patch", options))
        return Written(Document(encode(patch.apply(self._find(call)))))

    async def delete(self, call: Call, options: DeleteOptions) -> Deleted:
        self.calls.append(("delete", options))
        self._find(call)
        return Deleted(uid="u1")

    async def deletecollection(self, call: Call, options: ListOptions, delete: DeleteOptions) -> Page:
        return Page([], str(self.version))


def widget(name: str, **spec: Any) -> Object:
    """Return an object of the test kind."""
    meta = {"name": name, "namespace": "ns", "resourceVersion": "5", "creationTimestamp": "2025-12-31T23:59:00Z"}
    return {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": meta, "spec": spec}


COLUMNS = (Column("Name", ".metadata.name"), Column("Size", ".spec.size", type="integer", priority=1))


def widgets(storage: MemoryStorage) -> Resource:
    """Return the test kind: namespaced, with a status."""
    return Resource(
        group="example.com",
        version="v1",
        plural="widgets",
        kind="Widget",
        namespaced=True,
        storage=storage,
        short_names=("wd",),
        categories=("all",),
        subresources={"status": Subresource("status", "Widget", ("get", "patch", "update"))},
        columns=COLUMNS,
    )


async def anybody(scope: Any) -> User:
    """Authenticate everybody."""
    return User("somebody")


async def anything(user: User, info: RequestInfo) -> None:
    """Allow everything."""


def serve(storage: MemoryStorage, *, clock: Clock | None = None, limits: Limits | None = None) -> App:
    """Return the engine over one storage."""
    return App(
        Catalog([widgets(storage)]),
        authenticate=anybody,
        authorize=anything,
        clock=clock or VirtualClock(),
        rng=random.Random(1),
        limits=limits or Limits(),
    )
