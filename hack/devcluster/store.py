"""Objects, versions and history of the devcluster.

For: `objects`, `crds`, `collector`. In: decoded objects. Out: `Entry`s (encoded once, shared by all readers), event
streams, pages.
Promises:
- one resourceVersion counter for everything; it never goes back, also after a restart;
- a write is in SQLite before it is answered or watched (`committed`); killing the process loses nothing that anybody
  was told (losing the machine may: synchronous is off). Writes of one turn of the event loop share a transaction;
- history is kept in memory, by count and by bytes; whoever asks for older gets 410, also after a restart;
- pages of one list come from one snapshot; a snapshot that went away is 410.
Everything here runs on the event loop: a write takes some 20 to 50 µs, less than handing it to a thread.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import sqlite3
import uuid
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from apiserver.rest import status
from apiserver.rest.negotiation import encode
from apiserver.rest.options import ListOptions, WatchOptions
from apiserver.rest.selectors import FieldSelector, LabelSelector
from apiserver.rest.storage import Document, Event, Page
from nodefeature.fields import as_list, as_maps, as_str, at

HISTORY_EVENTS = 20_000
HISTORY_BYTES = 48 * 1024 * 1024
BATCH = 500
_SNAPSHOTS = 64

Object = dict[str, Any]
Place = tuple[str, str]
"""(namespace, name)."""
_EMPTY: Mapping[str, str] = {}


class Entry(Document):
    """One stored state of one object; never changes."""

    __slots__ = ("deleting", "fields", "finalizers", "labels", "name", "namespace", "owners", "uid", "version")

    def __init__(self, data: bytes, obj: Object, version: int, fields: Sequence[str]) -> None:
        super().__init__(data)
        self.version = version
        meta = obj["metadata"]
        self.name: str = meta["name"]
        self.namespace: str = meta.get("namespace", "")
        self.uid: str = meta.get("uid", "")
        self.labels: Mapping[str, str] = meta.get("labels") or _EMPTY
        self.owners = tuple(as_str(ref.get("uid")) for ref in as_maps(meta.get("ownerReferences")))
        self.deleting = "deletionTimestamp" in meta
        self.finalizers = tuple(as_list(meta.get("finalizers")))
        self.fields = {path: _field_text(obj, path) for path in fields} if fields else _EMPTY

    @property
    def place(self) -> Place:
        """Return where the object lives inside its resource."""
        return self.namespace, self.name

    def read_field(self, path: str) -> str:
        """Return the text of a selectable field."""
        if path == "metadata.name":
            return self.name
        return self.namespace if path == "metadata.namespace" else self.fields.get(path, "")


def _ordered(obj: Object) -> Object:
    """Return the object as kube-apiserver writes it: version, kind and metadata first."""
    return {"apiVersion": obj.get("apiVersion"), "kind": obj.get("kind"), "metadata": obj["metadata"], **obj}


def _field_text(obj: Object, path: str) -> str:
    value = at(obj, *path.split("."))
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, (str, int)) else ""


class Change(NamedTuple):
    """One entry of the history."""

    version: int
    type: str
    entry: Entry
    previous: Entry | None


class Shelf:
    """All objects of one resource, and what happened to them lately."""

    def __init__(self, resource: str, fields: Sequence[str], start: int) -> None:
        self.resource = resource
        self.fields = tuple(fields)
        self.entries: dict[Place, Entry] = {}
        self.history: list[Change] = []
        self.first = 0
        """Number of the oldest change in `history`, counted from the start of the process."""
        self.compacted = start
        """The newest version that watches can no longer start before."""
        self.visible = 0
        """Number of the first change that is not committed yet: watches stop there."""
        self._bytes = 0
        self._order: list[Place] | None = None
        self._waiters: set[asyncio.Future[None]] = set()

    def load(self, entry: Entry) -> None:
        """Take in an object that was stored before this process."""
        self.entries[entry.place] = entry
        self._order = None

    def reindex(self, fields: Sequence[str]) -> None:
        """Let selectors name other fields from now on; watches that knew the old ones have to list again."""
        self.fields = tuple(fields)
        for entry in tuple(self.entries.values()):
            self.entries[entry.place] = Entry(entry.data, entry.load(), entry.version, self.fields)
        self.compact(self.visible - self.first)

    def publish(self, change: Change) -> None:
        """Make a stored change visible."""
        place = change.entry.place
        if change.type == "DELETED":
            del self.entries[place]
            self._order = None
        else:
            if change.previous is None:
                self._order = None
            self.entries[place] = change.entry
        self.history.append(change)
        self._bytes += len(change.entry.data)
        if len(self.history) > HISTORY_EVENTS or self._bytes > HISTORY_BYTES:
            self.compact(min(len(self.history) // 2, self.visible - self.first))

    def reveal(self) -> None:
        """Show watches everything so far."""
        self.visible = self.first + len(self.history)
        self.wake()

    def compact(self, count: int) -> None:
        """Forget the oldest `count` changes."""
        if count <= 0:
            return
        self.compacted = self.history[count - 1].version
        self._bytes -= sum(len(change.entry.data) for change in self.history[:count])
        del self.history[:count]
        self.first += count

    def ordered(self, namespace: str = "") -> Iterator[Entry]:
        """Yield the entries, of one namespace or all, by namespace and name."""
        if self._order is None:
            self._order = sorted(self.entries)
        for place in self._order:
            if not namespace or place[0] == namespace:
                yield self.entries[place]

    async def changed(self, wait_s: float) -> None:
        """Return at the next change, or after `wait_s`."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiters.add(waiter)
        timer = loop.call_later(wait_s, _wake, waiter)
        try:
            await waiter
        finally:
            timer.cancel()
            self._waiters.discard(waiter)

    def wake(self) -> None:
        """Let every waiting stream look again."""
        for waiter in tuple(self._waiters):
            _wake(waiter)


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


