"""An API server in memory, below `kube.client`: only the wire is faked.

For: reconcile tests. `FakeApi` stores objects with resourceVersions, generations, finalizers, status isolation and
preconditions, records every write that changed something, and refuses names and labels the API server would refuse.
`Bench` runs reconcilers on its changes, as the runtime would, with windows of no length and virtual time.
Leaves out: selectors on watches, paging, apply's field ownership, defaulting, schemas.
"""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import jsonpatch
import orjson

from kube.client import Client
from kube.connection import Connection
from kube.errors import Terminal, class_of
from kube.reconciler import After, Key, Object, Reconciler, Selection
from kube.requests import Request
from nodefeature import kinds
from nodefeature.destinations import is_label_value, is_object_name, is_qualified_name
from nodefeature.fields import as_list, as_map, at, labels_of, name_of, namespace_of
from nodefeature.kinds import Kind
from tests.builders.virtual_clock import VirtualClock

KINDS = tuple(value for value in vars(kinds).values() if isinstance(value, Kind))
WITH_STATUS = frozenset(
    {kinds.NODE, kinds.DEVICES, kinds.INSTANCE, kinds.INSTANCE_TYPE, kinds.CLUSTER_QUEUE, kinds.LOCAL_QUEUE}
    | {kinds.WORKLOAD, kinds.ADMISSION_CHECK, kinds.POD}
)
Rule = Callable[[Object | None, Object], str]
"""(old, new) -> what is wrong; empty when the write is legal."""


@dataclass(frozen=True, slots=True)
class Write:
    """One request that changed the store."""

    verb: str
    kind: Kind
    key: Key
    manager: str
    body: Any = None

    def __str__(self) -> str:
        return f"{self.verb} {self.kind} {self.key} by {self.manager}"


@dataclass(frozen=True, slots=True)
class Change:
    """One event as informers see it."""

    kind: Kind
    old: Object | None
    new: Object | None


def flavor_is_immutable(old: Object | None, new: Object) -> str:
    """Kueue's rule: the spec of a flavor that names a Topology never changes."""
    if old is not None and at(old, "spec", "topologyName") and old.get("spec") != new.get("spec"):
        return "spec: resourceFlavorSpec are immutable when topologyName is set"
    if len(as_list(at(new, "spec", "tolerations"))) > 8 or len(as_map(at(new, "spec", "nodeLabels"))) > 8:
        return "spec: at most 8 tolerations and 8 nodeLabels"
    return ""


