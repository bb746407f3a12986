"""instance_type on an API in memory (spec 04 §7, §11, §14.5; cases B019, B024, B027)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from api.ledger.contribution import Contribution, contribution
from controllers.instance_type import InstanceType
from controllers.instance_type_watches import types_of_devices
from kube.reconciler import Key, Object
from nodefeature.fields import at, labels_of, name_of
from nodefeature.kinds import CLUSTER_QUEUE, DEVICES, INSTANCE_TYPE, NODE, NODE_FEATURE, RESOURCE_FLAVOR
from nodefeature.labels import EMPTY_PLAN_HOLD, FINALIZER, HOSTNAME, RESOURCE_TYPE
from tests.builders.chain import bench, ours, set_settings
from tests.builders.fake_api import Bench, FakeApi
from tests.builders.instance_types import FREE, SLICED, TAKEN, Card, device_groups, devices, instance_type
from tests.builders.queues import PLATFORM, cluster_queue, cpu_flavor, device_flavor, flavor_nodes, group, pool_labels
from tests.builders.rows import case_json, case_yaml
from tests.builders.tiny_kueue import TinyKueue

NULLS = case_json("B019-null-fields")["objects"]
FINE = {"conditions": [{"type": "Active", "status": "True", "observedGeneration": 1}]}


class World:
    """Types on an API in memory, with a tiny Kueue."""

    def __init__(self, *types: Object, **settings: str) -> None:
        self.api = FakeApi()
        if settings:
            set_settings(self.api, **settings)
        self.api.add(INSTANCE_TYPE, *types)
        self.bench: Bench = bench(self.api, ("instance_type",), others=(TinyKueue,))
        kueue = self.bench.reconcilers[-1]
        assert isinstance(kueue, TinyKueue)
        self.kueue = kueue

    def run(self, seconds: float = 0.0) -> list[str]:
        """Settle, let time pass, return our writes."""

        async def go() -> list[str]:
            writes = await self.bench.settle()
            if seconds:
                writes += await self.bench.advance(seconds)
            return [str(write) for write in ours(writes)]

        return asyncio.run(go())

    def type(self, name: str = "pool") -> Object:
        found = self.api.get(INSTANCE_TYPE, name)
        assert found is not None
        return found

    def queue(self, name: str = "pool") -> Object:
        found = self.api.get(CLUSTER_QUEUE, name)
        assert found is not None
        return found

    def summary(self, name: str = "pool") -> str:
        return str(at(self.type(name), "status", "summary", "accelerator"))

    def phase(self, name: str = "pool") -> tuple[str, str]:
        status = self.type(name)["status"]
        return status["phase"], status.get("phaseMessage", "")


def stand(world: World, cards: int, *names: str) -> None:
    """Let nodes of so many cards stand behind a flavor of the pool."""
    flavor = device_flavor(count=cards, nodes=len(names))
    world.api.add(RESOURCE_FLAVOR, flavor)
    for name in names:
        world.api.add(NODE, {"metadata": {"name": name, "labels": {**flavor["spec"]["nodeLabels"], HOSTNAME: name}}})


def open_queue(name: str = "pool", **fields: Any) -> Object:
    groups = [group("credits.gpustack.ai/nvidia", {"gpustack-nvidia-a10g-linux-amd64-1d": "1600k"})]
    return cluster_queue(name, **{"groups": groups, "status": FINE, **fields})


def test_a_type_gets_its_finalizer_and_a_held_marked_queue() -> None:
    world = World(instance_type(finalizers=()))
    world.run()
    assert world.type()["metadata"]["finalizers"] == [FINALIZER]
    assert world.queue()["spec"]["stopPolicy"] == "Hold"
    assert world.queue()["metadata"]["annotations"] == {EMPTY_PLAN_HOLD: "true"}
    assert "general.feature.gpustack.ai/generic" not in labels_of(world.queue())
    assert "inactive" not in world.type()["spec"], "our own hold is not mirrored"
    phase, message = world.phase()
    assert phase == "Inactive"
    assert "no resource flavor offers this hardware" in message


def test_b027_settled_types_are_never_written_also_after_a_restart() -> None:
    world = World(instance_type(), instance_type("cpu", group=""))
    world.api.add(DEVICES, devices("n1", [FREE] * 8))
    world.api.add(RESOURCE_FLAVOR, device_flavor(), cpu_flavor())
    world.run()
    assert world.run(600) == []
    again = bench(world.api, ("instance_type",), others=(TinyKueue,))
    assert ours(asyncio.run(again.settle())) == []


def test_b027_a_touch_costs_a_finite_number_of_writes() -> None:
    world = World(instance_type())
    world.run()
    world.api.edit(INSTANCE_TYPE, "pool", {"metadata": {"annotations": {"touched": "x"}}})
    world.api.edit(CLUSTER_QUEUE, "pool", {"metadata": {"annotations": {"touched": "x"}}})
    assert world.run(600) == []
    world.api.edit(CLUSTER_QUEUE, "pool", {"metadata": {"labels": {"kubernetes.io/arch": "arm64"}}})
    assert len(world.run(600)) == 1
    world.api.edit(INSTANCE_TYPE, "pool", {"status": {"phase": "Active"}, "spec": {"displayName": "x"}})
    assert len(world.run(600)) == 1


def test_ledger_change_moves_the_status_and_an_unchanged_ledger_does_not() -> None:
    world = World(instance_type())
    world.api.add(CLUSTER_QUEUE, open_queue())
    stand(world, 8, "n1")
    world.api.add(DEVICES, devices("n1", [FREE] * 8))
    world.run()
    assert world.summary() == "8/8 8/80 100/800 0/0"
    ledger = device_groups([Card(SLICED, 1_120_000)] + [FREE] * 7)
    world.api.edit(DEVICES, "n1", {"status": ledger["status"]})
    assert len(world.run()) == 1
    assert world.summary() == "7/7 7/70 100/770 0/0"
    world.api.edit(DEVICES, "n1", {"metadata": {"annotations": {"heartbeat": "1"}}})
    assert world.run() == []


def test_siblings_of_one_pool_show_the_same_views() -> None:
    world = World(instance_type(), instance_type("a10g-12c128g", derived=False))
    world.api.add(CLUSTER_QUEUE, open_queue(), open_queue("a10g-12c128g"))
    stand(world, 1, "n1")
    world.api.add(DEVICES, devices("n1", [FREE]))
    world.run()
    assert world.summary("a10g-12c128g") == world.summary() == "1/1 1/10 100/100 0/0"
    world.api.edit(DEVICES, "n1", {"status": device_groups([TAKEN])["status"]})
    world.run()
    assert world.summary("a10g-12c128g") == world.summary() == "0/0 0/0 0/0 0/0"


def test_only_the_changed_node_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """One ledger change costs one contribution, whatever the number of nodes."""
    read: list[str] = []

    def counting(one: Any, accelerator_group: str) -> Contribution:
        read.append(name_of(one))
        return contribution(one, accelerator_group)

    monkeypatch.setattr("controllers.pool_members.contribution", counting)
    world = World(instance_type())
    world.api.add(CLUSTER_QUEUE, open_queue())
    stand(world, 8, *(f"n{i}" for i in range(120)))
    world.api.add(DEVICES, *(devices(f"n{i}", [FREE] * 8) for i in range(120)))
    world.run()
    assert len(read) == 120
    read.clear()
    world.api.edit(DEVICES, "n7", {"status": device_groups([TAKEN] * 8)["status"]})
    world.run()
    assert read == ["n7"]
    assert world.summary() == "8/952 8/9520 100/95200 0/0"
    world.api.remove(DEVICES, "n7")
    world.api.edit(DEVICES, "n8", {"metadata": {"labels": {"gpustack.ai/managed": "false"}}})
    read.clear()
    world.run()
    assert read == []
    assert world.summary() == "8/944 8/9440 100/94400 0/0"


@pytest.mark.parametrize(
    "labels",
    [
        {"acceleratable.feature.gpustack.ai/nvidia-a10g.count": "eight"},
        {"kubernetes.io/os": None, "kubernetes.io/arch": None},
        {"gpustack.ai/managed": "false"},
    ],
    ids=["unreadable count", "no os and arch", "not managed"],
)
def test_cards_that_no_flavor_counts_are_not_promised(labels: dict[str, str | None]) -> None:
    world = World(instance_type())
    world.api.add(CLUSTER_QUEUE, open_queue())
    stand(world, 8, "n1", "n2")
    world.api.add(DEVICES, *(devices(name, [FREE] * 8) for name in ("n1", "n2", "n3")))
    world.run()
    assert world.summary() == "8/16 8/160 100/1600 0/0", "n3 has no Node"
    full = world.api.get(NODE, "n2")
    assert full is not None
    world.api.edit(NODE, "n2", {"metadata": {"labels": labels}})
    world.run()
    assert world.summary() == "8/8 8/80 100/800 0/0"
    world.api.add(NODE, full)
    world.run()
    assert world.summary() == "8/16 8/160 100/1600 0/0"
    world.api.edit(NODE, "n2", {"metadata": {"labels": dict.fromkeys(labels_of(full))}})
    world.run()
    spoken = {"metadata": {"name": "n2-gpustack-worker", "namespace": "gpustack-system"}}
    world.api.add(NODE_FEATURE, {**spoken, "spec": {"labels": dict(labels_of(full))}})
    world.run()
    assert world.summary() == "8/16 8/160 100/1600 0/0", "our NodeFeature speaks for the node"


def test_cards_wait_for_the_flavor_that_counts_them() -> None:
    world = World(instance_type())
    world.api.add(CLUSTER_QUEUE, open_queue())
    stand(world, 8, "n1")
    world.api.add(DEVICES, devices("n1", [FREE] * 8))
    flavor = world.api.get(RESOURCE_FLAVOR, "gpustack-nvidia-a10g-linux-amd64-8d")
    assert flavor is not None
    world.api.remove(RESOURCE_FLAVOR, name_of(flavor))
    world.run()
    assert world.summary() == "0/0 0/0 0/0 0/0"
    world.api.add(RESOURCE_FLAVOR, flavor)
    world.run()
    assert world.summary() == "8/8 8/80 100/800 0/0"


def test_devices_of_an_older_agent_are_found_under_their_clean_key() -> None:
    world = World(instance_type(group="hygon-k100-ai"))
    flavor = device_flavor("hygon-k100-ai", count=2)
    labels = {**flavor["spec"]["nodeLabels"], HOSTNAME: "n1"}
    world.api.add(CLUSTER_QUEUE, open_queue(labels=pool_labels("hygon-k100-ai")))
    world.api.add(RESOURCE_FLAVOR, flavor)
    world.api.add(NODE, {"metadata": {"name": "n1", "labels": labels}})
    world.api.add(DEVICES, devices("n1", [FREE] * 2, group="hygon-k100_ai"))
    world.run()
    assert world.summary() == "2/2 2/20 100/200 0/0"
    world.api.edit(DEVICES, "n1", {"status": device_groups([TAKEN] * 2, group="hygon-k100_ai")["status"]})
    world.run()
    assert world.summary() == "0/0 0/0 0/0 0/0"


def test_a_node_is_judged_again_when_its_feature_changes() -> None:
    """Its labels are gone, so what our NodeFeature says decides which flavor it takes from."""
    small, large = cpu_flavor(count=16, nodes=1), cpu_flavor(count=32, nodes=1)
    world = World(instance_type("cpu", group=""))
    groups = [group("cpu", {name_of(small): 16, name_of(large): 32})]
    world.api.add(CLUSTER_QUEUE, open_queue("cpu", labels=pool_labels(acceleratable=False), groups=groups))
    world.api.add(RESOURCE_FLAVOR, small, large)
    node = _gone_down(flavor_nodes(small, 1, prefix="n")[0], "cordoned")
    world.api.add(NODE, {**node, "metadata": {**node["metadata"], "labels": PLATFORM}})
    metadata = {"name": f"{name_of(node)}-gpustack-worker", "namespace": "gpustack-system"}
    for flavor, want in ((small, "32/32"), (large, "16/16")):
        world.api.add(NODE_FEATURE, {"metadata": metadata, "spec": {"labels": dict(flavor["spec"]["nodeLabels"])}})
        world.api.edit(CLUSTER_QUEUE, "cpu", {"metadata": {"annotations": {"touched": want}}})
        world.run()
        assert at(world.type("cpu"), "status", "summary", "cpu") == want


def test_devices_wake_types_by_label_and_platform() -> None:
    cpu_label = {"general.feature.gpustack.ai/amd": "true"}
    world = World(
        instance_type("gpu", labels=pool_labels("nvidia-a10g")),
        instance_type("cpu", group="", labels=cpu_label),
        instance_type("arm", arch="arm64"),
        instance_type("other", group="nvidia-t4"),
        instance_type("unlabelled"),
    )
    caches = world.bench.caches
    woken = types_of_devices(None, devices("n1", [FREE], labels=cpu_label), caches)
    assert sorted(key.name for key in woken) == ["cpu", "gpu", "unlabelled"]
    assert list(types_of_devices(None, devices("n1", [FREE], managed=False), caches)) == []


def test_queue_deleted_by_hand_is_made_again() -> None:
    world = World(instance_type())
    world.run()
    uid = world.queue()["metadata"]["uid"]
    world.api.remove(CLUSTER_QUEUE, "pool")
    world.run()
    assert world.queue()["metadata"]["uid"] != uid


def test_terminating_queue_is_waited_for_and_kept() -> None:
    world = World(instance_type())
    world.kueue.evicts = False
    world.kueue.hold("pool", "x", "1")
    world.api.add(CLUSTER_QUEUE, cluster_queue(deleting=True))
    assert world.run(60) == []
    assert world.bench.due, "looked at again"
    world.kueue.held.clear()
    world.api.edit(CLUSTER_QUEUE, "pool", {"status": {"reservingWorkloads": 7}})
    world.run(60)
    assert "deletionTimestamp" not in world.queue()["metadata"]


def test_accelerator_group_changed_prunes_the_old_key() -> None:
    world = World(instance_type())
    world.run()
    world.api.edit(INSTANCE_TYPE, "pool", {"spec": {"acceleratorGroup": "nvidia-t4"}})
    world.run()
    assert {k for k in labels_of(world.queue()) if k.startswith("acceleratable.")} == {
        "acceleratable.feature.gpustack.ai/nvidia-t4"
    }


def test_type_label_lost_by_hand_comes_back() -> None:
    world = World(instance_type())
    world.run()
    world.api.edit(CLUSTER_QUEUE, "pool", {"metadata": {"labels": {RESOURCE_TYPE: None}}})
    world.run()
    assert labels_of(world.queue())[RESOURCE_TYPE] == "instancetypes"


def test_namesake_queue_of_somebody_else_is_never_touched() -> None:
    world = World(instance_type())
    foreign: Object = {"metadata": {"name": "pool", "labels": {"team": "a"}}, "spec": {"stopPolicy": "None"}}
    world.api.add(CLUSTER_QUEUE, foreign)
    world.run(120)
    assert labels_of(world.queue()) == {"team": "a"}
    phase, message = world.phase()
    assert phase == "Inactive"
    assert "not managed by this operator" in message
    world.api.edit(INSTANCE_TYPE, "pool", {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})
    world.run()
    assert world.api.get(INSTANCE_TYPE, "pool") is None, "the type goes, their queue stays"
    assert world.api.get(CLUSTER_QUEUE, "pool") is not None


@pytest.mark.parametrize(
    ("policy", "inactive", "want"),
    [
        pytest.param("None", True, ("Hold", True), id="inactive holds"),
        pytest.param("Hold", False, ("None", False), id="active again"),
        pytest.param("HoldAndDrain", False, ("HoldAndDrain", True), id="a drain is mirrored, one way"),
    ],
)
def test_inactive_and_the_queue_come_together(policy: str, inactive: bool, want: tuple[str, bool]) -> None:
    world = World(instance_type(inactive=inactive))
    world.api.add(CLUSTER_QUEUE, open_queue(policy=policy))
    world.run()
    assert (world.queue()["spec"]["stopPolicy"], bool(at(world.type(), "spec", "inactive"))) == want
    assert world.run(600) == []


def test_teardown_deletes_the_queue_once_waits_and_releases_the_type() -> None:
    world = World(instance_type())
    world.api.add(CLUSTER_QUEUE, open_queue())
    world.api.add(RESOURCE_FLAVOR, device_flavor())
    world.kueue.hold("pool", "gpustack-nvidia-a10g-linux-amd64-1d", "1600k")
    world.kueue.evicts = False
    world.run()
    assert world.phase() == ("Active", "")
    world.api.edit(INSTANCE_TYPE, "pool", {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})
    world.run(60)
    assert len([w for w in world.api.writes if w.verb == "delete"]) == 1
    assert world.phase() == ("Inactive", "instance type is terminating")
    world.kueue.held.clear()
    world.api.edit(CLUSTER_QUEUE, "pool", {"status": {"reservingWorkloads": 5}})
    world.run(60)
    assert world.api.get(CLUSTER_QUEUE, "pool") is None
    assert world.api.get(INSTANCE_TYPE, "pool") is None


def test_teardown_without_our_finalizer_does_nothing() -> None:
    world = World(instance_type(finalizers=("example.com/other",)))
    world.api.edit(INSTANCE_TYPE, "pool", {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})
    assert world.run(60) == []


def test_awareness_relabels_the_queue_both_ways() -> None:
    world = World(instance_type(general="amd"), instance_type_aware_cpu_manufacturer="false")
    world.run()
    for value, want in (("true", ["general.feature.gpustack.ai/amd"]), ("false", [])):
        set_settings(world.api, instance_type_aware_cpu_manufacturer=value)
        world.run()
        assert [k for k in labels_of(world.queue()) if k.startswith("general.")] == want


def test_overcommit_flip_shows_at_once() -> None:
    world = World(instance_type(group=""))
    name = "gpustack-amd-epyc-7763-linux-amd64-16c"
    world.api.add(CLUSTER_QUEUE, open_queue(labels=pool_labels(acceleratable=False), groups=[group("cpu", {name: 48})]))
    world.api.add(RESOURCE_FLAVOR, cpu_flavor(count=16, nodes=3))
    world.kueue.hold("pool", name, "8")
    world.run()
    assert at(world.type(), "status", "summary", "cpu") == "16/38"
    set_settings(world.api, instance_general_resources_overcommit="false")
    world.run()
    assert at(world.type(), "status", "summary", "cpu") == "16/40"


def _gone_down(node: Object, how: str) -> Object:
    cordoned, dead = case_yaml("B024-cordoned")[:2]
    spec = {"cordoned": cordoned["spec"], "dead": dead["spec"]}.get(how, {})
    status = {"conditions": [{"type": "Ready", "status": "Unknown"}]} if how == "not ready" else {}
    return {**node, "spec": spec, "status": status}


@pytest.mark.parametrize("how", ["cordoned", "dead", "not ready"])
def test_b024_pool_promises_only_usable_nodes(how: str) -> None:
    flavor, cpu = device_flavor(count=2, nodes=2), cpu_flavor(count=16, nodes=2)
    nodes, cpu_nodes = flavor_nodes(flavor, 2), flavor_nodes(cpu, 2)
    world = World(instance_type(), instance_type("cpu", group=""))
    cpu_groups = [group("cpu", {name_of(cpu): 32})]
    world.api.add(
        CLUSTER_QUEUE, open_queue(), open_queue("cpu", labels=pool_labels(acceleratable=False), groups=cpu_groups)
    )
    world.api.add(RESOURCE_FLAVOR, flavor, cpu)
    world.api.add(NODE, *nodes, *cpu_nodes)
    world.api.add(DEVICES, *(devices(name_of(node), [FREE] * 2) for node in nodes))
    world.run()
    assert (world.summary(), at(world.type("cpu"), "status", "summary", "cpu")) == ("2/4 2/40 100/400 0/0", "16/32")
    detail = world.type()["status"]["detail"]
    world.api.add(NODE, _gone_down(nodes[0], how), _gone_down(cpu_nodes[0], how))
    world.run()
    assert (world.summary(), at(world.type("cpu"), "status", "summary", "cpu")) == ("2/2 2/20 100/200 0/0", "16/16")
    assert world.type()["status"]["detail"] == detail, "what the pool is does not change with a cordon"
    world.api.add(NODE, nodes[0], cpu_nodes[0])
    world.run()
    assert world.summary() == "2/4 2/40 100/400 0/0"


def test_b024_a_tolerated_taint_takes_nothing_out_a_foreign_one_does() -> None:
    flavor = device_flavor(count=2, nodes=2)
    flavor["spec"]["tolerations"] = [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    nodes = flavor_nodes(flavor, 2)
    for node, key in zip(nodes, ("nvidia.com/gpu", "team-a/only"), strict=True):
        node["spec"] = {"taints": [{"key": key, "effect": "NoSchedule"}]}
    world = World(instance_type())
    world.api.add(CLUSTER_QUEUE, open_queue())
    world.api.add(RESOURCE_FLAVOR, flavor)
    world.api.add(NODE, *nodes)
    world.api.add(DEVICES, *(devices(name_of(node), [FREE] * 2) for node in nodes))
    world.run()
    assert world.summary() == "2/2 2/20 100/200 0/0"
    world.api.edit(
        RESOURCE_FLAVOR, name_of(flavor), {"spec": {"topologyName": None, "tolerations": [{"operator": "Exists"}]}}
    )
    world.run()
    assert world.summary() == "2/4 2/40 100/400 0/0", "judged again under other tolerations"


def test_b003_cordoned_node_without_merged_labels_is_still_taken_out() -> None:
    cpu = cpu_flavor(count=16, nodes=2)
    node = _gone_down(flavor_nodes(cpu, 1)[0], "cordoned")
    merged = {k: v for k, v in labels_of(node).items() if "gpustack.ai" in k}
    node["metadata"]["labels"] = {k: v for k, v in labels_of(node).items() if k not in merged}
    world = World(instance_type("cpu", group=""))
    groups = [group("cpu", {name_of(cpu): 32})]
    world.api.add(CLUSTER_QUEUE, open_queue("cpu", labels=pool_labels(acceleratable=False), groups=groups))
    world.api.add(RESOURCE_FLAVOR, cpu)
    world.api.add(NODE, node)
    feature_name = f"{name_of(node)}-gpustack-worker"
    metadata = {"name": feature_name, "namespace": "gpustack-system"}
    world.api.add(NODE_FEATURE, {"metadata": metadata, "spec": {"labels": merged}})
    world.run()
    assert at(world.type("cpu"), "status", "summary", "cpu") == "16/16"


def test_flavor_notes_wake_the_detail() -> None:
    world = World(instance_type())
    world.api.add(CLUSTER_QUEUE, open_queue())
    world.api.add(RESOURCE_FLAVOR, device_flavor(notes={"product": "A10G"}))
    world.run()
    assert at(world.type(), "status", "detail", "product") == "A10G"
    world.api.add(RESOURCE_FLAVOR, device_flavor(notes={"product": "NVIDIA-A10G"}))
    world.run()
    assert at(world.type(), "status", "detail", "product") == "NVIDIA-A10G"


@pytest.mark.parametrize("obj", NULLS, ids=lambda obj: f"{obj['kind']}-{obj['metadata']['name']}")
def test_b019_null_fields_stop_nobody(obj: dict[str, Any]) -> None:
    world = World(instance_type())
    for watch in InstanceType.WATCHES:
        for old, new in ((None, obj), (obj, obj), (obj, None), ({}, obj), (obj, {})):
            list(watch.keys(old, new, world.bench.caches))
    for index in InstanceType.INDEXES:
        list(index.values(obj))
        list(index.values({}))
    kinds = {k.kind: k for k in (NODE, RESOURCE_FLAVOR, CLUSTER_QUEUE, DEVICES, NODE_FEATURE)}
    if obj["kind"] in kinds:
        world.api.add(kinds[obj["kind"]], obj)
    world.run()
    assert world.bench.errors == []
    assert world.phase()[0] == "Inactive"


BROKEN: Sequence[dict[str, Any]] = (
    {"metadata": {"name": "x"}},
    {"metadata": {"name": "x", "labels": None, "finalizers": None}, "spec": None, "status": None},
    {"metadata": {"name": "x"}, "spec": {"acceleratable": "yes", "unitResources": [], "inactive": "true"}},
    {"metadata": {"name": "x"}, "spec": {"acceleratable": True, "acceleratorGroup": 7, "os": None}},
)


@pytest.mark.parametrize("broken", BROKEN)
def test_b019_half_empty_types_are_read_and_stop_nobody(broken: dict[str, Any]) -> None:
    world = World(instance_type(), broken)
    world.run()
    assert world.bench.errors == []
    assert world.phase("x")[0] == "Inactive"
    assert world.run(60) == []


def test_reconcile_of_an_absent_type_is_done() -> None:
    world = World()
    asyncio.run(world.bench.reconcilers[0].reconcile(Key("nobody")))
    assert world.api.writes == []
