"""The life of an Instance on an API in memory: spec 05 §8.4, §9-§9.2, rows by name; cases B044, B051, B053."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kube.errors import Forbidden, Invalid, class_of
from kube.reconciler import Key, Object
from kube.requests import Request
from nodefeature.fields import as_maps, at
from nodefeature.kinds import (
    CLUSTER_QUEUE,
    EVENT,
    INSTANCE,
    INSTANCE_TYPE,
    NODE,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    RUNTIME_CLASS,
    SECRET,
    SERVICE,
    WORKLOAD,
)
from tests.builders.chain import bench, set_settings
from tests.builders.fake_api import Bench, FakeApi
from tests.builders.instances import (
    BORN,
    CPU_POOL,
    ENTRANCE,
    GATED,
    POOL,
    instance,
    own_pod,
    pool_type,
    queue,
    running,
    unready_type,
    waiting,
    workload_of,
)
from tests.builders.rows import case_json

NS = "team-a"
KEY = Key("box", NS)
HELD = ("test/held",)
"""A finalizer: the Pod stays while it is being deleted, as under a kubelet that ends its containers."""
NODE_1 = {
    "metadata": {"name": "node-1", "labels": {"kubernetes.io/hostname": "node-1.internal"}},
    "status": {
        "addresses": [
            {"type": "InternalIP", "address": "10.0.0.5"},
            {"type": "ExternalIP", "address": "198.51.100.7"},
            {"type": "Hostname", "address": "node-1"},
        ]
    },
}


class World:
    """One Instance, its pool, and the controller."""

    def __init__(self, *objects: tuple[Any, Object], pool: Object | None = None, with_pool: bool = True) -> None:
        self.api = FakeApi()
        if with_pool:
            self.api.add(INSTANCE_TYPE, pool or pool_type())
            self.api.add(CLUSTER_QUEUE, queue())
        self.api.add(NODE, NODE_1)
        for kind, obj in objects:
            self.api.add(kind, obj)
        self.bench: Bench = bench(self.api, ("instance",))

    def run(self, seconds: float = 0.0) -> list[str]:
        """Settle, let time pass; return our writes, Events aside."""

        async def go() -> list[Any]:
            writes = await self.bench.settle()
            return writes + (await self.bench.advance(seconds) if seconds else [])

        writes = asyncio.run(go())
        assert self.bench.errors == [], self.bench.errors
        return [f"{w.verb} {w.kind.kind}" for w in writes if w.kind != EVENT]

    @property
    def instance(self) -> Any:
        return self.api.get(INSTANCE, "box", NS)

    @property
    def status(self) -> Any:
        return self.instance.get("status", {})

    @property
    def pod(self) -> Any:
        return self.api.get(POD, "box", NS)

    @property
    def service(self) -> Any:
        return self.api.get(SERVICE, "box", NS)

    def condition(self, kind: str) -> Any:
        return next(c for c in self.status["conditions"] if c["type"] == kind)

    def reasons(self) -> list[str]:
        return [f"{c['type']}={c['status']} {c['reason']}" for c in self.status["conditions"]]

    def events(self) -> list[str]:
        return [event["reason"] for event in self.api.store[EVENT].values()]

    def due(self) -> float | None:
        """Return in how many seconds the Instance is looked at again."""
        moment = self.bench.due.get((0, KEY))
        return None if moment is None else moment - self.bench.clock.now()

    def play(self, **fields: Any) -> None:
        """Let scheduler, kubelet or Kueue write on the Pod."""
        self.api.edit(POD, "box", fields, NS)

    def publish_ports(self) -> None:
        """Give the Service its node ports, as kube-apiserver does."""
        ports = [{**p, "nodePort": 30000 + p["port"] % 1000} for p in self.service["spec"]["ports"]]
        self.api.edit(SERVICE, "box", {"spec": {"ports": ports}}, NS)


def running_world(*objects: tuple[Any, Object], annotations: Any = None, **spec: Any) -> World:
    """Return a world in which the Instance's Pod runs and is ready."""
    of = instance(**spec)
    world = World((INSTANCE, of), *objects)
    world.run()
    world.play(
        metadata={"annotations": annotations or {}},
        spec={"schedulingGates": None, "nodeName": "node-1"},
        status=running(),
    )
    world.run()
    return world


