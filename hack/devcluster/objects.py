"""The storage behind every kind of the devcluster.

For: `server`, one instance per kind. In: decoded objects and options. Out: documents, or a Refusal.
Promises: as a kube-apiserver does it: status isolation, generation, uid, timestamps, generateName, optimistic locking,
finalizers, preconditions, dry run; a write that changes nothing stores nothing and tells nobody. Between reading an
object and storing its successor nothing awaits, so patches need no retry; where webhooks want to see a write, it is
made as a dry run, shown to them, and stored if the object is still the same, else made again.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import orjson

from apiserver.rest import status
from apiserver.rest.negotiation import encode
from apiserver.rest.options import DeleteOptions, ListOptions, WatchOptions, WriteOptions
from apiserver.rest.patch import Patch, PatchType
from apiserver.rest.status import Cause
from apiserver.rest.storage import Call, Deleted, Document, Page, Written
from hack.devcluster import apply
from hack.devcluster.admission import Admission
from hack.devcluster.kinds import KindSpec
from hack.devcluster.metadata_rules import check_metadata, keep_server_fields, new_finalizers, wipe_server_fields
from hack.devcluster.schema import Schema
from hack.devcluster.store import Entry, Object, Shelf, ShelfStream, Store
from kube.clock import Clock, second_time
from nodefeature.fields import as_int, as_list, as_map, as_str, at

_VERSION = "metadata.resourceVersion"
_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_LONGEST_GENERATED = 58
_ATTEMPTS = 5
_FINISHED = frozenset({"Succeeded", "Failed"})
Objects = list[Object]
Causes = list[Cause]
# `list` is the name of a method below.
_UNSHAPED = Schema(lambda value, path, report: None)


class ObjectStorage:
    """CRUD, list and watch of one kind."""

    def __init__(
        self, store: Store, spec: KindSpec, *, clock: Clock, rng: random.Random, schema: Schema = _UNSHAPED
    ) -> None:
        self.spec = spec
        self._store = store
        self._clock = clock
        self._rng = rng
        self._schema = schema
        self._kind = spec.kind
        self._admission = Admission(store)
        self.shelf: Shelf = store.shelf(spec.kind.group_resource, spec.fields)
        self._namespaces = store.shelf("namespaces", ("status.phase",))

    # Reads

    async def get(self, call: Call) -> Document:
        """Return one object."""
        entry = self._find(call.info.namespace, call.info.name)
        await self._store.committed()
        return entry

    async def list(self, call: Call, options: ListOptions) -> Page:
        """Return a list from the live state or from a page's snapshot."""
        page = self._store.page(self.shelf, self._scope(call), options)
        await self._store.committed()
        return page

    async def watch(self, call: Call, options: WatchOptions) -> ShelfStream:
        """Open a watch."""
        stream = self._store.stream(self.shelf, self._scope(call), options)
        await self._store.committed()
        return stream

    def _scope(self, call: Call) -> str:
        return call.info.namespace if self._kind.namespaced else ""

    def _find(self, namespace: str, name: str) -> Entry:
        entry = self.shelf.entries.get((namespace if self._kind.namespaced else "", name))
        if entry is None:
            raise status.not_found(self._kind.plural, self._kind.group, name)
        return entry

    # Writes

    async def create(self, call: Call, obj: Object, options: WriteOptions) -> Written:
        """Create an object, or serve a sub-resource that is created (`pods/binding`)."""
        if call.info.subresource == "binding":
            written = self._bind(call, obj, options)
        elif self._admission.concerns(self._kind, call):
            written = await self._create_admitted(call, obj, options)
        else:
            written = self._create(call, obj, options)
        await self._store.committed()
        return written

    async def _create_admitted(self, call: Call, obj: Object, options: WriteOptions) -> Written:
        draft = self._create(call, obj, replace(options, dry_run=True))
        new = draft.document.load()
        admitted = await self._admission.review(self._kind, call, new, None, dry_run=options.dry_run)
        written = self._create(call, admitted.object, replace(options, field_validation="Ignore"))
        return replace(written, warnings=(*draft.warnings, *admitted.warnings))

    async def _write_admitted(
        self, call: Call, options: WriteOptions, write: Callable[[WriteOptions], Written], *, applied: bool = False
    ) -> Written:
        """Make a change of an existing object (only an apply creates) with the webhooks' consent."""
        for _ in range(_ATTEMPTS):
            entry = self.shelf.entries.get((self._scope(call), call.info.name))
            draft = write(replace(options, dry_run=True))
            if entry is not None and draft.document is entry:
                return draft
            old, new = entry.load() if entry is not None else None, draft.document.load()
            admitted = await self._admission.review(self._kind, call, new, old, dry_run=options.dry_run)
            if self.shelf.entries.get((self._scope(call), call.info.name)) is not entry:
                continue
            obj = admitted.object
            managed = obj["metadata"].get("managedFields") if applied else None
            quiet = replace(options, field_validation="Ignore")
            if entry is None or old is None:
                written = self._create_applied(call, obj, managed or [], quiet)
            else:
                written = self._replace(call, entry, old, obj, quiet, managed=managed)
            return replace(written, warnings=(*draft.warnings, *admitted.warnings))
        raise self._conflict(call.info.name, status.STALE)

    def _create(self, call: Call, obj: Object, options: WriteOptions) -> Written:
        meta = dict(as_map(obj.get("metadata")))
        wipe_server_fields(meta)
        generated = not meta.get("name") and isinstance(meta.get("generateName"), str)
        if generated:
            suffix = "".join(self._rng.choices(_SUFFIX_LETTERS, k=5))
            meta["name"] = meta["generateName"][:_LONGEST_GENERATED] + suffix
        if self._kind.namespaced:
            meta["namespace"] = call.info.namespace
            self._check_namespace(call.info.namespace, as_str(meta.get("name")))
        else:
            meta.pop("namespace", None)
        meta["uid"] = str(uuid.UUID(int=self._rng.getrandbits(128), version=4))
        meta["creationTimestamp"] = second_time(self._clock.time())
        if self.spec.generation:
            meta["generation"] = 1
        obj = {"apiVersion": self._kind.api_version, "kind": self._kind.kind, **obj, "metadata": meta}
        if self.spec.status and not self.spec.keep_status:
            obj.pop("status", None)
        if not isinstance(meta.get("name"), str):
            self._raise_invalid("", check_metadata(meta, path_name=self.spec.path_names))
        if self.spec.prepare is not None:
            self.spec.prepare(obj)
        warnings = self._shape(obj, options, patching=call.info.verb == "patch")
        place = (as_str(meta.get("namespace")), meta["name"])
        if place in self.shelf.entries:
            retry = 1 if generated else 0
            raise status.already_exists(self._kind.plural, self._kind.group, meta["name"], retry_after_s=retry)
        if options.dry_run:
            return Written(Document(encode(obj)), created=True, warnings=warnings)
        return Written(self._store.put(self.shelf, obj, None), created=True, warnings=warnings)

    def _check_namespace(self, namespace: str, name: str) -> None:
        home = self._namespaces.entries.get(("", namespace))
        if home is None:
            raise status.not_found("namespaces", "", namespace)
        if home.deleting:
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            refusal = status.forbidden(self._kind.plural, self._kind.group, name, why)
            cause = Cause("NamespaceTerminating", f"namespace {namespace} is being terminated", "metadata.namespace")
            refusal.details["causes"] = [cause.document()]
            raise refusal

    def _shape(self, obj: Object, options: WriteOptions, *, patching: bool) -> tuple[str, ...]:
        """Prune, default and validate; returns warnings, raises Refusal with every error."""
        meta = obj["metadata"]
        causes = check_metadata(meta, path_name=self.spec.path_names)
        report = self._schema.apply(obj)
        causes += report.causes
        if self.spec.check is not None and not causes:
            causes += self.spec.check(obj)
        if causes:
            self._raise_invalid(as_str(meta.get("name")), causes)
        if not report.unknown or options.field_validation == "Ignore":
            return ()
        texts = [f'unknown field "{path}"' for path in report.unknown]
        if options.field_validation != "Strict":
            return tuple(texts)
        text = "strict decoding error: " + ", ".join(texts)
        if patching:
            raise status.invalid_option(self._kind.kind, "patch", "", text)
        raise status.bad_request(f"{self._kind.kind} in version {self._kind.version!r} cannot be handled: {text}")

    def _raise_invalid(self, name: str, causes: Causes) -> None:
        raise status.invalid(self._kind.kind, self._kind.group, name, causes)

    async def update(self, call: Call, obj: Object, options: WriteOptions) -> Written:
        """Replace an object, its status, or a namespace's finalizers."""
        entry = self._find(call.info.namespace, call.info.name)
        if call.info.subresource == "finalize":
            written = self._finalize(entry, obj)
        elif self._admission.concerns(self._kind, call):

            def write(options: WriteOptions) -> Written:
                entry = self._find(call.info.namespace, call.info.name)
                return self._replace(call, entry, entry.load(), obj, options)

            written = await self._write_admitted(call, options, write)
        else:
            written = self._replace(call, entry, entry.load(), obj, options)
        await self._store.committed()
        return written

    async def patch(self, call: Call, patch: Patch, options: WriteOptions) -> Written:
        """Patch an object or its status; only an apply creates."""
        applied = patch.type is PatchType.APPLY

        def write(options: WriteOptions) -> Written:
            return self._apply(call, patch.body, options) if applied else self._patch(call, patch, options)

        if self._admission.concerns(self._kind, call):
            written = await self._write_admitted(call, options, write, applied=applied)
        else:
            written = write(options)
        await self._store.committed()
        return written

    def _patch(self, call: Call, patch: Patch, options: WriteOptions) -> Written:
        entry = self._find(call.info.namespace, call.info.name)
        old = entry.load()
        new = patch.apply(old)
        if (new.get("apiVersion"), new.get("kind")) != (old["apiVersion"], old["kind"]):
            raise status.bad_request("a patch may not change apiVersion or kind")
        meta = new.get("metadata")
        if not isinstance(meta, dict) or (meta.get("name"), meta.get("namespace")) != (
            old["metadata"]["name"],
            old["metadata"].get("namespace"),
        ):
            raise status.bad_request("a patch may not change name or namespace")
        return self._replace(call, entry, old, new, options)

    def _apply(self, call: Call, applied: Mapping[str, Any], options: WriteOptions) -> Written:
        info = call.info
        if (applied["apiVersion"], applied["kind"]) != (self._kind.api_version, self._kind.kind):
            text = f"{applied['apiVersion']}, Kind={applied['kind']} does not fit the path"
            raise status.bad_request(f"the applied configuration of {text}")
        wanted = dict(as_map(applied.get("metadata")))
        if wanted.get("name", info.name) != info.name or wanted.get("namespace") not in (None, "", info.namespace):
            raise status.bad_request("name or namespace of the applied configuration differ from the path")
        entry = self.shelf.entries.get((self._scope(call), info.name))
        if entry is None and (info.subresource or wanted.get("uid")):
            if wanted.get("uid"):
                raise self._conflict(info.name, "uid mismatch: the object does not exist")
            raise status.not_found(self._kind.plural, self._kind.group, info.name)
        blank = {"apiVersion": applied["apiVersion"], "kind": applied["kind"], "metadata": {"name": info.name}}
        old = entry.load() if entry is not None else blank
        merged = apply.apply(
            old,
            applied,
            manager=options.field_manager,
            force=options.force,
            keys=self._schema.list_keys,
            subresource=info.subresource,
            time=second_time(self._clock.time()),
        )
        managed = merged["metadata"]["managedFields"]
        if entry is None:
            return self._create_applied(call, merged, managed, options)
        return self._replace(call, entry, old, merged, options, managed=managed)

    def _create_applied(self, call: Call, merged: Object, managed: Objects, options: WriteOptions) -> Written:
        draft = self._create(call, merged, WriteOptions(dry_run=True, field_validation="Ignore"))
        obj = draft.document.load()
        obj["metadata"]["managedFields"] = managed
        if options.dry_run:
            return Written(Document(encode(obj)), created=True)
        return Written(self._store.put(self.shelf, obj, None), created=True)

    def _replace(
        self,
        call: Call,
        entry: Entry,
        old: Object,
        obj: Object,
        options: WriteOptions,
        *,
        managed: Objects | None = None,
    ) -> Written:
        """Store `obj` as the successor of `entry`, whose decoded form is `old`."""
        meta = dict(as_map(obj.get("metadata")))
        self._check_identity(entry, meta, patching=call.info.verb == "patch")
        keep_server_fields(meta, old["metadata"])
        meta["resourceVersion"] = old["metadata"]["resourceVersion"]
        new = self._isolated(call, old, {**obj, "metadata": meta})
        meta = new["metadata"]
        warnings = self._shape(new, options, patching=call.info.verb == "patch")
        if entry.deleting and (added := new_finalizers(old["metadata"], meta)):
            text = f"Forbidden: no new finalizers can be added if the object is being deleted, found {added}"
            self._raise_invalid(entry.name, [Cause("FieldValueForbidden", text, "metadata.finalizers")])
        if managed is None:
            meta.pop("managedFields", None)
            apply.disown_changed(old, new)
        else:
            meta["managedFields"] = _unchanged_times(managed, apply.entries_of(old))
        if _same(old, new):
            return Written(entry, warnings=warnings)
        if self.spec.generation and _desired(old) != _desired(new):
            meta["generation"] = as_int(old["metadata"].get("generation")) + 1
        if options.dry_run:
            return Written(Document(encode(new)), warnings=warnings)
        finished = entry.deleting and not meta.get("finalizers") and not meta.get("deletionGracePeriodSeconds")
        if finished and not as_list(at(new, "spec", "finalizers")):
            return Written(self._store.remove(self.shelf, new, entry), warnings=warnings)
        return Written(self._store.put(self.shelf, new, entry), warnings=warnings)

    def _check_identity(self, entry: Entry, meta: Mapping[str, Any], *, patching: bool) -> None:
        version = meta.get("resourceVersion")
        if not version and not patching and not self.spec.unconditional_update:
            cause = Cause("FieldValueInvalid", "Invalid value: 0: must be specified for an update", _VERSION)
            self._raise_invalid(entry.name, [cause])
        if version and version != str(entry.version):
            raise self._conflict(entry.name, status.STALE)
        if meta.get("uid") and meta["uid"] != entry.uid and patching:
            cause = Cause("FieldValueInvalid", f"Invalid value: {meta['uid']!r}: field is immutable", "metadata.uid")
            self._raise_invalid(entry.name, [cause])
        if meta.get("uid") and meta["uid"] != entry.uid:
            text = f"Precondition failed: UID in precondition: {meta['uid']}, UID in object meta: {entry.uid}"
            raise self._conflict(entry.name, text)

    def _conflict(self, name: str, why: str) -> status.Refusal:
        return status.conflict(self._kind.plural, self._kind.group, name, why)

    def _isolated(self, call: Call, old: Object, new: Object) -> Object:
        """Keep status writes out of the rest, and other writes out of the status."""
        if call.info.subresource == "status":
            kept = {**old, "metadata": dict(old["metadata"])}
            kept.pop("status", None)
            return {**kept, "status": new["status"]} if "status" in new else kept
        if self.spec.status:
            new.pop("status", None)
            if "status" in old:
                new["status"] = old["status"]
        if self._kind.plural == "namespaces" and "spec" in old:
            new["spec"] = old["spec"]
        return new

    def _bind(self, call: Call, binding: Object, options: WriteOptions) -> Written:
        """Serve `pods/binding`: give an unbound Pod its node."""
        entry = self._find(call.info.namespace, call.info.name)
        node = as_str(at(binding, "target", "name"))
        pod = entry.load()
        if not node:
            raise status.bad_request("binding: target.name is required")
        if pod["spec"].get("nodeName"):
            raise self._conflict(entry.name, f"pod {entry.name} is already assigned to node {pod['spec']['nodeName']}")
        if entry.deleting or as_list(pod["spec"].get("schedulingGates")):
            raise self._conflict(entry.name, f"pod {entry.name} is being deleted or has scheduling gates")
        pod["spec"]["nodeName"] = node
        scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": second_time(self._clock.time())}
        pod["status"] = apply.merge(
            pod.get("status"), {"conditions": [scheduled]}, {"status.conditions": ("type",)}, "status"
        )
        if not options.dry_run:
            self._store.put(self.shelf, pod, entry)
        return Written(Document(encode(status.success(name=entry.name, group="", kind="pods", uid=entry.uid))))

    def _finalize(self, entry: Entry, obj: Object) -> Written:
        """Serve `namespaces/finalize`."""
        new = entry.load()
        self._check_identity(entry, as_map(obj.get("metadata")), patching=False)
        new["spec"] = {**as_map(new.get("spec")), "finalizers": as_list(at(obj, "spec", "finalizers"))}
        if entry.deleting and not new["spec"]["finalizers"] and not entry.finalizers:
            return Written(self._store.remove(self.shelf, new, entry))
        return Written(self._store.put(self.shelf, new, entry))

    # Deletes

    async def delete(self, call: Call, options: DeleteOptions) -> Deleted:
        """Delete an object, or mark it."""
        deleted = self.delete_entry(self._find(call.info.namespace, call.info.name), options)
        await self._store.committed()
        return deleted

    async def deletecollection(self, call: Call, options: ListOptions, delete: DeleteOptions) -> Page:
        """Delete every selected object; the answer lists them."""
        page = self._store.page(self.shelf, self._scope(call), options)
        for document in page.items:
            if isinstance(document, Entry) and self.shelf.entries.get(document.place) is document:
                self.delete_entry(document, delete)
        await self._store.committed()
        return page

    def delete_entry(self, entry: Entry, options: DeleteOptions) -> Deleted:
        """Delete an object; one with finalizers, or a Pod on a node, is only marked."""
        self._check_preconditions(entry, options)
        obj = entry.load()
        meta: Object = obj["metadata"]
        finalizers = as_list(meta.get("finalizers")).copy()
        if not entry.deleting:
            extra = {"Foreground": "foregroundDeletion", "Orphan": "orphan"}.get(options.propagation)
            if extra and extra not in finalizers:
                finalizers.append(extra)
                meta["finalizers"] = finalizers
        grace_s = self._grace_s(obj, options)
        held = bool(finalizers or grace_s or as_list(at(obj, "spec", "finalizers")))
        if not held:
            if not options.dry_run:
                self._store.remove(self.shelf, obj, entry)
            return Deleted(uid=entry.uid)
        if entry.deleting and grace_s >= as_int(meta.get("deletionGracePeriodSeconds")):
            return Deleted(entry)
        meta["deletionTimestamp"] = second_time(self._clock.time() + timedelta(seconds=grace_s))
        meta["deletionGracePeriodSeconds"] = grace_s
        if self.spec.generation:
            meta["generation"] = as_int(meta.get("generation")) + 1
        if self._kind.plural == "namespaces":
            obj["status"] = {**as_map(obj.get("status")), "phase": "Terminating"}
        if options.dry_run:
            return Deleted(Document(encode(obj)))
        return Deleted(self._store.put(self.shelf, obj, entry))

    def _grace_s(self, obj: Object, options: DeleteOptions) -> int:
        """Return how long the node may take; a Pod that never got a node, or is finished, goes at once."""
        if not self.spec.graceful or not at(obj, "spec", "nodeName") or at(obj, "status", "phase") in _FINISHED:
            return 0
        if options.grace_period_s is not None:
            return options.grace_period_s
        return as_int(at(obj, "spec", "terminationGracePeriodSeconds"))

    def _check_preconditions(self, entry: Entry, options: DeleteOptions) -> None:
        for word, wanted, found in (
            ("UID", options.uid, entry.uid),
            ("ResourceVersion", options.resource_version, str(entry.version)),
        ):
            if wanted and wanted != found:
                text = f"Precondition failed: {word} in precondition: {wanted}, {word} in object meta: {found}"
                raise self._conflict(entry.name, text)

    # For the collector

    def edit(self, entry: Entry, obj: Object) -> None:
        """Store a change the server itself makes; the last finalizer of a deleted object ends it."""
        if entry.deleting and not as_list(at(obj, "metadata", "finalizers")):
            self._store.remove(self.shelf, obj, entry)
        else:
            self._store.put(self.shelf, obj, entry)


def _same(old: Object, new: Object) -> bool:
    """Compare by JSON: Python thinks that 1, 1.0 and True are equal."""
    option = orjson.OPT_SORT_KEYS
    return old == new and orjson.dumps(old, option=option) == orjson.dumps(new, option=option)


def _desired(obj: Object) -> Object:
    return {key: value for key, value in obj.items() if key not in ("metadata", "status", "apiVersion", "kind")}


def _unchanged_times(managed: list[Object], old: list[Object]) -> list[Object]:
    """Give an entry that changed nothing but its time the old time, so that the write is none."""
    times = {encode({**entry, "time": ""}): entry.get("time") for entry in old}
    return [{**entry, "time": times.get(encode({**entry, "time": ""}), entry.get("time"))} for entry in managed]
