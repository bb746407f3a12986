"""Content negotiation and body decoding (spec 03 B5).

For: `app`. In: the Accept and Content-Type headers and a body. Out: the `Form` to answer in, the decoded body, or 406,
413, 415, 400.
Promises: clauses are tried in q order and skipped when they cannot be served (protobuf always); nothing left is 406;
a body is JSON or YAML and becomes plain JSON types (no dates, no aliases, string keys only), nested at most
`MOST_DEEP`: what works on it recurses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Concatenate, ParamSpec, TypeVar

import orjson
import yaml

from apiserver.rest import status
from apiserver.rest.remembering import remembered

JSON_TYPE = "application/json"
YAML_TYPE = "application/yaml"
YAML_TYPES = frozenset({YAML_TYPE, "application/x-yaml", "text/yaml", "text/x-yaml"})
_ANY = frozenset({"*/*", "application/*", JSON_TYPE})
_META_VERSIONS = frozenset({"v1", "v1beta1"})
_PARAMETERS = frozenset({"q", "as", "g", "v", "charset", "profile"})
P = ParamSpec("P")
T = TypeVar("T")
_SHORT_BYTES = 32 * 1024
_MAX_YAML_BYTES = 1024 * 1024
MOST_DEEP = 200
_ENCODER_DEPTH = 254
"""How deep the encoder goes; the decoder takes more, and Python's own recursion ends in between."""


class View(Enum):
    """How an answer presents the objects."""

    PLAIN = "plain"
    TABLE = "Table"
    METADATA = "PartialObjectMetadata"
    METADATA_LIST = "PartialObjectMetadataList"
    YAML = "yaml"


@dataclass(frozen=True, slots=True)
class Form:
    """A view and the version of `meta.k8s.io` it is spoken in."""

    view: View = View.PLAIN
    version: str = "v1"

    @property
    def content_type(self) -> str:
        """Return the Content-Type of an answer; converted forms name themselves, as kube-apiserver's do not need to."""
        return YAML_TYPE if self.view is View.YAML else JSON_TYPE


PLAIN = Form()
_SINGLE = (JSON_TYPE, YAML_TYPE)


@dataclass(frozen=True, slots=True)
class Clause:
    """One clause of an Accept header."""

    media_type: str
    parameters: Mapping[str, str]
    q: float


@remembered(512)
def clauses(accept: str) -> tuple[Clause, ...]:
    """Split an Accept header into clauses, best first; malformed clauses are dropped."""
    out = []
    for text in accept.split(","):
        media_type, *rest = (part.strip() for part in text.split(";"))
        if "/" not in media_type:
            continue
        pairs = {key.strip().lower(): value.strip() for key, _, value in (part.partition("=") for part in rest)}
        out.append(Clause(media_type.lower(), pairs, _quality(pairs.get("q", "1"))))
    return tuple(sorted((clause for clause in out if clause.q > 0), key=lambda clause: -clause.q))


def _quality(text: str) -> float:
    try:
        return min(max(float(text), 0.0), 1.0)
    except ValueError:
        return 0.0


@remembered(512)
def negotiate(accept: str, verb: str) -> Form:
    """Return the form of the answer to `verb`; raises Refusal 406."""
    if not accept.strip():
        return PLAIN
    for clause in clauses(accept):
        form = _form(clause, verb)
        if form is not None:
            return form
    raise status.not_acceptable(_SINGLE if verb != "watch" else (JSON_TYPE, JSON_TYPE + ";stream=watch"))


def _form(clause: Clause, verb: str) -> Form | None:
    view = clause.parameters.get("as", "")
    if clause.media_type in YAML_TYPES:
        plain = verb != "watch" and not view
        return Form(View.YAML) if plain else None
    if clause.media_type not in _ANY or not _parameters_known(clause, verb):
        return None
    if not view:
        return PLAIN
    version = clause.parameters.get("v", "")
    if clause.parameters.get("g") != "meta.k8s.io" or version not in _META_VERSIONS:
        return None
    wanted = {
        "Table": View.TABLE if verb in ("get", "list", "watch") else None,
        "PartialObjectMetadata": View.METADATA if verb != "list" else None,
        "PartialObjectMetadataList": View.METADATA_LIST if verb == "list" else None,
    }.get(view)
    return Form(wanted, version) if wanted else None


