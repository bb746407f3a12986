"""node_queue on an API in memory (spec 04 §8, §13.5, §14.6; cases B019, B025, B027)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from controllers.node_queue import MOVED_S, WINDOW_S, NodeQueue
from controllers.queue_checks import JOINT_CHECK, JOINT_CONTROLLER, NODE_DEVICES_CONTROLLER
from controllers.queue_state import DRAINING, MIGRATION_PHASE, MIGRATION_STOP_POLICY, NONE, TAS_QUEUE, TOPOLOGY_READY
from kube.reconciler import Key, Object
from nodefeature.fields import as_maps, at, name_of
from nodefeature.kinds import ADMISSION_CHECK, CLUSTER_QUEUE, NODE, RESOURCE_FLAVOR, TOPOLOGY
from nodefeature.labels import EMPTY_PLAN_HOLD
from nodefeature.queue_names import NODE_DEVICES_CHECK
from tests.builders.chain import bench, ours, set_settings
from tests.builders.fake_api import Bench, FakeApi
from tests.builders.queues import (
    active,
    admission_check,
    cluster_queue,
    cpu_flavor,
    device_flavor,
    flavor_nodes,
    group,
    pool_labels,
    stopped,
    topology,
)
from tests.builders.rows import case_json
from tests.builders.tiny_kueue import TinyKueue

NULLS = case_json("B019-null-fields")["objects"]
CPU_POOL = pool_labels(acceleratable=False)
MARK = {EMPTY_PLAN_HOLD: "true"}
MIGRATING = {MIGRATION_PHASE: DRAINING, MIGRATION_STOP_POLICY: NONE}
AWAITED = {"type": TOPOLOGY_READY, "status": "Unknown", "reason": "AwaitingQueueStatus"}
EMPTY = {"type": TOPOLOGY_READY, "status": "False", "reason": "NoFlavors"}
CREDITS = "credits.gpustack.ai/nvidia"
DEVICE_CHECK = admission_check(NODE_DEVICES_CHECK, NODE_DEVICES_CONTROLLER)
JOINT = admission_check(JOINT_CHECK, JOINT_CONTROLLER)


class World:
    """One pool on an API in memory, with a tiny Kueue."""

    def __init__(self, queue: Object | None = None, flavors: Sequence[Object] = (), **settings: str) -> None:
        self.api = FakeApi()
        self.api.add(TOPOLOGY, topology())
        if settings:
            set_settings(self.api, **settings)
        if queue is not None:
            self.api.add(CLUSTER_QUEUE, queue)
        for flavor in flavors:
            self.add_flavor(flavor)
        self.bench: Bench = bench(self.api, ("node_queue",), others=(TinyKueue,))
        kueue = self.bench.reconcilers[-1]
        assert isinstance(kueue, TinyKueue)
        self.kueue = kueue

    def add_flavor(self, flavor: Object, nodes: int = 1) -> None:
        """Add a flavor and the nodes behind it."""
        self.api.add(RESOURCE_FLAVOR, flavor)
        self.api.add(NODE, *flavor_nodes(flavor, nodes))

    def drop_flavor(self, flavor: Object) -> None:
        """Take the flavor's nodes away and delete it, as node_flavor does."""
        for node in flavor_nodes(flavor):
            self.api.remove(NODE, name_of(node))
        self.api.edit(RESOURCE_FLAVOR, name_of(flavor), {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})

    def run(self, seconds: float = 0.0) -> list[str]:
        """Settle, let time pass, return our writes."""

        async def go() -> list[str]:
            writes = await self.bench.settle()
            if seconds:
                writes += await self.bench.advance(seconds)
            return [str(write) for write in ours(writes)]

        return asyncio.run(go())

    def queue(self, name: str = "pool") -> Object:
        found = self.api.get(CLUSTER_QUEUE, name)
        assert found is not None
        return found

    def policy(self) -> Any:
        return at(self.queue(), "spec", "stopPolicy")

    def quotas(self, name: str = "pool") -> dict[str, str]:
        groups = as_maps(at(self.queue(name), "spec", "resourceGroups"))
        return {f["name"]: f["resources"][0]["nominalQuota"] for g in groups for f in g["flavors"]}

    def verdict(self, name: str = "pool") -> tuple[str, str]:
        conditions = as_maps(at(self.queue(name), "status", "conditions"))
        found = next((c for c in conditions if c["type"] == TOPOLOGY_READY), {})
        return str(found.get("status", "")), str(found.get("reason", ""))

    def checks(self) -> list[str]:
        found = as_maps(at(self.queue(), "spec", "admissionChecksStrategy", "admissionChecks"))
        return [check["name"] for check in found]


def held() -> Object:
    return cluster_queue(policy="Hold", annotations=MARK)


