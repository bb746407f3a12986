"""The cache of one kind: objects by key, and declared indexes.

For: `kube.informer`, which writes; reconcilers and mappers, which read through `Lister`.
In: whole objects. Out: the same dicts, shared: reading only.
Promises:
- managedFields are dropped and the declared projection is applied before an object is stored;
- a namesake (same name, another uid) is a deletion and an addition, never an update;
- an event that repeats or precedes what is stored changes nothing, also one of an older namesake;
- a change that the projection cannot see is stored without being told to anybody;
- an index costs what changed, not what is stored; a failing index or projection hides no object;
- whoever remembers how far he has read is told what changed since, up to the last `JOURNAL` changes;
- with a mutation detector, writing to a cached object is an error that names it.
"""

from __future__ import annotations

import logging
import sys
from collections import deque
from collections.abc import Callable, Collection, Iterable
from itertools import islice
from typing import NamedTuple

import orjson

from kube.errors import OperatorError
from kube.reconciler import Index, Key, Object
from nodefeature.fields import metadata, name_of, namespace_of, uid_of
from nodefeature.kinds import Kind

log = logging.getLogger(__name__)

JOURNAL = 4096
"""Changes that are remembered by key, some 0.5 MiB a kind; a reader further behind reads everything."""


class CacheMutated(OperatorError):
    """Somebody wrote to an object that a cache shares."""


class Change(NamedTuple):
    """What happened to one object: `old` is None for an addition, `new` for a deletion."""

    old: Object | None
    new: Object | None


def key_of(obj: Object) -> Key:
    """Return an object's key."""
    return Key(name_of(obj), namespace_of(obj))


class Store:
    """One kind's objects. Not thread-safe: it lives on the event loop."""

    def __init__(
        self,
        kind: Kind,
        *,
        project: Callable[[Object], Object] | None = None,
        detect_mutations: bool = False,
    ) -> None:
        self.kind = kind
        self._project = project
        self._objects: dict[Key, Object] = {}
        self._indexes: dict[str, _Filing] = {}
        self._seals: dict[Key, bytes] | None = {} if detect_mutations else None
        self._changes = 0
        self._journal: deque[Key] = deque(maxlen=JOURNAL)

    def add_index(self, index: Index) -> None:
        """Declare an index. Declaring the same one twice is fine; another function under its name is not."""
        known = self._indexes.get(index.name)
        if known is not None and known.index.values is not index.values:
            raise OperatorError(f"index {index.name!r} over {self.kind} is declared twice with different functions")
        if known is None:
            filing = self._indexes[index.name] = _Filing(index)
            for key, obj in self._objects.items():
                filing.file(key, obj)

    def get(self, key: Key) -> Object | None:
        """Return the cached object, or None."""
        return self._objects.get(key)

    def list(self) -> Iterable[Object]:
        """Return every cached object, as of now."""
        return tuple(self._objects.values())

    def by(self, index: str, value: str) -> Iterable[Object]:
        """Return the objects that a declared index files under `value`, as of now."""
        return tuple(self._objects[key] for key in self._indexes[index].keys(value))

    def values(self, index: str) -> Collection[str]:
        """Return every value that a declared index files something under, as of now."""
        return self._indexes[index].values()

    def changed(self, since: int) -> tuple[int, Collection[Key] | None]:
        """Return the number of changes so far and the keys of those after the first `since`; None: read everything."""
        count = self._changes - since
        if since < 0 or count > len(self._journal):
            return self._changes, None
        return self._changes, set(islice(reversed(self._journal), count))

    def known(self) -> tuple[Key, ...]:
        """Return every cached key, as of now."""
        return tuple(self._objects)

    def __len__(self) -> int:
        return len(self._objects)

    def prepare(self, obj: Object) -> Object:
        """Cut an object down to what is stored. The caller gives it away."""
        meta = obj.get("metadata")
        if isinstance(meta, dict):
            meta.pop("managedFields", None)
            _share_labels(meta)
        if self._project is None:
            return obj
        try:
            return self._project(obj)
        except Exception:  # it must not hide the object: absence would be read as a deletion
            log.exception("projection failed", extra={"kind": self.kind.kind, "object": str(key_of(obj))})
            return obj

    def put(self, obj: Object, *, authoritative: bool = False) -> tuple[Change, ...]:
        """Store a prepared object and say what changed. A list is authoritative: it may go back in versions."""
        key = key_of(obj)
        old = self._objects.get(key)
        if old is None:
            self._set(key, obj)
            self._note(key)
            return (Change(None, obj),)
        namesake = uid_of(old) != uid_of(obj)
        if not (namesake and authoritative) and not _moves_on(old, obj, authoritative=authoritative):
            return ()
        if namesake:
            self._drop(key)
            self._set(key, obj)
            self._note(key)
            return (Change(old, None), Change(None, obj))
        self._set(key, obj)
        if not _differs(old, obj):
            return ()
        self._note(key)
        return (Change(old, obj),)

    def remove(self, key: Key, uid: str = "") -> tuple[Change, ...]:
        """Forget an object; with a uid only if it is still that one. The change carries its last known state."""
        old = self._objects.get(key)
        if old is None or (uid and uid_of(old) and uid_of(old) != uid):
            return ()
        self._drop(key)
        self._note(key)
        return (Change(old, None),)

    def check(self) -> None:
        """Raise CacheMutated when a cached object was written to. Does nothing without the detector."""
        for key in self._seals or ():
            self._check_seal(key)

    def _set(self, key: Key, obj: Object) -> None:
        if self._seals is not None:
            self._check_seal(key)
            self._seals[key] = _seal(obj)
        self._objects[key] = obj
        for filing in self._indexes.values():
            filing.file(key, obj)

    def _drop(self, key: Key) -> None:
        if self._seals is not None:
            self._check_seal(key)
            del self._seals[key]
        del self._objects[key]
        for filing in self._indexes.values():
            filing.forget(key)

    def _note(self, key: Key) -> None:
        self._changes += 1
        self._journal.append(key)

    def _check_seal(self, key: Key) -> None:
        if self._seals and key in self._seals and self._seals[key] != _seal(self._objects[key]):
            raise CacheMutated(f"cached {self.kind} {key} was written to; copy before changing")


