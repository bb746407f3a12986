"""The cells of built-in kinds."""

from __future__ import annotations

from typing import Any

import pytest

from hack.devcluster.kinds import node_roles, node_state, pod_ready, pod_state

READY = {"conditions": [{"type": "Ready", "status": "True"}]}
NODES: list[tuple[dict[str, Any], str]] = [
    ({}, "Unknown"),
    ({"status": None}, "Unknown"),
    ({"status": READY}, "Ready"),
    ({"status": {"conditions": [{"type": "Ready", "status": "False"}]}}, "NotReady"),
    ({"status": READY, "spec": {"unschedulable": True}}, "Ready,SchedulingDisabled"),
]


@pytest.mark.parametrize("row", NODES, ids=lambda row: row[1])
def test_node_state(row: tuple[dict[str, Any], str]) -> None:
    assert node_state(row[0]) == row[1]


def test_node_roles() -> None:
    assert node_roles({"metadata": {"labels": None}}) == "<none>"
    labels = {"node-role.kubernetes.io/worker": "", "node-role.kubernetes.io/gpu": "", "other": "x"}
    assert node_roles({"metadata": {"labels": labels}}) == "gpu,worker"


PODS: list[tuple[dict[str, Any], str, str]] = [
    ({"status": {"phase": "Pending"}}, "0/0", "Pending"),
    ({"spec": {"schedulingGates": [{"name": "g"}], "containers": [{}]}}, "0/1", "SchedulingGated"),
    ({"metadata": {"deletionTimestamp": "x"}}, "0/0", "Terminating"),
    (
        {
            "spec": {"containers": [{}, {}]},
            "status": {"phase": "Running", "containerStatuses": [{"ready": True}, {"ready": False}]},
        },
        "1/2",
        "Running",
    ),
    ({"status": {"phase": "Failed", "reason": "Evicted"}}, "0/0", "Evicted"),
]


@pytest.mark.parametrize("row", PODS, ids=lambda row: row[2])
def test_pod_cells(row: tuple[dict[str, Any], str, str]) -> None:
    assert (pod_ready(row[0]), pod_state(row[0])) == (row[1], row[2])
