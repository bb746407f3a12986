"""Evidence that is short of something: no queue, no card, no hold, fields that are null or of another type."""

from __future__ import annotations

from typing import Any

import pytest

from api.explain.evidence import Evidence, Gate, State
from api.explain.verdicts import explain
from tests.builders.waiting import (
    CREDITS,
    allocated,
    check,
    condition,
    evidence,
    instance,
    instance_type,
    pod,
    queue,
    reserved,
    running,
    waiting,
)

NO_POD: dict[str, Any] = {"pod": None, "workload": None}


def test_a_cpu_pool_has_no_card_check() -> None:
    held = reserved(admitted=True)
    bound = pod({"cpu": "4"}, node="n1", phase="Running", conditions=[condition("Ready", "True")])
    gates = explain(evidence(pod=bound, workload=held, instance_type=instance_type(acceleratable=False))).gates
    assert [verdict.state for verdict in gates] == [State.PASSED] * 5
    assert gates[-1].reason == "The Pod asks for no card"


def test_a_pod_without_a_queue_meets_two_gates() -> None:
    plain = running()
    plain["metadata"]["labels"] = {}
    answer = explain(evidence(instance=None, instance_type=None, cluster_queue=None, pod=plain, workload=None))
    assert [verdict.state for verdict in answer.gates] == [State.PASSED] * 5
    assert answer.summary == "Ready on node n1: it waits for nothing."


@pytest.mark.parametrize("bound", [True, False], ids=["it runs", "it has no node yet"])
def test_a_pod_that_kueue_does_not_hold_has_no_card_check(bound: bool) -> None:
    free = running() if bound else pod(gated=False)
    answer = explain(evidence(instance=None, instance_type=None, pod=free, workload=None))
    assert [answer.gates[2].state, answer.gates[2].reason] == [State.PASSED, "Kueue does not hold the Pod back"]
    assert answer.gates[2].numbers.free is None
    waits = None if bound else Gate.SCHEDULER
    assert answer.waiting_at is waits


def test_a_partition_without_a_pod_is_not_counted_in_cores() -> None:
    wanted = {"accelerator": "1", "acceleratorPartitionedProfile": "3g.40gb", "cpu": "5"}
    gates = explain(evidence(**NO_POD, instance=instance(stop=True, resources=wanted))).gates
    assert gates[1].numbers.asked is None, "what a partition costs is not known before the webhook has written it"


HOSTILE = {
    "nothing at all": {
        "instance": {},
        "pod": {},
        "instance_type": {},
        "cluster_queue": {},
        "local_queue": {},
        "workload": {},
        "node": {},
    },
    "nulls": {
        "instance": {"metadata": None, "spec": None, "status": None},
        "pod": {"metadata": {"labels": None, "annotations": None}, "spec": {"containers": None}, "status": None},
        "workload": {"metadata": None, "spec": None, "status": {"conditions": None, "admissionChecks": None}},
        "cluster_queue": {"spec": {"resourceGroups": None}, "status": {"flavorsReservation": None}},
    },
    "wrong types": {
        "instance": {"metadata": [], "spec": {"resources": "x", "stop": "yes", "type": 7}, "status": 5},
        "pod": {
            "metadata": {"labels": {"kueue.x-k8s.io/queue-name": 7}, "annotations": {next(iter(allocated())): "[1]"}},
            "spec": {"containers": [None, 3, {"name": 3, "resources": {"requests": {"nvidia.com/gpu": []}}}]},
            "status": {"conditions": [None, 1, {"type": "PodScheduled", "status": 3}], "phase": []},
        },
        "workload": {"spec": {"active": "no", "priority": "high"}, "status": {"admissionChecks": [1, {"name": 2}]}},
        "cluster_queue": {
            "spec": {"resourceGroups": [None, {"coveredResources": [1, CREDITS], "flavors": [1, {"resources": [2]}]}]},
            "status": {"flavorsReservation": [3, {"resources": [4]}], "pendingWorkloads": "many"},
        },
        "devices": [{}, {"spec": {"groups": [None, {"id": 3}]}, "status": {"groups": "x"}}],
        "flavors": [{"spec": {"nodeLabels": {"a": 1}}}],
        "rivals": [{}, {"spec": {"priority": "x"}, "metadata": {"creationTimestamp": 5}}],
    },
    "absurd quantities": {
        "pod": pod({"nvidia.com/gpu": "99999999999999999999", "cpu": "1e90"}),
        "instance": instance(resources={"accelerator": "-5", "cpu": "100%"}),
        "cluster_queue": queue(free=-3),
    },
    "long words": {
        "pod": pod(gated=False, conditions=[condition("PodScheduled", "False", "x", "word\n" * 100_000)]),
        "workload": reserved(admitted=True, checks=[check("Ready", "y" * 100_000)]),
    },
    "500 Pods in one Workload": {
        "workload": reserved(
            podSets=[{"name": f"p{n}", "count": 500, "template": {"spec": pod()["spec"]}} for n in range(500)]
        ),
    },
    "500 containers": {"pod": {**pod(), "spec": {"containers": pod()["spec"]["containers"] * 500}}},
    "5,000 rivals": {"rivals": [waiting(f"w{n}") for n in range(5_000)]},
}


@pytest.mark.parametrize("given", HOSTILE.values(), ids=HOSTILE)
def test_hostile_objects_get_an_answer(given: dict[str, Any]) -> None:
    for changes in (given, given | {"instance": None}, given | {"pod": None}):
        answer = explain(evidence(**changes))
        assert len(answer.gates) == 5
        assert all(len(verdict.reason) < 1500 and "\n" not in verdict.reason for verdict in answer.gates)
        assert len(answer.summary) < 2000


def test_nothing_but_defaults_gets_an_answer() -> None:
    bare = evidence()
    answer = explain(Evidence(registry=bare.registry))
    assert len(answer.gates) == 5