class FakeApi:
    """The store behind the wire."""

    def __init__(self, rules: Mapping[Kind, Rule] | None = None) -> None:
        self.store: dict[Kind, dict[Key, Object]] = {kind: {} for kind in KINDS}
        self.rules: dict[Kind, Rule] = {kinds.RESOURCE_FLAVOR: flavor_is_immutable, **(rules or {})}
        self.unserved: set[Kind] = set()
        self.faults: list[Callable[[Request], Exception | None]] = []
        self.writes: list[Write] = []
        self.reads: list[str] = []
        self.changes: list[Change] = []
        self.journal: dict[Kind, list[Key]] = {kind: [] for kind in KINDS}
        self.minor = "36"
        self._version = 100

    def client(self, manager: str = "test") -> Client:
        """Return a client whose requests end here."""
        return Client(cast(Connection, _Wire(self)), field_manager=manager)

    # What a test does to the cluster, without the wire and without being counted.

    def add(self, kind: Kind, *objects: Object) -> None:
        """Put objects there, or replace their namesakes."""
        for given in objects:
            obj = copy.deepcopy(given)
            key = Key(name_of(obj), namespace_of(obj))
            old = self.store[kind].get(key)
            obj.setdefault("metadata", {}).setdefault("uid", f"uid-{kind.plural}-{key.name}")
            obj["metadata"]["uid"] = obj["metadata"]["uid"] or "uid"
            self._keep(kind, key, old, obj)

    def edit(self, kind: Kind, name: str, patch: Object, namespace: str = "") -> None:
        """Merge a patch into an object, whatever it touches."""
        key = Key(name, namespace)
        old = self.store[kind][key]
        self._keep(kind, key, old, merge(old, patch))

    def remove(self, kind: Kind, name: str, namespace: str = "") -> None:
        """Take an object away, finalizers or not."""
        self._drop(kind, Key(name, namespace))

    def get(self, kind: Kind, name: str, namespace: str = "") -> Object | None:
        """Return a stored object; None when it is not there."""
        return self.store[kind].get(Key(name, namespace))

    def names(self, kind: Kind) -> list[str]:
        """Return the sorted names of a kind's objects."""
        return sorted(key.name for key in self.store[kind])

    # The wire.

    def answer(self, request: Request) -> bytes:
        """Serve one request."""
        for fault in self.faults:
            error = fault(request)
            if error is not None:
                raise error
        if request.path == "/version":
            return orjson.dumps({"major": "1", "minor": self.minor})
        kind, key, subresource = _parse(request.path)
        if kind in self.unserved:
            raise refusal(404, "NotFound", f"the server could not find {kind}")
        if request.method == "GET":
            self.reads.append(request.what)
            return self._read(request, kind, key)
        body = orjson.loads(request.content) if request.content else {}
        manager = dict(request.query).get("fieldManager", "")
        obj: Object | None
        if request.method == "POST":
            key = Key(name_of(body), namespace_of(body))
            obj = self._create(kind, key, body)
        elif request.method == "DELETE":
            obj = self._delete(kind, key, body)
        else:
            obj = self._change(request, kind, key, subresource, body)
        if obj is not None:
            verb = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}[request.method]
            self.writes.append(Write(verb, kind, key, manager, body))
        return orjson.dumps(obj or self.store[kind].get(key) or {})

    def _read(self, request: Request, kind: Kind, key: Key) -> bytes:
        if key.name:
            return orjson.dumps(self._stored(kind, key))
        query = dict(request.query)
        items = [
            obj
            for k, obj in self.store[kind].items()
            if (not key.namespace or k.namespace == key.namespace)
            and _selects(query.get("labelSelector", ""), obj)
            and _selects_fields(query.get("fieldSelector", ""), obj)
        ]
        return orjson.dumps({"items": items, "metadata": {"resourceVersion": str(self._version)}})

    def _create(self, kind: Kind, key: Key, body: Object) -> Object:
        if key in self.store[kind]:
            raise refusal(409, "AlreadyExists", f"{kind} {key} already exists")
        body.setdefault("metadata", {})["uid"] = f"uid-{kind.plural}-{key.name}-{self._version}"
        if kind in WITH_STATUS and kind is not kinds.NODE:
            body.pop("status", None)
        self._check(kind, None, body)
        return self._keep(kind, key, None, body)

    def _change(self, request: Request, kind: Kind, key: Key, subresource: str, body: Any) -> Object | None:
        applied = "apply-patch" in request.content_type
        if applied and key not in self.store[kind]:
            return self._create(kind, key, body)
        old = self._stored(kind, key)
        new = _patched(request, old, body)
        wanted = at(new, "metadata", "resourceVersion")
        if wanted and wanted != old["metadata"]["resourceVersion"]:
            raise refusal(409, "Conflict", f"{kind} {key}: the object has been modified")
        if kind in WITH_STATUS:
            new = _isolated(old, new, subresource)
        new["metadata"] = {**as_map(new.get("metadata")), "resourceVersion": old["metadata"]["resourceVersion"]}
        if _meaning(new) == _meaning(old):
            return None
        self._check(kind, old, new)
        return self._keep(kind, key, old, new)

    def _delete(self, kind: Kind, key: Key, body: Object) -> Object | None:
        old = self._stored(kind, key)
        wanted = as_map(body.get("preconditions"))
        if any(wanted.get(f) not in (None, old["metadata"].get(f)) for f in ("uid", "resourceVersion")):
            raise refusal(409, "Conflict", f"{kind} {key}: the precondition does not hold")
        if as_list(at(old, "metadata", "finalizers")):
            if at(old, "metadata", "deletionTimestamp"):
                return None
            return self._keep(kind, key, old, merge(old, {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}))
        self._drop(kind, key)
        return old

    def _check(self, kind: Kind, old: Object | None, new: Object) -> None:
        problems = [self.rules[kind](old, new)] if kind in self.rules else []
        if not is_object_name(name_of(new)):
            problems.append(f"metadata.name: {name_of(new)!r}")
        for key, value in as_map(at(new, "metadata", "labels")).items():
            if not isinstance(value, str) or not is_qualified_name(key) or not is_label_value(value):
                problems.append(f"metadata.labels: {key}={value!r}")
        problems = [p for p in problems if p]
        if problems:
            raise refusal(422, "Invalid", "; ".join(problems))

    def _stored(self, kind: Kind, key: Key) -> Object:
        obj = self.store[kind].get(key)
        if obj is None:
            raise refusal(404, "NotFound", f"{kind} {key} not found")
        return obj

    def _keep(self, kind: Kind, key: Key, old: Object | None, new: Object) -> Object:
        self._version += 1
        new = copy.deepcopy(new)
        new["apiVersion"], new["kind"] = kind.api_version, kind.kind
        generation = at(old, "metadata", "generation") or 0
        bumped = (
            old is None
            or old.get("spec") != new.get("spec")
            or at(old, "metadata", "deletionTimestamp") != at(new, "metadata", "deletionTimestamp")
        )
        new["metadata"] |= {"resourceVersion": str(self._version), "generation": generation + int(bumped)}
        if at(new, "metadata", "deletionTimestamp") and not as_list(at(new, "metadata", "finalizers")) and old:
            self._drop(kind, key)
            return new
        self.store[kind][key] = new
        self.changes.append(Change(kind, old, new))
        self.journal[kind].append(key)
        return new

    def _drop(self, kind: Kind, key: Key) -> None:
        old = self.store[kind].pop(key)
        self._version += 1
        self.changes.append(Change(kind, old, None))
        self.journal[kind].append(key)


