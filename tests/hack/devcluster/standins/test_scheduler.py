"""Where Pods go, and why they do not."""

from __future__ import annotations

from typing import Any

import pytest

from hack.devcluster.standins.kueue.state import GATE
from hack.devcluster.standins.scheduler import is_waiting, refusal, tolerated
from kube.reconciler import Object
from nodefeature.fields import at
from nodefeature.kinds import NODE, POD
from tests.builders.standins import CARD, Stage, pod

ROOM = {"cpu": "4", "memory": "8Gi", "pods": "110", CARD: "2"}


def machine(name: str = "n", *, room: dict[str, str] | None = None, **spec: Any) -> Object:
    labels = {"zone": "a", "cards": "8"}
    return {"metadata": {"name": name, "labels": labels}, "spec": spec, "status": {"allocatable": room or ROOM}}


def term(key: str, operator: str, *values: str, field: bool = False) -> dict[str, Any]:
    expression = {"key": key, "operator": operator, **({"values": list(values)} if values else {})}
    return {"matchFields" if field else "matchExpressions": [expression]}


def required(*terms: dict[str, Any]) -> dict[str, Any]:
    node_affinity = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return {"affinity": {"nodeAffinity": node_affinity}}


TAINT = {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}
REFUSALS: dict[str, tuple[Object, Object, str]] = {
    "fits": (pod(limits={CARD: "2", "cpu": "4"}), machine(), ""),
    "nothing asked": (pod(), machine(), ""),
    "cordoned (B024)": (pod(), machine(unschedulable=True), "unschedulable"),
    "going": (pod(), {"metadata": {"name": "n", "deletionTimestamp": "now"}}, "unschedulable"),
    "selector": (pod(nodeSelector={"zone": "a"}), machine(), ""),
    "selector, other": (pod(nodeSelector={"zone": "b"}), machine(), "node selector"),
    "In": (pod(**required(term("zone", "In", "a", "b"))), machine(), ""),
    "In, other": (pod(**required(term("zone", "In", "b"))), machine(), "node affinity"),
    "NotIn": (pod(**required(term("zone", "NotIn", "b"))), machine(), ""),
    "NotIn, absent key": (pod(**required(term("rack", "NotIn", "b"))), machine(), ""),
    "NotIn, it is": (pod(**required(term("zone", "NotIn", "a"))), machine(), "node affinity"),
    "Exists": (pod(**required(term("zone", "Exists"))), machine(), ""),
    "Exists, absent": (pod(**required(term("rack", "Exists"))), machine(), "node affinity"),
    "DoesNotExist": (pod(**required(term("rack", "DoesNotExist"))), machine(), ""),
    "Gt": (pod(**required(term("cards", "Gt", "7"))), machine(), ""),
    "Gt, equal": (pod(**required(term("cards", "Gt", "8"))), machine(), "node affinity"),
    "Lt": (pod(**required(term("cards", "Lt", "9"))), machine(), ""),
    "Lt, equal": (pod(**required(term("cards", "Lt", "8"))), machine(), "node affinity"),
    "Gt of no number": (pod(**required(term("zone", "Gt", "1"))), machine(), "node affinity"),
    "Gt of absent": (pod(**required(term("rack", "Gt", "1"))), machine(), "node affinity"),
    "Gt of two": (pod(**required(term("cards", "Gt", "1", "2"))), machine(), "node affinity"),
    "an operator nobody knows": (pod(**required(term("zone", "Near", "a"))), machine(), "node affinity"),
    "one term of two": (pod(**required(term("zone", "In", "b"), term("cards", "Exists"))), machine(), ""),
    "an empty term matches nothing": (pod(**required({})), machine(), "node affinity"),
    "no terms match nothing": (pod(**required()), machine(), "node affinity"),
    "by name": (pod(**required(term("metadata.name", "In", "n", field=True))), machine(), ""),
    "by another name": (pod(**required(term("metadata.name", "In", "m", field=True))), machine(), "node affinity"),
    "taint": (pod(), machine(taints=[TAINT]), "taint dedicated"),
    "taint NoExecute": (pod(), machine(taints=[{**TAINT, "effect": "NoExecute"}]), "taint dedicated"),
    "a soft taint is no reason": (pod(), machine(taints=[{**TAINT, "effect": "PreferNoSchedule"}]), ""),
    "tolerated": (pod(tolerations=[{"operator": "Exists"}]), machine(taints=[TAINT]), ""),
    "too many cards": (pod(limits={CARD: "3"}), machine(), f"insufficient {CARD}"),
    "a resource the node lacks": (pod(limits={"amd.com/gpu": "1"}), machine(), "insufficient amd.com/gpu"),
    "none of a resource the node lacks": (pod(limits={"amd.com/gpu": "0"}), machine(), ""),
    "a node without status": (pod(limits={"cpu": "1"}), {"metadata": {"name": "n"}}, "insufficient cpu"),
}


