"""A v1 view over a custom resource: one connector per kind.

For: the resource modules, one line each. In: authorized calls on an ASGI connection. Out: kube-apiserver's own answers
under the view's version.
Promises:
- nothing that is relayed is parsed (see `rewriting`, `splicing`); Tables and metadata-only forms are kube-apiserver's;
- upstream is asked for JSON alone; a client that takes neither JSON nor YAML gets 406;
- what is rewritten is asked for unpacked, and refused with 503 when it comes packed all the same; a list in which
  nothing is may come packed, and passes as it is;
- one upstream watch for each watch of a client; ERROR events pass through; it ends with a clean EOF when upstream ends
  or breaks off, when the client is gone, or when this server drains;
- an apply by someone who may not create only updates: it is sent with the live uid;
- `Warning`, `Retry-After` and `Audit-ID` pass back; a refusal of this server's own credentials is 503, never 401.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import orjson

from apiserver.forwarding import strategic, upstream
from apiserver.forwarding.open_streams import OpenStreams, until_ended
from apiserver.forwarding.patching import splice_json_patch
from apiserver.forwarding.rewriting import Renaming, Rewriter
from apiserver.forwarding.splicing import Splice, off_loop
from apiserver.rest import negotiation, status, table
from apiserver.rest.app import READ_DEADLINE_S, WRITE_DEADLINE_S, Authorize, manager_of
from apiserver.rest.negotiation import Form, View
from apiserver.rest.options import delete_options, read_version
from apiserver.rest.patch import PatchType
from apiserver.rest.request_info import RequestInfo
from apiserver.rest.responses import NO_CACHE, Receive, Send, end_stream, read_body, send_bytes, send_piece
from apiserver.rest.storage import Call
from kube.client import Client
from kube.connection import Answer
from kube.errors import InvalidRequest, Unreachable
from kube.requests import Request
from nodefeature.fields import as_map, as_str, at
from nodefeature.kinds import Kind

CONFLICT_RETRIES = 5
_PASSED_BACK = frozenset({"content-type", "warning", "retry-after", "audit-id", "content-encoding", "vary"})
_JSON_TYPES = frozenset({"", "*/*", negotiation.JSON_TYPE})
Pairs = list[tuple[bytes, bytes]]


@dataclass(slots=True)
class _Exchange:
    """One request of a client, and where its answer goes."""

    call: Call
    headers: Mapping[bytes, bytes]
    form: Form
    receive: Receive
    send: Send

    @property
    def info(self) -> RequestInfo:
        return self.call.info

    @property
    def content_type(self) -> str:
        return self.headers.get(b"content-type", b"").decode("latin-1")

    @property
    def passes_whole(self) -> bool:
        """Say whether nothing in the answer is to be rewritten: lists of rows or metadata name no version of ours."""
        converted = self.form.view is View.METADATA_LIST or self.form.view is View.TABLE
        return self.info.verb == "list" and converted and self.info.query.get("includeObject") != "Object"

    @property
    def takes_packed(self) -> bool:
        """Say whether the answer may come packed."""
        return self.passes_whole and negotiation.wants_gzip(self.headers.get(b"accept-encoding", b""))

    @property
    def manager(self) -> str:
        return manager_of(self.headers.get(b"user-agent", b"").decode("latin-1"))

    async def body(self) -> bytes:
        if self.headers.get(b"content-encoding", b"") not in (b"", b"identity"):
            raise status.unsupported_media_type((negotiation.JSON_TYPE,))
        body = await read_body(self.receive, announced=self.headers.get(b"content-length", b""))
        if not is_utf8(body):  # upstream would put a replacement character into what is stored
            raise status.bad_request("the body is not valid UTF-8")
        return body


class CrdView:
    """The connector of one kind."""

    def __init__(
        self,
        kind: Kind,
        client: Client,
        *,
        version: str,
        authorize: Authorize,
        open_streams: OpenStreams,
        impersonate: bool = False,
    ) -> None:
        self._kind = kind
        self._client = client
        self._authorize = authorize
        self._open_streams = open_streams
        self._impersonate = impersonate
        self._rewriter = Rewriter(Renaming(kind.group, kind.version, version, kind.kind))
        self._splice = Splice(f"{kind.group}/{version}", kind.api_version)

    async def __call__(self, call: Call, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request; raises Refusal."""
        headers = dict(scope["headers"])
        form = negotiation.negotiate(headers.get(b"accept", b"").decode("latin-1"), call.info.verb)
        table.check_include(call.info.query.get("includeObject", ""))
        read_version(call.info.query)  # kube-apiserver blames itself for some that are none
        try:
            await self._serve(_Exchange(call, headers, form, receive, send))
        except Unreachable as error:
            raise status.unavailable("kube-apiserver cannot be reached, please try again") from error
        except InvalidRequest as error:
            raise status.bad_request(str(error)) from error

    async def _serve(self, exchange: _Exchange) -> None:
        match exchange.info.verb:
            case "watch":
                await self._watch(exchange)
            case "get" | "list":
                await self._relay(exchange, self._request(exchange))
            case "delete" | "deletecollection":
                await self._delete(exchange)
            case "patch":
                await self._patch(exchange)
            case _:
                await self._write(exchange)

    def _request(self, exchange: _Exchange, content: bytes | None = None, content_type: str = "") -> Request:
        """Return the upstream request; a write carries the manager and, when asked for, the user."""
        verb = exchange.info.verb
        writing = verb in upstream.WRITES
        identity = upstream.impersonation(exchange.call.user) if writing and self._impersonate else ()
        headers = [("accept", upstream.accept_header(exchange.form)), *upstream.audit_header(exchange.headers)]
        if exchange.takes_packed:
            headers.append(("accept-encoding", "gzip"))
        applying = content_type == PatchType.APPLY.value
        return upstream.build(
            exchange.call,
            self._kind,
            headers=(*headers, *identity),
            content=content,
            content_type=content_type or negotiation.JSON_TYPE,
            # An apply must name its manager by itself: upstream refuses one that does not.
            manager=exchange.manager if verb in ("create", "update", "patch") and not applying else "",
        )

    # Reads and answers

    def _asked(self, request: Request) -> AbstractAsyncContextManager[Answer]:
        first_s = READ_DEADLINE_S if request.safe else WRITE_DEADLINE_S
        return self._client.connection.exchange(request, first_s=first_s)

    async def _relay(self, exchange: _Exchange, request: Request) -> None:
        async with self._asked(request) as answer:
            await self._relay_answer(exchange, answer)

    async def _relay_answer(self, exchange: _Exchange, answer: Answer) -> None:
        headers = list(_passed_back(exchange, answer))
        if not answer.is_success:
            await _send(exchange, answer.code, await answer.body(), headers)
            return
        if exchange.info.verb in ("list", "deletecollection") and exchange.form.view is not View.YAML:
            await exchange.send({"type": "http.response.start", "status": answer.code, "headers": headers})
            chunks = answer.chunks if exchange.passes_whole else self._rewriter.chunks(answer.chunks)
            async for chunk in chunks:
                await send_piece(exchange.send, chunk)
            await end_stream(exchange.send)
            return
        body = self._rewriter.one(await answer.body())
        if exchange.form.view is View.YAML:
            body = await asyncio.to_thread(negotiation.to_yaml, body)
        await _send(exchange, answer.code, body, headers)

    async def _watch(self, exchange: _Exchange) -> None:
        if self._open_streams.refusing:
            raise status.unavailable("the server is shutting down")
        async with self._asked(self._request(exchange)) as answer:
            if not answer.is_success:
                await self._relay_answer(exchange, answer)
                return
            headers = list(_passed_back(exchange, answer))
            await exchange.send({"type": "http.response.start", "status": 200, "headers": headers})
            await send_piece(exchange.send, b"")  # the head leaves now
            await until_ended(self._pump(exchange, answer), exchange.receive, self._open_streams)
            await end_stream(exchange.send)

    async def _pump(self, exchange: _Exchange, answer: Answer) -> None:
        with suppress(Unreachable):  # the client resumes at the last version it saw
            async for lines in self._rewriter.lines(answer.chunks):
                await send_piece(exchange.send, lines)

    # Writes

    async def _write(self, exchange: _Exchange) -> None:
        body, media_type = await exchange.body(), exchange.content_type.partition(";")[0].strip().lower()
        if media_type in _JSON_TYPES:
            spliced, media_type = await self._splice.json(body), negotiation.JSON_TYPE
        elif media_type in negotiation.YAML_TYPES:
            spliced, media_type = await self._splice.yaml(body), negotiation.YAML_TYPE
        else:
            raise status.unsupported_media_type((negotiation.JSON_TYPE, negotiation.YAML_TYPE))
        await self._relay(exchange, self._request(exchange, spliced, media_type))

    async def _delete(self, exchange: _Exchange) -> None:
        body = await exchange.body()
        options = await negotiation.off_loop(negotiation.decode, body, exchange.content_type) if body else None
        delete_options(exchange.info, options)  # refuses what upstream would read otherwise
        sent = orjson.dumps({**as_map(options), "kind": "DeleteOptions", "apiVersion": "v1"}) if body else None
        await self._relay(exchange, self._request(exchange, sent))

    async def _patch(self, exchange: _Exchange) -> None:
        body, media_type = await exchange.body(), exchange.content_type.partition(";")[0].strip().lower()
        match media_type:
            case PatchType.JSON.value:
                body = await off_loop(partial(splice_json_patch, splice=self._splice), body)
            case PatchType.MERGE.value:
                body = await self._splice.json(body)
            case PatchType.APPLY.value:
                body = await self._splice.yaml(body)
                body = await self._only_update(exchange, body)
            case PatchType.STRATEGIC.value:
                await self._patch_strategically(exchange, await self._splice.json(body))
                return
            case _:
                raise strategic.unsupported()
        await self._relay(exchange, self._request(exchange, body, media_type))

    async def _only_update(self, exchange: _Exchange, body: bytes) -> bytes:
        """Give an apply the live uid when its user may not create; raises Refusal 403 when nothing is there."""
        if exchange.info.subresource:
            return body
        try:
            await self._authorize(exchange.call.user, replace(exchange.info, verb="create"))
        except status.Refusal as refusal:
            if refusal.code != 403:
                raise
            live = await self._live_metadata(exchange)
            if live is None:
                raise
            applied = await negotiation.off_loop(negotiation.decode_yaml, body)
            if not isinstance(applied, dict) or not isinstance(applied.get("metadata") or {}, dict):
                raise status.bad_request("the body of an apply must be an object") from refusal
            metadata = dict(as_map(applied.get("metadata")))
            metadata["uid"] = metadata.get("uid") or live.get("uid")  # an empty one would name no object
            return negotiation.encode({**applied, "metadata": metadata})
        return body

    async def _patch_strategically(self, exchange: _Exchange, body: bytes) -> None:
        patch = negotiation.decode_json(body)
        if not isinstance(patch, dict):
            raise status.bad_request("a strategic merge patch must be an object")
        strategic.check(patch)
        if not strategic.needs_live(patch):
            await self._relay(exchange, self._request(exchange, body, PatchType.MERGE.value))
            return
        own_version = at(patch, "metadata", "resourceVersion") is not None
        for turn in range(CONFLICT_RETRIES):
            live = await self._live_metadata(exchange)
            if live is None:
                raise status.not_found(exchange.info.resource, exchange.info.group, exchange.info.name)
            sent = negotiation.encode(strategic.merged(patch, live))
            async with self._asked(self._request(exchange, sent, PatchType.MERGE.value)) as answer:
                if answer.code != 409 or own_version or turn == CONFLICT_RETRIES - 1:
                    await self._relay_answer(exchange, answer)
                    return

    async def _live_metadata(self, exchange: _Exchange) -> Mapping[str, Any] | None:
        """Return the stored object's metadata; None when there is none."""
        call = Call(replace(exchange.info, verb="get", subresource="", query={}), exchange.call.user)
        accept = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
        async with self._asked(upstream.build(call, self._kind, headers=(("accept", accept),))) as answer:
            body = await answer.body()
            if answer.code == 404:
                return None
            if not answer.is_success:
                raise _refusal_of(answer.code, body)
        return as_map(as_map(negotiation.decode_json(body)).get("metadata"))


