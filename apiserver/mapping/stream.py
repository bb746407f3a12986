"""A watch on the objects behind a mapped kind, as the engine's `EventStream`.

For: mapped storages. In: a watch of the kube client, a conversion of its events. Out: events of the view.
Promises: one upstream watch each; the pump holds at most `QUEUE` batches, so that a slow client slows upstream instead
of filling memory; upstream's bookmarks move `resource_version` on, also over events that concern nobody here; an ERROR
event becomes the Refusal that the engine relays; a broken or ended upstream is a clean end.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence

from apiserver.mapping.refusals import translated
from apiserver.rest.request_info import RequestInfo
from apiserver.rest.status import Refusal
from apiserver.rest.storage import Document, Event
from kube import watch
from kube.client import Client
from kube.requests import ListOptions
from nodefeature.kinds import Kind

QUEUE = 4
FIRST_S = 30.0
UPSTREAM_S = 3600
"""Longer than the engine lets any watch last, so that its own time-out ends it."""

Convert = Callable[[watch.Event], Awaitable[Sequence[Event]]]
Batch = tuple[Sequence[Event], str]


class BackingStream:
    """One open watch."""

    def __init__(self, initial: Sequence[Document], version: str) -> None:
        self.initial = initial
        self._version = version
        self._queue: asyncio.Queue[Batch | Refusal | None] = asyncio.Queue(QUEUE)
        self._pump: asyncio.Task[None] | None = None
        self._closed = asyncio.Event()

    @property
    def resource_version(self) -> str:
        """Return the version up to which everything was handed out."""
        return self._version

    async def open(
        self, client: Client, kind: Kind, namespace: str, options: ListOptions, *, info: RequestInfo, convert: Convert
    ) -> BackingStream:
        """Open the upstream watch; raises Refusal when it cannot start."""
        opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def pump() -> None:
            with translated(info, kind):
                upstream = client.watch(kind, namespace, options, timeout_s=UPSTREAM_S, initial=False, first_s=FIRST_S)
                async with upstream as chunks:
                    opened.set_result(None)
                    splitter = watch.LineSplitter()
                    async for chunk in chunks:
                        for line in splitter.feed(chunk):
                            event = watch.decode_event(line)
                            changes = () if event.type == "BOOKMARK" else await convert(event)
                            await self._queue.put((changes, event.version))

        self._pump = asyncio.create_task(self._guarded(pump(), opened), name=f"watch {kind}")
        await opened
        return self

    async def _guarded(self, work: Awaitable[None], opened: asyncio.Future[None]) -> None:
        end: Refusal | None = None
        try:
            await work
        except Refusal as refusal:
            end = refusal
        except asyncio.CancelledError:
            if not opened.done():
                opened.cancel()
            raise
        if end is not None and not opened.done():
            opened.set_exception(end)
            return
        # What breaks off after it began is an end; only what upstream says (410) is told.
        await self._queue.put(end if end is not None and end.code == 410 else None)

    async def next(self, wait_s: float) -> Sequence[Event] | None:
        """Wait at most `wait_s` for changes."""
        if self._closed.is_set():
            return None
        try:
            async with asyncio.timeout(wait_s):
                batch = await self._queue.get()
        except TimeoutError:
            return ()
        if batch is None or self._closed.is_set():
            return None
        if isinstance(batch, Refusal):
            raise batch
        changes, version = batch
        self._version = version or self._version
        return changes

    def close(self) -> None:
        """End the stream."""
        self._closed.set()
        if self._pump is not None:
            self._pump.cancel()
        while not self._queue.empty():
            self._queue.get_nowait()
        self._queue.put_nowait(None)


class EmptyStream:
    """A watch on nothing: what is behind the kind is not installed. It ends by itself, so that clients look again."""

    def __init__(self, version: str, *, lasts_s: float) -> None:
        self.initial: Sequence[Document] = ()
        self.resource_version = version
        self._left_s = lasts_s
        self._closed = asyncio.Event()

    async def next(self, wait_s: float) -> Sequence[Event] | None:
        """Wait; no change ever comes."""
        if self._left_s <= 0 or self._closed.is_set():
            return None
        wait_s = min(wait_s, self._left_s)
        self._left_s -= wait_s
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._closed.wait()
        return ()

    def close(self) -> None:
        """End the stream."""
        self._closed.set()
