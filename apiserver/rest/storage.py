"""What the engine asks of a storage, and what a served resource is.

For: `app`, `discovery`, `table`, which read resources; the devcluster and the aggregated server, which bring storages.
In/Out: frozen descriptions and the `Storage` protocol.
Promises: a `Document` is bytes that are encoded once and shared by every reader and watcher; an `EventStream` gives
its initial state apart from its changes, so that the engine itself closes every streaming list with its end mark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import orjson

from apiserver.rest import status
from apiserver.rest.options import DeleteOptions, ListOptions, WatchOptions, WriteOptions
from apiserver.rest.patch import Patch, PatchType
from apiserver.rest.request_info import RequestInfo

Object = dict[str, Any]


class Document:
    """One object in its final JSON encoding."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data

    def load(self) -> Object:
        """Return a fresh decoded copy."""
        value: Object = orjson.loads(self.data)
        return value


@dataclass(frozen=True, slots=True)
class User:
    """Who asks."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Call:
    """One authorized request on a resource."""

    info: RequestInfo
    user: User


@dataclass(frozen=True, slots=True)
class Page:
    """A list, or one page of it."""

    items: Sequence[Document]
    resource_version: str
    continue_token: str = ""
    remaining: int = 0


@dataclass(frozen=True, slots=True)
class Written:
    """The outcome of an update or patch; `created` answers 201. `warnings`, plain texts, become `Warning` headers."""

    document: Document
    created: bool = False
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Deleted:
    """The outcome of a delete: the object while it lingers, else what the Status names. `uid` of what is gone."""

    document: Document | None = None
    uid: str = ""


@dataclass(frozen=True, slots=True)
class Event:
    """One change: ADDED, MODIFIED or DELETED."""

    type: str
    document: Document


class EventStream(Protocol):
    """One open watch."""

    initial: Sequence[Document]
    """Objects that exist at the start; empty unless `WatchOptions.initial`."""

    @property
    def resource_version(self) -> str:
        """A version from which a client could resume after what was handed out so far."""

    async def next(self, wait_s: float) -> Sequence[Event] | None:
        """Wait at most `wait_s` for changes; nothing when none came, None when the stream ended.

        Raises Refusal 410 when the reader fell out of the kept history.
        """

    def close(self) -> None:
        """End the stream: a waiting `next` answers None at once."""


class Storage(Protocol):
    """The store behind one resource. Sub-resources without a connector come here too, named in `call.info`."""

    async def get(self, call: Call) -> Document:
        """Return one object; raises Refusal 404."""

    async def list(self, call: Call, options: ListOptions) -> Page:
        """Return the selected objects in a stable order."""

    async def watch(self, call: Call, options: WatchOptions) -> EventStream:
        """Open a watch; raises Refusal 410 or 504 for versions it cannot start from."""

    async def create(self, call: Call, obj: Object, options: WriteOptions) -> Written:
        """Create an object; raises Refusal 409, 422."""

    async def update(self, call: Call, obj: Object, options: WriteOptions) -> Written:
        """Replace an object."""

    async def patch(self, call: Call, patch: Patch, options: WriteOptions) -> Written:
        """Patch an object; only an apply may create it."""

    async def delete(self, call: Call, options: DeleteOptions) -> Deleted:
        """Delete an object, or mark it while finalizers run."""

    async def deletecollection(self, call: Call, options: ListOptions, delete: DeleteOptions) -> Page:
        """Delete every selected object."""


class Connector(Protocol):
    """A sub-resource that speaks for itself (logs, proxies): it gets the connection."""

    async def __call__(self, call: Call, scope: Mapping[str, Any], receive: Any, send: Any) -> None:
        """Answer the request."""


Cell = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a Table: a path into the object, or a function of it."""

    name: str
    path: str = ""
    type: str = "string"
    format: str = ""
    description: str = ""
    priority: int = 0
    render: Callable[[Mapping[str, Any]], Cell] | None = None
    declared: bool = False
    """Declared by a CRD: its definition then names the type `date`, where built-in columns say `string`."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A query parameter that a sub-resource takes beside those of its verb. `type` is that of JSON schema."""

    name: str
    type: str
    description: str
    least: int | None = None
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Subresource:
    """A declared sub-resource. What it takes and answers is shown in OpenAPI, and nowhere said twice."""

    name: str
    kind: str
    verbs: tuple[str, ...]
    group: str = ""
    version: str = ""
    connector: Connector | None = None
    long_running: bool = False
    parameters: tuple[Parameter, ...] = ()
    media_type: str = "application/json"
    schema: Mapping[str, Any] | None = None
    """OpenAPI v3 schema of the kind, when it is not that of the resource."""