@pytest.mark.parametrize("row", REFUSALS.values(), ids=REFUSALS.keys())
def test_refusal(row: tuple[Object, Object, str]) -> None:
    who, where, want = row
    assert refusal(who, where, held={}) == want


def test_what_is_held_counts() -> None:
    assert refusal(pod(limits={CARD: "1"}), machine(), held={CARD: 1000}) == ""
    assert refusal(pod(limits={CARD: "1"}), machine(), held={CARD: 2000}) == f"insufficient {CARD}"


TOLERATED: dict[str, tuple[list[dict[str, str]], bool]] = {
    "none": ([], False),
    "everything": ([{"operator": "Exists"}], True),
    "key": ([{"key": "dedicated", "operator": "Exists"}], True),
    "another key": ([{"key": "other", "operator": "Exists"}], False),
    "value": ([{"key": "dedicated", "operator": "Equal", "value": "gpu"}], True),
    "Equal is the default": ([{"key": "dedicated", "value": "gpu"}], True),
    "another value": ([{"key": "dedicated", "value": "cpu"}], False),
    "another effect": ([{"operator": "Exists", "effect": "NoExecute"}], False),
    "its effect": ([{"operator": "Exists", "effect": "NoSchedule"}], True),
    "the second of two": ([{"key": "other"}, {"operator": "Exists"}], True),
}


@pytest.mark.parametrize("row", TOLERATED.values(), ids=TOLERATED.keys())
def test_tolerated(row: tuple[list[dict[str, str]], bool]) -> None:
    tolerations, want = row
    assert tolerated(TAINT, tolerations) is want


WAITING: dict[str, tuple[Object, bool]] = {
    "new": (pod(), True),
    "bound": (pod(nodeName="n"), False),
    "gated": (pod(schedulingGates=[{"name": GATE}]), False),
    "gates are null": (pod(schedulingGates=None), True),
    "another scheduler's": (pod(schedulerName="mine"), False),
    "going": ({"metadata": {"name": "p", "deletionTimestamp": "now"}, "spec": {}}, False),
    "nothing but a name": ({"metadata": {"name": "p"}}, True),
}


@pytest.mark.parametrize("row", WAITING.values(), ids=WAITING.keys())
def test_is_waiting(row: tuple[Object, bool]) -> None:
    assert is_waiting(row[0]) is row[1]


class TestScheduler:
    def stage(self, *nodes: Object) -> Stage:
        made = Stage("standin-scheduler")
        made.api.add(NODE, *nodes)
        return made

    def where(self, made: Stage, name: str) -> Any:
        return at(made.api.get(POD, name, "default"), "spec", "nodeName")

    def test_one_after_the_other_until_the_nodes_are_full(self) -> None:
        made = self.stage(machine("a"), machine("b"))
        made.api.add(POD, *(pod(f"p{n}", limits={CARD: "1"}) for n in range(5)))
        made.run()
        assert [self.where(made, f"p{n}") for n in range(5)] == ["a", "a", "b", "b", None]
        assert made.condition(POD, "p0", "PodScheduled", "default") == ("True", "Scheduled")
        assert made.condition(POD, "p4", "PodScheduled", "default") == ("False", "Unschedulable")
        assert made.run(60) == [], "the reason is said once"

    def test_a_pod_that_leaves_makes_room(self) -> None:
        made = self.stage(machine("a"))
        made.api.add(POD, pod("p", limits={CARD: "2"}), pod("q", limits={CARD: "2"}))
        made.run()
        made.api.remove(POD, "p", "default")
        made.run()
        assert self.where(made, "q") == "a"

    def test_a_pod_that_ended_makes_room(self) -> None:
        made = self.stage(machine("a"))
        made.api.add(POD, pod("p", limits={CARD: "2"}), pod("q", limits={CARD: "2"}))
        made.run()
        made.api.edit(POD, "p", {"status": {"phase": "Succeeded"}}, "default")
        made.run()
        assert self.where(made, "q") == "a"

    def test_a_node_that_grows_wakes_those_that_wait(self) -> None:
        made = self.stage(machine("a", room={"cpu": "1"}))
        made.api.add(POD, pod("p", limits={CARD: "1"}))
        made.run()
        made.api.edit(NODE, "a", {"status": {"allocatable": {CARD: "1"}}})
        made.run()
        assert self.where(made, "p") == "a"

    def test_a_gate_that_goes(self) -> None:
        made = self.stage(machine("a"))
        made.api.add(POD, pod("p", schedulingGates=[{"name": GATE}]))
        made.run()
        assert self.where(made, "p") is None
        made.api.edit(POD, "p", {"spec": {"schedulingGates": None}}, "default")
        made.run()
        assert self.where(made, "p") == "a"