class FakeCaches:
    """Caches that are always up to date, with projections and indexes."""

    def __init__(self, api: FakeApi, selections: Mapping[Kind, Selection], reconcilers: Sequence[type[Reconciler]]):
        self.api = api
        self.selections = selections
        self.declared = {w.kind for r in reconcilers for w in r.WATCHES} | {k for r in reconcilers for k in r.READS}
        self.indexes = {(i.kind, i.name): i.values for r in reconcilers for i in r.INDEXES}
        self._kept: dict[tuple[Kind, Key], tuple[Object, Object, bytes]] = {}

    def __getitem__(self, kind: Kind) -> FakeLister:
        if kind not in self.declared:
            raise KeyError(f"{kind} is in nobody's WATCHES or READS")
        return FakeLister(self, kind)

    def seen(self, kind: Kind, obj: Object | None) -> Object | None:
        """Return what a cache keeps of an object; the same one until it changes."""
        if obj is None:
            return None
        key = Key(name_of(obj), namespace_of(obj))
        kept = self._kept.get((kind, key))
        if kept is None or kept[0] is not obj:
            project = self.selections[kind].project if kind in self.selections else None
            view = copy.deepcopy(obj)
            view = project(view) if project else view
            kept = (obj, view, _dump(view))
            self._kept[kind, key] = kept
        return kept[1]

    def check_untouched(self) -> None:
        """Fail when somebody changed a cached object."""
        for (kind, key), (_, view, dump) in self._kept.items():
            assert _dump(view) == dump, f"cached {kind} {key} was changed in place"


class FakeLister:
    """Read side of one kind."""

    def __init__(self, caches: FakeCaches, kind: Kind) -> None:
        self._caches = caches
        self._kind = kind

    def get(self, key: Key) -> Object | None:
        return self._caches.seen(self._kind, self._caches.api.store[self._kind].get(key))

    def list(self) -> Iterable[Object]:
        seen = (self._caches.seen(self._kind, obj) for obj in self._caches.api.store[self._kind].values())
        return [obj for obj in seen if obj is not None]

    def by(self, index: str, value: str) -> Iterable[Object]:
        values = self._caches.indexes[self._kind, index]
        return [obj for obj in self.list() if value in tuple(values(obj))]

    def values(self, index: str) -> Collection[str]:
        values = self._caches.indexes[self._kind, index]
        return {value for obj in self.list() for value in values(obj)}

    def changed(self, since: int) -> tuple[int, Collection[Key] | None]:
        journal = self._caches.api.journal[self._kind]
        return len(journal), None if since < 0 else set(journal[since:])


