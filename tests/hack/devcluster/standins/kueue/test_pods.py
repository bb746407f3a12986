"""Plain Pods under Kueue."""

from __future__ import annotations

import pytest

from hack.devcluster.standins.kueue.pods import gated, workload_name
from hack.devcluster.standins.kueue.state import GATE
from nodefeature.destinations import is_object_name
from nodefeature.fields import at
from nodefeature.kinds import CLUSTER_QUEUE, POD, RESOURCE_FLAVOR, WORKLOAD
from tests.builders.standins import CARD, KUEUE, Stage, flavor, pod

OTHER_GATE = {"name": "example.com/other"}


def stage() -> Stage:
    made = Stage(*KUEUE)
    made.queue()
    made.api.add(RESOURCE_FLAVOR, flavor("pool-4d", labels={"pool": "4d"}))
    made.run()
    return made


@pytest.mark.parametrize("name", ["p", "a" * 63, "a" * 47 + ".b", "x.y"])
def test_workload_names_are_legal(name: str) -> None:
    assert is_object_name(workload_name(name))
    assert len(workload_name(name)) <= 63


def test_an_admitted_pod_is_let_go_with_its_flavors_labels() -> None:
    made = stage()
    made.api.add(POD, pod(queue="pool", limits={CARD: "1"}, nodeSelector={"mine": "1"}))
    made.run()
    found = made.api.get(POD, "p", "default") or {}
    assert not gated(found)
    assert at(found, "spec", "nodeSelector") == {"mine": "1", "pool": "4d"}
    assert at(found, "spec", "tolerations") == [{"operator": "Exists"}]
    assert at(made.workload("p"), "metadata", "ownerReferences")[0]["name"] == "p"
    assert made.run(60) == []


def test_b053_a_foreign_gate_stays() -> None:
    made = stage()
    made.api.add(POD, pod(queue="pool", limits={CARD: "1"}, schedulingGates=[{"name": GATE}, OTHER_GATE]))
    made.run()
    assert at(made.api.get(POD, "p", "default"), "spec", "schedulingGates") == [OTHER_GATE]


def test_b053_a_pod_of_a_missing_queue_waits_and_can_be_deleted() -> None:
    made = stage()
    made.api.add(POD, pod(queue="nowhere", limits={CARD: "1"}))
    made.run()
    assert gated(made.api.get(POD, "p", "default") or {})
    made.api.remove(POD, "p", "default")
    made.run()
    assert made.api.names(WORKLOAD) == []


def test_a_pod_without_queue_is_nobodys() -> None:
    made = stage()
    made.api.add(POD, pod(limits={CARD: "1"}))
    made.run()
    assert made.api.names(WORKLOAD) == []


def test_a_pod_that_ended_frees_its_quota() -> None:
    made = stage()
    made.api.add(POD, pod(queue="pool", limits={CARD: "4"}))
    made.run()
    made.api.add(POD, pod("q", queue="pool", limits={CARD: "4"}))
    made.run()
    assert gated(made.api.get(POD, "q", "default") or {})
    made.api.edit(POD, "p", {"status": {"phase": "Succeeded"}}, "default")
    made.run()
    assert "Finished" in made.state("p")
    assert not gated(made.api.get(POD, "q", "default") or {})
    assert made.run(60) == []


def test_an_evicted_pod_is_deleted_and_its_workload_with_it() -> None:
    made = stage()
    made.api.add(POD, pod(queue="pool", limits={CARD: "1"}))
    made.run()
    made.run_pod("p")
    made.run()
    made.api.edit(CLUSTER_QUEUE, "pool", {"spec": {"stopPolicy": "HoldAndDrain"}})
    made.run()
    assert made.api.names(POD) == []
    assert made.api.names(WORKLOAD) == []
    assert at(made.api.get(CLUSTER_QUEUE, "pool"), "status", "reservingWorkloads") == 0
