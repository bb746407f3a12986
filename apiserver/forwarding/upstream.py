"""The upstream request of a call, built from its `RequestInfo` alone (design §6).

For: `view`. In: an authorized call. Out: a `kube.requests.Request`.
Promises: path and query hold nothing that `RequestInfo` does not say, so that what was authorized is what is asked;
names that cannot be one path segment are 400; every write but an apply without manager names a field manager; no header
of the client is passed on but its `Audit-ID`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from urllib.parse import quote

from apiserver.rest import status
from apiserver.rest.negotiation import Form, View
from apiserver.rest.request_info import RequestInfo
from apiserver.rest.storage import Call, User
from kube import requests
from kube.errors import InvalidRequest
from kube.requests import Query, Request
from nodefeature.kinds import Kind

METHODS: Mapping[str, str] = {
    "get": "GET",
    "list": "GET",
    "watch": "GET",
    "create": "POST",
    "update": "PUT",
    "patch": "PATCH",
    "delete": "DELETE",
    "deletecollection": "DELETE",
}
WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})
_AUDIT_ID = re.compile(rb"[A-Za-z0-9-]{1,64}")


def build(
    call: Call,
    kind: Kind,
    *,
    headers: Query,
    content: bytes | None = None,
    content_type: str = requests.JSON,
    manager: str = "",
) -> Request:
    """Return the request that asks `kind`'s own server what the call asks; raises Refusal 400."""
    info = call.info
    return Request(
        method=METHODS[info.verb],
        path=_path(info, kind),
        query=tuple(_query(info, manager)),
        content=content,
        content_type=content_type,
        headers=headers,
        what=f"{info.verb} {kind}",
    )


def _path(info: RequestInfo, kind: Kind) -> str:
    try:
        if info.name and info.verb != "watch":
            return requests.object_path(kind, info.name, info.namespace, info.subresource)
        return requests.collection_path(kind, info.namespace)
    except InvalidRequest as error:
        raise status.bad_request(str(error)) from error


def _query(info: RequestInfo, manager: str) -> Iterator[tuple[str, str]]:
    given = dict(info.query)
    given.pop("watch", None)
    if info.verb == "watch":
        yield "watch", "true"
        if info.name:  # the old form of watching one object, which upstream may not serve
            one = f"metadata.name={info.name}"  # first: a client's selector may end in the escape of a comma
            given["fieldSelector"] = ",".join(filter(None, (one, given.get("fieldSelector", ""))))
    if manager and not given.get("fieldManager"):
        given["fieldManager"] = manager
    yield from given.items()


def accept_header(form: Form) -> str:
    """Return what upstream is asked for: JSON in the negotiated shape, never anything this server cannot relay."""
    if form.view in (View.PLAIN, View.YAML):
        return "application/json"
    return f"application/json;as={form.view.value};v={form.version};g=meta.k8s.io"


def audit_header(incoming: Mapping[bytes, bytes]) -> Iterator[tuple[str, str]]:
    """Yield the request's audit id, by which the logs of both servers are matched."""
    found = incoming.get(b"audit-id", b"")
    if _AUDIT_ID.fullmatch(found):
        yield "audit-id", found.decode("ascii")


def impersonation(user: User) -> Iterator[tuple[str, str]]:
    """Yield the headers under which upstream sees the user instead of this server."""
    yield "impersonate-user", _header(user.name)
    if user.uid:
        yield "impersonate-uid", _header(user.uid)
    for group in user.groups:
        yield "impersonate-group", _header(group)
    for key, values in user.extra.items():
        for value in values:
            yield f"impersonate-extra-{quote(key.lower(), safe='')}", _header(value)


def _header(text: str) -> str:
    # Blanks around a value are no part of it to those who read it: " admin" would become "admin".
    if not (text.isascii() and text.isprintable() and text == text.strip()):
        raise status.bad_request("the user's name, uid, groups or extra cannot be part of a header")
    return text