def is_utf8(body: bytes) -> bool:
    """Say whether a body is text; most are ASCII, which is quickly told."""
    if body.isascii():
        return True
    try:
        body.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _passed_back(exchange: _Exchange, answer: Answer) -> Iterator[tuple[bytes, bytes]]:
    """Yield the headers that pass back; raises Refusal 503 for an answer that cannot be read as it was asked for."""
    yield NO_CACHE
    for name, value in answer.pairs:
        packed = name == "content-encoding" and value != "identity"
        if packed and answer.is_success and not exchange.takes_packed:
            raise status.unavailable("an answer of kube-apiserver came packed, though it was asked for as it is")
        if name in _PASSED_BACK:
            yield name.encode(), value.encode("latin-1")


async def _send(exchange: _Exchange, code: int, body: bytes, headers: Pairs) -> None:
    content_type = exchange.form.content_type if code < 300 else negotiation.JSON_TYPE
    kept = [pair for pair in headers if pair[0] != b"content-type"]
    if code == 401 or (code >= 300 and not body.startswith(b"{")):
        raise _refusal_of(code, body)
    await send_bytes(exchange.send, body, code=code, content_type=content_type, headers=kept)


def _refusal_of(code: int, body: bytes) -> status.Refusal:
    """Return an upstream refusal as one of ours."""
    if code == 401:
        return status.unavailable("kube-apiserver refuses the credentials of this server")
    try:
        document = as_map(orjson.loads(body))
    except orjson.JSONDecodeError:
        document = {}
    reason = as_str(document.get("reason"))
    message = as_str(document.get("message")) or f"kube-apiserver answered {code}"
    return status.Refusal(code, reason, message, details=dict(as_map(document.get("details"))))
