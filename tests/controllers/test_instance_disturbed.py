"""An Instance beside somebody else's Pod, refused, restarted and written oddly: cases B044, B051, B053."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kube.errors import Forbidden, Invalid, class_of
from kube.reconciler import Object
from nodefeature.fields import as_maps
from nodefeature.kinds import INSTANCE, POD
from tests.builders.chain import bench
from tests.builders.instance_world import NS, World, running_world, statused
from tests.builders.instances import BORN, POOL, instance, own_pod, running
from tests.builders.rows import case_json

# Somebody else's Pod, and Pods in a bad state: case B044


def foreign_pod() -> Object:
    return {"metadata": {"name": "box", "namespace": NS, "uid": "theirs"}, "spec": {}, "status": {"phase": "Running"}}


def test_b044_somebody_elses_pod_is_not_adopted_and_named() -> None:
    world = World((INSTANCE, instance()), (POD, foreign_pod()))
    world.run(120)
    assert world.pod["metadata"]["uid"] == "theirs"
    assert world.reasons()[0] == "Admitted=False ForeignPod"
    assert world.events() == ["ForeignPod"]
    world.api.remove(POD, "box", NS)
    world.run()
    assert world.pod["metadata"]["uid"] != "theirs"


def test_b044_somebody_elses_pod_is_never_deleted() -> None:
    world = World((INSTANCE, instance()), (POD, foreign_pod()))
    world.run()
    world.api.edit(INSTANCE, "box", {"spec": {"stop": True}}, NS)
    world.run()
    assert world.status["phase"] == "Stopped"
    world.api.edit(INSTANCE, "box", {"metadata": {"deletionTimestamp": BORN}}, NS)
    world.run()
    assert world.instance is None
    assert world.pod["metadata"]["uid"] == "theirs"


def test_a_status_written_by_hand_is_set_right_within_half_a_minute() -> None:
    world = running_world()
    told = world.status
    world.api.edit(INSTANCE, "box", {"status": {"phase": "Nope", "hostIPs": []}}, NS)
    world.run(31)
    assert world.status == told
    at_rest = world.api.get(INSTANCE, "box", NS)
    world.run(120)
    assert world.api.get(INSTANCE, "box", NS) == at_rest


B044 = [row for row in case_json("B044-pod-states")["rows"] if isinstance(row["pod"], dict)]


@pytest.mark.parametrize("row", B044, ids=lambda row: row["expect"])
def test_b044_pod_states(row: Any) -> None:
    world = running_world()
    kept = world.pod["metadata"]["uid"]
    world.play(status=row["pod"])
    world.run()
    assert world.status["phase"] != "Ready"
    assert world.condition("Ready")["status"] == "False"
    assert world.status["nodeName"] == "node-1"
    assert world.pod["metadata"]["uid"] == kept, "the Pod is left as evidence"
    if "node's reason" in row["expect"]:
        assert (world.status["phase"], world.status["phaseMessage"]) == ("NotReady", "NodeNotReady")


def test_b044_deleted_while_the_operator_was_down() -> None:
    of = statused(instance(), "Ready", nodeName="node-1", podIPs=[{"ip": "1.2.3.4"}])
    of["metadata"]["finalizers"] = ["gpustack.ai/locked"]
    world = World((INSTANCE, of))
    writes = world.run()
    assert writes[:2] == ["update Instance", "create Pod"]
    assert world.status["phase"] in ("Starting", "Scheduling")
    assert "podIPs" not in world.status


def test_b053_a_second_gate_is_named() -> None:
    world = World((INSTANCE, instance()))
    world.run()
    world.play(spec={"schedulingGates": [{"name": "example.com/wait-for-data"}]})
    world.run()
    assert world.reasons()[:2] == ["Admitted=True Admitted", "Scheduled=False SchedulingGated"]
    assert "example.com/wait-for-data" in world.condition("Scheduled")["message"]


# Refusals


def refuse_pods(world: World, error: Exception) -> None:
    world.api.faults.append(lambda r: error if r.method == "POST" and r.path.endswith("/pods") else None)


@pytest.mark.parametrize("code", [403, 422, 400])
def test_a_refused_pod_is_shown(code: int) -> None:
    reason = {403: "Forbidden", 422: "Invalid", 400: "BadRequest"}[code]
    world = World((INSTANCE, instance()))
    refuse_pods(world, class_of(code, reason)({"message": "exceeded quota: gpus"}, code, reason))
    world.run()
    assert "exceeded quota: gpus" in world.status["phaseMessage"]
    assert world.reasons()[0] == "Admitted=False PodRefused"
    assert world.events() == ["PodRefused"]
    assert world.run(200) == []
    world.api.faults.clear()
    world.run(31)
    assert world.pod is not None


def test_b051_a_namespace_that_is_going_is_left_alone() -> None:
    details = {"causes": [{"reason": "NamespaceTerminating", "message": "x", "field": "metadata.namespace"}]}
    world = World((INSTANCE, instance()))
    refuse_pods(world, Forbidden({"message": "no", "details": details}, 403, "Forbidden"))
    assert world.run(300) == ["patch Instance"]
    assert world.due() is None


def test_a_webhook_that_is_down_is_tried_again() -> None:
    world = World((INSTANCE, instance()))
    refuse_pods(world, class_of(500, "InternalError")({"message": "no endpoints"}, 500, "InternalError"))
    asyncio.run(world.bench.settle())
    world.api.faults.clear()
    asyncio.run(world.bench.advance(5))
    assert world.pod is not None


def test_an_instance_that_cannot_be_stopped_is_not_tried_for_ever() -> None:
    world = World((INSTANCE, instance()), with_pool=False)
    world.api.faults.append(
        lambda r: (
            Invalid({"message": "spec.image: Required"}, 422, "Invalid")
            if r.method == "PATCH" and b'"stop"' in (r.content or b"")
            else None
        )
    )
    asyncio.run(world.bench.settle())
    asyncio.run(world.bench.advance(600))
    assert {type(error).__name__ for _, _, error in world.bench.errors} == {"Terminal"}
    assert len(world.bench.errors) <= 2


# Settled, restarted, odd


def test_settled_means_no_writes_also_after_a_restart() -> None:
    world = running_world(ports=[{"port": 22}])
    world.publish_ports()
    world.run()
    assert world.run(3600) == []
    events = list(world.events())
    again = bench(world.api, ("instance",))

    async def restart() -> list[Any]:
        return await again.settle() + await again.advance(3600)

    assert asyncio.run(restart()) == []
    assert world.events() == events


ODD: list[Any] = [
    {"metadata": {"name": "box", "namespace": NS, "uid": "u"}, "spec": None, "status": None},
    {"metadata": {"name": "box", "namespace": NS, "uid": "u"}, "spec": {}, "status": []},
    {"metadata": {"name": "box", "namespace": NS, "uid": "u", "finalizers": None}, "spec": {"type": None}},
    {"metadata": {"name": "box", "namespace": NS, "uid": "u"}, "spec": {"type": 5, "stop": None, "nodeName": []}},
    {"metadata": {"name": "box", "namespace": NS, "uid": "u"}, "spec": {"type": "../x", "ports": None}},
    {
        "metadata": {"name": "box", "namespace": NS, "uid": "u", "generation": "x", "creationTimestamp": 5},
        "spec": {"type": POOL, "resources": None, "volume": None, "env": None, "additionalVolumes": [None]},
        "status": {"conditions": [None, {"type": None}], "hostIPs": None, "phase": 7},
    },
]


@pytest.mark.parametrize("odd", ODD, ids=range(len(ODD)))
def test_instances_with_nulls(odd: Any) -> None:
    world = World((INSTANCE, odd))
    world.run(10)
    assert world.status["phase"] in ("Stopped", "Scheduling")
    assert as_maps(world.status["conditions"])
    assert world.run(100) == []


ODD_PODS: list[Any] = [
    {"spec": None, "status": None},
    {"spec": {"containers": None, "schedulingGates": None}, "status": {"conditions": None, "phase": None}},
    {"spec": {"containers": [None], "nodeName": 5}, "status": {"phase": "Running", "conditions": [None, "x"]}},
    {"spec": {"nodeName": "gone"}, "status": {"phase": "Running", "podIPs": [None, {}], "hostIPs": "x"}},
    {"spec": {"nodeName": "node-1"}, "status": {**running(), "containerStatuses": [None, {"state": None}]}},
]


@pytest.mark.parametrize("odd", ODD_PODS, ids=range(len(ODD_PODS)))
def test_pods_with_nulls(odd: Any) -> None:
    of = instance()
    world = World((INSTANCE, of), (POD, {**own_pod(of), **odd}))
    world.run()
    assert world.status["phase"]
    assert world.run(100) == []


def test_an_instance_that_goes_while_its_lock_is_taken_off_is_done() -> None:
    """A cache behind the server shows it once more: nothing is left to do, and nothing is wrong."""
    gone = instance()
    gone["metadata"] |= {"deletionTimestamp": BORN, "finalizers": ["gpustack.ai/locked"]}
    world = World((INSTANCE, gone))

    def go_first(request: Any) -> None:
        if request.method == "PATCH" and world.instance is not None:
            world.api.remove(INSTANCE, "box", NS)

    world.api.faults.append(go_first)
    assert world.run() == []
    assert world.instance is None
