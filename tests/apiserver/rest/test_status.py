"""Rows of spec 03 B6."""

from __future__ import annotations

import pytest

from apiserver.rest import status
from apiserver.rest.status import Cause, Refusal

CAUSE = Cause("FieldValueRequired", "Required value", "spec.x")
ROWS: list[tuple[Refusal, int, str]] = [
    (status.bad_request("x"), 400, "BadRequest"),
    (status.unauthorized(), 401, "Unauthorized"),
    (status.forbidden("pods", "", "p", "no"), 403, "Forbidden"),
    (status.not_found("pods", "", "p"), 404, "NotFound"),
    (status.path_not_found(), 404, "NotFound"),
    (status.method_not_allowed("pods", "", "create"), 405, "MethodNotAllowed"),
    (status.not_acceptable(["application/json"]), 406, "NotAcceptable"),
    (status.already_exists("pods", "", "p"), 409, "AlreadyExists"),
    (status.conflict("pods", "", "p", status.STALE), 409, "Conflict"),
    (status.expired("old"), 410, "Expired"),
    (status.too_large(), 413, "RequestEntityTooLarge"),
    (status.unsupported_media_type(["application/json"]), 415, "UnsupportedMediaType"),
    (status.invalid("Pod", "", "p", [CAUSE]), 422, "Invalid"),
    (status.too_many_requests("busy"), 429, "TooManyRequests"),
    (status.internal_error("x"), 500, "InternalError"),
    (status.not_implemented("x"), 501, "NotImplemented"),
    (status.unavailable("x"), 503, "ServiceUnavailable"),
    (status.timed_out("x"), 504, "Timeout"),
    (status.version_too_large(9, 5), 504, "Timeout"),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[1]} {row[2]}")
def test_each_reason_has_its_code_and_shape(row: tuple[Refusal, int, str]) -> None:
    document = row[0].document()
    assert (document["code"], document["reason"], document["status"]) == (row[1], row[2], "Failure")
    assert (document["kind"], document["apiVersion"], document["metadata"]) == ("Status", "v1", {})


def test_details_name_the_object() -> None:
    details = status.not_found("instances", "worker.gpustack.ai", "x").document()["details"]
    assert details == {"name": "x", "group": "worker.gpustack.ai", "kind": "instances"}


def test_all_field_errors_are_told_at_once() -> None:
    document = status.invalid("Pod", "", "p", [CAUSE, Cause("FieldValueInvalid", "no", "spec.y")]).document()
    assert [cause["field"] for cause in document["details"]["causes"]] == ["spec.x", "spec.y"]
    assert document["message"] == 'Pod "p" is invalid: [spec.x: Required value, spec.y: no]'


def test_a_version_from_the_future_names_its_cause() -> None:
    refusal = status.version_too_large(9, 5)
    assert refusal.document()["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"
    assert refusal.retry_after_s == 1


def test_a_clash_of_a_generated_name_asks_to_try_again() -> None:
    assert status.already_exists("pods", "", "p", retry_after_s=1).retry_after_s == 1
    assert status.already_exists("pods", "", "p").retry_after_s == 0


def test_success_names_what_is_gone() -> None:
    document = status.success(name="n", group="", kind="pods", uid="u")
    assert (document["status"], document["details"]) == ("Success", {"name": "n", "kind": "pods", "uid": "u"})


def test_a_message_repeats_a_beginning_of_what_was_sent() -> None:
    assert len(status.bad_request("x" * 100_000).message) == 1024
    assert len(status.invalid_option("DeleteOptions", "dryRun", "x" * 100_000, "no").message) < 2048
