"""Workloads from waiting to admitted, and back (spec 04 §10, case B006)."""

from __future__ import annotations

from typing import Any

from nodefeature.fields import as_maps, at
from nodefeature.kinds import ADMISSION_CHECK, CLUSTER_QUEUE, POD, WORKLOAD
from tests.builders.queues import admission_check
from tests.builders.standins import CARD, CREDITS, KUEUE, Stage, pod, workload

CHECK = "example.com-check"


def stage(*, checks: bool = False, quota: str = "3200k") -> Stage:
    made = Stage(*KUEUE)
    made.queue(quotas={"pool-4d": quota}, checks=(CHECK,) if checks else ())
    made.api.add(ADMISSION_CHECK, admission_check(CHECK, "example.com/check"))
    made.run()
    return made


def answer(made: Stage, name: str, state: str, **fields: Any) -> None:
    found = made.workload(name)
    checks = [{**as_maps(at(found, "status", "admissionChecks"))[0], "state": state, **fields}]
    made.api.edit(WORKLOAD, found["metadata"]["name"], {"status": {"admissionChecks": checks}}, "default")


def conditions_written(made: Stage, kind: str) -> list[dict[str, Any]]:
    """Return, for each write of a Workload that touched a condition, all its conditions by type."""
    bodies = [w.body["status"] for w in made.api.writes if w.kind == WORKLOAD and w.body and "status" in w.body]
    written = [{c["type"]: c["status"] for c in as_maps(body.get("conditions"))} for body in bodies]
    return [each for each in written if kind in each]


class TestAdmission:
    def test_without_checks(self) -> None:
        made = stage()
        made.api.add(WORKLOAD, workload(limits={CARD: "1"}))
        made.run()
        assert made.state("w") == "Admitted QuotaReserved"
        assert at(made.workload("w"), "status", "admission") == {
            "clusterQueue": "pool",
            "podSetAssignments": [
                {
                    "name": "main",
                    "count": 1,
                    "flavors": {CREDITS: "pool-4d"},
                    "resourceUsage": {CREDITS: "1600000"},
                }
            ],
        }

    def test_quota_first_then_checks_then_admission(self) -> None:
        made = stage(checks=True)
        made.api.add(WORKLOAD, workload())
        made.run()
        assert made.state("w") == "QuotaReserved"
        assert [c["state"] for c in at(made.workload("w"), "status", "admissionChecks")] == ["Pending"]
        answer(made, "w", "Ready")
        made.run()
        assert made.state("w") == "Admitted QuotaReserved"

    def test_a_stopped_queue_admits_nothing(self) -> None:
        made = stage()
        made.api.edit(CLUSTER_QUEUE, "pool", {"spec": {"stopPolicy": "Hold"}})
        made.api.add(WORKLOAD, workload())
        made.run()
        assert made.state("w") == ""

    def test_no_room_is_said_once(self) -> None:
        made = stage()
        made.api.add(WORKLOAD, workload(limits={CARD: "3"}))
        made.run()
        assert made.condition(WORKLOAD, "w", "QuotaReserved", "default") == ("False", "Pending")
        assert made.run(600) == []

    def test_two_are_not_promised_the_same_card(self) -> None:
        made = stage(quota="1600k")
        made.api.add(WORKLOAD, workload("a"), workload("b"))
        made.run()
        assert sorted([made.state("a"), made.state("b")]) == ["", "Admitted QuotaReserved"]

    def test_freed_quota_goes_to_the_important_then_to_the_old(self) -> None:
        made = stage(quota="1600k")
        made.api.add(WORKLOAD, workload("first"))
        made.run()
        made.api.add(
            WORKLOAD,
            workload("young", created="2026-01-03T00:00:00Z"),
            workload("old", created="2026-01-02T00:00:00Z"),
            workload("big", limits={CARD: "9"}, priority=9),
            workload("urgent", priority=5, created="2026-01-04T00:00:00Z"),
        )
        made.run()
        order = []
        for name in ("first", "urgent", "old"):
            made.api.remove(WORKLOAD, name, "default")
            made.run()
            order += [w for w in ("urgent", "old", "young") if made.api.get(WORKLOAD, w, "default") and made.state(w)]
        assert order == ["urgent", "old", "young"]

    def test_a_finished_one_frees_its_quota(self) -> None:
        made = stage(quota="1600k")
        made.api.add(WORKLOAD, workload("a"))
        made.run()
        made.api.add(WORKLOAD, workload("b"))
        conditions = [*at(made.workload("a"), "status", "conditions"), {"type": "Finished", "status": "True"}]
        made.api.edit(WORKLOAD, "a", {"status": {"conditions": conditions}}, "default")
        made.run()
        assert made.state("b") == "Admitted QuotaReserved"


