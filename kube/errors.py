"""Everything that can go wrong between us and an API server, as one tree.

For: every layer; only this module decides what a status code or a transport failure is called.
In: an HTTP status, headers and a body, or an exception of the HTTP library. Out: an exception of this tree.
Promises:
- every HTTP status and every transport exception has a class here;
- the text of an error is at most 256 characters;
- neither text nor `repr` of an error shows a body, a header or a token;
- a body that is no Status is dropped, the HTTP status decides alone.

The tree:

    OperatorError
      Terminal              retrying cannot help; becomes a condition
        InvalidRequest      we asked for something that cannot be a path
      Unreachable           no usable answer; nobody knows whether a write happened
        MalformedAnswer     an answer that is no JSON object
        Closed              this process has closed the connection; nothing was sent
      NotLeader             this process lost its lease and may not write
      CredentialsError      a token, certificate or kubeconfig cannot be read
      ApiError              the server refused; carries its Status
        BadRequest 400, Unauthorized 401, Forbidden 403, NotFound 404, MethodNotAllowed 405, NotAcceptable 406,
        Conflict 409, AlreadyExists 409, Gone 410 > Expired 410, TooLarge 413, UnsupportedMediaType 415, Invalid 422,
        TooManyRequests 429, ServerFault 5xx > InternalError 500, Unavailable 503, ServerTimeout 504
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from typing import Any

import orjson

from nodefeature.fields import as_int, as_map, as_maps, as_str, at

TEXT_LIMIT = 256


def cut(text: str) -> str:
    """Shorten `text` to what an error may carry."""
    return text if len(text) <= TEXT_LIMIT else text[: TEXT_LIMIT - 3] + "..."


class OperatorError(Exception):
    """All we raise. Text of our own stands in full; text from elsewhere is cut by the classes that carry it."""


class Terminal(OperatorError):
    """Retrying cannot help until the object changes; becomes a condition."""


class InvalidRequest(Terminal):
    """A name, namespace or option that cannot be part of a request; nothing was sent, and nothing else would be."""


class Unreachable(OperatorError):
    """No usable answer came; whether a write happened is unknown."""

    def __init__(self, text: str) -> None:
        super().__init__(cut(text))


class MalformedAnswer(Unreachable):
    """An answer came that is not what the protocol promises."""


class Closed(Unreachable):
    """The connection was closed by this process, for good; nothing was sent, and asking again cannot help."""


class NotLeader(OperatorError):
    """The lease is lost or was never held; nothing was sent."""


class CredentialsError(OperatorError):
    """A token, certificate or kubeconfig cannot be read; the operator of the cluster must act."""

    def __init__(self, text: str) -> None:
        super().__init__(cut(text))


class ApiError(OperatorError):
    """The server refused; carries its Status.

    `status` is the decoded Status (possibly empty), `code` the HTTP status, `reason` the machine word of the Status,
    `retry_after` the seconds the server asked us to wait (None when it did not).
    """

    def __init__(
        self,
        status: Mapping[str, Any],
        code: int = 0,
        reason: str = "",
        *,
        retry_after: float | None = None,
    ) -> None:
        self.status = status
        self.code = code or as_int(status.get("code"))
        self.reason = reason or as_str(status.get("reason"))
        self.message = cut(as_str(status.get("message")))
        self.retry_after = retry_after
        super().__init__(self.message or f"HTTP {self.code} without a Status")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r}, code={self.code}, reason={self.reason!r})"

    @property
    def is_of_the_future(self) -> bool:
        """Say whether a version was asked for that the server has not reached; it waited for it already."""
        return "ResourceVersionTooLarge" in self.causes()

    def causes(self) -> list[str]:
        """Return the machine words of the Status' causes."""
        return [as_str(cause.get("reason")) for cause in as_maps(at(self.status, "details", "causes"))]


class BadRequest(ApiError):
    """400."""


class Unauthorized(ApiError):
    """401."""


