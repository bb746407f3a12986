"""Tests of the audit log's reader."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hack.controlplane.audit import forbidden, position, read, unquiet

US = "system:serviceaccount:gpustack-system:gpustack-operator-worker"


def event(identity: str, verb: str, resource: str, **more: Any) -> dict[str, Any]:
    group, code, stage = more.get("group", ""), more.get("code", 200), more.get("stage", "ResponseComplete")
    ref = {"resource": resource, "apiGroup": group, "name": more.get("name", "n"), "subresource": more.get("sub", "")}
    user = {"username": more.get("user", US)}
    return {
        "annotations": {"authorization.k8s.io/decision": more.get("decision", "forbid" if code == 403 else "allow")},
        "auditID": identity,
        "stage": stage,
        "verb": verb,
        "user": user,
        "objectRef": ref,
        "responseStatus": {"code": code},
    }


def write(log: Path, *events: dict[str, Any]) -> None:
    with log.open("a") as file:
        file.writelines(json.dumps(entry) + "\n" for entry in events)


def test_a_watch_is_one_request_though_logged_twice(tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    write(
        log,
        event("1", "watch", "nodes", stage="ResponseStarted"),
        event("2", "patch", "nodes", sub="status"),
        event("1", "watch", "nodes"),
    )
    assert [(r.verb, r.resource) for r in read(log, user=US)] == [("watch", "nodes"), ("patch", "nodes/status")]


def test_forbidden_and_unauthorized_requests_are_found_for_one_user(tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    write(
        log,
        event("1", "list", "secrets", code=403),
        event("2", "list", "pods", code=401),
        event("3", "list", "secrets", code=403, user="somebody"),
        event("4", "get", "nodes", code=404),
    )
    assert [r.resource for r in forbidden(log, user=US)] == ["secrets", "pods"]


def test_what_admission_refuses_was_not_forbidden(tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    write(log, event("1", "create", "localqueues", code=403, decision="allow"))
    assert forbidden(log, user=US) == []
    assert [(r.code, r.decision) for r in read(log, user=US)] == [(403, "allow")]


def test_a_settled_client_may_watch_and_renew_its_lease(tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    write(log, event("0", "create", "pods"))
    since = position(log)
    write(
        log,
        event("1", "watch", "nodes"),
        event("2", "update", "leases", group="coordination.k8s.io"),
        event("3", "create", "leases", group="coordination.k8s.io"),
        event("4", "list", "nodes"),
    )
    assert [(r.verb, r.resource) for r in unquiet(log, user=US, since=since)] == [
        ("create", "leases.coordination.k8s.io"),
        ("list", "nodes"),
    ]


def test_a_line_still_being_written_is_left_for_the_next_reader(tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    write(log, event("1", "get", "nodes"))
    with log.open("a") as file:
        file.write('{"auditID": "2", "sta')
    assert len(list(read(log))) == 1


@pytest.mark.parametrize("half", ["", '{"stage": "Resp', "x" * 10_000])
def test_a_position_is_the_end_of_a_line_even_while_one_is_written(tmp_path: Path, half: str) -> None:
    log = tmp_path / "audit.log"
    assert position(log) == 0
    write(log, event("1", "get", "nodes"))
    whole = log.stat().st_size
    with log.open("a") as file:
        file.write(half)
    assert position(log) == whole
    log.write_text(half)
    assert position(log) == 0
