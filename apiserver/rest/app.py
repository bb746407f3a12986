"""The pure-ASGI application: from a request line to a storage and back.

For: the devcluster and the aggregated server, which bring a catalog, an authenticator and an authorizer.
In: ASGI http scopes. Out: answers as a Kubernetes API server gives them.
Promises: path and query are read once (`request_info`); nothing is buffered on the way out; every refusal is a Status;
every request that is not a watch or a declared long-running sub-resource has a deadline; more than the allowed
requests in flight are 429; an unexpected error is a 500 that says nothing of the inside and is logged once.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from apiserver.rest import listing, negotiation, patch, request_info, status, table, watching
from apiserver.rest.discovery import Discovery
from apiserver.rest.negotiation import Form, View
from apiserver.rest.options import (
    ListOptions,
    delete_options,
    list_options,
    read_version,
    watch_options,
    write_options,
)
from apiserver.rest.repeated import repeated_fields
from apiserver.rest.request_info import RequestInfo
from apiserver.rest.responses import (
    NO_CACHE,
    Receive,
    Scope,
    Send,
    read_body,
    send_bytes,
    send_pieces,
    send_refusal,
)
from apiserver.rest.selectors import check_fields
from apiserver.rest.storage import Call, Catalog, Document, EventStream, Resource, Subresource, User, Written
from kube.clock import Clock

log = logging.getLogger(__name__)

WRITE_DEADLINE_S = 34.0
READ_DEADLINE_S = 60.0
WATCH_SHORTEST_S, WATCH_LONGEST_S = 1800.0, 3600.0
_READS = frozenset({"get", "list", "watch"})
_MOST_AGENT = 1024
_MOST_WARNING = 256
"""Characters of one warning: kube-apiserver cuts there too."""

Authenticate = Callable[[Scope], Awaitable[User]]
Authorize = Callable[[User, RequestInfo], Awaitable[None]]
Handler = Callable[[RequestInfo, User, Scope, Receive, Send], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Limits:
    """Requests in flight before 429. Watches do not count."""

    reads: int = 400
    writes: int = 200


@dataclass(slots=True)
class _Request:
    """One request on its way through."""

    info: RequestInfo
    user: User
    headers: Mapping[bytes, bytes]
    receive: Receive
    send: Send

    def header(self, name: bytes) -> str:
        return self.headers.get(name, b"").decode("latin-1")

    async def body(self) -> bytes:
        if self.header(b"content-encoding") not in ("", "identity"):
            raise status.unsupported_media_type((negotiation.JSON_TYPE,))
        return await read_body(self.receive, announced=self.headers.get(b"content-length", b""))


class App:
    """The engine. `authenticate` and `authorize` raise Refusal 401, 403.

    `paths` serves whole paths that are no resource's, also below a group version; `fallback` what nobody else serves.
    """

    def __init__(
        self,
        catalog: Catalog,
        *,
        authenticate: Authenticate,
        authorize: Authorize,
        clock: Clock,
        rng: random.Random,
        paths: Mapping[str, Handler] | None = None,
        fallback: Handler | None = None,
        limits: Limits = Limits(),
        on_done: Callable[[RequestInfo, int, str], None] | None = None,
    ) -> None:
        self.catalog = catalog
        self._authenticate = authenticate
        self._authorize = authorize
        self._clock = clock
        self._rng = rng
        self._paths = dict(paths or {})
        self._fallback = fallback
        self._limits = limits
        self._on_done = on_done
        self._discovery = Discovery(catalog)
        self._streams: set[EventStream] = set()
        self._reads = self._writes = 0
        self._draining = False

    def drain(self) -> None:
        """End every watch with a clean EOF; new ones are refused with 503."""
        self.refuse_streams()
        for stream in self.open_streams():
            stream.close()

    def open_streams(self) -> tuple[EventStream, ...]:
        """Return the watches that are open now, for a shutdown that spreads their ends."""
        return tuple(self._streams)

    def refuse_streams(self) -> None:
        """Let no further watch begin."""
        self._draining = True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""
        if scope["type"] != "http":
            return
        started: list[int] = []

        async def counted(message: Any) -> None:
            if message["type"] == "http.response.start":
                started.append(message["status"])
            await send(message)

        info = RequestInfo(verb=scope["method"].lower(), path="")
        agent = ""
        try:
            info = request_info.parse(scope["method"], scope["raw_path"], scope["query_string"])
            headers = dict(scope["headers"])
            agent = headers.get(b"user-agent", b"").decode("latin-1")
            await self._admit(_Request(info, User(""), headers, receive, counted), scope)
        except status.Refusal as refusal:
            if not started:
                await send_refusal(counted, refusal)
        except TimeoutError:
            if not started:
                await send_refusal(counted, status.timed_out("the request did not complete in time"))
        except Exception:
            log.exception("request failed", extra={"verb": info.verb, "path": info.path})
            if not started:
                await send_refusal(counted, status.internal_error("see the server's log"))
        if self._on_done is not None:
            self._on_done(info, started[0] if started else 0, agent)

    async def _admit(self, request: _Request, scope: Scope) -> None:
        """Authenticate, authorize, count and route."""
        info = request.info
        request.user = await self._authenticate(scope)
        await self._authorize(request.user, info)
        if not info.is_resource or info.path in self._paths:
            await self._serve_path(request, scope)
            return
        relay = self.catalog.relays.get((info.group, info.version))
        if relay is not None and self.catalog.find(info.group, info.version, info.resource) is None:
            await relay(Call(info, request.user), scope, request.receive, request.send)
            return
        resource = self._resource(info)
        sub = _subresource(resource, info)
        if info.verb == "watch" or (sub is not None and sub.long_running):
            await self._serve(request, resource, sub, scope)
            return
        writing = info.verb not in _READS
        self._take(writing=writing)
        try:
            # An unbounded number of objects may be deleted: kube-apiserver's cap on writes leaves these out too.
            short = writing and info.verb != "deletecollection"
            async with asyncio.timeout(WRITE_DEADLINE_S if short else READ_DEADLINE_S):
                await self._serve(request, resource, sub, scope)
        finally:
            self._give(writing=writing)

    def _take(self, *, writing: bool) -> None:
        if (self._writes >= self._limits.writes) if writing else (self._reads >= self._limits.reads):
            raise status.too_many_requests("too many requests in flight, please try again later")
        self._writes += writing
        self._reads += not writing

    def _give(self, *, writing: bool) -> None:
        self._writes -= writing
        self._reads -= not writing

    def _resource(self, info: RequestInfo) -> Resource:
        resource = self.catalog.find(info.group, info.version, info.resource)
        if resource is None:
            raise self._unknown()
        if info.namespace and not resource.namespaced and info.resource != "namespaces":
            raise status.path_not_found()
        if resource.namespaced and not info.namespace and (info.name or info.verb == "create"):
            raise status.path_not_found()
        if resource.namespaced and not info.namespace and info.verb == "deletecollection":
            raise status.method_not_allowed(info.resource, info.group, info.verb)  # not even of an administrator
        return resource

    def _unknown(self) -> status.Refusal:
        if not self.catalog.ready:
            return status.unavailable("the server is starting; not every route is installed yet")
        return status.path_not_found()

    async def _serve_path(self, request: _Request, scope: Scope) -> None:
        info = request.info
        if info.verb in ("get", "head"):
            found = self._discovery.answer(info.path, request.header(b"accept"))
            if found is not None:
                if not self.catalog.ready:
                    raise self._unknown()
                await _send_discovery(request, *found)
                return
        handler = self._paths.get(info.path) or self._fallback
        if handler is None:
            raise self._unknown()
        await handler(info, request.user, scope, request.receive, request.send)

    async def _serve(self, request: _Request, resource: Resource, sub: Subresource | None, scope: Scope) -> None:
        info = request.info
        call = Call(info, request.user)
        connector = (sub.connector if sub is not None else None) or resource.connector
        if connector is not None:
            await connector(call, scope, request.receive, request.send)
            return
        match info.verb:
            case "get" | "list" | "watch":
                await self._read(request, resource, call)
            case "delete" | "deletecollection":
                await self._delete(request, resource, call)
            case _:
                await self._write(request, resource, call)

    async def _read(self, request: _Request, resource: Resource, call: Call) -> None:
        info = call.info
        form = negotiation.negotiate(request.header(b"accept"), info.verb)
        include = table.check_include(info.query.get("includeObject", ""))
        if info.verb == "get":
            read_version(info.query)
            document = await resource.storage.get(call)
            await self._send_one(request, resource, document, form=form, include=include)
        elif info.verb == "list":
            page = await resource.storage.list(call, _list_options(info, resource))
            now = self._clock.time()
            if form.view is View.YAML or listing.is_short(page):
                body = await listing.whole(page, resource, form, include=include, now=now)
                await _send_document(request, body, form=form)
            else:
                await send_pieces(request.send, listing.pieces(page, resource, form, include=include, now=now))
        else:
            await self._watch(request, resource, call, framer=watching.Framer(resource, form, include, self._clock))

    async def _watch(self, request: _Request, resource: Resource, call: Call, *, framer: watching.Framer) -> None:
        options = watch_options(call.info)
        check_fields(options.fields, resource.fields)
        if self._draining:
            raise status.unavailable("the server is shutting down")
        stream = await resource.storage.watch(call, options)
        self._streams.add(stream)
        duration_s = float(options.timeout_s or self._rng.uniform(WATCH_SHORTEST_S, WATCH_LONGEST_S))
        try:
            await watching.serve(
                stream, framer, options, receive=request.receive, send=request.send, duration_s=duration_s
            )
        finally:
            self._streams.discard(stream)

    async def _write(self, request: _Request, resource: Resource, call: Call) -> None:
        info = call.info
        form = negotiation.negotiate(request.header(b"accept"), info.verb)
        include = table.check_include(info.query.get("includeObject", ""))
        options = write_options(info, default_manager=manager_of(request.header(b"user-agent")))
        content_type = request.header(b"content-type")
        storage = resource.storage
        if info.verb == "patch":
            kinds = resource.patch_types
            change = await negotiation.off_loop(patch.read, await request.body(), content_type, kinds)
            check_force(change, options.force, call.info)
            written = await storage.patch(call, change, options)
        else:
            body = await request.body()
            obj = await negotiation.off_loop(negotiation.decode, body, content_type)
            check_body(obj, resource, info)
            validation = options.field_validation
            warnings = await negotiation.off_loop(check_repeated, body, content_type, validation)
            act = storage.create if info.verb == "create" else storage.update
            written = await act(call, obj, options)
            written = replace(written, warnings=(*warnings, *written.warnings))
        await self._send_one(request, resource, written.document, form=form, include=include, written=written)

    async def _delete(self, request: _Request, resource: Resource, call: Call) -> None:
        info = call.info
        form = negotiation.negotiate(request.header(b"accept"), info.verb)
        body = await request.body()
        kind = request.header(b"content-type")
        options = delete_options(info, await negotiation.off_loop(negotiation.decode, body, kind) if body else None)
        if info.verb == "deletecollection":
            page = await resource.storage.deletecollection(call, _list_options(info, resource), options)
            body = await listing.whole(page, resource, negotiation.PLAIN, include="", now=self._clock.time())
            await _send_document(request, body, form=form)
            return
        deleted = await resource.storage.delete(call, options)
        if deleted.document is not None:
            await self._send_one(request, resource, deleted.document, form=form, include="Metadata")
            return
        done = status.success(name=info.name, group=info.group, kind=info.resource, uid=deleted.uid)
        await _send_document(request, negotiation.encode(done), form=form)

    async def _send_one(
        self,
        request: _Request,
        resource: Resource,
        document: Document,
        *,
        form: Form,
        include: str,
        written: Written | None = None,
    ) -> None:
        body = document.data
        if form.view is View.METADATA:
            body = negotiation.encode(table.partial(document.load(), form.version))
        elif form.view is View.TABLE:
            obj = document.load()
            row = table.row(obj, resource.columns, include=include, version=form.version, now=self._clock.time())
            body = negotiation.encode(table.of_one(obj, row, resource.columns, version=form.version))
        code = 201 if request.info.verb == "create" or (written is not None and written.created) else 200
        headers = [(b"warning", warning_value(text)) for text in written.warnings] if written else []
        await _send_document(request, body, form=form, code=code, headers=headers)


def _list_options(info: RequestInfo, resource: Resource) -> ListOptions:
    options = list_options(info)
    check_fields(options.fields, resource.fields)
    return options


async def _send_document(
    request: _Request, body: bytes, *, form: Form, code: int = 200, headers: list[tuple[bytes, bytes]] | None = None
) -> None:
    if form.view is View.YAML:
        body = negotiation.to_yaml(body)
    await send_bytes(
        request.send, body, code=code, content_type=form.content_type, headers=[NO_CACHE, *(headers or ())]
    )


async def _send_discovery(request: _Request, body: bytes, content_type: str, etag: str) -> None:
    headers = [(b"etag", etag.encode()), (b"vary", b"Accept"), (b"cache-control", b"public")]
    if etag in request.header(b"if-none-match"):
        await send_bytes(request.send, b"", code=304, content_type=content_type, headers=headers)
        return
    await send_bytes(request.send, body, content_type=content_type, headers=headers)


def _subresource(resource: Resource, info: RequestInfo) -> Subresource | None:
    """Return the declared sub-resource of a request; raises Refusal 404 or 405."""
    if not info.subresource:
        if info.verb not in resource.verbs or (info.name and info.verb == "create"):
            raise status.method_not_allowed(info.resource, info.group, info.verb)
        return None
    sub = resource.subresources.get(info.subresource)
    if sub is None:
        raise status.path_not_found()
    if info.verb not in sub.verbs:
        raise status.method_not_allowed(f"{info.resource}/{info.subresource}", info.group, info.verb)
    return sub


def manager_of(user_agent: str) -> str:
    """Return the field manager of a client that names none: its User-Agent up to the first slash.

    Of that what may be part of a field manager: printable, 128 bytes.
    """
    name = user_agent[:_MOST_AGENT].partition("/")[0].encode("latin-1", "ignore").decode("utf-8", "ignore")
    printable = "".join(filter(str.isprintable, name))
    return printable.encode()[:128].decode("utf-8", "ignore") or "unknown"


def warning_value(text: str) -> bytes:
    """Return the value of a `Warning` header; what cannot be part of a header is left out, a long text is cut."""
    shown = "".join(filter(str.isprintable, text[:_MOST_WARNING]))
    return b'299 - "%b"' % shown.replace("\\", "\\\\").replace('"', '\\"').encode("utf-8", "replace")


def check_force(change: patch.Patch, force: bool, info: RequestInfo) -> None:
    """Apply needs a named manager; only apply may be forced (422)."""
    if change.type is patch.PatchType.APPLY:
        if not info.query.get("fieldManager"):
            why = "is required for apply patch"
            raise status.invalid_option("PatchOptions", "fieldManager", "", why)
    elif force:
        raise status.forbidden_option("PatchOptions", "force", "may not be specified for non-apply patch")


def check_repeated(body: bytes, content_type: str, validation: str) -> tuple[str, ...]:
    """Return warnings of fields given twice; raises Refusal 400 when the client asked for strictness."""
    repeated = [] if validation == "Ignore" else repeated_fields(body, content_type)
    if repeated and validation == "Strict":
        texts = ", ".join(f'duplicate field "{name}"' for name in repeated)
        raise status.bad_request(f"strict decoding error: {texts}")
    return tuple(f'duplicate field "{name}"' for name in repeated)


def check_body(obj: Any, resource: Resource, info: RequestInfo) -> None:
    """Refuse (400) a body that is no object of the path's kind, namespace and name."""
    if not isinstance(obj, dict):
        raise status.bad_request("the body must be an object")
    meta = obj.get("metadata")
    if meta is not None and not isinstance(meta, dict):
        raise status.bad_request("metadata must be an object")
    if info.subresource not in ("", "status"):
        return
    stated = (obj.get("apiVersion"), obj.get("kind"))
    if stated != (resource.api_version, resource.kind):
        expected = f"{resource.api_version}, Kind={resource.kind}"
        raise status.bad_request(f"the object's kind is {stated[0]}, Kind={stated[1]}, expected {expected}")
    namespace = (meta or {}).get("namespace")
    wanted = info.namespace if resource.namespaced else ""
    if namespace and namespace != wanted:
        why = "the namespace of the provided object does not match the namespace sent on the request"
        raise status.bad_request(why)
    if info.verb == "update" and (meta or {}).get("name") != info.name:
        given = (meta or {}).get("name")
        raise status.bad_request(f"the name of the object ({given}) does not match the name on the URL ({info.name})")