class Forbidden(ApiError):
    """403."""


class NotFound(ApiError):
    """404: the object, or its kind, is not there."""


class MethodNotAllowed(ApiError):
    """405."""


class NotAcceptable(ApiError):
    """406."""


class Conflict(ApiError):
    """409: somebody wrote first, or a precondition does not hold."""


class AlreadyExists(ApiError):
    """409 of a create."""


class Gone(ApiError):
    """410."""


class Expired(Gone):
    """410 of a watch or a page: the version or token is too old."""


class TooLarge(ApiError):
    """413."""


class UnsupportedMediaType(ApiError):
    """415."""


class Invalid(ApiError):
    """422: the object breaks a rule; the Status names the fields."""


class TooManyRequests(ApiError):
    """429."""


class ServerFault(ApiError):
    """Any 5xx without a class of its own."""


class InternalError(ServerFault):
    """500."""


class Unavailable(ServerFault):
    """503."""


class ServerTimeout(ServerFault):
    """504, or a 500 whose reason says so."""


BY_CODE: Mapping[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    405: MethodNotAllowed,
    406: NotAcceptable,
    409: Conflict,
    410: Gone,
    413: TooLarge,
    415: UnsupportedMediaType,
    422: Invalid,
    429: TooManyRequests,
    500: InternalError,
    503: Unavailable,
    504: ServerTimeout,
}

# A reason only refines the class of its own HTTP status: a Status that contradicts its status line is not believed.
BY_REASON: Mapping[tuple[int, str], type[ApiError]] = {
    (409, "AlreadyExists"): AlreadyExists,
    (410, "Expired"): Expired,
    (500, "ServerTimeout"): ServerTimeout,
    (500, "Timeout"): ServerTimeout,
}


def class_of(code: int, reason: str) -> type[ApiError]:
    """Return the class of an HTTP status and a Status reason."""
    refined = BY_REASON.get((code, reason))
    if refined is not None:
        return refined
    return BY_CODE.get(code) or (ServerFault if 500 <= code < 600 else ApiError)


def status_error(status: object) -> ApiError:
    """Turn a Status received inside a stream into an error."""
    fields = as_map(status)
    code = as_int(fields.get("code"))
    return class_of(code, as_str(fields.get("reason")))(fields, code, retry_after=_asked_s(fields))


def _asked_s(status: Mapping[str, Any]) -> float | None:
    seconds = as_int(at(status, "details", "retryAfterSeconds"))
    return float(seconds) if seconds > 0 else None


def answer_error(code: int, headers: Mapping[str, str], body: bytes) -> ApiError:
    """Turn an HTTP answer that is no success into an error. `headers` has lower-case lookups (httpx.Headers)."""
    status = _read_status(body)
    retry_after = parse_retry_after(headers.get("retry-after"))
    if retry_after is None:
        retry_after = _asked_s(status)
    return class_of(code, as_str(status.get("reason")))(status, code, retry_after=retry_after)


def parse_retry_after(value: str | None) -> float | None:
    """Read `Retry-After` in seconds; its date form is not used by Kubernetes and is ignored."""
    if value is None or not value.isascii() or not value.isdigit() or len(value) > 6:
        return None
    return float(value)


def transport_error(error: Exception, what: str) -> Unreachable:
    """Name a failure of the HTTP library; `what` is the request in words. Chain with `from error`."""
    return Unreachable(f"{what}: no answer ({_failure(error)})")


def _failure(error: Exception) -> str:
    """Return what went wrong below the adapter, whose own name for a refused connection is a time-out."""
    below = error.__cause__ or error
    if isinstance(below, OSError) and below.errno and not isinstance(below, ssl.SSLError):
        return os.strerror(below.errno)
    return type(error).__name__


def _read_status(body: bytes) -> Mapping[str, Any]:
    try:
        decoded = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return decoded if isinstance(decoded, dict) and decoded.get("kind") == "Status" else {}