@dataclass(frozen=True, slots=True)
class Resource:
    """One served resource of one version."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    storage: Storage
    singular: str = ""
    list_kind: str = ""
    verbs: tuple[str, ...] = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: Mapping[str, Subresource] = field(default_factory=dict)
    columns: tuple[Column, ...] = ()
    fields: frozenset[str] = frozenset({"metadata.name", "metadata.namespace"})
    """Field labels that selectors may name."""
    patch_types: tuple[PatchType, ...] = (PatchType.JSON, PatchType.MERGE, PatchType.APPLY)
    schema: Mapping[str, Any] | None = None
    """OpenAPI v3 schema of the kind, when one is known."""
    connector: Connector | None = None
    """Answers every request on this resource by itself (a forwarder); the storage is then never asked."""

    @property
    def api_version(self) -> str:
        """Return the `apiVersion` of its objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def list_name(self) -> str:
        """Return the kind of its lists."""
        return self.list_kind or self.kind + "List"

    @property
    def singular_name(self) -> str:
        """Return the singular used by discovery."""
        return self.singular or self.kind.lower()


class Catalog:
    """The resources that are served now. Changes when CRDs come and go."""

    def __init__(self, resources: Iterable[Resource] = ()) -> None:
        self._resources: dict[tuple[str, str, str], Resource] = {}
        self.generation = 0
        self.ready = True
        """False answers 503, never 404, to unknown paths: garbage collection acts on 404 (case B023)."""
        self.relays: dict[tuple[str, str], Connector] = {}
        """Group versions that another server answers: it gets what is asked below them and is no known resource."""
        for resource in resources:
            self.add(resource)

    def add(self, resource: Resource) -> None:
        """Serve a resource, replacing one of the same group, version and plural."""
        self._resources[resource.group, resource.version, resource.plural] = resource
        self.generation += 1

    def remove(self, group: str, version: str, plural: str) -> None:
        """Stop serving a resource; absent is done."""
        if self._resources.pop((group, version, plural), None) is not None:
            self.generation += 1

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        """Return the resource behind a path."""
        return self._resources.get((group, version, plural))

    def all(self) -> Iterable[Resource]:
        """Return every resource in the order of registration."""
        return self._resources.values()


class Unserved:
    """Answers 405 to every verb: the base of storages that serve a few of them."""

    def _refuse(self, call: Call) -> status.Refusal:
        return status.method_not_allowed(call.info.resource, call.info.group, call.info.verb)

    async def get(self, call: Call) -> Document:
        """Refuse."""
        raise self._refuse(call)

    async def list(self, call: Call, options: ListOptions) -> Page:
        """Refuse."""
        raise self._refuse(call)

    async def watch(self, call: Call, options: WatchOptions) -> EventStream:
        """Refuse."""
        raise self._refuse(call)

    async def create(self, call: Call, obj: Object, options: WriteOptions) -> Written:
        """Refuse."""
        raise self._refuse(call)

    async def update(self, call: Call, obj: Object, options: WriteOptions) -> Written:
        """Refuse."""
        raise self._refuse(call)

    async def patch(self, call: Call, patch: Patch, options: WriteOptions) -> Written:
        """Refuse."""
        raise self._refuse(call)

    async def delete(self, call: Call, options: DeleteOptions) -> Deleted:
        """Refuse."""
        raise self._refuse(call)

    async def deletecollection(self, call: Call, options: ListOptions, delete: DeleteOptions) -> Page:
        """Refuse."""
        raise self._refuse(call)
