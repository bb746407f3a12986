"""The storage behind a mapped kind.

For: the resource modules. In: a `Mapping` and a client with the server's own rights. Out: the engine's `Storage`.
Promises:
- an object without the kind's mark does not exist here: reads, patches and deletes answer 404, an apply over it 409;
- nothing is cached; selectors, paging, versions, dry run, preconditions and delete options are the backing API's own;
- a write is conditional on the object it was computed from, and computed again after a conflict, unless the client
  named a version itself;
- a list is read and converted in pages of `PAGE` objects, between which other requests go on.
Trusts: labels and annotations under our prefixes only as far as whoever may write the backing kind directly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Mapping as Map
from dataclasses import replace
from typing import Any

import orjson

from api.schema import structural
from apiserver.forwarding import strategic
from apiserver.mapping import metadata, patches, strictness
from apiserver.mapping.mapping import Mapping, Write
from apiserver.mapping.metadata import Object
from apiserver.mapping.refusals import invalid, not_found, translated
from apiserver.mapping.stream import BackingStream
from apiserver.rest import status
from apiserver.rest.app import Authorize
from apiserver.rest.negotiation import encode
from apiserver.rest.options import DeleteOptions, ListOptions, WatchOptions, WriteOptions
from apiserver.rest.patch import Patch, PatchType
from apiserver.rest.request_info import RequestInfo
from apiserver.rest.storage import Call, Deleted, Document, Event, Page, Written
from kube import requests
from kube.client import Client, complete
from kube.errors import Conflict, NotFound
from kube.requests import ListOptions as BackingOptions
from kube.watch import Event as BackingEvent
from nodefeature.fields import as_map, as_str, at, name_of, uid_of

PAGE = 250
CONFLICT_RETRIES = 5
DELETE_S = 34.0
Change = Callable[[Object], Object]
Documents = list[Document]  # inside the class, `list` is the verb


class MappedStorage:
    """CRUD, list and watch of one mapped kind."""

    def __init__(self, mapping: Mapping, client: Client, authorize: Authorize) -> None:
        self._mapping = mapping
        self._client = client
        self._authorize = authorize
        self._schema = structural(mapping.model)

    # Reads

    async def get(self, call: Call) -> Document:
        """Return one object; 404 for what is not of the kind."""
        version = call.info.query.get("resourceVersion", "")
        return self._document(await self._stored(call.info, version=version))

    async def list(self, call: Call, options: ListOptions) -> Page:
        """Return a list, or one page of it."""
        info, backing, owns = call.info, self._mapping.backing, self._mapping.owns
        asked, items = self._selected(info, options), Documents()
        with translated(info, backing):
            while True:
                page = await self._client.list_page(backing, info.namespace, asked)
                items.extend(self._document(stored) for stored in page.items if owns(stored))
                if options.limit or not page.continue_token:
                    return Page(items, page.resource_version, page.continue_token)
                rest = replace(asked, continue_token=page.continue_token)
                asked = replace(rest, resource_version="", resource_version_match="")

    def _selected(self, info: RequestInfo, options: ListOptions) -> BackingOptions:
        """Return the options of the backing list: the client's selectors and the kind's own."""
        version = str(options.resource_version or "")  # 0 accepts any state, the newest one too
        return BackingOptions(
            label_selector=_joined(self._mapping.label_selector, info.query.get("labelSelector", "")),
            field_selector=_joined(self._mapping.field_selector, _field_selector(info)),
            limit=options.limit or (0 if options.continue_token else PAGE),
            continue_token=options.continue_token,
            resource_version=version,
            resource_version_match=options.match or ("NotOlderThan" if version else ""),
        )

    async def watch(self, call: Call, options: WatchOptions) -> BackingStream:
        """Open a watch; initial objects come from a list, from whose version it goes on."""
        info, initial, version = call.info, Page((), ""), str(options.resource_version or "")
        if options.initial:
            match = "NotOlderThan" if version else ""
            asked = ListOptions(resource_version=options.resource_version or None, match=match)
            initial = await self.list(call, asked)
            version = initial.resource_version
        selected = self._selected(info, ListOptions())
        follow = replace(selected, limit=0, resource_version=version, resource_version_match="")
        stream = BackingStream(initial.items, version)
        return await stream.open(
            self._client, self._mapping.backing, info.namespace, follow, info=info, convert=self._converted
        )

    async def _converted(self, event: BackingEvent) -> Sequence[Event]:
        stored = complete(self._mapping.backing, event.object)
        return (Event(event.type, self._document(stored)),) if self._mapping.owns(stored) else ()

    # Writes

    async def create(self, call: Call, obj: Object, options: WriteOptions) -> Written:
        """Create the backing object."""
        write, warnings = self._begin(call, options), self._judged(call.info, obj, options)
        obj = await self._prepared(write, obj, None)
        body = {**self._mapping.content(obj, None), "metadata": self._metadata(obj, None)}
        body["metadata"]["namespace"] = call.info.namespace
        with translated(_named(call.info, obj), self._mapping.backing):
            stored = await write.client.create(self._mapping.backing, _scoped(body), dry_run=options.dry_run)
        await self._mapping.written(write, stored, obj, created=True)
        return Written(self._document(stored), created=True, warnings=warnings)

    async def update(self, call: Call, obj: Object, options: WriteOptions) -> Written:
        """Replace the object."""
        warnings = self._judged(call.info, obj, options)
        asked = as_str(at(obj, "metadata", "resourceVersion"))
        if asked == "0":
            cause = status.Cause("FieldValueInvalid", 'Invalid value: "0": must be specified for an update')
            cause = replace(cause, field="metadata.resourceVersion")
            raise status.invalid(self._mapping.kind.kind, call.info.group, call.info.name, [cause])
        return await self._rewrite(call, lambda live: obj, options, warnings=warnings, once=bool(asked))

    async def patch(self, call: Call, patch: Patch, options: WriteOptions) -> Written:
        """Patch the object; only an apply may create it."""
        if patch.type is PatchType.APPLY:
            return await self._apply(call, patch.body, options)
        if patches.is_verbatim(patch):
            return await self._forward(call, patch, options)
        if patch.type is PatchType.STRATEGIC:
            strategic.check(patch.body)
            if strategic.needs_live(patch.body):
                raise strategic.unsupported()
        return await self._rewrite(call, patch.apply, options, warnings=None, once=patches.states_version(patch))

    async def _forward(self, call: Call, patch: Patch, options: WriteOptions) -> Written:
        """Send a patch of the metadata to the backing object, which is guarded by its uid."""
        info, write = call.info, self._begin(call, options)
        stored = await self._stored(info)
        self._check_identity(info, as_map(patch.body) if isinstance(patch.body, Map) else {}, stored, by_version=False)
        body: Any = patches.stripped(patch)
        if patch.type is PatchType.JSON:
            body = [{"op": "test", "path": "/metadata/uid", "value": uid_of(stored)}, *body]
        else:
            body = {**body, "metadata": {**body["metadata"], "uid": uid_of(stored)}}
        kinds = {PatchType.JSON: "json", PatchType.MERGE: "merge", PatchType.STRATEGIC: "strategic"}
        patch_type: requests.PatchType = kinds[patch.type]  # type: ignore[assignment]  # one of the literal's words
        with translated(info, self._mapping.backing):
            written = await write.client.patch(
                self._mapping.backing, info.name, body, info.namespace, patch_type=patch_type, dry_run=options.dry_run
            )
        return Written(self._document(written))

    async def _rewrite(
        self, call: Call, change: Change, options: WriteOptions, *, warnings: tuple[str, ...] | None, once: bool
    ) -> Written:
        """Compute the new state from the stored one and write it on condition, until no conflict comes between."""
        info, write = call.info, self._begin(call, options)
        turn = 0
        while True:
            turn += 1
            stored = await self._stored(info)
            obj = change(self._view(stored))
            self._check_identity(info, obj, stored, by_version=True)
            said = self._judged(info, obj, options) if warnings is None else warnings
            obj = await self._prepared(write, obj, stored)
            body = {**stored, **self._mapping.content(obj, stored), "metadata": self._metadata(obj, stored)}
            try:
                with translated(info, self._mapping.backing):
                    written = await write.client.update(self._mapping.backing, body, dry_run=options.dry_run)
            except status.Refusal as refusal:
                if not isinstance(refusal.__cause__, Conflict) or once or turn == CONFLICT_RETRIES:
                    raise
                continue
            await self._mapping.written(write, written, obj, created=False)
            return Written(self._document(written), warnings=said)

    async def _apply(self, call: Call, body: Map[str, Any], options: WriteOptions) -> Written:
        """Apply the same fields to the backing object."""
        info, write = call.info, self._begin(call, options)
        if not isinstance(body.get("metadata") or {}, Map):
            raise status.bad_request("metadata must be an object")
        obj: Object = {**body, "metadata": dict(as_map(body.get("metadata")))}
        self._check_body(info, obj)
        try:
            stored: Object | None = await self._stored(info, foreign=True)
        except status.Refusal as refusal:
            if refusal.code != 404:
                raise
            stored = None
            await self._authorize(call.user, replace(info, verb="create"))
        warnings = self._judged(info, obj, options)
        obj = await self._prepared(write, obj, stored)
        meta = metadata.applied(obj, notes=self._mapping.notes(obj), mark=self._mapping.mark)
        meta |= {"name": info.name, **({"namespace": info.namespace} if info.namespace else {})}
        if stored is not None:
            meta.setdefault("uid", uid_of(stored))  # never over an object that took its place meanwhile
        sent = {**self._mapping.content(obj, None), "metadata": meta}
        with translated(info, self._mapping.backing):
            written = await write.client.apply(
                self._mapping.backing, sent, force=options.force, dry_run=options.dry_run
            )
        await self._mapping.written(write, written, obj, created=stored is None)
        return Written(self._document(written), created=stored is None, warnings=warnings)

    async def delete(self, call: Call, options: DeleteOptions) -> Deleted:
        """Delete the object; options pass through, guarded by the uid that was looked at."""
        info = call.info
        stored = await self._stored(info)
        await self._mapping.check_delete(self._client, call, stored)
        request = requests.delete_object(
            self._mapping.backing,
            info.name,
            info.namespace,
            uid=options.uid or uid_of(stored),
            resource_version=options.resource_version,
            propagation=options.propagation,
            grace_s=options.grace_period_s,
            dry_run=options.dry_run,
        )
        with translated(info, self._mapping.backing):
            answer = as_map(orjson.loads(await self._client.connection.call(request, deadline_s=DELETE_S)))
        if answer.get("kind") == self._mapping.backing.kind:
            return Deleted(self._document(answer))
        return Deleted(uid=uid_of(stored))

    async def deletecollection(self, call: Call, options: ListOptions, delete: DeleteOptions) -> Page:
        """Delete every selected object, those that may go; what is gone meanwhile is done."""
        page = await self.list(call, options)
        for document in page.items:
            obj = document.load()
            name, namespace = name_of(obj), as_str(at(obj, "metadata", "namespace"))
            one = Call(replace(call.info, verb="delete", name=name, namespace=namespace, query={}), call.user)
            try:
                await self.delete(one, replace(delete, uid=uid_of(obj)))
            except status.Refusal as refusal:
                if refusal.code != 404:
                    raise
        return page

    # Parts

    def _begin(self, call: Call, options: WriteOptions) -> Write:
        return Write(call, self._client.as_manager(options.field_manager), options)

    async def _prepared(self, write: Write, obj: Object, stored: Map[str, Any] | None) -> Object:
        info, kind = write.call.info, self._mapping.kind.kind
        problems = self._mapping.problems(obj) + metadata.metadata_problems(obj)
        if problems:
            raise invalid(info, kind, problems)
        return await self._mapping.prepare(write, obj, stored)

    def _judged(self, info: RequestInfo, obj: Map[str, Any], options: WriteOptions) -> tuple[str, ...]:
        unknown = strictness.unknown_fields(self._schema, obj)
        kind = self._mapping.kind.kind
        patching = info.verb == "patch"
        return strictness.judge(unknown, options.field_validation, kind=kind, group=info.group, patching=patching)

    def _metadata(self, obj: Map[str, Any], stored: Map[str, Any] | None) -> Object:
        mapping = self._mapping
        return metadata.backing(obj, stored, notes=mapping.notes(obj), mark=mapping.mark, known=mapping.note_keys)

    async def _stored(self, info: RequestInfo, *, foreign: bool = False, version: str = "") -> Object:
        """Return the backing object; `foreign`: one that is not of the kind is a conflict instead of nothing."""
        with translated(info, self._mapping.backing):
            try:
                stored = await self._client.get(
                    self._mapping.backing, info.name, info.namespace, resource_version=version
                )
            except NotFound as error:
                raise not_found(info) from error
        if self._mapping.owns(stored):
            return stored
        if foreign:
            why = f"a {self._mapping.backing.kind} of this name exists that is no {self._mapping.kind.kind}"
            raise status.conflict(info.resource, info.group, info.name, why)
        raise not_found(info)

    def _check_body(self, info: RequestInfo, obj: Map[str, Any]) -> None:
        stated = (obj.get("apiVersion"), obj.get("kind"))
        expected = (self._mapping.kind.api_version, self._mapping.kind.kind)
        if stated != expected:
            raise status.bad_request(
                f"the body is {stated[0]}, Kind={stated[1]}, expected {expected[0]}, {expected[1]}"
            )
        for key, wanted in (("name", info.name), ("namespace", info.namespace)):
            if at(obj, "metadata", key) not in (None, "", wanted):
                raise status.bad_request(f"metadata.{key} does not match the {key} on the URL ({wanted})")

    def _check_identity(
        self, info: RequestInfo, obj: Map[str, Any], stored: Map[str, Any], *, by_version: bool
    ) -> None:
        """Refuse a change of who the object is, and one made from another state of it."""
        given, was = as_map(obj.get("metadata")), as_map(stored.get("metadata"))
        if not isinstance(obj.get("metadata", {}), Map):
            raise status.bad_request("metadata must be an object")
        for key in ("name", "namespace"):
            if given.get(key, was.get(key)) != was.get(key):
                raise status.bad_request(f"metadata.{key} may not change")
        if given.get("uid") and given["uid"] != was.get("uid"):
            why = f"Precondition failed: UID in precondition: {given['uid']}, UID in object meta: {was.get('uid')}"
            raise status.conflict(info.resource, info.group, info.name, why)
        version = given.get("resourceVersion")
        if by_version and version and version != was.get("resourceVersion"):
            raise status.conflict(info.resource, info.group, info.name, status.STALE)

    def _view(self, stored: Map[str, Any]) -> Object:
        kind = self._mapping.kind
        identity = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata.shown(stored)}
        return {**identity, **self._mapping.shown(stored)}

    def _document(self, stored: Map[str, Any]) -> Document:
        return Document(encode(self._view(stored)))


def _joined(*selectors: str) -> str:
    """Join selectors, ours first: a client's may end in the escape of a comma."""
    return ",".join(filter(None, selectors))


def _field_selector(info: RequestInfo) -> str:
    one = f"metadata.name={info.name}" if info.name and info.verb == "watch" else ""
    return _joined(one, info.query.get("fieldSelector", ""))


def _scoped(body: Object) -> Object:
    if not body["metadata"].get("namespace"):
        body["metadata"].pop("namespace", None)
    return body


def _named(info: RequestInfo, obj: Map[str, Any]) -> RequestInfo:
    return replace(info, name=name_of(obj) or as_str(at(obj, "metadata", "generateName")))
