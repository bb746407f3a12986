"""What the scenarios read from the audit log about two replicas."""

from __future__ import annotations

import pytest

from hack.controlplane.audit import Request
from tests.e2e.chain.writes import of_successors, renewals, without_lease


def sent(who: str, what: str, *, code: int = 200, verb: str = "patch", name: str = "x") -> Request:
    return Request(
        user="u", agent="", verb=verb, resource=what, namespace="", name=name, code=code, time="", credential=who
    )


def renewed(who: str, *, code: int = 200, name: str = "worker.gpustack.ai") -> Request:
    return sent(who, "leases.coordination.k8s.io", verb="update", code=code, name=name)


FLAVORS = "resourceflavors.kueue.x-k8s.io"

ROWS = {
    "the leader writes": ([renewed("a"), sent("a", FLAVORS)], 0, 0),
    "a follower writes": ([renewed("a"), sent("b", FLAVORS)], 1, 1),
    "the successor writes": ([renewed("a"), renewed("b"), sent("b", FLAVORS)], 0, 1),
    "the old leader writes on": ([renewed("a"), renewed("b"), sent("a", FLAVORS), sent("b", FLAVORS)], 1, 1),
    "a follower reads": ([renewed("a"), sent("b", FLAVORS, verb="list")], 0, 0),
    "a follower is refused": ([renewed("a"), sent("b", FLAVORS, code=409)], 0, 0),
    "a follower fails to take the lease": ([renewed("a"), renewed("b", code=409), sent("a", FLAVORS)], 0, 0),
    "another lease elects nobody": ([renewed("a"), renewed("b", name="kubelet"), sent("a", FLAVORS)], 1, 1),
    "before the first renewal nobody is known to lead": ([sent("a", FLAVORS), renewed("b")], 0, 0),
}


@pytest.mark.parametrize(("requests", "unled", "succeeded"), ROWS.values(), ids=ROWS.keys())
def test_writes(requests: list[Request], unled: int, succeeded: int) -> None:
    assert len(list(without_lease(requests))) == unled
    assert len(list(of_successors(requests))) == succeeded


def test_renewals_are_the_elections_own() -> None:
    requests = [renewed("a"), renewed("b", code=409), renewed("c", name="kubelet"), sent("d", FLAVORS)]
    assert [request.credential for request in renewals(requests)] == ["a"]