def _parameters_known(clause: Clause, verb: str) -> bool:
    known = _PARAMETERS | {"stream"} if verb == "watch" else _PARAMETERS
    if clause.parameters.get("stream", "watch") != "watch":
        return False
    return clause.parameters.keys() <= known


def wants_gzip(accept_encoding: bytes) -> bool:
    """Say whether a client takes gzip."""
    for clause in accept_encoding.decode("latin-1").lower().split(","):
        coding, *parameters = (part.strip() for part in clause.split(";"))
        if coding in ("gzip", "*"):
            return not any(parameter.replace(" ", "") in _NEVER for parameter in parameters)
    return False


_NEVER = frozenset({"q=0", "q=0.0", "q=0.00", "q=0.000"})


class BodyLoader(yaml.CSafeLoader):
    """YAML as Kubernetes reads it: timestamps stay strings."""


BodyLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}


def decode(body: bytes, content_type: str) -> Any:
    """Return a body as plain JSON types; raises Refusal 400, 413 or 415."""
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type in ("", JSON_TYPE, "*/*"):
        return decode_json(body)
    if media_type in YAML_TYPES:
        return decode_yaml(body)
    raise status.unsupported_media_type((JSON_TYPE, YAML_TYPE))


async def off_loop(read: Callable[Concatenate[bytes, P], T], body: bytes, *args: P.args, **named: P.kwargs) -> T:
    """Return what `read` makes of a body; a long one that may be YAML, which takes a second, in a thread."""
    if len(body) <= _SHORT_BYTES or body.lstrip().startswith(b"{"):
        return read(body, *args, **named)
    return await asyncio.to_thread(read, body, *args, **named)


def decode_json(body: bytes) -> Any:
    """Return a JSON body; invalid UTF-8, bad syntax and nesting beyond `MOST_DEEP` are 400."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise status.bad_request(f"the body is not valid JSON: {error}") from error
    if body.count(b"{") + body.count(b"[") > MOST_DEEP and nests_too_deep(value):
        raise status.bad_request(f"the body nests deeper than {MOST_DEEP}")
    return value


def nests_too_deep(value: Any) -> bool:
    """Say whether a decoded body nests deeper than `MOST_DEEP`; the encoder counts faster than we could."""
    for _ in range(_ENCODER_DEPTH - MOST_DEEP):
        value = [value]
    try:
        orjson.dumps(value)
    except orjson.JSONEncodeError:
        return True
    return False


def decode_yaml(body: bytes) -> Any:
    """Return a YAML body; aliases are refused, since a few of them unfold to gigabytes."""
    if len(body) > _MAX_YAML_BYTES:
        raise status.too_large(f"a YAML body may have at most {_MAX_YAML_BYTES} bytes")
    if body.lstrip().startswith(b"{"):
        return decode_json(body)
    try:
        _check_shape(body)
        # The loader is CSafeLoader without timestamps.
        value = yaml.load(body, Loader=BodyLoader)  # noqa: S506 - a subclass of the safe loader
        return orjson.loads(orjson.dumps(value, option=orjson.OPT_PASSTHROUGH_DATETIME))
    except TypeError as error:
        raise status.bad_request("the YAML body holds something that JSON cannot: a key or a value") from error
    # A tag that does not fit its text (`!!int abc`) fails inside the constructors, each in its own way.
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, RecursionError) as error:
        raise status.bad_request(f"the body is not valid YAML: {type(error).__name__}") from error


def _check_shape(body: bytes) -> None:
    """Refuse aliases and deep nesting by the flat event stream: the composer behind it recurses in C."""
    depth = 0
    for event in yaml.parse(body, Loader=BodyLoader):
        if isinstance(event, yaml.AliasEvent):
            raise status.bad_request("the YAML body uses aliases, which are not accepted")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MOST_DEEP:
            raise status.bad_request(f"the YAML body nests deeper than {MOST_DEEP}")


def encode(value: Any) -> bytes:
    """Return JSON bytes; what nests too deep for the encoder is 400."""
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError as error:
        raise status.bad_request(f"the object cannot be stored: {error}") from error


def indented(data: bytes) -> bytes:
    """Return the same JSON for a person's eyes."""
    return orjson.dumps(orjson.loads(data), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def to_yaml(data: bytes) -> bytes:
    """Return the same document as YAML."""
    text: str = yaml.dump(orjson.loads(data), Dumper=yaml.CSafeDumper, sort_keys=False, allow_unicode=True)
    return text.encode()
