"""The life of an Instance on an API in memory: it begins, waits, stops and goes (spec 05 §9); case B011."""

from __future__ import annotations

from typing import Any

import pytest

from kube.reconciler import Object
from nodefeature.kinds import (
    INSTANCE,
    INSTANCE_TYPE,
    NODE,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    RUNTIME_CLASS,
    SECRET,
    WORKLOAD,
)
from tests.builders.chain import set_settings
from tests.builders.instance_world import HELD, NS, World, running_world
from tests.builders.instances import (
    BORN,
    CPU_POOL,
    ENTRANCE,
    GATED,
    instance,
    own_pod,
    pool_type,
    running,
    unready_type,
    waiting,
    workload_of,
)

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


@pytest.mark.parametrize("name", ["../../secrets/x", "a b", "Models"])
def test_a_claim_that_no_server_can_have_is_named(name: str) -> None:
    world = World((INSTANCE, instance(volume={"persistent": {"name": name}})))
    world.run(60)
    assert world.pod is None
    assert world.status["phaseMessage"] == f'PersistentVolumeClaim "{name}" does not exist'
    assert not [read for read in world.api.reads if "persistentvolumeclaims" in read]


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"storageClassName": "../x"}, "is Pending"),
        ({"volumeName": "../x"}, "is bound to a PersistentVolume that does not exist"),
    ],
    ids=["class", "volume"],
)
def test_a_claim_that_names_what_no_server_can_have(spec: Object, said: str) -> None:
    status = {"phase": "Bound"} if "volumeName" in spec else {}
    world = World(
        (INSTANCE, instance(volume=VOLUME)), (PERSISTENT_VOLUME_CLAIM, {**CLAIM, "spec": spec, "status": status})
    )
    world.run(60)
    assert world.status["phaseMessage"] == f'PersistentVolumeClaim "models" {said}'


def test_without_placement_nothing_is_read() -> None:
    world = World((INSTANCE, instance(volume=VOLUME)))
    set_settings(world.api, instance_persistent_volume_placement="false")
    world.run()
    assert "affinity" not in world.pod["spec"]
    assert not [read for read in world.api.reads if "persistentvolume" in read]


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
