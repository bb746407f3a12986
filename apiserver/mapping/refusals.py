"""What went wrong behind a mapped kind, as the client of the kind is told (spec 03 A2, B6).

For: every mapped storage. In: errors of the kube client, problems of a rule. Out: a `Refusal`.
Promises: code, reason and causes are those of the backing API; name, group and kind are the view's; single field errors
are 400, lists of them 422, each with its path.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from api.problems import Problem
from apiserver.rest import status
from apiserver.rest.request_info import RequestInfo
from apiserver.rest.status import Cause, Refusal
from kube.errors import ApiError, InvalidRequest, Unauthorized, Unreachable
from nodefeature.fields import as_map, as_str, at
from nodefeature.kinds import Kind


@contextmanager
def translated(info: RequestInfo, backing: Kind) -> Iterator[None]:
    """Turn errors of the kube client inside the block into refusals."""
    try:
        yield
    except Unauthorized as error:
        raise status.unavailable("kube-apiserver refuses the credentials of this server") from error
    except ApiError as error:
        raise refusal_of(error, info, backing) from error
    except Unreachable as error:
        raise status.unavailable("kube-apiserver cannot be reached, please try again") from error
    except InvalidRequest as error:
        raise status.bad_request(str(error)) from error


def refusal_of(error: ApiError, info: RequestInfo, backing: Kind) -> Refusal:
    """Return a refusal of the backing API in the view's words."""
    details: dict[str, Any] = {**as_map(error.status.get("details")), "group": info.group, "kind": info.resource}
    if info.name:
        details["name"] = info.name
    if error.retry_after:
        details["retryAfterSeconds"] = int(error.retry_after)
    message = as_str(error.status.get("message")) or error.message or f"kube-apiserver answered {error.code}"
    said = f'{backing.group_resource} "{as_str(at(error.status, "details", "name"))}"'
    wanted = f'{status.qualified(info.resource, info.group)} "{details.get("name", "")}"'
    return Refusal(error.code, error.reason, message.replace(said, wanted), details=details)


def not_found(info: RequestInfo) -> Refusal:
    """Return the 404 of an object that is not there, or not one of the kind."""
    return status.not_found(info.resource, info.group, info.name)


def invalid(info: RequestInfo, kind: str, problems: Sequence[Problem], *, reason: str = "FieldValueInvalid") -> Refusal:
    """Return the 422 of several field errors, or the 400 of a single one, whose reason is Invalid all the same."""
    causes = [Cause(reason, _message(problem, reason), problem.path) for problem in problems]
    refusal = status.invalid(kind, info.group, info.name, causes)
    if len(causes) == 1:
        refusal.code = 400
    return refusal


def _message(problem: Problem, reason: str) -> str:
    if reason == "FieldValueForbidden":
        return f"Forbidden: {problem.rule}"
    value = problem.value or '""'
    return f"Invalid value: {value}: {problem.rule}"
