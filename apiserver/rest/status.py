"""Refusals and the Status documents that tell them to a client (spec 03 B6).

For: every module of the engine and every storage, which raise; `app`, which answers.
In: what was refused and why. Out: a `meta/v1` Status with the code, reason, details and causes kubectl expects.
Promises: one function a reason, so that code, reason and wording cannot drift apart; no body, header or token in a
message, and of what a client sent only a beginning; a `Retry-After` header whenever the details carry seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kube.errors import OperatorError

MAX_BODY_BYTES = 3 * 1024 * 1024
"""kube-apiserver's limit on a request body."""
_MOST_TEXT = 1024
"""Characters of a message that may repeat what a client sent."""


@dataclass(frozen=True, slots=True)
class Cause:
    """One field error, or one machine-readable reason, inside a Status."""

    reason: str
    message: str
    field: str = ""

    def document(self) -> dict[str, str]:
        """Return the JSON form; an empty field is left out."""
        out = {"reason": self.reason, "message": self.message}
        return {**out, "field": self.field} if self.field else out


class Refusal(OperatorError):
    """A request that gets no for an answer; carries everything its Status says."""

    def __init__(self, code: int, reason: str, message: str, *, details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details or {}

    @property
    def retry_after_s(self) -> int:
        """Seconds for the `Retry-After` header; 0 means no header."""
        seconds = self.details.get("retryAfterSeconds", 0)
        return seconds if isinstance(seconds, int) else 0

    def document(self) -> dict[str, Any]:
        """Return the Status object."""
        status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            status["reason"] = self.reason
        if self.details:
            status["details"] = self.details
        return {**status, "code": self.code}


def success(*, name: str, group: str, kind: str, uid: str) -> dict[str, Any]:
    """Return the Status of a delete that is complete."""
    details = {"name": name, "group": group, "kind": kind, "uid": uid}
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {key: value for key, value in details.items() if value},
        "code": 200,
    }


def qualified(resource: str, group: str) -> str:
    """Return `<resource>.<group>`, the word messages use."""
    return f"{resource}.{group}" if group else resource


def cut(text: str) -> str:
    """Return what a message may repeat of a text."""
    return text if len(text) <= _MOST_TEXT else text[: _MOST_TEXT - 3] + "..."


def _details(resource: str, group: str, name: str, **more: Any) -> dict[str, Any]:
    details = {"name": name, "group": group, "kind": resource, **more}
    return {key: value for key, value in details.items() if value}


def bad_request(message: str) -> Refusal:
    """400: an undecodable body or option, a contradiction between path and body."""
    return Refusal(400, "BadRequest", cut(message))


def unauthorized() -> Refusal:
    """401: nobody could be recognised."""
    return Refusal(401, "Unauthorized", "Unauthorized")


def forbidden(resource: str, group: str, name: str, why: str) -> Refusal:
    """403: an authorizer or an admission rule said no."""
    what = f'{qualified(resource, group)} "{name}"' if name else qualified(resource, group)
    return Refusal(403, "Forbidden", f"{what} is forbidden: {why}", details=_details(resource, group, name))


def not_found(resource: str, group: str, name: str) -> Refusal:
    """404: the object does not exist."""
    message = f'{qualified(resource, group)} "{name}" not found'
    return Refusal(404, "NotFound", message, details=_details(resource, group, name))


def path_not_found() -> Refusal:
    """404: nothing is served under this path."""
    return Refusal(404, "NotFound", "the server could not find the requested resource")


def method_not_allowed(resource: str, group: str, verb: str) -> Refusal:
    """405: the resource exists and does not serve this verb."""
    message = f'{verb} is not supported on resources of kind "{qualified(resource, group)}"'
    return Refusal(405, "MethodNotAllowed", message, details=_details(resource, group, ""))


def not_acceptable(supported: Sequence[str]) -> Refusal:
    """406: no clause of the Accept header can be served."""
    message = "only the following media types are accepted: " + ", ".join(supported)
    return Refusal(406, "NotAcceptable", message)


