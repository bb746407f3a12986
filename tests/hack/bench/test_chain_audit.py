"""What the bench reads from the audit log."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest

from hack.bench.chain_audit import Follower, Writes, is_write, latencies, percentile, seconds
from hack.controlplane.audit import Request

START = 1_796_000_000


def at(second: float) -> str:
    whole, micro = divmod(round(second * 1_000_000), 1_000_000)
    return f"2026-11-30T12:{whole // 60:02d}:{whole % 60:02d}.{micro:06d}Z"


def request(resource: str, name: str, begun: float, answered: float | None = None, *, code: int = 200) -> Request:
    return Request(
        user="u",
        agent="",
        verb="patch",
        resource=resource,
        namespace="",
        name=name,
        code=code,
        time=at(begun),
        answered=at(begun if answered is None else answered),
    )


def line(user: str, verb: str, resource: str, second: float, *, group: str = "", code: int = 200) -> bytes:
    event = {
        "stage": "ResponseComplete",
        "auditID": f"{user}-{second}",
        "verb": verb,
        "user": {"username": user},
        "objectRef": {"resource": resource, "apiGroup": group, "name": "n"},
        "responseStatus": {"code": code},
        "requestReceivedTimestamp": at(second),
        "stageTimestamp": at(second + 0.25),
    }
    return json.dumps(event).encode() + b"\n"


def test_each_request_is_read_once_and_a_half_written_line_later(tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    one, two = line("a", "patch", "nodes", 1), line("b", "patch", "nodes", 2)
    log.write_bytes(one + two[:40])
    follower = Follower(log)
    assert [r.user for r in follower.new()] == ["a"]
    assert follower.new() == []
    log.write_bytes(one + two)
    assert [r.user for r in follower.new()] == ["b"]
    assert follower.new() == []


def test_writes_are_counted_by_user_without_reads_leases_and_refusals(tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    log.write_bytes(
        line("a", "patch", "nodes", 1)
        + line("a", "list", "nodes", 2)
        + line("a", "update", "leases", 3, group="coordination.k8s.io")
        + line("a", "create", "nodes", 4, code=409)
        + line("b", "create", "pods", 5)
    )
    writes = Writes(log)
    writes.read(lambda r: r.resource == "pods")
    assert dict(writes.counts) == {"a": 1, "b": 1}
    assert writes.last_of(["a"]) == pytest.approx(seconds(at(1.25)))
    assert writes.last_of(["a", "b"]) == pytest.approx(seconds(at(5.25)))
    assert writes.last_of(["nobody"]) == 0.0
    assert [r.resource for r in writes.kept()] == ["pods"]
    assert writes.kept() == []


def test_a_refused_write_is_none() -> None:
    assert not is_write(request("nodes", "n", 1, code=409))


EVERY: Callable[[Request], str] = lambda _: "pool"  # noqa: E731 - the shortest key there is


def test_an_effect_belongs_to_the_last_cause_before_it() -> None:
    causes = [request("devices", "n1", 0), request("devices", "n2", 10)]
    effects = [request("types", "pool", 3, 3.5), request("types", "pool", 4), request("types", "pool", 12, 13)]
    assert latencies(causes, effects, same=EVERY) == pytest.approx([3.5, 3.0])


def test_causes_of_other_keys_do_not_cut_a_cause_off() -> None:
    causes = [request("devices", "n1", 0), request("devices", "n2", 1)]
    effects = [request("types", "n1", 3), request("types", "n2", 4)]
    assert latencies(causes, effects, same=lambda cause: cause.name) == pytest.approx([3.0, 3.0])


def test_a_cause_without_an_effect_before_the_next_is_left_out() -> None:
    causes = [request("devices", "n1", 0), request("devices", "n2", 2)]
    effects = [request("types", "pool", 5), request("types", "other", 1)]
    assert latencies(causes, effects, same=EVERY) == pytest.approx([3.0])


@pytest.mark.parametrize(
    ("values", "share", "want"),
    [
        ([3.0, 1.0, 2.0], 0.5, 2.0),
        ([1.0, 2.0, 3.0, 4.0], 0.5, 2.0),
        ([float(n) for n in range(1, 101)], 0.99, 99.0),
        ([float(n) for n in range(1, 105)], 0.99, 103.0),
        ([7.0], 0.99, 7.0),
    ],
)
def test_percentile(values: list[float], share: float, want: float) -> None:
    assert percentile(values, share) == want


def test_percentile_of_nothing() -> None:
    assert math.isnan(percentile([], 0.5))
