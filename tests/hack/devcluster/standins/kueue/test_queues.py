"""ClusterQueues and ResourceFlavors: condition Active, figures, finalizers."""

from __future__ import annotations

from typing import Any

import pytest

from hack.devcluster.standins.kueue.queues import queue_status
from hack.devcluster.standins.kueue.state import CONTROLLER_FINALIZER
from nodefeature.fields import as_maps, at
from nodefeature.kinds import ADMISSION_CHECK, CLUSTER_QUEUE, RESOURCE_FLAVOR, TOPOLOGY, WORKLOAD
from tests.builders.queues import admission_check, cluster_queue, group
from tests.builders.standins import CREDITS, KUEUE, Stage, flavor, workload


def stage(*, policy: str = "None", flavors: tuple[str, ...] = ("f-1", "f-2"), **queue: Any) -> Stage:
    made = Stage(*KUEUE)
    made.api.add(RESOURCE_FLAVOR, *(flavor(name, topology="t") for name in flavors))
    quotas = {"f-1": "1600k", "f-2": "1600k"}
    made.api.add(CLUSTER_QUEUE, cluster_queue("q", policy=policy, groups=[group(CREDITS, quotas)], **queue))
    return made


def active(made: Stage) -> tuple[str, str]:
    made.run()
    return made.condition(CLUSTER_QUEUE, "q", "Active")


class TestActive:
    """Kueue's reasons, in its order."""

    def test_ready(self) -> None:
        made = stage()
        made.api.add(TOPOLOGY, {"metadata": {"name": "t"}})
        assert active(made) == ("True", "Ready")

    @pytest.mark.parametrize("policy", ["Hold", "HoldAndDrain"])
    def test_stopped(self, policy: str) -> None:
        assert active(stage(policy=policy)) == ("False", "Stopped")

    def test_flavor_not_found_before_the_rest(self) -> None:
        made = stage(flavors=("f-1",), checks=("c",))
        assert active(made) == ("False", "FlavorNotFound")
        conditions = as_maps(at(made.api.get(CLUSTER_QUEUE, "q"), "status", "conditions"))
        message = conditions[0]["message"]
        assert "missing ResourceFlavor(s): f-2" in message
        assert "missing AdmissionCheck(s): c" in message, "every reason is said"
        assert "no Topology 't' for flavor 'f-1'" in message

    def test_check_not_found_then_inactive_then_topology(self) -> None:
        made = stage(checks=("c",))
        assert active(made) == ("False", "AdmissionCheckNotFound")
        made.api.add(ADMISSION_CHECK, {"metadata": {"name": "c"}, "spec": {"controllerName": "example.com/c"}})
        assert active(made) == ("False", "AdmissionCheckInactive")
        made.api.add(ADMISSION_CHECK, admission_check("c", "example.com/c"))
        assert active(made) == ("False", "TopologyNotFound")
        made.api.add(TOPOLOGY, {"metadata": {"name": "t"}})
        assert active(made) == ("True", "Ready")
        made.api.remove(TOPOLOGY, "t")
        assert active(made) == ("False", "TopologyNotFound")

    def test_terminating_before_everything(self) -> None:
        made = Stage(*KUEUE)
        made.queue(policy="Hold")
        made.api.add(WORKLOAD, workload(status=RESERVED))
        made.run()
        made.api.edit(CLUSTER_QUEUE, "pool", {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})
        made.api.edit(WORKLOAD, "w", {"status": ADMITTED}, "default")
        made.run()
        assert made.condition(CLUSTER_QUEUE, "pool", "Active") == ("False", "Terminating")

    def test_a_settled_queue_is_left_alone(self) -> None:
        made = stage()
        made.run()
        assert made.run(60) == []


RESERVED: dict[str, Any] = {
    "admission": {
        "clusterQueue": "pool",
        "podSetAssignments": [
            {"name": "main", "flavors": {CREDITS: "pool-4d"}, "resourceUsage": {CREDITS: "1600k"}, "count": 1}
        ],
    },
    "conditions": [{"type": "QuotaReserved", "status": "True"}, {"type": "Admitted", "status": "True"}],
}
ADMITTED = {"conditions": RESERVED["conditions"], "admission": RESERVED["admission"]}


