"""Gate 3 on an API in memory: spec 04 §10, §14.8 (reconcile, check object), case B006, bad input."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest

from api.ledger.workload_fit import Needs
from controllers.card_fleet import CardFleet
from controllers.node_devices_admission_check import NodeDevicesAdmissionCheck
from kube.errors import Conflict, Unavailable
from kube.reconciler import Object
from kube.requests import Request
from nodefeature.kinds import ADMISSION_CHECK, DEVICES, NODE, POD, RESOURCE_FLAVOR, WORKLOAD
from tests.builders.chain import bench
from tests.builders.fake_api import FakeApi
from tests.builders.gate import FLAVOR, GPU, gate_pod_set, gate_workload
from tests.builders.gate_world import CHECK, CONTROLLER, GateWorld, gate_devices, gate_pod, taken, whole
from tests.builders.inventory import row
from tests.builders.nodes import gpu_node
from tests.builders.queues import admission_check

LAST_CARD = taken(*range(7))
FULL = taken(*range(8))


def slice_of(units: int) -> Object:
    """Return a PodSet of one slice."""
    return gate_pod_set({f"{GPU}.sliced": "1", f"{GPU}.sliced.units": str(units)})


class TestReconcileRows:
    """A demand of 960000 units on a card with 640000 left (spec 04 §14.8)."""

    def judged(self, *conditions: str, state: str) -> GateWorld:
        world = GateWorld("n")
        world.publish("n", *LAST_CARD, row(7, remaining=640_000, mode=3))
        world.ask(gate_workload("w", slice_of(960_000), state=state, conditions=conditions))
        world.run()
        return world

    def test_admitted_and_ready_stays_ready(self) -> None:
        assert self.judged("QuotaReserved", "Admitted", state="Ready").state() == "Ready"

    def test_not_admitted_is_retry(self) -> None:
        world = self.judged("QuotaReserved", state="Pending")
        assert world.state() == "Retry"
        assert world.check()["requeueAfterSeconds"] == 30
        assert (
            "needs a card with 960000 units (60 %) free on one node; best node n has at most 640000" in world.message()
        )

    def test_evicted_and_pending_stays_pending(self) -> None:
        world = self.judged("QuotaReserved", "Evicted", state="Pending")
        assert (world.state(), world.api.writes) == ("Pending", [])


def test_ready_has_no_delay_and_names_who_wrote_it() -> None:
    world = GateWorld("n")
    world.ask(gate_workload())
    (write,) = world.run()
    assert (world.state(), world.message()) == ("Ready", "the pool has enough free cards")
    assert "requeueAfterSeconds" not in world.check()
    assert (write.verb, write.manager) == ("patch", "gpustack-node-devices")
    assert set(write.body["metadata"]) == {"name", "namespace", "resourceVersion"}, "to the version it judged"
    assert set(write.body["status"]) == {"admissionChecks"}
    assert world.run(300) == [], "a settled Workload gets no write"


def test_checks_of_others_stay_as_they_are() -> None:
    world = GateWorld("n")
    other = {"name": "other", "state": "Pending", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    workload = gate_workload()
    workload["status"]["admissionChecks"].insert(0, other)
    world.ask(workload, gate_workload("foreign", check="other"))
    world.run()
    stored = world.api.get(WORKLOAD, "w", "default")
    assert stored is not None
    assert stored["status"]["admissionChecks"][0] == other
    assert world.state() == "Ready"
    assert [write.key.name for write in world.api.writes] == ["w"]


def test_two_workloads_in_one_second_never_share_the_last_card() -> None:
    world = GateWorld("n")
    world.publish("n", *LAST_CARD)
    world.ask(gate_workload("a"), gate_workload("b"))
    world.run()
    assert world.states() == {"Ready": 1, "Retry": 1}
    assert "cards there are promised to 1 Workload whose Pods do not hold them yet" in world.message("b")


def test_verdicts_under_way_count_before_any_cache_shows_them() -> None:
    """Both are decided on one state of the caches, and written afterwards."""
    world = GateWorld("n")
    world.publish("n", *LAST_CARD)
    world.ask(gate_workload("a"), gate_workload("b"))

    async def both() -> None:
        keys = list(world.api.store[WORKLOAD])
        await asyncio.gather(*(world.gate.reconcile(key) for key in keys))

    asyncio.run(both())
    assert world.states() == {"Ready": 1, "Retry": 1}


def test_a_word_that_changes_no_promise_charges_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    world = GateWorld("n", "m")
    world.ask(gate_workload("a"), gate_workload("b", gate_pod_set({GPU: "8"})))
    world.run()
    charged: list[str] = []
    charge = CardFleet.charge

    def counted(fleet: CardFleet, node: str, promised: Sequence[Needs]) -> list[bool]:
        charged.append(node)
        return charge(fleet, node, promised)

    monkeypatch.setattr(CardFleet, "charge", counted)
    world.conditions("a", Admitted=True)
    world.conditions("b", Admitted=True)
    world.run()
    world.gate.book.refresh([CHECK])
    assert charged == []
    world.api.remove(WORKLOAD, "a", "default")
    world.run()
    world.gate.book.refresh([CHECK])
    assert len(charged) == 1, "who goes gives its card back"


@pytest.mark.parametrize("kills", range(1, 4))
def test_another_leader_finds_the_same_promises(kills: int) -> None:
    world = GateWorld("n")
    world.publish("n", *taken(*range(6)))
    world.ask(gate_workload("a"))
    world.run()
    for kill in range(kills):
        world.restart()
        world.ask(gate_workload(f"b{kill}"))
        world.run()
    assert world.states() == {"Ready": 2, **({"Retry": kills - 1} if kills > 1 else {})}


def test_a_freed_card_lets_one_of_those_in_that_wait() -> None:
    world = GateWorld("n")
    world.publish("n", *FULL)
    world.ask(*(gate_workload(f"w{n}", created=f"2026-01-01T00:00:0{n}Z") for n in range(3)))
    world.run()
    assert world.states() == {"Retry": 3}
    world.publish("n", *LAST_CARD)
    world.run()
    assert [world.state(f"w{n}") for n in range(3)] == ["Ready", "Retry", "Retry"], "the oldest first"


def test_a_ledger_that_swaps_one_holder_for_another_frees_a_card() -> None:
    """The gone Pod's card was in the ledger and the new one's on record: both counted until they changed places."""
    world = GateWorld("n")
    world.publish("n", *taken(*range(7)))
    world.start(gate_pod("new", uid="u", node="n", record=[whole(7)]))
    world.ask(gate_workload("w"))
    world.run()
    assert world.state() == "Retry"
    world.publish("n", *taken(*range(1, 8)))
    world.run()
    assert world.state() == "Ready"


class TestOnlyThoseThatAFreedCardCanHelp:
    def waiting(self) -> GateWorld:
        world = GateWorld("n", "m")
        world.publish("n", *FULL)
        world.publish("m", *FULL)
        world.ask(
            gate_workload("exclusive"),
            gate_workload("on-n", hosts={"n": 1}),
            gate_workload("on-m", hosts={"m": 1}),
            gate_workload("sliced", slice_of(320_000)),
        )
        world.run()
        assert (world.states(), world.gate.judged) == ({"Retry": 4}, 4)
        return world

    def test_nobody_when_nothing_was_freed(self) -> None:
        world = self.waiting()
        world.run(90)
        assert (world.gate.judged, world.gate.recalled > 0) == (4, True)

    def test_a_card_of_one_node_does_not_help_who_is_bound_to_another(self) -> None:
        world = self.waiting()
        world.publish("n", *LAST_CARD, row(7, remaining=320_000, mode=3))
        world.run()
        assert (world.gate.judged, world.state("sliced")) == (5, "Ready"), "a slice helps slices only"

    def test_a_whole_card_helps_all_but_those_on_the_other_node(self) -> None:
        world = self.waiting()
        world.publish("n", *LAST_CARD)
        world.run()
        assert (world.gate.judged, world.state("on-m")) == (7, "Retry")
        assert world.states() == {"Ready": 1, "Retry": 3}

    def test_nobody_when_a_node_without_cards_comes_and_changes(self) -> None:
        world = self.waiting()
        for labels in ({}, {"example.com/mine": "true"}):
            world.api.add(NODE, gpu_node("cpu", labels=labels))
            world.run(60)
        assert world.gate.judged == 4

    def test_families_together_are_helped_by_what_is_more_of_none(self) -> None:
        world = GateWorld("n")
        world.publish("n", *taken(*range(6)))
        asked = [{GPU: "1"}, {f"{GPU}.shared": "1"}, {f"{GPU}.sliced": "1", f"{GPU}.sliced.units": "320000"}]
        world.ask(gate_workload("w", *(gate_pod_set(limits, name=f"r{n}") for n, limits in enumerate(asked))))
        world.run()
        assert world.state() == "Retry", "two free cards for three"
        world.publish("n", *taken(*range(5)), row(5, remaining=640_000, mode=3), row(6, remaining=1_440_000, mode=2))
        world.run()
        assert world.state() == "Ready", "one for each: free, shared, sliced"

    def test_who_comes_back_unhelped_gets_the_same_answer_unjudged(self) -> None:
        world = self.waiting()
        said = world.message("exclusive")
        world.conditions("exclusive", Evicted=True, QuotaReserved=False)
        world.edit("exclusive", lambda w: w["status"]["admissionChecks"][0].update(state="Pending", message="reset"))
        world.run(30)
        assert world.state("exclusive") == "Pending"
        world.conditions("exclusive", Evicted=False, QuotaReserved=True)
        world.run()
        assert (world.state("exclusive"), world.message("exclusive"), world.gate.judged) == ("Retry", said, 4)


class TestPromisesEndWithTheRecord:
    """One node, eight cards. Workload `a` has one; seven are left for others."""

    def admitted(self, **workload: Any) -> GateWorld:
        world = GateWorld("n")
        world.ask(
            gate_workload("a", owner="uid-a", state="Ready", conditions=["QuotaReserved", "Admitted"], **workload)
        )
        return world

    def left(self, world: GateWorld) -> int:
        """Return how many whole cards others may still have."""
        world.run()
        workloads = [gate_workload(f"x{n}") for n in range(9)]
        world.ask(*workloads)
        world.run()
        found = sum(world.state(w["metadata"]["name"]) == "Ready" for w in workloads)
        for workload in workloads:
            world.api.remove(WORKLOAD, workload["metadata"]["name"], "default")
        world.run()
        return found

    def test_before_its_pod_is_there(self) -> None:
        assert self.left(self.admitted()) == 7

    def test_bound_and_not_recorded(self) -> None:
        world = self.admitted()
        world.start(gate_pod("a", uid="uid-a", node="n"))
        assert self.left(world) == 7

    def test_recorded_before_the_ledger_says_so(self) -> None:
        world = self.admitted()
        world.start(gate_pod("a", uid="uid-a", node="n", record=[whole(3)]))
        assert self.left(world) == 7, "the record counts though the publication lags behind"

    def test_recorded_and_published(self) -> None:
        world = self.admitted()
        world.start(gate_pod("a", uid="uid-a", node="n", record=[whole(3)]))
        world.publish("n", *taken(3))
        assert self.left(world) == 7, "one card, counted once"

    def test_published_before_the_record_is_seen(self) -> None:
        world = self.admitted()
        world.start(gate_pod("a", uid="uid-a", node="n"))
        world.publish("n", *taken(3))
        assert self.left(world) == 6, "for a moment counted twice, never not at all"

    def test_ended_and_released(self) -> None:
        world = self.admitted()
        world.start(gate_pod("a", uid="uid-a", node="n", record=[whole(3)], phase="Succeeded"))
        world.conditions("a", Finished=True)
        assert self.left(world) == 8

    def test_pod_deleted_workload_still_there(self) -> None:
        world = self.admitted()
        world.start(gate_pod("a", uid="uid-a", node="n", record=[whole(3)]))
        world.publish("n", *taken(3))
        world.run()
        world.api.remove(POD, "a", "default")
        world.publish("n")
        assert self.left(world) == 7, "its quota is still reserved, and its replacement may come"
        world.api.remove(WORKLOAD, "a", "default")
        assert self.left(world) == 8

    @pytest.mark.parametrize(
        "text",
        [
            "not JSON",
            "[]",
            '{"c0": {"devices": {"groups": 3}}}',
            json.dumps({"c0": {"devices": {"groups": [{"id": "a10g", "manufacturer": "nvidia", "accelerators": []}]}}}),
        ],
        ids=["not JSON", "a list", "groups no list", "no cards"],
    )
    def test_a_hand_edited_record_ends_no_promise(self, text: str) -> None:
        world = self.admitted()
        world.start(gate_pod("a", uid="uid-a", node="n", record=text))
        assert self.left(world) == 7

    def test_a_record_that_names_unknown_cards_ends_no_promise(self) -> None:
        world = self.admitted()
        world.start(gate_pod("a", uid="uid-a", node="n", record=[{**whole(3), "id": "card-99"}]))
        assert self.left(world) == 7

    def test_a_record_of_more_than_was_asked_for_takes_what_was_asked_for(self) -> None:
        world = self.admitted()
        world.start(gate_pod("a", uid="uid-a", node="n", record=[whole(n) for n in range(8)]))
        assert self.left(world) == 7

    def test_an_unreadable_record_of_a_running_container_is_its_agents_affair(self) -> None:
        world = self.admitted()
        running = [{"name": "c0", "state": {"running": {}}}]
        world.start(gate_pod("a", uid="uid-a", node="n", record="?", phase="Running", containerStatuses=running))
        world.publish("n", *taken(3))
        assert self.left(world) == 7

    def test_every_pod_of_a_job_counts_for_itself(self) -> None:
        world = GateWorld("n")
        job = gate_workload(
            "a", gate_pod_set({GPU: "1"}, count=3), conditions=["QuotaReserved", "Admitted"], state="Ready"
        )
        world.ask(job)
        world.start(
            gate_pod("p1", uid="u1", node="n", record=[whole(1)], workload="a"),
            gate_pod("p2", uid="u2", node="n", workload="a"),
        )
        world.publish("n", *taken(1))
        assert self.left(world) == 5, "one recorded, one bound, one not there yet"

    def test_a_forged_workload_annotation_does_not_take_another_pods_place(self) -> None:
        """A Pod that is a Workload of its own stays with it, whatever its annotation says."""
        world = self.admitted()
        own = gate_workload("b", owner="uid-b", state="Ready", conditions=["QuotaReserved", "Admitted"])
        world.ask(own)
        world.start(gate_pod("b", uid="uid-b", node="n", record=[whole(3)], workload="a"))
        world.publish("n", *taken(3))
        assert self.left(world) == 6

    def test_being_evicted_its_running_pods_still_hold(self) -> None:
        world = self.admitted()
        world.start(gate_pod("a", uid="uid-a", node="n"))
        world.conditions("a", Evicted=True)
        assert self.left(world) == 7
        world.conditions("a", QuotaReserved=False)
        assert self.left(world) == 8

    def test_on_the_host_that_kueue_named(self) -> None:
        world = GateWorld("n", "m")
        world.ask(gate_workload("a", state="Ready", hosts={"m": 1}), gate_workload("x", gate_pod_set({GPU: "8"})))
        world.run()
        assert world.state("x") == "Ready"
        world.ask(gate_workload("y", gate_pod_set({GPU: "8"}), hosts={"m": 1}))
        world.run()
        assert "needs 8 free cards on node m, which was chosen for it and has 7" in world.message("y")


class TestNoVerdict:
    @pytest.mark.parametrize(
        "conditions",
        [[], ["QuotaReserved", "Evicted"], ["QuotaReserved", "Finished"], ["QuotaReserved", "Admitted"]],
        ids=["no reservation", "evicted", "finished", "admitted"],
    )
    def test_b006_conditions(self, conditions: list[str]) -> None:
        world = GateWorld("n")
        world.ask(gate_workload(conditions=conditions))
        assert world.run(120) == []

    def test_b006_not_active(self) -> None:
        world = GateWorld("n")
        world.ask(gate_workload(active=False))
        assert world.run(120) == []

    def test_b006_an_eviction_between_decision_and_write_wins(self) -> None:
        world = GateWorld("n")
        world.ask(gate_workload())
        raced: list[bool] = []

        def evicted_meanwhile(request: Request) -> Exception | None:
            if request.method == "PATCH" and not raced:
                raced.append(True)
                world.conditions("w", Evicted=True)
            return None

        world.api.faults.append(evicted_meanwhile)
        asyncio.run(world.bench.settle())
        assert [type(error) for *_, error in world.bench.errors] == [Conflict]
        world.bench.errors.clear()
        assert world.run(120) == []
        assert world.state() == "Pending"
        world.gate.book.refresh([CHECK])
        assert list(world.gate.book.promises(next(iter(world.api.store[WORKLOAD])))) == []

    def test_b006_loop_of_races(self) -> None:
        """However eviction and verdict meet, no verdict stands on an evicted Workload, and each is asked again."""
        world = GateWorld("n")
        for turn in range(30):
            world.ask(gate_workload("w", state="Pending"))
            if turn % 3:
                world.conditions("w", Evicted=True)
                world.run()
                assert world.state() == "Pending"
                world.conditions("w", QuotaReserved=False)
                world.run()
                world.conditions("w", QuotaReserved=True, Evicted=False)
            world.run()
            assert world.state() == "Ready"


def test_a_write_of_unknown_outcome_keeps_its_cards() -> None:
    world = GateWorld("n")
    world.publish("n", *LAST_CARD)
    world.ask(gate_workload("a"))
    failed: list[bool] = []

    def no_answer(request: Request) -> Exception | None:
        if request.method == "PATCH" and not failed:
            failed.append(True)
            return Unavailable({}, 503, "ServiceUnavailable")
        return None

    world.api.faults.append(no_answer)
    asyncio.run(world.bench.settle())
    world.bench.errors.clear()
    world.ask(gate_workload("b"))
    world.run()
    assert (world.state("a"), world.state("b")) == ("Pending", "Retry")
    world.run(2)
    assert (world.state("a"), world.state("b")) == ("Ready", "Retry")


class TestBadInput:
    def test_no_pod_set_assignments(self) -> None:
        world = GateWorld("n")
        workload = gate_workload()
        workload["status"]["admission"] = {"clusterQueue": "q"}
        world.ask(workload)
        world.run()
        assert (world.state(), world.message()) == (
            "Retry",
            "the admission does not resolve to a single accelerator flavor",
        )

    def test_flavors_that_vanished(self) -> None:
        world = GateWorld("n")
        world.ask(gate_workload("w", gate_pod_set({GPU: "1"}, name="a"), gate_pod_set({"cpu": "1"}, name="b")))
        world.api.remove(RESOURCE_FLAVOR, FLAVOR)
        world.run()
        assert world.message() == f'flavor "{FLAVOR}" is gone since quota was reserved in it for role "a"'

    def test_a_flavor_of_two_models(self) -> None:
        world = GateWorld("n")
        labels = {"acceleratable.feature.gpustack.ai/nvidia-t4": "true"}
        flavor = world.api.get(RESOURCE_FLAVOR, FLAVOR)
        assert flavor is not None
        world.api.add(RESOURCE_FLAVOR, {**flavor, "spec": {"nodeLabels": {**flavor["spec"]["nodeLabels"], **labels}}})
        world.ask(gate_workload())
        world.run()
        assert "pins no single accelerator key; fix its node labels" in world.message()

    def test_the_ledger_of_a_node_that_disappeared(self) -> None:
        world = GateWorld("n")
        world.ask(gate_workload("w", hosts={"n": 1}))
        world.api.remove(DEVICES, "n")
        world.api.remove(NODE, "n")
        world.run()
        assert "node n, which was chosen for it, is gone, takes no Pods or has no cards" in world.message()

    def test_a_node_that_disappears_under_a_promise(self) -> None:
        world = GateWorld("n", "m")
        world.ask(gate_workload("a", state="Ready"), gate_workload("b", state="Ready", hosts={"n": 1}))
        world.run()
        world.api.remove(DEVICES, "n")
        world.api.remove(NODE, "n")
        world.ask(gate_workload("x", gate_pod_set({GPU: "8"})), gate_workload("y", gate_pod_set({GPU: "7"})))
        world.run()
        assert (world.state("x"), world.state("y")) == ("Retry", "Ready"), "a found cards on m, b has none"

    @pytest.mark.parametrize("status", [None, {"groups": None}, {"groups": [{"id": "a10g", "accelerators": "x"}]}])
    def test_a_ledger_that_says_nothing(self, status: Any) -> None:
        world = GateWorld("n")
        world.api.add(DEVICES, {**gate_devices("n"), "status": status})
        world.ask(gate_workload())
        world.run()
        assert world.state() == "Retry"

    def test_a_count_of_two_to_the_31(self) -> None:
        world = GateWorld("n")
        world.ask(gate_workload("w", gate_pod_set({GPU: "1"}, count=2**31 - 1)))
        world.run()
        assert "; 8 of 2147483647 Pods would find a place" in world.message()

    @pytest.mark.parametrize("hosts", [None, {"n": 2**31 - 1}], ids=["anywhere", "on a host"])
    def test_an_admitted_count_of_two_to_the_31(self, hosts: dict[str, int] | None) -> None:
        """No check of ours stood on its queue, and its quota bore it."""
        world = GateWorld("n", "m")
        many = gate_pod_set({GPU: "1"}, count=2**31 - 1)
        world.ask(gate_workload("many", many, hosts=hosts, state="Ready", conditions=["QuotaReserved", "Admitted"]))
        world.ask(gate_workload())
        world.run()
        assert world.state() == ("Retry" if hosts is None else "Ready")


class TestCandidates:
    def test_another_os_is_excluded_and_the_count_is_no_label_of_devices(self) -> None:
        world = GateWorld("n")
        world.api.add(DEVICES, gate_devices("n", labels={"kubernetes.io/os": "windows"}))
        world.ask(gate_workload())
        world.run()
        assert "no usable node of flavor" in world.message()

    def test_the_pinned_count_is_the_nodes_number_of_cards(self) -> None:
        world = GateWorld("n")
        world.api.add(DEVICES, gate_devices("n", cards=7))
        world.ask(gate_workload())
        world.run()
        assert world.state() == "Retry"

    @pytest.mark.parametrize(
        "node",
        [
            {"unschedulable": True},
            {"ready": "False"},
            {"taints": [{"key": "example.com/mine", "effect": "NoSchedule"}]},
        ],
        ids=["cordoned", "not ready", "tainted"],
    )
    def test_b024_a_node_that_takes_no_pods(self, node: dict[str, Any]) -> None:
        world = GateWorld()
        world.join("n", **node)
        world.ask(gate_workload("w"), gate_workload("tolerant", gate_pod_set({GPU: "1"})))
        world.edit("tolerant", _tolerate)
        world.run()
        assert world.state() == "Retry"
        assert world.state("tolerant") == ("Ready" if "taints" in node else "Retry")
        world.api.add(NODE, gpu_node("n", count=8))
        world.run(60)
        assert world.state() == "Ready", "it is asked again within 60 s"

    def test_a_pods_own_node_selector(self) -> None:
        world = GateWorld("n", "m")
        world.publish("n", *FULL)
        pod_set = gate_pod_set({GPU: "1"})
        pod_set["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "n"}
        world.ask(gate_workload("w", pod_set))
        world.run()
        assert "best node n has 0" in world.message()

    def test_a_hostname_that_is_not_the_nodes_name(self) -> None:
        world = GateWorld()
        world.join("n", labels={"kubernetes.io/hostname": "n.example.com"})
        world.ask(gate_workload("w", hosts={"n.example.com": 1}))
        world.run()
        assert world.state() == "Ready"


def _tolerate(workload: Object) -> None:
    spec = workload["spec"]["podSets"][0]["template"]["spec"]
    spec["tolerations"] = [{"key": "example.com/mine", "operator": "Exists"}]


class TestCheckObject:
    def settled(self, *checks: Object) -> FakeApi:
        api = FakeApi()
        api.add(ADMISSION_CHECK, *checks)
        world = bench(api, ("node_devices_admission_check",))
        asyncio.run(world.settle())
        assert world.errors == []
        asyncio.run(world.settle())
        return api

    def test_ours_becomes_active_once(self) -> None:
        api = self.settled(admission_check(CHECK, CONTROLLER, is_active=False))
        check = api.get(ADMISSION_CHECK, CHECK)
        assert check is not None
        (condition,) = check["status"]["conditions"]
        assert (condition["type"], condition["status"], condition["reason"]) == ("Active", "True", "Ready")
        assert len(api.writes) == 1

    def test_foreign_ones_are_untouched(self) -> None:
        assert self.settled(admission_check("other", "example.com/other", is_active=False)).writes == []

    def test_an_active_one_gets_no_write(self) -> None:
        assert self.settled(admission_check(CHECK, CONTROLLER)).writes == []

    def test_it_declares_what_it_needs(self) -> None:
        assert NodeDevicesAdmissionCheck.RBAC[1].resource == "admissionchecks/status"