def already_exists(resource: str, group: str, name: str, *, retry_after_s: int = 0) -> Refusal:
    """409: the name is taken; a clash of a generated name asks to try again."""
    message = f'{qualified(resource, group)} "{name}" already exists'
    details = _details(resource, group, name, retryAfterSeconds=retry_after_s)
    return Refusal(409, "AlreadyExists", message, details=details)


def conflict(resource: str, group: str, name: str, why: str, *, causes: Sequence[Cause] = ()) -> Refusal:
    """409: a stale version, a failed precondition, or a field owned by another manager."""
    what = qualified(resource, group)
    message = f'Operation cannot be fulfilled on {what} "{name}": {why}'
    details = _details(resource, group, name, causes=[cause.document() for cause in causes])
    return Refusal(409, "Conflict", message, details=details)


STALE = "the object has been modified; please apply your changes to the latest version and try again"


def expired(message: str) -> Refusal:
    """410: the resourceVersion or continue token is older than the kept history."""
    return Refusal(410, "Expired", message)


def too_large(message: str = "") -> Refusal:
    """413: the body, or the number of patch operations, is over the limit."""
    message = message or f"Request entity too large: limit is {MAX_BODY_BYTES}"
    return Refusal(413, "RequestEntityTooLarge", message)


def unsupported_media_type(supported: Sequence[str]) -> Refusal:
    """415: a body of a kind that this resource does not take."""
    message = "the body of the request was in an unknown format - accepted media types include: " + ", ".join(supported)
    return Refusal(415, "UnsupportedMediaType", message)


def invalid(kind: str, group: str, name: str, causes: Sequence[Cause]) -> Refusal:
    """422: field errors, all of them at once."""
    texts = [f"{cause.field}: {cause.message}" if cause.field else cause.message for cause in causes]
    joined = texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"
    message = f'{qualified(kind, group)} "{name}" is invalid: {joined}'
    details = _details(kind, group, name, causes=[cause.document() for cause in causes])
    return Refusal(422, "Invalid", message, details=details)


def invalid_option(kind: str, field: str, value: object, why: str) -> Refusal:
    """422: a query or body option (`kind` is ListOptions, CreateOptions, ...) that cannot stand."""
    group = "meta.k8s.io"
    return invalid(kind, group, "", [Cause("FieldValueInvalid", f"Invalid value: {cut(repr(value))}: {why}", field)])


def forbidden_option(kind: str, field: str, why: str) -> Refusal:
    """422: an option that may not be combined with another."""
    return invalid(kind, "meta.k8s.io", "", [Cause("FieldValueForbidden", f"Forbidden: {why}", field)])


def too_many_requests(message: str, *, retry_after_s: int = 1) -> Refusal:
    """429: come back later."""
    return Refusal(429, "TooManyRequests", message, details={"retryAfterSeconds": retry_after_s})


def internal_error(message: str) -> Refusal:
    """500: our fault."""
    details = {"causes": [Cause("InternalError", message).document()]}
    return Refusal(500, "InternalError", f"Internal error occurred: {message}", details=details)


def not_implemented(message: str) -> Refusal:
    """501: refused on purpose rather than approximated."""
    return Refusal(501, "NotImplemented", message)


def unavailable(message: str, *, retry_after_s: int = 1) -> Refusal:
    """503: starting, stopping, or a backend is away."""
    return Refusal(503, "ServiceUnavailable", message, details={"retryAfterSeconds": retry_after_s})


def timed_out(message: str, *, causes: Sequence[Cause] = ()) -> Refusal:
    """504: the deadline of the request passed."""
    details: dict[str, Any] = {"causes": [cause.document() for cause in causes]} if causes else {}
    return Refusal(504, "Timeout", message, details=details)


def version_too_large(asked: int, current: int) -> Refusal:
    """504: a resourceVersion from the future."""
    cause = Cause("ResourceVersionTooLarge", "Too large resource version")
    refusal = timed_out(f"Too large resource version: {asked}, current: {current}", causes=[cause])
    refusal.details["retryAfterSeconds"] = 1
    return refusal