class Filter(NamedTuple):
    """What of a shelf a reader wants."""

    namespace: str
    labels: LabelSelector
    fields: FieldSelector

    def passes(self, entry: Entry) -> bool:
        """Say whether an entry is wanted."""
        return (
            (not self.namespace or entry.namespace == self.namespace)
            and (not self.labels or self.labels.matches(entry.labels))
            and (not self.fields or self.fields.matches(entry.read_field))
        )

    @property
    def is_open(self) -> bool:
        """Say whether everything passes."""
        return not (self.namespace or self.labels or self.fields)


class ShelfStream:
    """One watch on a shelf; follows the shared history with a position of its own."""

    def __init__(self, store: Store, shelf: Shelf, wanted: Filter, *, position: int, initial: Sequence[Entry]) -> None:
        self.initial: Sequence[Document] = initial
        self._store = store
        self._shelf = shelf
        self._wanted = wanted
        self._position = position
        self._start = store.version
        self._closed = False

    @property
    def resource_version(self) -> str:
        """Return the version up to which everything was handed out."""
        offset = self._position - self._shelf.first
        if self._position >= self._shelf.visible:
            return str(self._store.committed_version)
        return str(self._shelf.history[offset - 1].version if offset > 0 else self._start)

    def close(self) -> None:
        """End the stream."""
        self._closed = True
        self._shelf.wake()

    async def next(self, wait_s: float) -> Sequence[Event] | None:
        """Wait at most `wait_s` for wanted changes."""
        loop = asyncio.get_running_loop()
        until = loop.time() + wait_s
        while not self._closed:
            events = self._take()
            left = until - loop.time()
            if events or left <= 0:
                return events
            await self._shelf.changed(left)
        return None

    def _take(self) -> list[Event]:
        shelf = self._shelf
        if self._position < shelf.first:
            raise status.expired(f"too old resource version: the watch fell behind {shelf.compacted}")
        events: list[Event] = []
        while not events:
            offset = self._position - shelf.first
            changes = shelf.history[offset : min(offset + BATCH, shelf.visible - shelf.first)]
            if not changes:
                break
            self._position += len(changes)
            if self._wanted.is_open:
                return [Event(change.type, change.entry) for change in changes]
            events = [event for event in map(self._seen, changes) if event is not None]
        return events

    def _seen(self, change: Change) -> Event | None:
        """Return a change as this watch sees it: entering is ADDED, leaving is DELETED with the last state."""
        was = change.previous is not None and self._wanted.passes(change.previous)
        now = change.type != "DELETED" and self._wanted.passes(change.entry)
        if now:
            return Event("MODIFIED" if was else "ADDED", change.entry)
        if not was or change.previous is None:
            return None
        if change.type == "DELETED":
            return Event("DELETED", change.entry)
        last = change.previous.load()
        last["metadata"]["resourceVersion"] = str(change.version)
        return Event("DELETED", Document(encode(last)))


