"""The promises of kube.errors."""

from __future__ import annotations

import inspect

import aiohttp
import httpx
import orjson
import pytest

from kube import errors
from kube.errors import ApiError, OperatorError, ServerFault, answer_error, parse_retry_after
from kube.wire import TRANSPORT_FAILURES

SECRET = "eyJhbGciOi.secret-token"

CODES = [
    (400, "BadRequest", errors.BadRequest),
    (401, "Unauthorized", errors.Unauthorized),
    (403, "Forbidden", errors.Forbidden),
    (404, "NotFound", errors.NotFound),
    (405, "MethodNotAllowed", errors.MethodNotAllowed),
    (406, "NotAcceptable", errors.NotAcceptable),
    (409, "Conflict", errors.Conflict),
    (409, "AlreadyExists", errors.AlreadyExists),
    (410, "Gone", errors.Gone),
    (410, "Expired", errors.Expired),
    (413, "RequestEntityTooLarge", errors.TooLarge),
    (415, "UnsupportedMediaType", errors.UnsupportedMediaType),
    (422, "Invalid", errors.Invalid),
    (429, "TooManyRequests", errors.TooManyRequests),
    (500, "InternalError", errors.InternalError),
    (500, "ServerTimeout", errors.ServerTimeout),
    (503, "ServiceUnavailable", errors.Unavailable),
    (504, "Timeout", errors.ServerTimeout),
]


@pytest.mark.parametrize(("code", "reason", "want"), CODES, ids=[f"{code}-{reason}" for code, reason, _ in CODES])
def test_every_status_reason_has_a_class(code: int, reason: str, want: type[ApiError]) -> None:
    body = orjson.dumps({"kind": "Status", "code": code, "reason": reason, "message": "no"})
    error = answer_error(code, httpx.Headers(), body)
    assert type(error) is want
    assert (error.code, error.reason, error.message) == (code, reason, "no")


def test_every_http_status_has_a_class() -> None:
    for code in range(300, 600):
        error = answer_error(code, httpx.Headers(), b"<html>")
        assert isinstance(error, ServerFault) == (code >= 500)
        assert error.code == code


def test_every_transport_exception_is_mapped() -> None:
    modules = [(httpx, httpx.HTTPError), (httpx, httpx.StreamError), (aiohttp, aiohttp.ClientError)]
    seen = 0
    for module, root in modules:
        for _, kind in inspect.getmembers(module, inspect.isclass):
            if issubclass(kind, root):
                assert issubclass(kind, TRANSPORT_FAILURES)
                seen += 1
    assert seen > 40
    for other in (httpx.InvalidURL, OSError, ConnectionResetError, TimeoutError):
        assert issubclass(other, TRANSPORT_FAILURES)


def test_a_body_that_is_no_status_is_dropped() -> None:
    for body in (b"", b"<html>502", b"[1]", b'{"kind":"Pod","message":"x"}', b"\xff"):
        error = answer_error(502, httpx.Headers(), body)
        assert str(error) == "HTTP 502 without a Status"
        assert error.status == {}


def test_wrong_typed_fields_of_a_status_are_legal() -> None:
    body = orjson.dumps({"kind": "Status", "code": "x", "reason": 7, "message": None, "details": [1]})
    error = answer_error(409, httpx.Headers(), body)
    assert type(error) is errors.Conflict
    assert error.causes() == []


def test_text_is_cut() -> None:
    error = answer_error(422, httpx.Headers(), orjson.dumps({"kind": "Status", "message": "x" * 5000}))
    assert len(str(error)) == 256
    assert len(str(errors.Unreachable("y" * 300))) == 256
    assert len(str(OperatorError("y" * 300))) == 300, "text of our own stands in full"


def test_no_header_body_or_token_in_text_or_repr() -> None:
    headers = httpx.Headers({"authorization": f"Bearer {SECRET}"})
    error = answer_error(502, headers, f"<html>{SECRET}".encode())
    for text in (str(error), repr(error), repr(error.args)):
        assert SECRET not in text
    assert repr(error) == "ServerFault('HTTP 502 without a Status', code=502, reason='')"


@pytest.mark.parametrize(
    ("value", "want"),
    [("3", 3.0), ("0", 0.0), (None, None), ("soon", None), ("-1", None), ("9999999", None), ("²", None)],
)
def test_retry_after(value: str | None, want: float | None) -> None:
    assert parse_retry_after(value) == want


def test_retry_after_of_the_status_counts_when_the_header_is_missing() -> None:
    body = orjson.dumps({"kind": "Status", "details": {"retryAfterSeconds": 7}})
    assert answer_error(429, httpx.Headers(), body).retry_after == 7
    assert answer_error(429, httpx.Headers({"Retry-After": "2"}), body).retry_after == 2


def test_the_tree_has_one_root() -> None:
    kinds = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, Exception)]
    assert all(issubclass(kind, OperatorError) for kind in kinds)
    assert all(kind.__name__ in (errors.__doc__ or "") for kind in kinds)
