"""One kind, followed for ever.

For: `kube.runtime`. In: a client, a kind, what to select. Out: a `Store` that is kept true, and its changes.
An object's journey: bytes -> line and event (`watch`) -> projection (`store.prepare`) -> store -> change -> handler.
Promises:
- a streaming list where it is served (first byte and every next one within `FIRST_S`), else a paged list;
- a stream silent for `SILENCE_S` is dead: bookmarks come every minute;
- it resumes from the version of the last list, event or bookmark, never from an item of a list;
- after 410 it lists again; what vanished meanwhile is a deletion with its last state, a namesake a deletion and an
  addition;
- every failure is followed by a pause of at most `MAX_PAUSE_S`, or of what the server asked for (Retry-After, at most
  `MAX_ASKED_S`); a kind not served yet is asked for again and holds up
  nobody;
- the loop is given back every few milliseconds.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import replace

from kube.client import PAGE_SIZE, Client, complete
from kube.clock import Clock
from kube.errors import (
    ApiError,
    BadRequest,
    Expired,
    Gone,
    Invalid,
    MalformedAnswer,
    MethodNotAllowed,
    NotAcceptable,
    NotFound,
    OperatorError,
    ServerFault,
    Unreachable,
    UnsupportedMediaType,
)
from kube.pace import Pace
from kube.reconciler import Key, Object, Selection
from kube.requests import ListOptions
from kube.store import Change, Store, key_of
from kube.watch import Event, LineSplitter, decode_event
from nodefeature.fields import uid_of

FIRST_S = 10.0
SILENCE_S = 90.0
WATCH_S = (300, 600)
"""The server ends a watch after a time drawn from here, so that watches of a fleet do not end together."""
FIRST_PAUSE_S = 0.5
MAX_PAUSE_S = 8.0
MAX_ASKED_S = 300.0
"""A server that asks for more is not believed."""
STEADY_S = 30.0
"""A stream that lived this long was healthy: the next failure starts with the first pause again."""
REFUSALS = 3
"""After so many refusals of one version in a row the version itself is doubted and the kind is listed again."""

REFUSES_STREAMING = (BadRequest, Invalid, MethodNotAllowed, NotAcceptable, UnsupportedMediaType)

log = logging.getLogger(__name__)

OnChange = Callable[[Change], None]


class NoStreamingList(OperatorError):
    """The streaming list did not come to its end; a paged list must do."""


class Informer:
    """Follows one kind. `synced` is set after the first complete list and stays set."""

    def __init__(
        self,
        client: Client,
        store: Store,
        on_change: OnChange,
        *,
        selection: Selection,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self.kind = store.kind
        self.store = store
        self.synced = asyncio.Event()
        self._client = client
        self._on_change = on_change
        self._selection = selection
        self._clock = clock
        self._rng = rng
        self._version = ""
        self._streaming = True
        self._failures = 0
        self._refusals = 0
        self._complaint = ""

    async def run(self) -> None:
        """Follow the kind until cancelled."""
        while True:
            opened = self._clock.now()
            failure: OperatorError | None = None
            try:
                await self._cycle()
            except OperatorError as error:
                failure = error
                self._learn(error)
            lived_s = self._clock.now() - opened
            pause_s = self._pause(lived_s, failed=failure is not None)
            await self._clock.sleep(max(pause_s, _asked_s(failure)))

    async def _cycle(self) -> None:
        if not self._version:
            if self._streaming:
                try:
                    return await self._follow(initial={})
                except NoStreamingList as error:
                    log.info("streaming list not usable", extra={"kind": self.kind.kind, "reason": str(error)})
            await self._list()
        return await self._follow(initial=None)

    async def _follow(self, *, initial: dict[Key, Object] | None) -> None:
        options = self._options(limit=0)
        if initial is None:
            options = replace(options, resource_version=self._version)
        else:
            options = replace(options, resource_version_match="NotOlderThan")
        opened = self._clock.now()
        try:
            async with self._client.watch(
                self.kind,
                self._selection.namespace,
                options,
                timeout_s=self._rng.randint(*WATCH_S),
                initial=initial is not None,
                first_s=FIRST_S,
            ) as chunks:
                await self._read(chunks, initial)
        except (*REFUSES_STREAMING, ServerFault) as error:
            if initial is None or self._version or error.retry_after is not None:
                raise
            self._streaming = not isinstance(error, REFUSES_STREAMING)
            raise NoStreamingList(f"refused: {error}") from error
        except Unreachable as error:
            # A server that refuses the connection is away; one that takes it and says nothing may still list.
            if initial is None or self._version or self._clock.now() - opened < FIRST_S:
                raise
            raise NoStreamingList(f"no first byte within {FIRST_S:.0f} s") from error

    async def _read(self, chunks: AsyncIterator[bytes], initial: dict[Key, Object] | None) -> None:
        splitter, pace = LineSplitter(), Pace()
        while True:
            chunk = await self._next_chunk(chunks, FIRST_S if initial is not None else SILENCE_S)
            if chunk is None:
                break
            for line in splitter.feed(chunk):
                event = decode_event(line)
                if initial is None:
                    self._take(event)
                elif event.ends_initial:
                    await self._replace(initial, event.version)
                    initial = None
                else:
                    self._collect(initial, event)
                await pace.step()
        if initial is not None:
            raise NoStreamingList("it ended without its end mark")

    async def _next_chunk(self, chunks: AsyncIterator[bytes], silence_s: float) -> bytes | None:
        try:
            async with self._clock.timeout(silence_s):
                return await anext(chunks, None)
        except TimeoutError as error:
            raise Unreachable(f"watch {self.kind}: silent for {silence_s:.0f} s") from error

    async def _list(self) -> None:
        options = self._options(limit=PAGE_SIZE)
        fresh: dict[Key, Object] = {}
        page = await self._client.list_page(self.kind, self._selection.namespace, options)
        while True:
            self._collect_all(fresh, page.items)
            await asyncio.sleep(0)
            if not page.continue_token:
                break
            try:
                rest = replace(options, continue_token=page.continue_token)
                page = await self._client.list_page(self.kind, self._selection.namespace, rest)
            except Expired:
                fresh.clear()
                whole = replace(options, limit=0)
                page = await self._client.list_page(self.kind, self._selection.namespace, whole)
        await self._replace(fresh, page.resource_version)

    async def _replace(self, fresh: dict[Key, Object], version: str) -> None:
        if not version:
            raise MalformedAnswer(f"list {self.kind}: it carries no resourceVersion")
        pace = Pace()
        for key in self.store.known():
            if key not in fresh:
                self._tell(self.store.remove(key))
                await pace.step()
        for obj in fresh.values():
            self._tell(self.store.put(obj, authoritative=True))
            await pace.step()
        self._version = version
        self._heard()
        self.synced.set()

    def _take(self, event: Event) -> None:
        if event.type == "DELETED":
            self._tell(self.store.remove(key_of(event.object), uid_of(event.object)))
        elif event.type != "BOOKMARK":
            self._tell(self.store.put(self.store.prepare(complete(self.kind, event.object))))
        self._version = event.version or self._version
        self._heard()

    def _collect(self, initial: dict[Key, Object], event: Event) -> None:
        if event.type == "DELETED":
            initial.pop(key_of(event.object), None)
        elif event.type != "BOOKMARK":
            self._collect_all(initial, (complete(self.kind, event.object),))

    def _collect_all(self, fresh: dict[Key, Object], items: Iterable[Object]) -> None:
        for item in items:
            obj = self.store.prepare(item)
            fresh[key_of(obj)] = obj

    def _tell(self, changes: tuple[Change, ...]) -> None:
        for change in changes:
            self._on_change(change)

    def _options(self, *, limit: int) -> ListOptions:
        return ListOptions(
            label_selector=self._selection.label_selector, field_selector=self._selection.field_selector, limit=limit
        )

    def _learn(self, error: OperatorError) -> None:
        """Draw the conclusions of a failure: list again or resume, and say it once."""
        self._failures += 1
        if isinstance(error, ApiError) and self._version:
            self._refusals += 1
            if isinstance(error, Gone) or error.is_of_the_future or self._refusals >= REFUSALS:
                self._version, self._refusals = "", 0
        text = f"{type(error).__name__}: {error}"
        level = logging.DEBUG if text == self._complaint else logging.WARNING
        if isinstance(error, Gone):
            level = logging.INFO
        message = "kind not served yet" if isinstance(error, NotFound) else "watch failed"
        log.log(level, message, extra={"kind": self.kind.kind, "reason": text})
        self._complaint = text

    def _heard(self) -> None:
        if self._complaint:
            log.info("watch recovered", extra={"kind": self.kind.kind})
            self._complaint = ""
        self._refusals = 0

    def _pause(self, lived_s: float, *, failed: bool) -> float:
        if lived_s >= STEADY_S:
            self._failures = 1 if failed else 0
        elif not failed:
            # A server that ends every watch at once must not be asked in a loop.
            self._failures = 0 if lived_s >= 1.0 else self._failures + 1
        if not self._failures:
            return 0.0
        return min(MAX_PAUSE_S, FIRST_PAUSE_S * 2.0 ** (self._failures - 1)) * self._rng.uniform(0.5, 1.0)


def _asked_s(failure: OperatorError | None) -> float:
    """Return the seconds that the server asked us to stay away."""
    asked_s = failure.retry_after if isinstance(failure, ApiError) else None
    return min(asked_s or 0.0, MAX_ASKED_S)