class Bench:
    """Runs reconcilers until nothing is left to do."""

    def __init__(
        self, api: FakeApi, reconcilers: Sequence[Reconciler], caches: FakeCaches, clock: VirtualClock
    ) -> None:
        self.api = api
        self.caches = caches
        self.clock = clock
        self.reconcilers = reconcilers
        self.due: dict[tuple[int, Key], float] = {}
        self.errors: list[tuple[str, Key, Exception]] = []
        self._started = False

    def start(self) -> None:
        """Feed every object there is, as informers do after their first list."""
        self.api.changes.clear()
        for kind, objects in self.api.store.items():
            self.api.changes.extend(Change(kind, None, obj) for obj in objects.values())
        self._started = True

    async def settle(self, rounds: int = 60) -> list[Write]:
        """Run until quiet; return the writes this took."""
        if not self._started:
            self.start()
        before = len(self.api.writes)
        for _ in range(rounds):
            requests = self._requests()
            if not requests:
                break
            for number, key in requests:
                await self._run(number, key)
        else:
            raise AssertionError(f"not settled; last writes: {[str(w) for w in self.api.writes[-6:]]}")
        self.caches.check_untouched()
        return self.api.writes[before:]

    async def advance(self, seconds: float) -> list[Write]:
        """Let time pass; what is due runs in order."""
        end, before = self.clock.now() + seconds, len(self.api.writes)
        while True:
            pending = [(moment, item) for item, moment in self.due.items() if moment <= end]
            if not pending:
                break
            moment, (number, key) = min(pending, key=lambda p: p[0])
            await self.clock.advance(max(0.0, moment - self.clock.now()))
            await self._run(number, key)
            await self.settle()
        await self.clock.advance(max(0.0, end - self.clock.now()))
        return self.api.writes[before:]

    def _requests(self) -> list[tuple[int, Key]]:
        changes, self.api.changes = self.api.changes, []
        found: dict[tuple[int, Key], None] = {}
        for change in changes:
            for number, reconciler in enumerate(self.reconcilers):
                for watch in reconciler.WATCHES:
                    if watch.kind == change.kind:
                        selection = self.caches.selections.get(change.kind)
                        project = (selection.project if selection else None) or (lambda obj: obj)
                        old = project(copy.deepcopy(change.old)) if change.old is not None else None
                        new = project(copy.deepcopy(change.new)) if change.new is not None else None
                        for key in watch.keys(old, new, self.caches):
                            found[number, key] = None
        return list(found)

    async def _run(self, number: int, key: Key) -> None:
        self.due.pop((number, key), None)
        try:
            outcome = await self.reconcilers[number].reconcile(key)
        except Exception as error:  # noqa: BLE001 - as the runtime does: kept, backed off, other keys go on
            self.errors.append((self.reconcilers[number].NAME, key, error))
            if not isinstance(error, Terminal):
                self.due[number, key] = self.clock.now() + 1.0
            return
        if isinstance(outcome, After):
            self.due[number, key] = self.clock.now() + outcome.seconds


class _Wire:
    """Stands where `kube.connection.Connection` stands."""

    def __init__(self, api: FakeApi) -> None:
        self._api = api

    async def call(self, request: Request, *, deadline_s: float) -> bytes:
        await asyncio.sleep(0)
        return self._api.answer(request)

    async def close(self) -> None:
        return None


def refusal(code: int, reason: str, message: str) -> Exception:
    """Return what the client raises for an error answer."""
    return class_of(code, reason)({"code": code, "reason": reason, "message": message}, code, reason)


def merge(target: Any, patch: Any) -> Any:
    """Apply a JSON merge patch (RFC 7386)."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result


def _patched(request: Request, old: Object, body: Any) -> Object:
    if request.method == "PUT":
        return cast(Object, body)
    if "json-patch" in request.content_type:
        try:
            return cast(Object, jsonpatch.apply_patch(old, body))
        except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException) as error:
            raise refusal(422, "Invalid", f"the patch does not apply: {error}") from error
    if "apply-patch" in request.content_type and at(body, "status", "admissionChecks") is not None:
        body = {**body, "status": {**body["status"], "admissionChecks": _checks_applied(old, body)}}
    return cast(Object, merge(old, body))


def _checks_applied(old: Object, body: Object) -> list[Any]:
    """Return a keyed list after an apply: elements of other names stay."""
    applied = {check["name"]: check for check in body["status"]["admissionChecks"]}
    return [applied.get(check["name"], check) for check in as_list(at(old, "status", "admissionChecks"))]


def _isolated(old: Object, new: Object, subresource: str) -> Object:
    """Let a write of the status change the status alone, and any other write everything else."""
    body, status = (old, new.get("status")) if subresource == "status" else (new, old.get("status"))
    rest = {key: value for key, value in body.items() if key != "status"}
    return rest if status is None else {**rest, "status": status}


def _meaning(obj: Object) -> bytes:
    meta = {k: v for k, v in obj.get("metadata", {}).items() if k not in ("resourceVersion", "generation")}
    return _dump({**obj, "metadata": meta})


def _dump(obj: Object) -> bytes:
    return json.dumps(obj, sort_keys=True, default=sorted).encode()


def _parse(path: str) -> tuple[Kind, Key, str]:
    parts = path.strip("/").split("/")
    group, version, rest = ("", parts[1], parts[2:]) if parts[0] == "api" else (parts[1], parts[2], parts[3:])
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    kind = next(k for k in KINDS if (k.group, k.version, k.plural) == (group, version, rest[0]))
    return kind, Key(rest[1] if len(rest) > 1 else "", namespace), rest[2] if len(rest) > 2 else ""


def _selects(selector: str, obj: Object) -> bool:
    labels = labels_of(obj)
    for term in filter(None, selector.split(",")):
        key, equals, value = term.partition("=")
        if (equals and labels.get(key) != value) or key not in labels:
            return False
    return True


def _selects_fields(selector: str, obj: Object) -> bool:
    return all(
        str(at(obj, *field.split(".")) or "") == value
        for field, _, value in (term.partition("=") for term in filter(None, selector.split(",")))
    )