_PUT = "INSERT OR REPLACE INTO objects VALUES(?, ?, ?, ?, ?)"
_REMOVE = "DELETE FROM objects WHERE resource = ? AND namespace = ? AND name = ?"
Listener = Callable[[str, Change], None]


class Store:
    """Every shelf, the counter, and the file behind them."""

    def __init__(self, path: Path | str = ":memory:") -> None:
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.executescript(
            """
            PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF; PRAGMA temp_store=MEMORY;
            CREATE TABLE IF NOT EXISTS objects(
              resource TEXT, namespace TEXT, name TEXT, version INTEGER, data BLOB,
              PRIMARY KEY(resource, namespace, name));
            CREATE TABLE IF NOT EXISTS counter(id INTEGER PRIMARY KEY CHECK (id = 0), version INTEGER);
            INSERT OR IGNORE INTO counter VALUES(0, 0);
            """
        )
        found = self._db.execute("SELECT max((SELECT version FROM counter), ifnull(max(version), 0)) FROM objects")
        self.version: int = found.fetchone()[0]
        self.committed_version = self.version
        self._pending: list[tuple[str, tuple[Any, ...]]] = []
        self._touched: dict[Shelf, None] = {}
        self._broken: sqlite3.Error | None = None
        self._shelves: dict[str, Shelf] = {}
        self._listeners: list[Listener] = []
        self._snapshots: OrderedDict[int, tuple[list[Entry], int]] = OrderedDict()
        self._numbers = itertools.count(1)
        self._epoch = uuid.uuid4().hex[:12]

    def close(self) -> None:
        """Write what is pending and close the file."""
        if self._pending:
            self.commit()
        self._db.close()

    def listen(self, listener: Listener) -> None:
        """Call `listener(resource, change)` synchronously after every change."""
        self._listeners.append(listener)

    def shelf(self, resource: str, fields: Sequence[str] | None = None) -> Shelf:
        """Return the shelf of a resource (`<plural>.<group>`), read from the file at first use.

        `fields` are those that selectors may name; None takes them as they are.
        """
        shelf = self._shelves.get(resource)
        if shelf is None:
            shelf = self._shelves[resource] = Shelf(resource, fields or (), self.version)
            rows = self._db.execute("SELECT version, data FROM objects WHERE resource = ?", (resource,))
            for version, data in rows:
                shelf.load(Entry(data, orjson.loads(data), version, shelf.fields))
        elif fields is not None and tuple(fields) != shelf.fields:
            shelf.reindex(fields)
        return shelf

    def shelves(self) -> Sequence[Shelf]:
        """Return the shelves in use."""
        return tuple(self._shelves.values())

    def put(self, shelf: Shelf, obj: Object, previous: Entry | None) -> Entry:
        """Store a new state; `obj` gets its resourceVersion."""
        version = self.version + 1
        obj["metadata"]["resourceVersion"] = str(version)
        entry = Entry(encode(_ordered(obj)), obj, version, shelf.fields)
        self._pending.append((_PUT, (shelf.resource, entry.namespace, entry.name, version, entry.data)))
        self._publish(shelf, Change(version, "ADDED" if previous is None else "MODIFIED", entry, previous))
        return entry

    def remove(self, shelf: Shelf, obj: Object, previous: Entry) -> Entry:
        """Delete an object whose last state is `obj`."""
        version = self.version + 1
        obj["metadata"]["resourceVersion"] = str(version)
        entry = Entry(encode(_ordered(obj)), obj, version, shelf.fields)
        self._pending.append((_REMOVE, (shelf.resource, entry.namespace, entry.name)))
        self._publish(shelf, Change(version, "DELETED", entry, previous))
        return entry

    def _publish(self, shelf: Shelf, change: Change) -> None:
        self.version = change.version
        shelf.publish(change)
        self._touched[shelf] = None
        if len(self._pending) == 1:
            self._schedule()
        for listener in self._listeners:
            listener(shelf.resource, change)

    def _schedule(self) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self.commit()
            return
        loop.call_soon(self.commit)

    async def committed(self) -> None:
        """Return once every write so far is in the file; raises Refusal 500 when the file cannot take them."""
        if self._pending:
            await asyncio.sleep(0)  # the commit stands in the loop's queue already, before us
        if self._broken is not None:
            raise status.internal_error(f"the devcluster's file cannot be written: {self._broken}")

    def commit(self) -> None:
        """Write what is pending in one transaction, then show it to watches."""
        pending, self._pending = self._pending, []
        touched, self._touched = self._touched, {}
        try:
            self._db.execute("BEGIN")
            for statement, values in pending:
                self._db.execute(statement, values)
            if any(statement is _REMOVE for statement, _ in pending):
                # A stored object carries its version itself; what is gone does not.
                self._db.execute("UPDATE counter SET version = ?", (self.version,))
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            # Memory is ahead of the file now. Nobody was told, and nobody will be: only a restart helps.
            self._broken = error
            return
        self.committed_version = self.version
        for shelf in touched:
            shelf.reveal()

    def forget(self) -> None:
        """Drop history and snapshots up to now, as a compaction of etcd does: older versions and tokens are 410."""
        self._snapshots.clear()
        for shelf in self._shelves.values():
            shelf.compact(shelf.visible - shelf.first)

    def page(self, shelf: Shelf, namespace: str, options: ListOptions) -> Page:
        """Return a list or one page of it; raises Refusal 400, 410 or 504."""
        if options.continue_token:
            number, start = self._read_token(options.continue_token)
            if number not in self._snapshots:
                raise status.expired("The provided continue parameter is too old: its snapshot is gone. Start over.")
            found, version = self._snapshots[number]
            self._snapshots.move_to_end(number)
        else:
            number, start, version = 0, 0, self._list_version(shelf, options)
            wanted = Filter(namespace, options.labels, options.fields)
            found = [entry for entry in shelf.ordered(namespace) if wanted.passes(entry)]
        if not options.limit or start + options.limit >= len(found):
            return Page(found[start:] if start else found, str(version))
        end = start + options.limit
        number = number or self._keep(found, version)
        selecting = bool(options.labels or options.fields)
        token = self._token(number, end)
        return Page(found[start:end], str(version), token, 0 if selecting else len(found) - end)

    def _list_version(self, shelf: Shelf, options: ListOptions) -> int:
        asked = options.resource_version or 0
        if asked > self.version:
            raise status.version_too_large(asked, self.version)
        if options.match == "Exact" and asked != self.version:
            last = shelf.history[-1].version if shelf.history else shelf.compacted
            if asked < last:
                raise status.expired(f"too old resource version: {asked} ({last})")
            return asked
        return self.version

    def _keep(self, found: list[Entry], version: int) -> int:
        number = next(self._numbers)
        self._snapshots[number] = (found, version)
        if len(self._snapshots) > _SNAPSHOTS:
            self._snapshots.popitem(last=False)
        return number

    def _token(self, number: int, start: int) -> str:
        return base64.urlsafe_b64encode(encode([self._epoch, number, start])).decode().rstrip("=")

    def _read_token(self, token: str) -> tuple[int, int]:
        try:
            padded = token + "=" * (-len(token) % 4)
            epoch, number, start = orjson.loads(base64.urlsafe_b64decode(padded))
        except (ValueError, TypeError) as error:
            raise status.bad_request("continue key is not valid") from error
        if not (isinstance(number, int) and isinstance(start, int) and start >= 0):
            raise status.bad_request("continue key is not valid")
        return (number if epoch == self._epoch else 0), start

    def stream(self, shelf: Shelf, namespace: str, options: WatchOptions) -> ShelfStream:
        """Open a watch; raises Refusal 410 for versions before the history, 504 for the future."""
        asked = options.resource_version or 0
        if asked > self.version:
            raise status.version_too_large(asked, self.version)
        wanted = Filter(namespace, options.labels, options.fields)
        if options.initial or not asked:
            initial = [e for e in shelf.ordered(namespace) if wanted.passes(e)] if options.initial else []
            position = shelf.first + len(shelf.history)
            return ShelfStream(self, shelf, wanted, position=position, initial=initial)
        if asked < shelf.compacted:
            raise status.expired(f"too old resource version: {asked} ({shelf.compacted})")
        offset = bisect_right(shelf.history, asked, key=lambda change: change.version)
        return ShelfStream(self, shelf, wanted, position=shelf.first + offset, initial=())