def statused(obj: Object, phase: str, **more: Any) -> Object:
    return {**obj, "status": {"phase": phase, **more}}


# Creation


def test_a_new_instance_gets_a_lock_and_a_pod() -> None:
    world = World((INSTANCE, instance()))
    assert world.run() == ["patch Instance", "create Pod", "update Instance"]
    assert world.instance["metadata"]["finalizers"] == ["gpustack.ai/locked"]
    assert world.pod["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == ENTRANCE
    assert world.service is None
    assert world.run() == []


def test_a_pod_waits_in_its_queue() -> None:
    world = World((INSTANCE, instance()))
    world.run()
    assert world.status["phase"] == "Scheduling"
    assert world.reasons() == ["Admitted=False Queued", "Scheduled=False NotAdmitted", "Ready=False NotScheduled"]
    assert {c["observedGeneration"] for c in world.status["conditions"]} == {1}
    assert world.events() == ["PodCreated", "Queued"]


def test_kueues_words_reach_the_status() -> None:
    world = World((INSTANCE, instance()))
    world.run()
    world.play(
        status={
            "conditions": [
                {
                    "type": "PodScheduled",
                    "status": "False",
                    "reason": "SchedulingGated",
                    "message": "Scheduling is blocked",
                }
            ]
        }
    )
    said = {"type": "QuotaReserved", "status": "False", "reason": "Pending", "message": "insufficient unused quota"}
    world.api.add(WORKLOAD, workload_of(world.pod, said))
    world.run()
    assert (world.status["phase"], world.status["phaseMessage"]) == ("Pending", "insufficient unused quota")
    checks = [{"name": "gpustack-node-devices", "state": "Retry", "message": "needs 5 free cards on one node"}]
    world.api.add(WORKLOAD, workload_of(world.pod, {"type": "QuotaReserved", "status": "True"}, checks=checks))
    world.run()
    assert world.condition("Admitted")["reason"] == "ChecksPending"
    assert world.condition("Admitted")["message"] == "gpustack-node-devices: needs 5 free cards on one node"
    evicted = {"type": "Evicted", "status": "True", "reason": "AdmissionCheck", "message": "at least one check false"}
    world.api.add(WORKLOAD, workload_of(world.pod, {"type": "QuotaReserved", "status": "False"}, evicted))
    world.run()
    assert world.reasons()[0] == "Admitted=False Evicted"
    assert world.events() == ["PodCreated", "Queued", "ChecksPending", "Evicted"]


def test_the_way_to_ready() -> None:
    world = World((INSTANCE, instance()))
    world.run()
    world.play(spec={"schedulingGates": None})
    world.run()
    assert world.reasons() == [
        "Admitted=True Admitted",
        "Scheduled=False WaitingForScheduler",
        "Ready=False NotScheduled",
    ]
    world.play(spec={"nodeName": "node-1"}, status=waiting("ContainerCreating"))
    world.run()
    assert world.status["phase"] == "Starting"
    assert world.reasons()[1:] == ["Scheduled=True Scheduled", "Ready=False ContainersNotReady"]
    world.play(status=running())
    world.run()
    assert world.reasons() == ["Admitted=True Admitted", "Scheduled=True Scheduled", "Ready=True Ready"]
    assert world.status["phase"] == "Ready"
    assert world.status["nodeName"] == "node-1"
    assert world.status["hostIPs"] == [{"ip": "198.51.100.7"}, {"ip": "10.0.0.5"}]
    assert world.status["podIPs"] == [{"ip": "10.42.1.7"}]
    assert world.status["accessAddresses"] == ["198.51.100.7"]
    assert world.events() == ["PodCreated", "Queued", "Admitted", "Scheduled", "Pulling", "Ready"]
    assert world.run() == []


def test_pinned_to_a_node() -> None:
    world = World((INSTANCE, instance(nodeName="node-1")))
    world.run()
    assert world.pod["spec"]["nodeSelector"] == {"kubernetes.io/hostname": "node-1.internal"}


@pytest.mark.parametrize("labels", [{}, None], ids=["without label", "null labels"])
def test_pinned_to_a_node_without_a_label(labels: Any) -> None:
    world = World((INSTANCE, instance(nodeName="node-1")), (NODE, {"metadata": {"name": "node-1", "labels": labels}}))
    world.run()
    assert world.pod["spec"]["nodeSelector"] == {"kubernetes.io/hostname": "node-1"}


def test_pinned_to_a_node_that_is_absent() -> None:
    world = World((INSTANCE, instance(nodeName="gone")))
    world.run()
    assert world.pod["spec"]["nodeSelector"] == {"kubernetes.io/hostname": "gone"}


def test_runtime_class_only_if_it_exists() -> None:
    world = World((INSTANCE, instance()))
    world.run()
    assert "runtimeClassName" not in world.pod["spec"]
    world = World((INSTANCE, instance()), (RUNTIME_CLASS, {"metadata": {"name": "nvidia"}, "handler": "nvidia"}))
    world.run()
    assert world.pod["spec"]["runtimeClassName"] == "nvidia"


def test_the_ssh_image_follows_the_settings_when_the_pod_is_created() -> None:
    world = World((INSTANCE, instance(sshPublicKey={"name": "k"})))
    set_settings(world.api, container_registry="reg.io", container_namespace="mirror")
    world.run()
    assert world.pod["spec"]["containers"][1]["image"] == "reg.io/mirror/ssh-server:v1.3.0"
    set_settings(world.api, container_registry="other.io")
    assert "create Pod" not in world.run()


# Waits


def test_accelerated_detail_empty() -> None:
    world = World((INSTANCE, instance()), pool=unready_type())
    world.run()
    assert world.pod is None
    assert world.instance["spec"].get("stop") is None
    assert (world.due() or 0) > 0
    assert world.status["phase"] == "Pending", "not Starting: it may be stopped"
    assert world.reasons()[0] == "Admitted=False InstanceTypeNotReady"
    world.api.add(INSTANCE_TYPE, pool_type())
    world.run()
    assert world.pod is not None


def test_no_entrance_no_pod() -> None:
    world = World((INSTANCE, instance()), pool=pool_type(entrance=""))
    world.run()
    assert world.pod is None
    world.api.add(INSTANCE_TYPE, pool_type())
    world.run()
    assert world.pod is not None


def test_a_cpu_pool_needs_no_detail() -> None:
    world = World((INSTANCE, instance(type=CPU_POOL)), (INSTANCE_TYPE, pool_type(CPU_POOL, manufacturer="")))
    world.run()
    assert world.pod["spec"]["containers"][0]["resources"]["limits"] == {
        "cpu": "8",
        "memory": "40Gi",
        "ephemeral-storage": "15Gi",
    }


VOLUME = {"persistent": {"name": "models"}}
CLAIM = {"metadata": {"name": "models", "namespace": NS}, "spec": {"storageClassName": "x"}}


def test_a_missing_claim_is_waited_for() -> None:
    world = World((INSTANCE, instance(volume=VOLUME)))
    world.run()
    assert world.pod is None
    assert world.status["phase"] == "Starting"
    assert 'PersistentVolumeClaim "models" does not exist' in world.status["phaseMessage"]
    assert world.reasons()[0] == "Admitted=False VolumeNotReady"
    assert world.run(60) == [], "waiting writes nothing"
    world.api.add(PERSISTENT_VOLUME_CLAIM, CLAIM)
    world.run(6)
    assert 'PersistentVolumeClaim "models" is Pending' in world.status["phaseMessage"]
    assert world.events() == ["WaitingForVolume"]


def test_without_placement_nothing_is_read() -> None:
    world = World((INSTANCE, instance(volume=VOLUME)))
    set_settings(world.api, instance_persistent_volume_placement="false")
    world.run()
    assert "affinity" not in world.pod["spec"]
    assert not [read for read in world.api.reads if "persistentvolume" in read]


# Service and ports


def test_a_service_for_the_ports() -> None:
    world = running_world(ports=[{"port": 22}, {"port": 8080, "name": "http"}])
    assert world.service["spec"] == {
        "type": "NodePort",
        "selector": {"app.kubernetes.io/part-of": "uid-box", "resource.gpustack.ai/type": "instances"},
        "ports": [
            {"name": "tcp-22", "port": 22, "targetPort": 22, "protocol": "TCP"},
            {"name": "tcp-8080", "port": 8080, "targetPort": 8080, "protocol": "TCP"},
        ],
    }
    assert world.service["metadata"]["ownerReferences"][0]["uid"] == world.pod["metadata"]["uid"]
    assert "ports" not in world.status
    assert world.due() == 2.0, "a node port is still 0"
    world.publish_ports()
    world.run()
    assert world.status["ports"] == [
        {"port": 22, "protocol": "TCP", "nodePort": 30022},
        {"port": 8080, "protocol": "TCP", "nodePort": 30080, "name": "http"},
    ]
    assert world.status["summary"] == {"ports": "22:30022/TCP,8080:30080/TCP"}
    assert world.due() is None


def test_without_ports_there_is_no_service() -> None:
    world = running_world()
    assert world.service is None
    assert "ports" not in world.status


def test_a_service_that_was_deleted_is_made_again() -> None:
    world = running_world(ports=[{"port": 22}])
    world.api.remove(SERVICE, "box", NS)
    assert world.run() == ["create Service"]


def test_a_service_of_an_earlier_pod_is_replaced() -> None:
    stale = {
        "metadata": {
            "name": "box",
            "namespace": NS,
            "labels": {"resource.gpustack.ai/type": "instances"},
            "ownerReferences": [{"kind": "Pod", "name": "box", "uid": "an-earlier-one", "controller": True}],
        },
        "spec": {"ports": [{"name": "tcp-22", "port": 22, "nodePort": 31111}]},
    }
    world = World((INSTANCE, instance(ports=[{"port": 22}])), (SERVICE, stale))
    assert "delete Service" in world.run(3)
    assert world.service["metadata"]["ownerReferences"][0]["uid"] == world.pod["metadata"]["uid"]


def test_somebody_elses_service_is_left_alone_and_named_once() -> None:
    foreign = {"metadata": {"name": "box", "namespace": NS}, "spec": {"ports": [{"port": 22, "nodePort": 31111}]}}
    world = World((INSTANCE, instance(ports=[{"port": 22}])), (SERVICE, foreign))
    world.run()
    world.play(spec={"schedulingGates": None, "nodeName": "node-1"}, status=running())
    world.run(600)
    assert world.service["spec"] == foreign["spec"]
    assert "ports" not in world.status
    assert world.events().count("PortsNotPublished") == 1
    assert world.status["phase"] == "Ready"


def test_a_service_that_is_refused_does_not_hold_up_the_rest() -> None:
    world = World((INSTANCE, instance(ports=[{"port": 22}])))
    world.api.rules[SERVICE] = lambda _, new: "metadata.name: must begin with a letter"
    world.run()
    world.play(spec={"schedulingGates": None, "nodeName": "node-1"}, status=running())
    assert world.run(200) == ["update Instance"]
    assert world.status["phase"] == "Ready"
    assert world.events().count("PortsNotPublished") == 1


# Stop, start, delete


def test_stop_and_start() -> None:
    world = running_world(ports=[{"port": 22}])
    world.play(metadata={"finalizers": list(HELD)})
    world.run()
    world.api.edit(INSTANCE, "box", {"spec": {"stop": True}}, NS)
    assert world.run() == ["update Instance", "delete Pod"]
    assert world.status["phase"] == "Stopping"
    assert world.status["nodeName"] == "node-1", "what is known of the Pod stays until it has gone"
    assert world.run(10) == [], "waiting writes nothing"
    world.api.remove(POD, "box", NS)
    assert world.run() == ["update Instance"]
    conditions = world.status.pop("conditions")
    assert world.status == {"phase": "Stopped"}
    assert {c["reason"] for c in conditions} == {"Stopped"}
    world.api.edit(INSTANCE, "box", {"spec": {"stop": False}}, NS)
    assert world.run()[:2] == ["update Instance", "create Pod"]
    assert world.status["phase"] in ("Starting", "Scheduling")


def test_a_stopped_instance_is_written_once() -> None:
    world = World((INSTANCE, instance(stop=True)))
    assert world.run() == ["patch Instance", "update Instance"]
    assert world.status["phase"] == "Stopped"
    assert world.run(600) == []


def test_a_stopped_instance_of_a_missing_type_stays_stopped() -> None:
    world = World((INSTANCE, instance(stop=True)), with_pool=False)
    world.run()
    assert world.status["phase"] == "Stopped"


def test_delete_waits_for_the_pod() -> None:
    world = running_world()
    world.play(metadata={"finalizers": list(HELD)})
    world.run()
    world.api.edit(INSTANCE, "box", {"metadata": {"deletionTimestamp": "2026-01-01T01:00:00Z"}}, NS)
    assert world.run() == ["update Instance", "delete Pod"]
    assert world.status["phase"] == "Deleting"
    assert world.run(10) == []
    world.api.remove(POD, "box", NS)
    assert world.run() == ["patch Instance"]
    assert world.instance is None


def test_deleted_without_the_lock_is_done() -> None:
    gone = instance()
    gone["metadata"] |= {"deletionTimestamp": BORN, "finalizers": ["somebody/else"]}
    assert World((INSTANCE, gone)).run() == []


def test_b011_delete_needs_neither_type_nor_queue() -> None:
    gone = instance()
    gone["metadata"] |= {"deletionTimestamp": BORN, "finalizers": ["gpustack.ai/locked"]}
    world = World((INSTANCE, gone), (POD, own_pod(gone, gates=GATED)), with_pool=False)
    world.run(3)
    assert world.instance is None
    assert world.pod is None


def test_the_server_is_asked_before_the_lock_goes() -> None:
    """A Pod that the cache does not show yet would be left behind with its card."""
    gone = instance()
    gone["metadata"] |= {"deletionTimestamp": BORN, "finalizers": ["gpustack.ai/locked"]}
    world = World((INSTANCE, gone), (POD, own_pod(gone)))
    seen = world.bench.caches.seen
    behind: Any = world.bench.caches
    behind.seen = lambda kind, obj: None if kind == POD else seen(kind, obj)
    world.run(3)
    assert world.pod is None
    assert world.instance is None


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
    failed: list[str] = []

    def refuse_once(request: Request) -> Exception | None:
        body = (request.content or b"").decode()
        if request.method == "PATCH" and '"stop"' in body and not failed:
            failed.append(body)
            return class_of(500, "InternalError")({"message": "no"}, 500, "InternalError")
        return None

    world.api.faults.append(refuse_once)
    world.api.edit(CLUSTER_QUEUE, POOL, {"spec": {"stopPolicy": "HoldAndDrain"}})
    asyncio.run(world.bench.settle())
    assert (world.status["phase"], at(world.instance, "spec", "stop")) == ("Stopping", None)
    assert world.pod is not None
    asyncio.run(world.bench.advance(5))
    assert world.instance["spec"]["stop"] is True
    assert world.events().count("Drained") == 1


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


# Settings


def test_a_changed_access_setting_wakes_instances() -> None:
    world = running_world()
    set_settings(world.api, instance_access_wildcard_dns="traefik.me")
    assert world.run() == ["update Instance"]
    assert world.status["accessAddresses"] == ["198-51-100-7.traefik.me"]
    set_settings(world.api, instance_access_static_address="gpu.example.com")
    world.run()
    assert world.status["accessAddresses"] == ["gpu.example.com"]
    world.api.remove(SECRET, "gpustack-settings", "gpustack-system")
    world.run()
    assert world.status["accessAddresses"] == ["198.51.100.7"]


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
