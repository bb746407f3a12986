"""What the kubelets say of their nodes and Pods."""

from __future__ import annotations

from typing import Any

import pytest

from hack.devcluster.standins.kubelet import needs_start, status_patch
from kube.reconciler import Object
from nodefeature.fields import as_map, at
from nodefeature.kinds import DEVICES, NODE, POD
from tests.builders.chain import manufacturers
from tests.builders.instance_types import FREE, devices
from tests.builders.standins import CARD, Stage, pod


def machine(capacity: dict[str, str], allocatable: dict[str, str] | None = None) -> Object:
    status = {"capacity": capacity, "allocatable": capacity if allocatable is None else allocatable}
    return {"metadata": {"name": "n"}, "status": status}


PATCHES: dict[str, tuple[Object, dict[str, int], Object]] = {
    "as it is": (machine({"cpu": "4"}), {}, {}),
    "pools are advertised": (
        machine({"cpu": "4"}),
        {CARD: 8},
        {"capacity": {CARD: "8"}, "allocatable": {CARD: "8"}},
    ),
    "a pool that stays": (machine({"cpu": "4", CARD: "8"}), {CARD: 8}, {}),
    "a pool that shrinks": (machine({CARD: "8"}), {CARD: 7}, {"capacity": {CARD: "7"}, "allocatable": {CARD: "7"}}),
    "a pool that is gone is zero, as a kubelet says it": (
        machine({CARD: "8"}),
        {},
        {"capacity": {CARD: "0"}, "allocatable": {CARD: "0"}},
    ),
    "zero stays zero": (machine({CARD: "0"}), {}, {}),
    "somebody else's capacity becomes allocatable": (
        machine({"cpu": "4", f"{CARD}.sliced.units": "1600k"}, {"cpu": "4"}),
        {},
        {"allocatable": {f"{CARD}.sliced.units": "1600k"}},
    ),
    "what left capacity leaves allocatable": (
        machine({"cpu": "4"}, {"cpu": "4", "x/y": "1"}),
        {},
        {"allocatable": {"x/y": None}},
    ),
}


@pytest.mark.parametrize("row", PATCHES.values(), ids=PATCHES.keys())
def test_status_patch(row: tuple[Object, dict[str, int], Object]) -> None:
    node, pools, want = row
    assert status_patch(node, pools, manufacturers()) == want


@pytest.mark.parametrize("broken", [{}, {"status": None}, {"status": {"capacity": None, "allocatable": []}}])
def test_b019_nulls(broken: Any) -> None:
    assert status_patch(broken, {}, manufacturers()) == {}


READY = [{"type": "Ready", "status": "True"}]
STARTS: dict[str, tuple[dict[str, Any], bool]] = {
    "new": ({}, True),
    "pending": ({"phase": "Pending"}, True),
    "running, not ready": ({"phase": "Running"}, True),
    "running and ready": ({"phase": "Running", "conditions": READY}, False),
    "ended": ({"phase": "Succeeded"}, False),
    "failed": ({"phase": "Failed"}, False),
}


@pytest.mark.parametrize("row", STARTS.values(), ids=STARTS.keys())
def test_needs_start(row: tuple[dict[str, Any], bool]) -> None:
    status, want = row
    assert needs_start({"status": status}) is want


class TestKubelet:
    def stage(self) -> Stage:
        made = Stage("standin-kubelet-node", "standin-kubelet-pod")
        node = machine({"cpu": "4"})
        node["status"]["addresses"] = [{"type": "InternalIP", "address": "192.0.2.7"}]
        made.api.add(NODE, node)
        return made

    def test_pools_follow_the_inventory(self) -> None:
        made = self.stage()
        made.api.add(DEVICES, devices("n", [FREE] * 4, group="nvidia-tesla-t4"))
        made.run()
        status = as_map(at(made.api.get(NODE, "n"), "status"))
        assert status["capacity"][CARD] == status["allocatable"][CARD] == "4"
        made.api.remove(DEVICES, "n")
        made.run()
        assert at(made.api.get(NODE, "n"), "status", "allocatable", CARD) == "0"
        assert made.run(60) == []

    def test_a_bound_pod_runs_and_is_ready(self) -> None:
        made = self.stage()
        made.api.add(POD, pod("p", nodeName="n"), pod("unbound"))
        made.run()
        status = as_map(at(made.api.get(POD, "p", "default"), "status"))
        assert (status["phase"], status["hostIP"]) == ("Running", "192.0.2.7")
        assert [c["type"] for c in status["conditions"]] == ["PodScheduled", "Initialized", "ContainersReady", "Ready"]
        assert at(made.api.get(POD, "unbound", "default"), "status", "phase") == "Pending"
        assert made.run(60) == []

    def test_a_deleted_pod_goes(self) -> None:
        made = self.stage()
        made.api.add(POD, pod("p", nodeName="n"))
        made.api.edit(POD, "p", {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, "default")
        made.run()
        assert made.api.names(POD) == []
