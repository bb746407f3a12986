"""Whole lives of Instances in the running chain: asked for, queued, started, stopped, drained, deleted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hack.devcluster.standins.agent import AgentLedger
from hack.devcluster.standins.node_ports import NodePorts
from kube.reconciler import Object
from nodefeature.fields import as_maps, at
from nodefeature.kinds import CLUSTER_QUEUE, DEVICES, EVENT, INSTANCE, POD, SERVICE, WORKLOAD
from nodefeature.manufacturers import build_manufacturers
from tests.builders.running_chain import RunningChain, Written, scenario
from tests.component.walkthrough import A10G_POOL, CPU_POOL, FLEET, T4_POOL

WHOLE: Mapping[str, Any] = {"cpu": "4", "ram": "16Gi", "localStorage": "10Gi", "accelerator": "1"}


def play_the_rest(chain: RunningChain) -> None:
    """Start what the stand-ins leave out: recorded allocations and node ports."""
    client = chain._new_client("standins")
    manager = chain._manager(client, {})
    manager.add(AgentLedger(client, manager.caches, manufacturers=build_manufacturers({})), workers=1)
    manager.add(NodePorts(client, manager.caches), workers=1)
    chain._start("the rest", manager)


async def ask(chain: RunningChain, name: str, pool: str = A10G_POOL, resources: Any = WHOLE, **spec: Any) -> None:
    """Create an Instance whose fields are all there, as after our webhook."""
    body = {
        "type": pool,
        "image": "registry.example/app:1",
        "imagePullPolicy": "IfNotPresent",
        "volumeMount": "/workspace",
        "resources": dict(resources),
        "volume": {"ephemeral": {"capacity": "1Gi"}},
        "ports": [{"port": 22, "protocol": "TCP"}],
        **spec,
    }
    await chain.create(INSTANCE, {"metadata": {"name": name, "namespace": "default"}, "spec": body})


def box(chain: RunningChain, name: str) -> Object:
    return chain.object(INSTANCE, name, "default")


def phase(chain: RunningChain, name: str) -> Any:
    return at(box(chain, name), "status", "phase")


def modes(chain: RunningChain, node: str) -> list[int]:
    groups = as_maps(at(chain.object(DEVICES, node), "status", "groups"))
    return [card["mode"] for group in groups for card in as_maps(group["accelerators"])]


def told(chain: RunningChain, name: str) -> list[str]:
    events = [e for e in chain.objects(EVENT, "default") if at(e, "involvedObject", "kind") == "Instance"]
    return sorted(str(e["reason"]) for e in events if at(e, "involvedObject", "name") == name)


@scenario(*FLEET)
async def test_a_whole_life(chain: RunningChain) -> None:
    play_the_rest(chain)
    await chain.settle()
    await ask(chain, "box", sshPublicKey={"name": "k"})
    await chain.settle()
    status = box(chain, "box")["status"]
    assert status["phase"] == "Ready"
    assert [c["status"] for c in status["conditions"]] == ["True"] * 3
    assert status["nodeName"] == "node-a10g"
    assert status["ports"][0]["nodePort"] >= 30000
    assert status["summary"]["ports"].startswith("22:3")
    assert status["accessAddresses"]
    assert status["allocations"][0]["accelerators"][0]["mode"] == 1
    assert modes(chain, "node-a10g") == [1]
    assert set(told(chain, "box")) >= {"PodCreated", "Admitted", "Scheduled", "Ready"}

    await chain.edit(INSTANCE, "box", {"spec": {"stop": True}}, "default")
    await chain.settle()
    assert phase(chain, "box") == "Stopped"
    assert chain.find(POD, "box", "default") is None
    assert chain.find(SERVICE, "box", "default") is None
    assert modes(chain, "node-a10g") == [0]

    await chain.edit(INSTANCE, "box", {"spec": {"stop": False}}, "default")
    await chain.settle()
    assert phase(chain, "box") == "Ready"
    await chain.delete(INSTANCE, "box", "default")
    await chain.settle()
    assert chain.find(INSTANCE, "box", "default") is None
    assert chain.find(POD, "box", "default") is None
    assert modes(chain, "node-a10g") == [0]


@scenario(*FLEET)
async def test_the_second_waits_for_the_first(chain: RunningChain) -> None:
    play_the_rest(chain)
    await chain.settle()
    await ask(chain, "first")
    await chain.settle()
    await ask(chain, "second")
    await chain.settle()
    assert phase(chain, "first") == "Ready"
    waiting = box(chain, "second")["status"]
    assert waiting["phase"] != "Ready"
    assert waiting["conditions"][0]["reason"] in ("Queued", "ChecksPending")
    assert waiting["conditions"][0]["message"]
    await chain.delete(INSTANCE, "first", "default")
    await chain.settle()
    assert phase(chain, "second") == "Ready"


@scenario(*FLEET)
async def test_a_pool_that_drains_stops_its_instances_for_good(chain: RunningChain) -> None:
    play_the_rest(chain)
    await chain.settle()
    await ask(chain, "drained", T4_POOL)
    await ask(chain, "other", CPU_POOL, {"cpu": "1", "ram": "2Gi", "localStorage": "1Gi"})
    await chain.settle()
    await chain.edit(CLUSTER_QUEUE, T4_POOL, {"spec": {"stopPolicy": "HoldAndDrain"}})
    await chain.settle()
    assert box(chain, "drained")["spec"]["stop"] is True
    assert phase(chain, "drained") == "Stopped"
    assert "Drained" in told(chain, "drained")
    assert phase(chain, "other") == "Ready"
    assert not [w for w in chain.objects(WORKLOAD, "default") if "drained" in w["metadata"]["name"]]


@scenario(*FLEET)
async def test_controllers_that_die_and_a_settled_world(chain: RunningChain) -> None:
    play_the_rest(chain)
    await chain.settle()
    for number in range(4):
        await ask(chain, f"box-{number}", CPU_POOL, {"cpu": "1", "ram": "2Gi", "localStorage": "1Gi"})
        await chain.run(0.02 * number)
        await chain.kill("controllers")
        chain.start_controllers()
    await chain.settle()
    assert {phase(chain, f"box-{number}") for number in range(4)} == {"Ready"}
    before = chain.written()
    events = {e["metadata"]["name"]: e["count"] for e in chain.objects(EVENT, "default")}
    await chain.restart_controllers()
    await chain.run(300)
    more = [written for written in chain.written() - before if _is_ours(written)]
    assert more == []
    assert events == {e["metadata"]["name"]: e["count"] for e in chain.objects(EVENT, "default")}


def _is_ours(written: Written) -> bool:
    return written.manager in ("gpustack-instance",)
