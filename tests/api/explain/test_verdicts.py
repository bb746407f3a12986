"""Where an Instance waits and why, case by case."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from api.explain.evidence import Gate, State, Verdict
from api.explain.verdicts import Explanation, explain
from nodefeature.labels import EMPTY_PLAN_HOLD
from tests.builders.waiting import (
    CREDITS,
    FLAVOR,
    POOL,
    allocated,
    check,
    condition,
    evidence,
    flavor,
    instance,
    instance_type,
    ledger,
    local_queue,
    node,
    pod,
    pool_node_labels,
    queue,
    reserved,
    running,
    waiting,
    workload,
)

EIGHT = {"nvidia.com/gpu": "8"}
HALF = {
    "nvidia.com/gpu.sliced": "1",
    "nvidia.com/gpu.sliced.memory-percentage": "50",
    "nvidia.com/gpu.sliced.units": "800000",
}
PART = {
    "nvidia.com/gpu.partitioned": "1",
    "nvidia.com/gpu.partitioned.mig-3g.40gb": "1",
    "nvidia.com/gpu.partitioned.units": "800000",
}
SHARE = {"nvidia.com/gpu.shared": "1"}
PLAIN = {key: value for key, value in pool_node_labels().items() if "nvidia" not in key}
NO_POD: dict[str, Any] = {"pod": None, "workload": None}
ADMITTED = {"workload": reserved(admitted=True, checks=[check("Ready", "the pool has enough free cards")])}
FULL = [ledger("gpu-01", 100, 0, 0, 0, mode=1), ledger("gpu-02", 100, 100, 0, 0, mode=1)]
PINNED: dict[str, Any] = {
    "instance": instance(nodeName="gpu-01"),
    "node": node("gpu-01"),
    "devices": [ledger("gpu-01", 0, 0, 0, 0, mode=1), ledger("gpu-02", 100, 100, 100, 100, mode=1)],
}
RETRY = (
    "no node has enough free cards of nvidia-h100, exclusive: needs 4 free cards on one node; best node gpu-02 has 2"
)
EVICTED = condition("Evicted", "True", "AdmissionCheck", "by a check")
AGAIN = {"requeueState": {"requeueAt": "2026-01-01T00:00:30Z"}}


@dataclass(frozen=True)
class Row:
    """One situation: what differs from a Pod that waits for quota, and the gate that must decide."""

    given: dict[str, Any]
    gate: Gate | None
    state: State = State.WAITING
    reason: str = ""
    advice: str = ""
    numbers: dict[str, Any] = field(default_factory=dict)
    summary: str = ""


ROWS = {
    # Before there is a Pod
    "no Pod yet": Row(NO_POD, Gate.WEBHOOK, reason="There is no Pod yet", advice="controllers must run"),
    "no Pod yet, and the controller says why": Row(
        NO_POD | {"instance": instance(phase="Starting", message='PersistentVolumeClaim "models" is Pending')},
        Gate.WEBHOOK,
        reason='There is no Pod yet: PersistentVolumeClaim "models" is Pending',
    ),
    "no Pod yet, and the words would clear a screen and turn a line around": Row(
        NO_POD | {"instance": instance(phase="Starting", message="\x1b[2J\x07it\u202e is\nPending.")},
        Gate.WEBHOOK,
        reason="There is no Pod yet: [2J it is Pending",
    ),
    "no Pod yet, and a condition says why": Row(
        NO_POD
        | {
            "instance": {
                **instance(),
                "status": {"conditions": [condition("Admitted", "False", "PodNotCreated", "the webhook said no")]},
            }
        },
        Gate.WEBHOOK,
        reason="There is no Pod yet: the webhook said no",
    ),
    "type gone": Row(
        NO_POD | {"instance_type": None, "cluster_queue": None},
        Gate.WEBHOOK,
        State.REFUSED,
        f"There is no InstanceType '{POOL}'",
        "kubectl get instancetypes",
    ),
    "type being deleted": Row(
        NO_POD | {"instance_type": {**instance_type(), "metadata": {"name": POOL, "deletionTimestamp": "x"}}},
        Gate.WEBHOOK,
        State.REFUSED,
        "is being deleted",
    ),
    "type draining": Row(
        NO_POD | {"cluster_queue": queue(policy="HoldAndDrain")}, Gate.WEBHOOK, State.REFUSED, "is draining"
    ),
    "cards of the type not known": Row(
        NO_POD | {"instance_type": instance_type(detail={})}, Gate.WEBHOOK, reason="is not known yet", advice="agent"
    ),
    "no entrance": Row(NO_POD | {"instance_type": instance_type(entrance="")}, Gate.WEBHOOK, reason="no entrance"),
    # The webhook
    "units missing": Row(
        {"pod": pod({"nvidia.com/gpu.sliced": "1", "nvidia.com/gpu.sliced.memory-percentage": "50"})},
        Gate.WEBHOOK,
        State.REFUSED,
        "nvidia.com/gpu.sliced and carries no units",
        "gpustack-worker-mutation",
    ),
    # The quota
    "quota short": Row(
        {
            "pod": pod(EIGHT),
            "rivals": [
                waiting("older", "2025-12-31T00:00:00Z"),
                waiting("younger", "2026-01-02T00:00:00Z"),
                waiting("important", "2026-01-02T00:00:00Z", priority=5),
                reserved(name="holding", created="2025-01-01T00:00:00Z"),
                waiting("of no priority", "2026-01-02T00:00:00Z", priority=-1),
            ],
        },
        Gate.QUOTA,
        reason=f"8 cards asked, 6 cards free in ClusterQueue {POOL}; 2 of 5 waiting Workloads come first",
        advice="2 cards more must become free: stop or delete what holds it",
        numbers={"unit": "credits", "asked": 12_800_000, "free": 9_600_000, "largest": 9_600_000, "ahead": 2},
    ),
    "quota short, more wait than were looked at": Row(
        {
            "pod": pod(EIGHT),
            "rivals": [waiting("older", "2025-12-31T00:00:00Z")],
            "partial": frozenset({"workloads"}),
            "cluster_queue": queue(pending=7000),
        },
        Gate.QUOTA,
        reason="at least 1 of 7000 waiting Workloads come first",
        numbers={"ahead": 1, "pending": 7000, "at_least": True},
    ),
    "more than the pool has": Row(
        {"pod": pod({"nvidia.com/gpu": "17"})},
        Gate.QUOTA,
        State.REFUSED,
        f"17 cards asked, and no flavor of ClusterQueue {POOL} has more than 16 cards",
        "Ask for at most 16 cards",
    ),
    "half a card short": Row(
        {"pod": pod(HALF), "cluster_queue": queue(free=0)}, Gate.QUOTA, reason="0.5 cards asked, 0 cards free"
    ),
    "a share short": Row(
        {"pod": pod(SHARE), "cluster_queue": queue(free=0)}, Gate.QUOTA, reason="0.1 cards asked, 0 cards free"
    ),
    "what Kueue counted wins": Row(
        {"workload": workload(status={"resourceRequests": [{"name": "main", "resources": {CREDITS: "3200k"}}]})},
        Gate.QUOTA,
        numbers={"asked": 3_200_000},
    ),
    "its turn has not come": Row({}, Gate.QUOTA, reason="Enough is free, and its turn has not come yet (waiting)"),
    "cores": Row(
        {"pod": pod({"cpu": "1500m"}), "cluster_queue": queue(free=0, cards=0)}, Gate.QUOTA, reason="Enough is free"
    ),
    "queue held": Row({"cluster_queue": queue(policy="Hold")}, Gate.QUOTA, reason=f"ClusterQueue {POOL} is held"),
    "type inactive": Row(
        {"cluster_queue": queue(policy="Hold"), "instance_type": instance_type(inactive=True)},
        Gate.QUOTA,
        reason=f"InstanceType {POOL} is inactive",
        advice="Set spec.inactive",
    ),
    "pool without nodes": Row(
        {"cluster_queue": queue(policy="Hold", annotations={EMPTY_PLAN_HOLD: "true"})},
        Gate.QUOTA,
        reason="has no node",
        advice="A node with its hardware joins",
    ),
    "pool drains": Row({"cluster_queue": queue(policy="HoldAndDrain")}, Gate.QUOTA, reason="is draining"),
    "queue not active": Row(
        {
            "cluster_queue": {
                **queue(),
                "status": {"conditions": [condition("Active", "False", "FlavorNotFound", "no flavor x")]},
            }
        },
        Gate.QUOTA,
        reason="is not active: no flavor x",
    ),
    "queue gone": Row({"cluster_queue": None}, Gate.QUOTA, reason=f"ClusterQueue {POOL} is not there"),
    "queue being deleted": Row({"cluster_queue": queue(deleting=True)}, Gate.QUOTA, reason="is being deleted"),
    "no entrance in the namespace": Row({"local_queue": None}, Gate.QUOTA, reason="The namespace has no LocalQueue"),
    "entrance held": Row(
        {"local_queue": local_queue(stopPolicy="Hold")}, Gate.QUOTA, reason="is held", advice="spec.stopPolicy"
    ),
    "no Workload yet": Row({"workload": None}, Gate.QUOTA, reason="no Workload for the Pod yet"),
    "deactivated": Row(
        {"workload": workload(condition("Evicted", "True", "Deactivated", "by an admin"), active=False)},
        Gate.QUOTA,
        State.REFUSED,
        "The Workload is deactivated: by an admin",
        "set spec.active of Workload pod-a",
    ),
    "preempted, and no foreign name is told": Row(
        {"workload": workload(condition("Evicted", "True", "Preempted", "for Workload other/secret"))},
        Gate.QUOTA,
        reason="The quota went to a Workload of higher priority",
    ),
    "put out by a drain": Row(
        {"workload": workload(condition("Evicted", "True", "ClusterQueueStopped", "stopped"))},
        Gate.QUOTA,
        reason="The quota was taken back: stopped",
    ),
    # The card check
    "check pending": Row({"workload": reserved(checks=[check("Pending")])}, Gate.CARD_CHECK, reason="not judged yet"),
    "check Retry with nearest miss": Row(
        {
            "pod": pod({"nvidia.com/gpu": "4"}),
            "devices": FULL,
            "flavors": [flavor()],
            "workload": reserved(checks=[check("Retry", RETRY)]),
        },
        Gate.CARD_CHECK,
        reason=RETRY,
        advice="2 cards more on one node; gpu-02 is nearest",
        numbers={"unit": "cards", "asked": 4, "free": 3, "largest": 2, "largest_at": "gpu-02"},
    ),
    "check Retry, ledgers of another flavor": Row(
        {
            "pod": pod({"nvidia.com/gpu": "4"}),
            "devices": FULL,
            "flavors": [{"metadata": {"name": FLAVOR}, "spec": {"nodeLabels": {"else": "where"}}}],
            "workload": reserved(checks=[check("Retry", RETRY)]),
        },
        Gate.CARD_CHECK,
        State.REFUSED,
        f"{RETRY}; no node of the pool has more than 0",
    ),
    "given back after a Retry": Row(
        {
            "pod": pod({"nvidia.com/gpu": "4"}),
            "devices": FULL,
            "workload": workload(EVICTED, checks=[check("Pending", "Reset to Pending")], status=AGAIN),
        },
        Gate.CARD_CHECK,
        reason="4 whole cards must be on one node; best node gpu-02 has 2",
        advice="2 cards more on one node; gpu-02 is nearest",
    ),
    "backing off after a Retry": Row(
        {
            "pod": pod({"nvidia.com/gpu": "4"}),
            "devices": FULL,
            "workload": workload(
                condition("QuotaReserved", "False"), condition("Requeued", "False", "AdmissionCheck"), status=AGAIN
            ),
        },
        Gate.CARD_CHECK,
        reason="4 whole cards must be on one node; best node gpu-02 has 2",
    ),
    "more cards than a node has": Row(
        {"pod": pod({"nvidia.com/gpu": "5"}), "devices": FULL, "workload": reserved(checks=[check("Retry", "no")])},
        Gate.CARD_CHECK,
        State.REFUSED,
        "no; no node of the pool has more than 4",
        "Ask for at most 4",
    ),
    "more cards than the nodes that were looked at have": Row(
        {
            "pod": pod({"nvidia.com/gpu": "5"}),
            "devices": FULL,
            "partial": frozenset({"devices"}),
            "workload": reserved(checks=[check("Retry", "no")]),
        },
        Gate.CARD_CHECK,
        State.WAITING,
        "no",
        numbers={"largest": 2, "at_least": True},
    ),
    "slice": Row(
        {
            "pod": pod(HALF),
            "devices": [ledger("gpu-01", 40, 30, mode=3), ledger("gpu-02", 49, mode=3)],
            "workload": reserved(checks=[check("Retry", "no card")]),
        },
        Gate.CARD_CHECK,
        numbers={"unit": "cards with 50 % free", "asked": 1, "free": 0, "largest": 0},
        advice="1 card with 50 % free more on one node",
    ),
    "share": Row(
        {
            "pod": pod(SHARE),
            "devices": [ledger("gpu-01", 40, mode=3), ledger("gpu-02", 50, 5, mode=2)],
            "workload": reserved(checks=[check("Pending")]),
        },
        Gate.CARD_CHECK,
        numbers={"unit": "cards with a free share", "asked": 1, "free": 1, "largest": 1, "largest_at": "gpu-02"},
    ),
    "partition": Row(
        {
            "pod": pod(PART),
            "devices": [ledger("gpu-01", 0, 0, partitions=0), ledger("gpu-02", 0, partitions=1)],
            "workload": reserved(checks=[check("Pending")]),
        },
        Gate.CARD_CHECK,
        numbers={"unit": "partitions 3g.40gb", "asked": 1, "free": 1, "largest": 1, "largest_at": "gpu-02"},
    ),
    "no ledger read: the type's views speak": Row(
        {"devices": [], "unread": {"devices": "no"}, "workload": reserved(checks=[check("Pending")])},
        Gate.CARD_CHECK,
        numbers={"asked": 1, "free": 6, "largest": 4},
    ),
    "rejected": Row(
        {"workload": reserved(checks=[check("Rejected", "never")])}, Gate.CARD_CHECK, State.REFUSED, "never"
    ),
    "somebody else's check": Row(
        {"workload": reserved(checks=[check("Ready"), check("Pending", "", name="budget")])},
        Gate.CARD_CHECK,
        reason="AdmissionCheck budget, which is not ours, says Pending",
    ),
    "somebody else's check refuses": Row(
        {"workload": reserved(checks=[check("Ready"), check("Rejected", "too dear", name="budget")])},
        Gate.CARD_CHECK,
        State.REFUSED,
        "AdmissionCheck budget, which is not ours, says Rejected: too dear",
    ),
    # The scheduler
    "scheduling fails": Row(
        ADMITTED
        | {"pod": pod(gated=False, conditions=[condition("PodScheduled", "False", "Unschedulable", "0/3 nodes")])},
        Gate.SCHEDULER,
        reason="No node takes the Pod: 0/3 nodes",
    ),
    "pinned to a cordoned node": Row(
        ADMITTED
        | {
            "pod": pod(gated=False, conditions=[condition("PodScheduled", "False", "Unschedulable", "0/3 nodes")]),
            "instance": instance(nodeName="n1"),
            "node": node(unschedulable=True),
        },
        Gate.SCHEDULER,
        advice="pinned to node n1, and node n1 is cordoned",
    ),
    "pinned to no node": Row(
        ADMITTED
        | {
            "pod": pod(gated=False, conditions=[condition("PodScheduled", "False", "Unschedulable", "0/3 nodes")]),
            "instance": instance(nodeName="n9"),
        },
        Gate.SCHEDULER,
        advice="Node n9, which spec.nodeName names, must exist",
    ),
    "pinned outside the pool, at the scheduler": Row(
        ADMITTED
        | {
            "pod": pod(gated=False, conditions=[condition("PodScheduled", "False", "Unschedulable", "0/3 nodes")]),
            "instance": instance(nodeName="n1"),
            "node": node(labels=PLAIN),
        },
        Gate.SCHEDULER,
        State.REFUSED,
        f"Node n1, which spec.nodeName names, is none of pool {POOL}: it has no card nvidia-h100",
        "set spec.nodeName to a node of the pool or to nothing, start it; or let n1 join the pool",
        summary="Refused by the scheduler: Node n1, which spec.nodeName names, is none of pool",
    ),
    "pinned outside the pool, while quota is short": Row(
        {"pod": pod(EIGHT), "instance": instance(nodeName="n1"), "node": node(labels=PLAIN)},
        Gate.SCHEDULER,
        State.REFUSED,
        "it has no card nvidia-h100",
        "Stop the Instance",
    ),
    "pinned outside the pool, quota given back after a Retry": Row(
        {
            "instance": instance(nodeName="n1"),
            "node": node(labels=PLAIN),
            "workload": workload(EVICTED, checks=[check("Pending", "Reset to Pending")], status=AGAIN),
        },
        Gate.SCHEDULER,
        State.REFUSED,
        "it has no card nvidia-h100",
    ),
    "pinned outside the pool, before there is a Pod": Row(
        NO_POD | {"instance": instance(nodeName="n1"), "node": node(labels={})},
        Gate.SCHEDULER,
        State.REFUSED,
        "label gpustack.ai/managed is not true, label kubernetes.io/os is not linux",
    ),
    "pinned outside the pool, and the type is gone": Row(
        NO_POD
        | {
            "instance": instance(nodeName="n1"),
            "node": node(labels=PLAIN),
            "instance_type": None,
        },
        Gate.WEBHOOK,
        State.REFUSED,
        "There is no InstanceType",
    ),
    "pinned inside the pool": Row(
        {"pod": pod(EIGHT), "instance": instance(nodeName="n1"), "node": node()}, Gate.QUOTA, reason="8 cards asked"
    ),
    "pinned to a full node of the pool, quota given back after a Retry": Row(
        PINNED | {"workload": workload(EVICTED, checks=[check("Pending", "Reset to Pending")], status=AGAIN)},
        Gate.CARD_CHECK,
        reason="1 whole card must be on node gpu-01, which spec.nodeName names; it has 0",
        advice="1 card more must become free on node gpu-01; or stop the Instance, set spec.nodeName",
        numbers={"unit": "cards", "asked": 1, "free": 0, "largest": 0, "largest_at": ""},
    ),
    "pinned to a node of the pool that can never hold it": Row(
        PINNED
        | {
            "pod": pod(EIGHT),
            "workload": workload(EVICTED, checks=[check("Pending", "Reset to Pending")], status=AGAIN),
            "devices": [ledger("gpu-01", 0, 0, mode=1), ledger("gpu-02", *[100] * 8)],
        },
        Gate.CARD_CHECK,
        State.REFUSED,
        "node gpu-01, which spec.nodeName names; it has 0; that node has no more than 2",
        "Ask for at most 2; or stop the Instance, set spec.nodeName to another node or to nothing",
    ),
    "pinned, and the pool cannot be read": Row(
        {
            "instance": instance(nodeName="n1"),
            "node": node(labels=PLAIN),
            "cluster_queue": None,
            "unread": {"clusterqueues": "forbidden"},
        },
        Gate.QUOTA,
        State.UNKNOWN,
    ),
    "not looked at": Row(ADMITTED | {"pod": pod(gated=False)}, Gate.SCHEDULER, reason="has not looked at the Pod yet"),
    "somebody else's gate": Row(
        ADMITTED | {"pod": {**pod(), "spec": {**pod()["spec"], "schedulingGates": [{"name": "example.com/wait"}]}}},
        Gate.SCHEDULER,
        reason="Scheduling gates hold the Pod back: example.com/wait",
    ),
    # The device plugin
    "refused by the kubelet": Row(
        ADMITTED | {"pod": pod(node="n1", phase="Failed", reason="UnexpectedAdmissionError", message="no card")},
        Gate.DEVICE_PLUGIN,
        State.REFUSED,
        "The kubelet of n1 refused the Pod: UnexpectedAdmissionError (no card)",
        "controller makes it anew",
    ),
    "not handed out yet": Row(
        ADMITTED | {"pod": pod(node="n1"), "node": node()},
        Gate.DEVICE_PLUGIN,
        reason="The agent on node n1 has not handed out 1 whole card yet",
    ),
    "node not ready": Row(
        ADMITTED | {"pod": pod(node="n1"), "node": node(ready="Unknown")},
        Gate.DEVICE_PLUGIN,
        reason="Node n1 is not ready",
    ),
    "node gone": Row(ADMITTED | {"pod": pod(node="n1")}, Gate.DEVICE_PLUGIN, State.REFUSED, reason="Node n1 is gone"),
    "annotation no JSON": Row(
        ADMITTED
        | {
            "pod": {
                **pod(node="n1"),
                "metadata": {**pod()["metadata"], "annotations": {next(iter(allocated())): "{"}},
            }
        },
        Gate.DEVICE_PLUGIN,
        State.UNKNOWN,
        "cannot be read",
    ),
    # Nothing waits
    "ready": Row(
        ADMITTED | {"pod": running(), "instance": instance(phase="Ready")},
        None,
        summary="Ready on node n1: it waits for nothing.",
    ),
    "pulling": Row(
        ADMITTED
        | {
            "pod": {
                **running(),
                "status": {
                    "conditions": [
                        condition("PodScheduled", "True"),
                        condition("Initialized", "True"),
                        condition("Ready", "False", "ContainersNotReady"),
                    ],
                    "containerStatuses": [
                        {"name": "main", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no image"}}}
                    ],
                },
            }
        },
        None,
        summary="All gates passed, on node n1; NotReady: no image.",
    ),
    "stopped": Row(
        NO_POD | {"instance": instance(stop=True)},
        None,
        summary="Stopped: it asks for nothing until spec.stop is false.",
    ),
    "stopping": Row({"instance": instance(stop=True)}, None, summary="Stopping: its Pod must go first."),
    "deleted": Row(
        NO_POD | {"instance": instance(metadata={"deletionTimestamp": "x", "finalizers": ["gpustack.ai/controlled"]})},
        None,
        summary="The Instance is being deleted; finalizers hold it: gpustack.ai/controlled.",
    ),
    "deleted, its Pod still there": Row(
        {"instance": instance(metadata={"deletionTimestamp": "x"})},
        None,
        summary="The Instance is being deleted; its Pod must go first.",
    ),
    "its Pod is being deleted": Row(
        {"pod": {**pod(), "metadata": {**pod()["metadata"], "deletionTimestamp": "x"}}},
        None,
        summary="Its Pod is being deleted; a new one is made when it is gone.",
    ),
    # What could not be read
    "Workloads not readable": Row(
        {"workload": None, "unread": {"workloads": "forbidden"}},
        Gate.QUOTA,
        State.UNKNOWN,
        "The workloads could not be read: forbidden",
    ),
    "types not readable": Row(
        NO_POD | {"instance_type": None, "unread": {"instancetypes": "forbidden"}}, Gate.WEBHOOK, State.UNKNOWN
    ),
    "Pods not readable": Row(NO_POD | {"unread": {"pods": "forbidden"}}, Gate.WEBHOOK, State.UNKNOWN),
    "queues not readable": Row(
        {"cluster_queue": None, "unread": {"clusterqueues": "forbidden"}}, Gate.QUOTA, State.UNKNOWN
    ),
}


def deciding(explanation: Explanation) -> Verdict | None:
    return next((verdict for verdict in explanation.gates if verdict.gate is explanation.waiting_at), None)


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_where_it_waits(row: Row) -> None:
    explanation = explain(evidence(**row.given))
    assert [verdict.gate for verdict in explanation.gates] == list(Gate)
    assert explanation.waiting_at is row.gate, explanation.summary
    assert row.summary in explanation.summary
    verdict = deciding(explanation)
    if verdict is None:
        return
    assert (verdict.state, row.reason in verdict.reason, row.advice in verdict.advice) == (row.state, True, True), (
        verdict
    )
    assert {name: getattr(verdict.numbers, name) for name in row.numbers} == row.numbers
    assert verdict.reason in explanation.summary


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_every_gate_says_why(row: Row) -> None:
    for verdict in explain(evidence(**row.given)).gates:
        assert verdict.reason, verdict
        told = verdict.state in (State.PASSED, State.UNKNOWN)
        assert told or verdict.advice or not verdict.reached, verdict


def test_gates_behind_the_deciding_one_come_after_it() -> None:
    gates = explain(evidence(**ROWS["quota short"].given)).gates
    assert [verdict.reason for verdict in gates[2:]] == ["Comes after the quota"] * 3
    assert gates[2].numbers.largest == 4, "what the cards look like is told all the same"


def test_the_card_check_of_a_pinned_instance_says_whom_to_ask() -> None:
    given = ROWS["pinned outside the pool, quota given back after a Retry"].given
    check_of_cards = explain(evidence(**given)).gates[2]
    assert check_of_cards.state is State.WAITING
    assert "let n1 join the pool" in check_of_cards.advice


def test_a_stopped_instance_is_asked_nothing() -> None:
    gates = explain(evidence(**ROWS["stopped"].given)).gates
    assert {verdict.reason for verdict in gates[1:]} == {"Not asked: the Instance is stopped"}