DRAINED = {"conditions": [stopped(2)], "reservingWorkloads": 0}
STEPS: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any], bool]] = {
    "let all go": (MIGRATING, {**DRAINED, "reservingWorkloads": 1}, DRAINED, True),
    "let one go": (MIGRATING, {**DRAINED, "reservingWorkloads": 2}, {**DRAINED, "reservingWorkloads": 1}, False),
    "saw the stop": (MIGRATING, {"conditions": [active(generation=1)]}, {"conditions": [stopped(2)]}, True),
    "no change of plan": ({}, {**DRAINED, "reservingWorkloads": 1}, DRAINED, False),
    "awaited": (
        {},
        {"conditions": [AWAITED, active(generation=1)]},
        {"conditions": [AWAITED, active(generation=2)]},
        True,
    ),
    "waited out": (
        {},
        {"conditions": [EMPTY, stopped(2)], "reservingWorkloads": 1},
        {"conditions": [EMPTY, stopped(2)]},
        True,
    ),
}


@pytest.mark.parametrize(("annotations", "before", "after", "want"), STEPS.values(), ids=STEPS)
def test_kueues_status_runs_a_queue_when_a_step_waits_for_it(
    annotations: dict[str, str], before: dict[str, Any], after: dict[str, Any], want: bool
) -> None:
    old, new = (cluster_queue(annotations=annotations, status=status, generation=2) for status in (before, after))
    caches = bench(FakeApi()).caches
    asked = [key for watch in NodeQueue.WATCHES if watch.kind is CLUSTER_QUEUE for key in watch.keys(old, new, caches)]
    assert asked == ([Key("pool")] if want else [])