class TestEviction:
    def test_b006_retry_evicts_in_two_writes(self) -> None:
        made = stage(checks=True)
        made.api.add(WORKLOAD, workload())
        made.run()
        answer(made, "w", "Retry", requeueAfterSeconds=60)
        made.api.writes.clear()
        made.run()
        first, second = conditions_written(made, "Evicted")
        assert first == {"QuotaReserved": "True", "Evicted": "True"}, "the reservation still stands"
        assert second == {"QuotaReserved": "False", "Evicted": "True", "Requeued": "False"}
        assert [c["state"] for c in at(made.workload("w"), "status", "admissionChecks")] == ["Pending"]
        assert at(made.workload("w"), "status", "admission") is None
        assert made.condition(WORKLOAD, "w", "Evicted", "default") == ("True", "AdmissionCheck")

    def test_after_its_time_it_is_tried_again_and_no_longer_evicted(self) -> None:
        made = stage(checks=True)
        made.api.add(WORKLOAD, workload())
        made.run()
        answer(made, "w", "Retry", requeueAfterSeconds=60)
        made.run(50)
        assert made.state("w") == "Evicted"
        made.run(20)
        assert made.state("w") == "QuotaReserved Requeued"
        assert made.condition(WORKLOAD, "w", "Evicted", "default") == ("False", "QuotaReserved")
        assert at(made.workload("w"), "status", "admissionChecks")[0]["retryCount"] == 1

    def test_hold_keeps_what_runs(self) -> None:
        made = stage()
        made.api.add(WORKLOAD, workload())
        made.run()
        made.api.edit(CLUSTER_QUEUE, "pool", {"spec": {"stopPolicy": "Hold"}})
        made.run()
        assert made.state("w") == "Admitted QuotaReserved"

    def test_hold_and_drain_evicts_in_two_writes_and_reopening_readmits(self) -> None:
        made = stage()
        made.api.add(WORKLOAD, workload())
        made.run()
        made.api.edit(CLUSTER_QUEUE, "pool", {"spec": {"stopPolicy": "HoldAndDrain"}})
        made.api.writes.clear()
        made.run()
        first, second = conditions_written(made, "Evicted")
        assert (first["QuotaReserved"], second["QuotaReserved"]) == ("True", "False")
        assert made.condition(WORKLOAD, "w", "Evicted", "default") == ("True", "ClusterQueueStopped")
        assert made.condition(WORKLOAD, "w", "Admitted", "default") == ("False", "NoReservation")
        made.api.edit(CLUSTER_QUEUE, "pool", {"spec": {"stopPolicy": "None"}})
        made.run()
        assert made.state("w") == "Admitted QuotaReserved Requeued"

    def test_what_only_holds_quota_loses_it_in_one_write(self) -> None:
        made = stage(checks=True)
        made.api.add(WORKLOAD, workload())
        made.run()
        made.api.edit(CLUSTER_QUEUE, "pool", {"spec": {"stopPolicy": "Hold"}})
        made.run()
        assert made.state("w") == ""
        assert made.condition(WORKLOAD, "w", "QuotaReserved", "default") == ("False", "Inadmissible")
        assert conditions_written(made, "Evicted") == []

    def test_a_rejected_check_deactivates(self) -> None:
        made = stage(checks=True)
        made.api.add(WORKLOAD, workload())
        made.run()
        answer(made, "w", "Rejected")
        made.run()
        assert at(made.workload("w"), "spec", "active") is False
        assert made.condition(WORKLOAD, "w", "Evicted", "default") == ("True", "Deactivated")
        assert at(made.workload("w"), "status", "admission") is None

    def test_active_again(self) -> None:
        made = stage()
        made.api.add(WORKLOAD, workload())
        made.run()
        made.api.edit(WORKLOAD, "w", {"spec": {"active": False}}, "default")
        made.run()
        assert made.state("w") == "Evicted"
        made.api.edit(WORKLOAD, "w", {"spec": {"active": True}}, "default")
        made.run()
        assert made.state("w") == "Admitted QuotaReserved Requeued"

    def test_the_reservation_stays_while_a_pod_still_runs(self) -> None:
        made = stage()
        made.api.add(POD, pod(queue="pool", limits={CARD: "1"}))
        made.run()
        made.run_pod("p")
        made.api.edit(POD, "p", {"metadata": {"finalizers": ["example.com/slow"]}}, "default")
        made.api.edit(CLUSTER_QUEUE, "pool", {"spec": {"stopPolicy": "HoldAndDrain"}})
        made.run()
        assert made.state("p") == "Admitted Evicted QuotaReserved"
        assert at(made.api.get(POD, "p", "default"), "metadata", "deletionTimestamp")
