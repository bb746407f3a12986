"""What our processes asked of kube-apiserver: its audit log, after all that the other files of this folder did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from hack.controlplane.audit import Request
from nodefeature.fields import annotations_of, at
from nodefeature.kinds import CLUSTER_QUEUE, INSTANCE_TYPE
from tests.e2e.chain.cluster import LONG_QUIET_S, Cluster
from tests.e2e.chain.fleet import H200
from tests.e2e.scenarios import FIGURE

pytestmark = pytest.mark.timeout(600)

SETTLED_S = 60
Record = Callable[[str, object], None]


def test_b027_a_settled_cluster_hears_nothing_from_us(fleet: Cluster, record_property: Record) -> None:
    fleet.settle(quiet_s=LONG_QUIET_S)
    since = fleet.position()
    fleet.hold(SETTLED_S)
    heard = fleet.requests(since)
    record_property(FIGURE, f"audit: settled for {SETTLED_S} s, our requests: {counts(heard)}")
    assert [str(request) for request in heard if not request.is_quiet] == []


def test_b027_a_touched_object_costs_few_writes(fleet: Cluster, record_property: Record) -> None:
    fleet.settle()
    since = fleet.position()
    fleet.admin.patch(CLUSTER_QUEUE, H200, {"metadata": {"annotations": {"e2e.example/touched": "by hand"}}})
    fleet.settle(quiet_s=10)
    assert annotations_of(fleet.get(CLUSTER_QUEUE, H200))["e2e.example/touched"] == "by hand"
    fleet.admin.patch(CLUSTER_QUEUE, H200, {"metadata": {"annotations": {"e2e.example/touched": None}}})
    fleet.settle(quiet_s=10)
    writes = [request for request in fleet.requests(since) if request.is_write and not request.is_quiet]
    record_property(FIGURE, f"audit: after two touches of a ClusterQueue, our writes: {counts(writes)}")
    assert len(writes) <= 2, [str(request) for request in writes]
    assert at(fleet.get(INSTANCE_TYPE, H200), "status", "phase") == "Active"


def test_no_request_of_ours_was_forbidden(fleet: Cluster, record_property: Record) -> None:
    refused = fleet.refused()
    everything = fleet.requests()
    by_admission = [r for r in everything if r.code == 403 and not r.is_refused]
    record_property(FIGURE, f"audit: the whole run, our requests: {counts(everything)}")
    record_property(
        FIGURE,
        f"audit: {len(refused)} forbidden; {len(by_admission)} refused by admission in namespaces that were going",
    )
    assert refused == []
    assert everything


def counts(requests: list[Request]) -> str:
    """Return how many requests there were of each verb; renewals of leases apart."""
    found = Counter("lease " + r.verb if r.resource.startswith("leases.") else r.verb for r in requests)
    return ", ".join(f"{count} {verb}" for verb, count in sorted(found.items())) or "none"
