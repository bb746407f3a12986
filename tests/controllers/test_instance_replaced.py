"""When an Instance's Pod is replaced, and when its pool stops it, on an API in memory (spec 05 §9.1-§9.2)."""

from __future__ import annotations

import asyncio

import pytest

from kube.errors import class_of
from kube.reconciler import Object
from kube.requests import Request
from nodefeature.fields import at
from nodefeature.kinds import CLUSTER_QUEUE, INSTANCE, INSTANCE_TYPE, POD
from tests.builders.instance_world import HELD, NS, World, running_world, statused
from tests.builders.instances import BORN, POOL, instance, own_pod, pool_type, queue, running, waiting

# Replacement


def test_a_spec_change_never_touches_a_pod() -> None:
    world = running_world()
    before = world.pod
    world.api.edit(INSTANCE, "box", {"spec": {"image": "other", "displayName": "x"}}, NS)
    assert world.run() == ["update Instance"], "the conditions name the new generation"
    assert world.pod == before
    assert world.condition("Ready")["observedGeneration"] == 2


def test_a_pod_deleted_by_someone_else_is_made_again() -> None:
    world = running_world(ports=[{"port": 22}])
    world.publish_ports()
    world.run()
    old = world.pod["metadata"]["uid"]
    world.api.remove(POD, "box", NS)
    world.run(3)
    assert world.pod["metadata"]["uid"] != old
    assert world.status["phase"] in ("Starting", "Scheduling")
    assert not {"ports", "nodeName", "hostIPs", "podIPs", "accessAddresses", "summary"} & world.status.keys()
    assert world.reasons()[2] == "Ready=False NotScheduled"


@pytest.mark.parametrize(
    ("age", "pod_age", "status", "want"),
    [
        (60, 30, ("Failed", "UnexpectedAdmissionError"), 30.0),
        (1, 1, ("Failed", "UnexpectedAdmissionError"), 2.0),
        (600, 60, ("Failed", "UnexpectedAdmissionError"), None),
        (60, 30, ("Failed", "Evicted"), None),
    ],
    ids=["1m/30s", "1s/0", "10m/1m", "Evicted"],
)
def test_admission_rejection_rebuild(age: int, pod_age: int, status: tuple[str, str], want: float | None) -> None:
    born = "2026-01-01T00:00:00Z"
    made = f"2026-01-01T00:{(age - pod_age) // 60:02d}:{(age - pod_age) % 60:02d}Z"
    of = instance(created=born)
    of["metadata"]["annotations"] = {"a": "b"}
    of["metadata"]["finalizers"] = ["gpustack.ai/locked"]
    failed = own_pod(of, created=made, node="node-1", status={"phase": status[0], "reason": status[1]})
    world = World((INSTANCE, of), (POD, failed))
    world.run()
    assert world.instance["metadata"]["annotations"] == {"a": "b"}
    if want is None:
        assert world.pod["metadata"]["uid"] == "uid-pod"
        assert world.status["phase"] == "NotReady"
        return
    assert world.api.names(POD) == []
    assert world.due() == want, "no new Pod before the pause is over, whatever wakes the controller"
    world.run(want + 1)
    assert world.pod["metadata"]["uid"] != "uid-pod"
    assert "PodRebuilt" in world.events()


def test_the_pause_before_a_rebuild_grows_with_the_age() -> None:
    of = instance(created="2026-01-01T00:00:00Z")
    gaps: list[float | None] = []
    for made in ("00:00:01", "00:00:40", "00:04:59", "00:05:00"):
        failed = own_pod(of, created=f"2026-01-01T{made}Z")
        world = World(
            (INSTANCE, of), (POD, {**failed, "status": {"phase": "Failed", "reason": "UnexpectedAdmissionError"}})
        )
        world.run()
        gaps.append(world.due())
    assert gaps == [2.0, 40.0, 299.0, None]


# Drain: spec 05 §9.1


@pytest.mark.parametrize(
    ("type_state", "stop_policy", "has_pod", "want"),
    [
        ("missing", None, False, True),
        ("missing", None, True, True),
        ("present", "Hold", True, False),
        ("present", "HoldAndDrain", True, True),
        ("present", "HoldAndDrain", False, True),
        ("deleting", "None", True, True),
        ("present", "None", True, False),
        ("present", None, True, False),
    ],
)
def test_stop_rule(type_state: str, stop_policy: str | None, has_pod: bool, want: bool) -> None:
    of = statused(instance(), "Ready")
    world = World((INSTANCE, of), with_pool=False)
    if has_pod:
        world.api.add(POD, own_pod(of, node="node-1", status=running()))
    if type_state != "missing":
        pool = pool_type()
        if type_state == "deleting":
            pool["metadata"] |= {"deletionTimestamp": BORN, "finalizers": ["gpustack.ai/controlled"]}
        world.api.add(INSTANCE_TYPE, pool)
    if stop_policy is not None:
        world.api.add(CLUSTER_QUEUE, queue(stop_policy=stop_policy))
    world.run(3)
    assert bool(at(world.instance, "spec", "stop")) is want


def test_drain_of_a_starting_instance() -> None:
    world = World((INSTANCE, statused(instance(), "Starting")))
    world.run()
    world.play(spec={"schedulingGates": None, "nodeName": "node-1"}, status=waiting("ContainerCreating"))
    world.run()
    assert world.status["phase"] == "Starting"
    world.play(metadata={"finalizers": list(HELD)})
    world.run()
    seen: list[str] = []
    world.api.rules[INSTANCE] = lambda old, new: _stop_webhook(old, new, seen)
    world.api.edit(CLUSTER_QUEUE, POOL, {"spec": {"stopPolicy": "HoldAndDrain"}})
    writes = world.run()
    assert writes == ["update Instance", "patch Instance", "update Instance", "delete Pod"]
    assert seen == ["Stopping"], "the status was written before the spec, so the stop is admitted"
    assert world.instance["spec"]["stop"] is True
    world.api.edit(CLUSTER_QUEUE, POOL, {"spec": {"stopPolicy": "None"}})
    world.api.remove(POD, "box", NS)
    world.run()
    assert world.pod is None
    assert world.status["phase"] == "Stopped"
    assert world.instance["spec"]["stop"] is True, "nothing restarts it"
    assert {"Drained", "Stopped"} <= set(world.events())


def _stop_webhook(old: Object | None, new: Object, seen: list[str]) -> str:
    """Spec 05 §7.2, rule 5."""
    if old is None or at(old, "spec", "stop") or not at(new, "spec", "stop"):
        return ""
    seen.append(at(old, "status", "phase"))
    return "spec.stop: cannot stop starting instance" if at(old, "status", "phase") == "Starting" else ""


def test_a_second_write_that_fails_is_tried_again() -> None:
    world = running_world()
    down = [True]

    def refuse(request: Request) -> Exception | None:
        body = (request.content or b"").decode()
        if request.method == "PATCH" and '"stop"' in body and down:
            return class_of(500, "InternalError")({"message": "no"}, 500, "InternalError")
        return None

    world.api.faults.append(refuse)
    world.api.edit(CLUSTER_QUEUE, POOL, {"spec": {"stopPolicy": "HoldAndDrain"}})
    asyncio.run(world.bench.settle())
    down.clear()
    assert (world.status["phase"], at(world.instance, "spec", "stop")) == ("Stopping", None)
    assert world.pod is not None
    asyncio.run(world.bench.advance(30))
    assert world.instance["spec"]["stop"] is True
    assert world.events().count("Drained") == 1
