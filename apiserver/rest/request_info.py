"""The one reading of method, path and query (design §6, spec 03 B2).

For: authorization, logging, routing and the upstream request, which all use the same frozen `RequestInfo`.
In: the method, the raw (still percent-encoded) path and the raw query of a request. Out: `RequestInfo`, or a Refusal.
Promises: a path is split before it is decoded and decoded once; a segment that is empty, `.`, `..`, or contains `/`,
`%` or a control character is refused with 400, so that nothing smuggled through `..%2f` reaches a URL of ours; of the
query only the parameters that the verb knows survive.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from urllib.parse import parse_qsl, unquote_to_bytes

from apiserver.rest import status
from apiserver.rest.remembering import remembered
from apiserver.rest.selectors import parse_fields

_WRITE = frozenset({"dryRun", "fieldManager", "fieldValidation"})
_LIST = frozenset(
    {
        "labelSelector",
        "fieldSelector",
        "limit",
        "continue",
        "resourceVersion",
        "resourceVersionMatch",
        "timeoutSeconds",
        "sendInitialEvents",
        "allowWatchBookmarks",
        "includeObject",
        "watch",
    }
)
_DELETE = frozenset({"dryRun", "gracePeriodSeconds", "propagationPolicy", "orphanDependents"})
QUERY_OF_VERB: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "get": frozenset({"resourceVersion", "includeObject"}),
        "list": _LIST,
        "watch": _LIST,
        "create": _WRITE | {"includeObject"},
        "update": _WRITE | {"includeObject"},
        "patch": _WRITE | {"force", "includeObject"},
        "delete": _DELETE,
        "deletecollection": _DELETE | _LIST,
    }
)
"""Query parameters that each verb knows. `pretty` and `timeout` are read from the raw query by nobody else."""

_VERB_OF_METHOD = MappingProxyType(
    {"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
)
_NAMESPACE_SUBRESOURCES = frozenset({"status", "finalize"})
_PLAIN_SEGMENT = re.compile(rb"[A-Za-z0-9][-A-Za-z0-9._:]*")
_TRUE = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_FALSE = frozenset({"0", "f", "F", "false", "FALSE", "False"})
_EMPTY: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class RequestInfo:
    """What a request asks for.

    `verb` is a Kubernetes verb for resources, the lower-cased HTTP method otherwise. `selected_name` is the name that
    a `metadata.name=` field selector pins a list or watch to: authorization judges it like a name in the path.
    """

    verb: str
    path: str
    is_resource: bool = False
    group: str = ""
    version: str = ""
    namespace: str = ""
    resource: str = ""
    name: str = ""
    subresource: str = ""
    selected_name: str = ""
    query: Mapping[str, str] = field(default_factory=lambda: _EMPTY)

    @property
    def api_version(self) -> str:
        """Return the `apiVersion` of the path."""
        return f"{self.group}/{self.version}" if self.group else self.version


def parse(method: str, raw_path: bytes, raw_query: bytes) -> RequestInfo:
    """Read a request line; raises Refusal 400 or 405."""
    segments = _segments(raw_path)
    path = "/" + "/".join(segments)
    offset, group = _api_prefix(segments)
    rest = segments[offset:]
    if not offset or len(rest) < 2:
        return RequestInfo(verb=method.lower(), path=path, query=_parameters(raw_query))
    version, rest = rest[0], rest[1:]
    verb = _VERB_OF_METHOD.get(method)
    if verb is None:
        raise status.method_not_allowed(rest[0], group, method.lower())
    if rest[0] == "watch" and verb == "get" and len(rest) > 1:
        verb, rest = "watch", rest[1:]
    namespace, resource, name, subresource = _target(rest, core=not group)
    query = _parameters(raw_query)
    verb = _collection_verb(verb, name, query, resource=resource, group=group)
    query = _known_parameters(verb, raw_query) if query else query
    return RequestInfo(
        verb=verb,
        path=path,
        is_resource=True,
        group=group,
        version=version,
        namespace=namespace,
        resource=resource,
        name=name,
        subresource=subresource,
        selected_name=_selected_name(query) if not name else "",
        query=query,
    )


def _segments(raw_path: bytes) -> tuple[str, ...]:
    trimmed = raw_path.removeprefix(b"/")
    if trimmed.count(b"/") == 1:
        trimmed = trimmed.removesuffix(b"/")  # `/apis/` and `/healthz/`: kube-apiserver takes both spellings
    if not trimmed:
        return ()
    return tuple(_segment(part) for part in trimmed.split(b"/"))


@remembered(16384)
def _segment(part: bytes) -> str:
    if _PLAIN_SEGMENT.fullmatch(part):
        return part.decode("ascii")
    try:
        text = unquote_to_bytes(part).decode("utf-8")
    except UnicodeDecodeError as error:
        raise status.bad_request("the path is not valid UTF-8") from error
    if text in ("", ".", "..") or "/" in text or "%" in text or not text.isprintable():
        raise status.bad_request(f"invalid path segment {text!r}: may not be empty, '.', '..', or contain '/' or '%'")
    return text


def _api_prefix(segments: tuple[str, ...]) -> tuple[int, str]:
    """Return how many segments the prefix takes and the group; 0 means no API path."""
    if segments[:1] == ("api",):
        return 1, ""
    if segments[:1] == ("apis",) and len(segments) > 1:
        return 2, segments[1]
    return 0, ""


def _target(rest: tuple[str, ...], *, core: bool) -> tuple[str, str, str, str]:
    """Return namespace, resource, name and sub-resource of the segments after the version."""
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 1:
        namespace = rest[1]
        if len(rest) > 2 and not (core and rest[2] in _NAMESPACE_SUBRESOURCES and len(rest) == 3):
            rest = rest[2:]
    if len(rest) > 3:
        raise status.path_not_found()
    padded = (*rest, "", "")
    return namespace, padded[0], padded[1], padded[2]


def _collection_verb(verb: str, name: str, query: Mapping[str, str], *, resource: str, group: str) -> str:
    if verb == "get" and not name:
        return "watch" if boolean(query, "watch") else "list"
    if verb == "get" and boolean(query, "watch"):
        return "watch"
    if verb == "delete" and not name:
        return "deletecollection"
    if not name and verb in ("update", "patch"):
        raise status.method_not_allowed(resource, group, verb)
    return verb


@remembered(1024)
def _parameters(raw_query: bytes) -> Mapping[str, str]:
    """Return the first value of each parameter, as kube-apiserver reads them."""
    if not raw_query:
        return _EMPTY
    try:
        pairs = parse_qsl(
            raw_query.decode("ascii"), keep_blank_values=True, max_num_fields=100, encoding="utf-8", errors="strict"
        )
    except (UnicodeDecodeError, ValueError) as error:
        raise status.bad_request("the query is not valid") from error
    out: dict[str, str] = {}
    for key, value in pairs:
        if key == "dryRun" and key in out and out[key] != value:
            raise status.bad_request("dryRun is given with different values")
        out.setdefault(key, value)
    return MappingProxyType(out)


@remembered(1024)
def _known_parameters(verb: str, raw_query: bytes) -> Mapping[str, str]:
    known = QUERY_OF_VERB[verb]
    return MappingProxyType({key: value for key, value in _parameters(raw_query).items() if key in known})


def parameters(raw_query: bytes, known: Collection[str]) -> Mapping[str, str]:
    """Return the parameters of a sub-resource that has options of its own; raises Refusal 400."""
    return {key: value for key, value in _parameters(raw_query).items() if key in known}


def boolean(query: Mapping[str, str], key: str) -> bool:
    """Read a boolean parameter; present and empty means true, as in kube-apiserver's conversion."""
    value = query.get(key)
    if value is None or value in _FALSE:
        return False
    if value == "" or value in _TRUE:
        return True
    raise status.bad_request(f"parameter {key}={value!r} is not a boolean")


def integer(query: Mapping[str, str], key: str) -> int | None:
    """Read an integer parameter; None when absent or empty."""
    value = query.get(key, "")
    if not value:
        return None
    digits = value.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 19):
        raise status.bad_request(f"parameter {key}={value!r} is not an integer")
    return int(value)


def _selected_name(query: Mapping[str, str]) -> str:
    """Return the name a field selector pins, read as the storage reads it: a comma may be escaped."""
    selector = query.get("fieldSelector", "")
    if not selector:
        return ""
    try:
        return parse_fields(selector).required("metadata.name")
    except status.Refusal:
        return ""  # refused where the options are read