@pytest.mark.parametrize("how", ["came", "went", "is going", "counts more"])
def test_a_queue_waits_less_for_flavors_that_come_and_go(how: str) -> None:
    world = World(cluster_queue())
    one, more = device_flavor(), device_flavor(nodes=2)
    going = {**one, "metadata": {**one["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    old, new = {"came": (None, one), "went": (one, None), "is going": (one, going), "counts more": (one, more)}[how]
    windows = [
        watch.window_s
        for watch in NodeQueue.WATCHES
        if watch.kind is RESOURCE_FLAVOR and list(watch.keys(old, new, world.bench.caches))
    ]
    assert min(windows) == (WINDOW_S if how == "counts more" else MOVED_S)


def test_marked_hold_and_first_plan_fill_in_one_write() -> None:
    flavor = device_flavor(count=8)
    world = World(held(), [flavor])
    world.api.add(ADMISSION_CHECK, DEVICE_CHECK, JOINT)
    writes = world.run()
    assert world.quotas() == {name_of(flavor): "12800k"}
    assert (world.policy(), world.checks()) == ("None", [NODE_DEVICES_CHECK, JOINT_CHECK])
    assert world.queue()["metadata"]["annotations"] == {TAS_QUEUE: "true"}
    assert world.verdict() == ("True", "Ready")
    spec_writes = [w for w in world.api.writes if w.kind == CLUSTER_QUEUE and w.body and "spec" in w.body]
    assert len(spec_writes) == 1
    assert writes


def test_b027_settled_queue_is_never_written_also_after_a_restart() -> None:
    world = World(held(), [device_flavor(count=8)])
    world.run()
    assert world.run(600) == []
    again = bench(world.api, ("node_queue",), others=(TinyKueue,))
    assert [str(w) for w in ours(asyncio.run(again.settle()))] == []


def test_b027_a_touch_costs_a_finite_number_of_writes() -> None:
    world = World(held(), [device_flavor(count=8)])
    world.run()
    world.api.edit(CLUSTER_QUEUE, "pool", {"metadata": {"annotations": {"touched": "by hand"}}})
    assert world.run(600) == []
    world.api.edit(CLUSTER_QUEUE, "pool", {"metadata": {"annotations": {TAS_QUEUE: None}}})
    assert len(world.run(600)) == 1
    world.api.edit(CLUSTER_QUEUE, "pool", {"spec": {"resourceGroups": [], "admissionChecksStrategy": None}})
    assert len(world.run(600)) <= 2
    assert world.quotas() == {"gpustack-nvidia-a10g-linux-amd64-8d": "12800k"}


def test_two_pools_share_no_fate() -> None:
    """One queue over the limit keeps its plan; another goes on (B025)."""
    world = World(held(), [device_flavor(count=1)])
    world.api.add(
        CLUSTER_QUEUE, cluster_queue("cpu", labels=pool_labels(acceleratable=False), policy="Hold", annotations=MARK)
    )
    world.add_flavor(cpu_flavor(count=8))
    world.run()
    before = world.quotas()
    for count in case_json("B025-many-counts")["runs"][1]["counts"][1:] + list(range(18, 66)):
        world.add_flavor(device_flavor(count=count))
    world.add_flavor(cpu_flavor(count=16))
    world.run()
    assert world.verdict() == ("False", "TooManyFlavors")
    assert world.quotas() == before
    assert world.policy() == "None"
    assert world.quotas("cpu") == {
        "gpustack-amd-epyc-7763-linux-amd64-8c": "8",
        "gpustack-amd-epyc-7763-linux-amd64-16c": "16",
    }


def test_b025_seventeen_flavors_are_one_group() -> None:
    world = World(held(), [device_flavor(count=n) for n in range(1, 18)])
    world.run()
    groups = at(world.queue(), "spec", "resourceGroups")
    assert len(groups) == 1
    assert groups[0]["coveredResources"] == [CREDITS]
    assert len(world.quotas()) == 17


@pytest.mark.parametrize(
    ("checks", "labels", "derived", "want"),
    [
        pytest.param([DEVICE_CHECK], None, "true", [NODE_DEVICES_CHECK], id="check Active"),
        pytest.param(
            [admission_check(NODE_DEVICES_CHECK, NODE_DEVICES_CONTROLLER, is_active=False)],
            None,
            "true",
            [],
            id="inactive",
        ),
        pytest.param([], None, "true", [], id="absent"),
        pytest.param(
            [admission_check(NODE_DEVICES_CHECK, "example.com/other")], None, "true", [], id="answered by another"
        ),
        pytest.param([DEVICE_CHECK], None, "false", [], id="nothing is derived"),
        pytest.param([DEVICE_CHECK, JOINT], None, "false", [JOINT_CHECK], id="joint check whatever is derived"),
        pytest.param(
            [DEVICE_CHECK, JOINT],
            pool_labels(acceleratable=False),
            "true",
            [JOINT_CHECK],
            id="joint check on CPU queue",
        ),
    ],
)
def test_admission_checks(checks: list[Object], labels: dict[str, str] | None, derived: str, want: list[str]) -> None:
    flavor = cpu_flavor() if labels else device_flavor()
    world = World(
        cluster_queue(labels=labels, policy="Hold", annotations=MARK), [flavor], instance_type_derived_from_node=derived
    )
    world.api.add(ADMISSION_CHECK, *checks)
    world.run()
    assert world.checks() == want


def test_check_that_becomes_active_or_inactive_wakes_every_queue() -> None:
    world = World(held(), [device_flavor()])
    world.run()
    world.api.add(ADMISSION_CHECK, DEVICE_CHECK)
    world.run()
    assert world.checks() == [NODE_DEVICES_CHECK]
    world.api.edit(ADMISSION_CHECK, NODE_DEVICES_CHECK, {"status": {"conditions": []}})
    world.run()
    assert at(world.queue(), "spec", "admissionChecksStrategy") is None


def test_setting_that_stops_deriving_takes_the_check_away() -> None:
    world = World(held(), [device_flavor()])
    world.api.add(ADMISSION_CHECK, DEVICE_CHECK)
    world.run()
    set_settings(world.api, instance_type_derived_from_node="false")
    world.run()
    assert world.checks() == []


def test_flavor_gone_in_use_drains_empties_and_comes_back() -> None:
    flavor = device_flavor()
    world = World(held(), [flavor])
    world.run()
    world.kueue.evicts = False
    world.kueue.hold("pool", name_of(flavor), "1600k")
    world.api.edit(CLUSTER_QUEUE, "pool", {"status": {"reservingWorkloads": 1}})
    world.run()
    world.drop_flavor(flavor)
    world.run(60)
    assert (world.policy(), world.quotas()) == ("HoldAndDrain", {name_of(flavor): "1600k"})
    assert world.verdict() == ("False", "Migrating")
    world.kueue.evicts = True
    world.api.edit(CLUSTER_QUEUE, "pool", {"status": {"reservingWorkloads": 2}})
    world.run(60)
    assert (world.policy(), world.quotas()) == ("HoldAndDrain", {})
    assert world.queue()["metadata"]["annotations"][MIGRATION_PHASE] == "switched"
    assert world.verdict() == ("False", "NoFlavors")
    assert world.api.get(RESOURCE_FLAVOR, name_of(flavor)) is None, "Kueue lets the flavor go"
    uid = world.queue()["metadata"]["uid"]
    assert world.run(600) == [], "held, and quiet"
    world.add_flavor(flavor)
    world.run(60)
    assert (world.policy(), world.quotas()) == ("None", {name_of(flavor): "1600k"})
    assert world.queue()["metadata"]["annotations"] == {TAS_QUEUE: "true"}
    assert world.queue()["metadata"]["uid"] == uid


def test_drain_setting_off_waits_until_nobody_holds_anything() -> None:
    flavor = device_flavor()
    world = World(held(), [flavor], instance_type_drain_when_no_flavors="false")
    world.run()
    world.kueue.hold("pool", name_of(flavor), "1600k")
    world.api.edit(CLUSTER_QUEUE, "pool", {"status": {"reservingWorkloads": 1}})
    world.run()
    world.drop_flavor(flavor)
    assert len(world.run(300)) == 1, "the condition says what is waited for"
    assert (world.policy(), world.kueue.evicted) == ("None", [])
    world.kueue.held.clear()
    world.api.edit(CLUSTER_QUEUE, "pool", {"status": {"reservingWorkloads": 2}})
    world.run(120)
    assert (world.policy(), world.quotas(), world.kueue.evicted) == ("Hold", {}, [])


def test_one_live_and_one_terminating_flavor_leave_the_live_one() -> None:
    live, going = device_flavor(count=2), device_flavor(count=1)
    world = World(held(), [live, going])
    world.run()
    world.drop_flavor(going)
    world.run(60)
    assert world.quotas() == {name_of(live): "3200k"}
    assert world.policy() == "None"


def test_deleting_queue_is_drained_whatever_the_setting() -> None:
    world = World(cluster_queue(deleting=True), [device_flavor()], instance_type_drain_when_no_flavors="false")
    world.kueue.hold("pool", "x", "1")
    world.kueue.evicts = False
    world.run()
    assert world.policy() == "HoldAndDrain"
    assert world.run(600) == []


def test_missing_topology_is_cured_by_its_arrival() -> None:
    world = World(held(), [device_flavor()])
    world.api.remove(TOPOLOGY, name_of(topology()))
    world.run()
    assert world.verdict() == ("False", "MissingTopology")
    assert (world.policy(), world.quotas()) == ("Hold", {})
    world.api.add(TOPOLOGY, topology())
    world.run()
    assert world.verdict() == ("True", "Ready")


def test_a_topology_that_is_going_counts_while_a_flavor_names_it() -> None:
    """Kueue holds it until then; a pool that came back meanwhile would wait for ever."""
    world = World(held(), [device_flavor()])
    going = {"finalizers": ["kueue.x-k8s.io/resource-in-use"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
    world.api.edit(TOPOLOGY, name_of(topology()), {"metadata": going})
    world.run()
    assert world.verdict() == ("True", "Ready")


def test_pool_node_without_flavor_is_waited_for() -> None:
    world = World(held(), [device_flavor(count=1)])
    late = device_flavor(count=4)
    world.api.add(NODE, *flavor_nodes(late))
    world.run()
    assert world.verdict() == ("False", "NonConservedQuota")
    world.api.add(RESOURCE_FLAVOR, late)
    world.run()
    assert len(world.quotas()) == 2


def test_quota_edited_by_hand_comes_back() -> None:
    flavor = device_flavor()
    world = World(held(), [flavor])
    world.run()
    world.api.edit(CLUSTER_QUEUE, "pool", {"spec": {"resourceGroups": [group(CREDITS, {name_of(flavor): "99"})]}})
    world.run()
    assert world.quotas() == {name_of(flavor): "1600k"}


def test_foreign_queue_that_looks_like_ours_is_left_alone() -> None:
    foreign = cluster_queue(policy="None")
    del foreign["metadata"]["labels"]["resource.gpustack.ai/type"]
    world = World(foreign, [device_flavor()])
    assert world.run(60) == []


def test_foreign_flavor_that_looks_like_ours_is_left_out() -> None:
    flavor = device_flavor()
    del flavor["metadata"]["labels"]["resource.gpustack.ai/type"]
    world = World(held(), [flavor])
    world.run()
    assert world.quotas() == {}


@pytest.mark.parametrize(
    "obj", case_json("B019-null-fields")["objects"], ids=lambda o: f"{o['kind']}-{o['metadata']['name']}"
)
def test_b019_null_fields_stop_nobody(obj: dict[str, Any]) -> None:
    flavor = device_flavor()
    world = World(held(), [flavor])
    caches = world.bench.caches
    for watch in NodeQueue.WATCHES:
        for old, new in ((None, obj), (obj, obj), (obj, None), (obj, {"metadata": {"name": "x"}}), ({}, obj)):
            list(watch.keys(old, new, caches))
    for index in NodeQueue.INDEXES:
        list(index.values(obj))
    kinds = {k.kind: k for k in (NODE, RESOURCE_FLAVOR, CLUSTER_QUEUE)}
    if obj["kind"] in kinds:
        world.api.add(kinds[obj["kind"]], obj)
    world.run()
    assert world.bench.errors == []
    assert world.quotas() == {name_of(flavor): "1600k"}


def test_reconcile_of_an_absent_queue_is_done() -> None:
    world = World()
    asyncio.run(world.bench.reconcilers[0].reconcile(Key("nobody")))
    assert world.api.writes == []