class TestFinalizers:
    def finalizers(self, made: Stage, kind: Any, name: str) -> list[Any] | None:
        obj = made.api.get(kind, name)
        return None if obj is None else list(at(obj, "metadata", "finalizers") or [])

    def test_a_queue_waits_for_its_workloads(self) -> None:
        made = Stage(*KUEUE)
        made.queue()
        made.api.add(WORKLOAD, workload(status=RESERVED))
        made.run()
        assert self.finalizers(made, CLUSTER_QUEUE, "pool") == [CONTROLLER_FINALIZER]
        made.api.edit(CLUSTER_QUEUE, "pool", {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})
        made.run()
        assert self.finalizers(made, CLUSTER_QUEUE, "pool") == [CONTROLLER_FINALIZER]
        made.api.remove(WORKLOAD, "w", "default")
        made.run()
        assert self.finalizers(made, CLUSTER_QUEUE, "pool") is None

    def test_also_when_the_local_queue_is_gone(self) -> None:
        made = Stage(*KUEUE)
        made.queue()
        made.api.add(WORKLOAD, workload(status=RESERVED))
        made.run()
        local = next(kind for kind in made.api.store if kind.plural == "localqueues")
        made.api.remove(local, "pool", "default")
        made.api.edit(CLUSTER_QUEUE, "pool", {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})
        made.run()
        assert self.finalizers(made, CLUSTER_QUEUE, "pool") == [CONTROLLER_FINALIZER]

    def test_a_flavor_waits_for_the_queues_that_name_it(self) -> None:
        made = stage()
        made.run()
        assert self.finalizers(made, RESOURCE_FLAVOR, "f-1") == [CONTROLLER_FINALIZER]
        made.api.edit(RESOURCE_FLAVOR, "f-1", {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})
        made.run()
        assert self.finalizers(made, RESOURCE_FLAVOR, "f-1") == [CONTROLLER_FINALIZER]
        made.api.edit(CLUSTER_QUEUE, "q", {"spec": {"resourceGroups": [group(CREDITS, {"f-2": "1600k"})]}})
        made.run()
        assert self.finalizers(made, RESOURCE_FLAVOR, "f-1") is None

    def test_a_foreign_finalizer_stays(self) -> None:
        made = stage()
        made.api.edit(RESOURCE_FLAVOR, "f-1", {"metadata": {"finalizers": ["example.com/mine"]}})
        made.run()
        assert self.finalizers(made, RESOURCE_FLAVOR, "f-1") == ["example.com/mine", CONTROLLER_FINALIZER]


class TestStatus:
    def test_figures_stand_also_at_zero(self) -> None:
        queue = cluster_queue(groups=[group(CREDITS, {"f": "1600k"})])
        zero = [{"name": "f", "resources": [{"name": CREDITS, "total": "0", "borrowed": "0"}]}]
        assert queue_status(queue, []) == {
            "pendingWorkloads": 0,
            "reservingWorkloads": 0,
            "admittedWorkloads": 0,
            "flavorsReservation": zero,
            "flavorsUsage": zero,
        }

    def test_reserved_is_not_admitted(self) -> None:
        queue = cluster_queue(groups=[group(CREDITS, {"pool-4d": "6400k"})])
        only_reserved = {**RESERVED, "conditions": [{"type": "QuotaReserved", "status": "True"}]}
        finished = {**RESERVED, "conditions": [{"type": "Finished", "status": "True"}]}
        held = [workload(status=s) for s in (RESERVED, only_reserved, {}, finished)]
        status = queue_status(queue, held)
        assert [status[f"{k}Workloads"] for k in ("pending", "reserving", "admitted")] == [1, 2, 1]
        assert status["flavorsReservation"][0]["resources"][0]["total"] == "3200000"
        assert status["flavorsUsage"][0]["resources"][0]["total"] == "1600000"

    def test_a_flavor_that_left_the_queue_still_shows_what_is_held(self) -> None:
        queue = cluster_queue(groups=[group(CREDITS, {"other": "1"})])
        names = [f["name"] for f in queue_status(queue, [workload(status=RESERVED)])["flavorsReservation"]]
        assert names == ["other", "pool-4d"]
