"""The Service of an Instance's Pod, and its ports, on an API in memory (spec 05 §8.4)."""

from __future__ import annotations

from nodefeature.kinds import INSTANCE, SERVICE
from tests.builders.instance_world import NS, World, running_world
from tests.builders.instances import instance, running


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
