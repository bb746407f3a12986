"""What a reconciler declares and answers.

For: `controllers`, `devicemanager` and the stand-ins, which declare; `kube.runtime`, which runs.
Promises: a request is a key, never an event; an answer is `DONE`, `After(seconds)`, a raised error (backed off), or
`Terminal` (logged once as a condition-worthy error, never retried until the object changes). See house manner 5 and 6.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol, TypeAlias

from nodefeature.kinds import Kind

Object: TypeAlias = dict[str, Any]
"""A raw Kubernetes object. Objects handed out by a cache are shared: reading only."""


class Key(NamedTuple):
    """Name of one object; `namespace` is empty for cluster-scoped kinds."""

    name: str
    namespace: str = ""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


@dataclass(frozen=True, slots=True)
class Done:
    """Nothing more to do until something changes."""


@dataclass(frozen=True, slots=True)
class After:
    """Run this key again after `seconds`, unless a change comes first."""

    seconds: float


DONE = Done()
Outcome: TypeAlias = Done | After


class Lister(Protocol):
    """Read side of one kind's cache."""

    def get(self, key: Key) -> Object | None:
        """Return the cached object, or None."""

    def list(self) -> Iterable[Object]:
        """Return every cached object."""

    def by(self, index: str, value: str) -> Iterable[Object]:
        """Return the objects that a declared index files under `value`."""

    def values(self, index: str) -> Collection[str]:
        """Return every value that a declared index files something under."""

    def changed(self, since: int) -> tuple[int, Collection[Key] | None]:
        """Return the number of changes so far, and the keys of those after the first `since`.

        None instead of keys: too many to tell, or `since` is negative; read everything.
        """


class Caches(Protocol):
    """Read side of all declared kinds: `caches[NODE].get(Key("n1"))`."""

    def __getitem__(self, kind: Kind) -> Lister:
        """Return the cache of a kind that some reconciler declared in WATCHES or READS; KeyError otherwise."""


MapChange: TypeAlias = Callable[[Object | None, Object | None, Caches], Iterable[Key]]
"""(old, new, caches) -> keys to run. `old` is None for an added object, `new` is None for a deleted one."""


@dataclass(frozen=True, slots=True)
class Watch:
    """One source of requests.

    `keys` both filters (answer nothing) and maps. `window_s`: requests of one key inside the window run once, at its
    end. `first_at_once`: one that comes when the key has not run for that long does not wait; the window is behind it.
    """

    kind: Kind
    keys: MapChange
    window_s: float = 0.0
    first_at_once: bool = False


@dataclass(frozen=True, slots=True)
class Index:
    """A declared, incrementally kept index over one kind's cache."""

    kind: Kind
    name: str
    values: Callable[[Object], Iterable[str]]


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of RBAC that a reconciler needs; `namespace` empty means cluster-wide."""

    group: str
    resource: str
    verbs: tuple[str, ...]
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class Selection:
    """What of a kind is cached: server-side selectors, and a projection applied before storing (None keeps all)."""

    label_selector: str = ""
    field_selector: str = ""
    namespace: str = ""
    project: Callable[[Object], Object] | None = None


class Reconciler(Protocol):
    """One controller. The class attributes are read before any instance exists."""

    NAME: ClassVar[str]
    WATCHES: ClassVar[tuple[Watch, ...]]
    READS: ClassVar[tuple[Kind, ...]]
    """Kinds read from the cache without being a source of requests."""
    INDEXES: ClassVar[tuple[Index, ...]]
    RBAC: ClassVar[tuple[Rule, ...]]

    async def reconcile(self, key: Key) -> Outcome:
        """Bring the world of `key` to where it should be."""