class _Filing:
    """One index: value -> keys, and what each key is filed under."""

    def __init__(self, index: Index) -> None:
        self.index = index
        self._keys: dict[str, dict[Key, None]] = {}
        self._values: dict[Key, tuple[str, ...]] = {}

    def keys(self, value: str) -> Iterable[Key]:
        return self._keys.get(value, ())

    def values(self) -> tuple[str, ...]:
        return tuple(self._keys)

    def file(self, key: Key, obj: Object) -> None:
        values = self._read(key, obj)
        if values == self._values.get(key, ()):
            return
        self.forget(key)
        if values:
            self._values[key] = values
        for value in values:
            self._keys.setdefault(value, {})[key] = None

    def forget(self, key: Key) -> None:
        for value in self._values.pop(key, ()):
            keys = self._keys[value]
            keys.pop(key, None)
            if not keys:
                del self._keys[value]

    def _read(self, key: Key, obj: Object) -> tuple[str, ...]:
        try:
            return tuple(dict.fromkeys(sys.intern(value) for value in self.index.values(obj)))
        except Exception:  # one odd object must not stop the others
            extra = {"kind": self.index.kind.kind, "object": str(key), "reason": self.index.name}
            log.exception("index failed", extra=extra)
            return ()


def _share_labels(meta: Object) -> None:
    # Thousands of objects carry the same few label values; one copy of each is enough.
    labels = meta.get("labels")
    if isinstance(labels, dict):
        for key, value in labels.items():
            if type(value) is str:
                labels[key] = sys.intern(value)


def _moves_on(old: Object, new: Object, *, authoritative: bool) -> bool:
    before, after = metadata(old).get("resourceVersion"), metadata(new).get("resourceVersion")
    if before == after:
        return before is None  # objects without a version are always believed
    if authoritative or not _is_number(before) or not _is_number(after):
        return True
    return int(str(after)) > int(str(before))


def _is_number(version: object) -> bool:
    return isinstance(version, str) and version.isascii() and version.isdigit()


def _differs(old: Object, new: Object) -> bool:
    if old.keys() != new.keys():
        return True
    if any(old[field] != value for field, value in new.items() if field != "metadata"):
        return True
    return _without_version(old) != _without_version(new)


def _without_version(obj: Object) -> Object:
    return {field: value for field, value in metadata(obj).items() if field != "resourceVersion"}


def _seal(obj: Object) -> bytes:
    return orjson.dumps(obj, option=orjson.OPT_SORT_KEYS)
