"""A fleet of thirty recorded machines: what becomes of it, and what comes and goes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from gpustack_operator.demo.check import findings
from gpustack_operator.demo.world import KINDS, SERVED_TYPE, World
from hack.controlplane.admin import Object
from hack.controlplane.components import KUBELET_LABEL
from hack.fleet import FleetNode
from nodefeature.fields import as_maps, at, labels_of, name_of
from nodefeature.kinds import (
    CLUSTER_QUEUE,
    DEVICES,
    INSTANCE_TYPE,
    LOCAL_QUEUE,
    NODE,
    POD,
    RESOURCE_FLAVOR,
)
from nodefeature.queue_names import NODE_DEVICES_CHECK
from tests.builders.machines import machine
from tests.e2e.chain.cluster import LONG_QUIET_S, Cluster, checks_of, quotas_of
from tests.e2e.chain.fleet import H100, H200, MI308X, MLU, POOLS, RISCV, T4
from tests.e2e.chain.workloads import (
    TEAM,
    flavors_used,
    job,
    live_pods,
    nodes_of,
    remove_job,
    run_job,
    wait_ready_on,
    wait_suspended,
)

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module", autouse=True)
def foreign(fleet: Cluster) -> Iterator[list[Object]]:
    """Objects of others, named and labelled to tempt us; at the end they are as they were."""
    labels = {"team": "others"}
    spec: dict[str, Any] = {"nodeLabels": {"gpustack.ai/managed": "true"}}
    made = [
        _kueue("ResourceFlavor", "gpustack-others-linux-amd64-8d", labels, spec),
        _kueue("Topology", "gpustack-others", labels, {"levels": [{"nodeLabel": "kubernetes.io/hostname"}]}),
        _kueue("ClusterQueue", "gpustack-others-linux-amd64", labels, {"namespaceSelector": {}}),
        _kueue("AdmissionCheck", "others", labels, {"controllerName": "others.example/check"}),
    ]
    stored = [fleet.admin.create(obj) for obj in made]
    yield stored
    for obj in stored:
        kind = fleet.admin.kind_of(obj)
        now = fleet.get(kind, name_of(obj))
        assert (labels_of(now), at(now, "metadata", "annotations"), now["spec"]) == (
            labels_of(obj),
            at(obj, "metadata", "annotations"),
            obj["spec"],
        )
        fleet.admin.delete(kind, name_of(obj))


def _kueue(kind: str, name: str, labels: dict[str, str], spec: Object) -> Object:
    meta = {"name": name, "labels": labels}
    return {"apiVersion": CLUSTER_QUEUE.api_version, "kind": kind, "metadata": meta, "spec": spec}


def entrance(cluster: Cluster, name: str) -> str:
    found: str = cluster.get(INSTANCE_TYPE, name)["status"]["entrance"]
    return found


def test_the_pools_promise_what_the_machines_have(fleet: Cluster) -> None:
    found = {kind: fleet.admin.list(kind) for kind in KINDS if kind != SERVED_TYPE}
    ours = {**found, CLUSTER_QUEUE: [queue for queue in found[CLUSTER_QUEUE] if name_of(queue) in POOLS]}
    ours[SERVED_TYPE] = ours[INSTANCE_TYPE]  # the aggregated API has its own tests; here it is not installed
    assert findings({name: own for name, (_, own) in fleet.machines.items()}, World(ours)) == []
    assert len(fleet.machines) == 30


@pytest.mark.parametrize("name", POOLS)
def test_a_pool(fleet: Cluster, name: str) -> None:
    unit, accelerator = POOLS[name]
    fleet.wait_type(name, unit=unit, accelerator=accelerator)


def test_there_are_no_other_pools(fleet: Cluster) -> None:
    assert fleet.names(INSTANCE_TYPE) == sorted(POOLS)
    assert len(fleet.names(DEVICES)) == 24


def test_counting_keys_reach_the_scheduler(fleet: Cluster) -> None:
    status = fleet.get(NODE, "h100-01")["status"]
    amounts = {
        "nvidia.com/gpu": "8",
        "nvidia.com/gpu.shared": "80",
        "nvidia.com/gpu.sliced": "1k",
        "nvidia.com/gpu.sliced.units": "12800k",
        "nvidia.com/gpu.sliced.memory-percentage": "800",
    }
    amounts["nvidia.com/gpu.sliced"] = status["capacity"]["nvidia.com/gpu.sliced"]
    for key, amount in amounts.items():
        assert status["capacity"][key] == status["allocatable"][key] == amount, key


def test_a_node_leaves_and_returns(restored: Cluster) -> None:
    node, _ = restored.machines["mi308x-02"]
    restored.leave("mi308x-02")
    restored.wait_type(MI308X, accelerator="8/8 8/80 100/800 0/0")
    restored.wait_queue(MI308X, quotas={f"{MI308X}-8d": "12800k"})
    restored.wait_gone(DEVICES, "mi308x-02")
    restored.join(node)
    restored.wait_type(MI308X, accelerator="8/16 8/160 100/1600 0/0")
    restored.wait_queue(MI308X, quotas={f"{MI308X}-8d": "25600k"})


def test_a_node_is_replaced_by_a_namesake(restored: Cluster) -> None:
    node, _ = restored.machines["mi308x-02"]
    restored.leave("mi308x-02")
    restored.join(FleetNode("mi308x-02", "nvidia-hgx-h200-ecc", node.labels, clear_faults=True))
    restored.wait_type(H200, accelerator="8/16 8/160 100/1600 0/0")
    restored.wait_type(MI308X, accelerator="8/8 8/80 100/800 0/0")
    groups = as_maps(at(restored.get(DEVICES, "mi308x-02"), "spec", "groups"))
    assert [group["manufacturer"] for group in groups] == ["nvidia"]
    restored.leave("mi308x-02")
    restored.join(node)
    restored.wait_type(MI308X, accelerator="8/16 8/160 100/1600 0/0")
    restored.wait_type(H200, accelerator="8/8 8/80 100/800 0/0")


def test_b003_labels_gone_while_nfd_restarts_drain_nothing(restored: Cluster) -> None:
    """The case's 45 s, then half of the nodes; its 210 s pass on virtual time in tests/controllers/test_chain.py."""
    run_job(restored, job("steady", entrance(restored, H100), nvidia=8))
    pods, flavors = live_pods(restored, "steady"), restored.names(RESOURCE_FLAVOR)
    restored.control_plane.stop_process("nfd-master")
    bare = ("h100-01", "h100-02", "h100-03", "mlu-01", "cpu-01")
    merged = {name: restored.merged_labels(name) for name in bare}
    assert all("gpustack.ai/managed" in labels for labels in merged.values())
    with queues_stay(restored, seconds=45):
        for name in bare:
            restored.admin.patch(NODE, name, {"metadata": {"labels": dict.fromkeys(merged[name])}})
    assert not [name for name in bare if "gpustack.ai/managed" in labels_of(restored.get(NODE, name))]
    with queues_stay(restored, seconds=8):
        for name in bare[:2]:
            restored.admin.patch(NODE, name, {"metadata": {"labels": merged[name]}})
    assert (restored.names(RESOURCE_FLAVOR), live_pods(restored, "steady")) == (flavors, pods)
    with queues_stay(restored, seconds=8):
        restored.control_plane.start_process("nfd-master")
        for name in bare:
            restored.wait(NODE, name, until=lambda obj: "gpustack.ai/managed" in labels_of(obj), what="labelled again")
    assert (restored.names(RESOURCE_FLAVOR), live_pods(restored, "steady")) == (flavors, pods)
    assert not [name_of(own) for own in restored.admin.list(INSTANCE_TYPE) if at(own, "spec", "inactive")]
    remove_job(restored, "steady")


@contextmanager
def queues_stay(cluster: Cluster, *, seconds: int) -> Iterator[None]:
    """Hold every queue to its spec from the block's begin until so long after its end."""
    before = {name_of(queue): queue["spec"] for queue in cluster.admin.list(CLUSTER_QUEUE)}
    since = at(cluster.admin.page(CLUSTER_QUEUE, limit=1), "metadata", "resourceVersion")
    yield
    began = time.monotonic()
    for change, queue in cluster.admin.watch(CLUSTER_QUEUE, since=since, timeout_s=seconds):
        assert (change, queue["spec"]) == ("MODIFIED", before[name_of(queue)]), name_of(queue)
    assert time.monotonic() - began > seconds - 1, "the watch ended before its time"


def test_a_pool_is_drained_to_empty_and_refilled(restored: Cluster) -> None:
    node, _ = restored.machines["mlu-01"]
    run_job(restored, job("on-mlu", entrance(restored, MLU), cambricon=4))
    assert nodes_of(restored, "on-mlu") == ["mlu-01"]
    restored.leave("mlu-01")
    wait_suspended(restored, "on-mlu")
    held = restored.wait_queue(MLU, quotas={})
    assert at(held, "spec", "stopPolicy") in {"Hold", "HoldAndDrain"}
    restored.wait_type(MLU, phase="Inactive", accelerator="0/0 0/0 0/0 0/0")
    restored.join(node)
    restored.wait_queue(MLU, quotas={f"{MLU}-8d": "12800k"}, stop="None")
    wait_ready_on(restored, "on-mlu", ["mlu-01"])
    remove_job(restored, "on-mlu")
    restored.wait_type(MLU, accelerator="8/8 8/80 100/800 0/0")


def test_a_plan_change_under_load_migrates_and_comes_back(restored: Cluster) -> None:
    queue_uid = at(restored.get(CLUSTER_QUEUE, T4), "metadata", "uid")
    run_job(restored, job("on-t4", entrance(restored, T4), pods=2, nvidia=1))
    # Kueue tells of what it has admitted a second later.
    restored.wait(CLUSTER_QUEUE, T4, until=lambda obj: flavors_used(obj) == [f"{T4}-1d"], what="in use")
    old = [restored.machines[name][0] for name in ("t4-01", "t4-02")]
    four = FleetNode("t4-four", "nvidia-t4-cloud-vm", {})
    cards = [dict(card) for card in restored.machines["t4-01"][1]["accelerators"] for _ in range(4)]
    for number, card in enumerate(cards):
        card |= {"index": number, "uuid": f"GPU-0000000{number}-0000-4000-8000-000000000000"}
        card |= {"pci_address": f"0000:0{number + 1}:00.0", "bus_id": f"00000000:0{number + 1}:00.0"}
        card |= {"physical_indexes": [number]}
    restored.join(four, machines={"t4-four": {**restored.machines["t4-01"][1], "accelerators": cards}})
    restored.wait_queue(T4, quotas={f"{T4}-1d": "3200k", f"{T4}-4d": "6400k"}, stop="None")
    assert len(nodes_of(restored, "on-t4")) == 2
    restored.leave("t4-01", "t4-02")
    restored.wait_queue(T4, quotas={f"{T4}-4d": "6400k"}, stop="None")
    wait_ready_on(restored, "on-t4", ["t4-four", "t4-four"])
    restored.join(*old)
    restored.wait_queue(T4, quotas={f"{T4}-1d": "3200k", f"{T4}-4d": "6400k"}, stop="None")
    restored.leave("t4-four")
    restored.wait_queue(T4, quotas={f"{T4}-1d": "3200k"}, stop="None")
    wait_ready_on(restored, "on-t4", ["t4-01", "t4-02"])
    assert at(restored.get(CLUSTER_QUEUE, T4), "metadata", "uid") == queue_uid
    remove_job(restored, "on-t4")
    restored.wait_type(T4, accelerator="1/2 1/20 100/200 0/0")


def test_b025_seventeen_sixty_four_and_sixty_five_flavors_in_a_pool(restored: Cluster) -> None:
    def add(first: int, last: int) -> None:
        for cores in range(first, last + 1):
            name = f"riscv-{cores:02d}"
            restored.machines[name] = (FleetNode(name, "", {}), machine(name, cores=cores, arch="riscv64", vendor=""))
            restored.register(name)

    def quotas(last: int) -> dict[str, str]:
        return {f"gpustack-generic-linux-riscv64-{cores}c": str(cores) for cores in range(1, last + 1)}

    add(1, 17)
    restored.wait_queue(RISCV, quotas=quotas(17), stop="None")
    add(18, 64)
    restored.wait_queue(RISCV, quotas=quotas(64), stop="None")
    restored.wait_type(RISCV, cpu="64/2080")
    add(65, 65)
    reason = _condition_reason("TopologyReady")
    restored.wait(CLUSTER_QUEUE, RISCV, until=lambda obj: reason(obj) == "TooManyFlavors", what="over the limit")
    assert quotas_of(restored.get(CLUSTER_QUEUE, RISCV)) == quotas(64)
    other, _ = restored.machines["mi308x-02"]  # a queue that cannot follow holds up no other
    restored.leave("mi308x-02")
    restored.wait_queue(MI308X, quotas={f"{MI308X}-8d": "12800k"})
    restored.join(other)
    restored.wait_queue(MI308X, quotas={f"{MI308X}-8d": "25600k"})
    restored.wait_type(MI308X, accelerator="8/16 8/160 100/1600 0/0")
    assert quotas_of(restored.get(CLUSTER_QUEUE, RISCV)) == quotas(64)
    restored.leave("riscv-65")
    restored.wait(CLUSTER_QUEUE, RISCV, until=lambda obj: reason(obj) == "Ready", what="within the limit")
    names = [name for name in restored.machines if name.startswith("riscv-")]
    for name in names:
        restored.machines.pop(name)
    restored.leave(*names)
    restored.wait_queue(RISCV, quotas={})
    restored.admin.delete(INSTANCE_TYPE, RISCV)
    restored.wait_gone(INSTANCE_TYPE, RISCV)


def _condition_reason(kind: str) -> Any:
    def reason(obj: Object | None) -> str:
        found = [str(c.get("reason")) for c in as_maps(at(obj, "status", "conditions")) if c.get("type") == kind]
        return found[0] if found else ""

    return reason


def test_a_queue_deleted_under_a_live_type_comes_back(restored: Cluster) -> None:
    old = restored.get(CLUSTER_QUEUE, H200)
    restored.admin.delete(CLUSTER_QUEUE, H200)
    restored.wait(
        CLUSTER_QUEUE,
        H200,
        until=lambda obj: obj is not None and at(obj, "metadata", "uid") != at(old, "metadata", "uid"),
        what="made anew",
    )
    restored.wait_queue(H200, quotas=quotas_of(old), stop="None")
    restored.wait_type(H200, accelerator="8/8 8/80 100/800 0/0")
    restored.wait(LOCAL_QUEUE, entrance(restored, H200), "default", until=bool, what="there")


def test_a_derived_type_that_is_deleted_is_authored_again(restored: Cluster) -> None:
    old = restored.get(INSTANCE_TYPE, H200)
    restored.admin.delete(INSTANCE_TYPE, H200)
    restored.wait(
        INSTANCE_TYPE,
        H200,
        until=lambda obj: obj is not None and at(obj, "metadata", "uid") != at(old, "metadata", "uid"),
        what="authored anew",
    )
    restored.wait_type(H200, accelerator="8/8 8/80 100/800 0/0")
    restored.wait_queue(H200, quotas={f"{H200}-8d": "12800k"}, stop="None")


def test_settings_flip(restored: Cluster) -> None:
    cpu = "gpustack-generic-linux-amd64"
    # Counted by hand: 23 machines of amd64 have 4,349 cores, the largest 384; three have no cards, and 255 cores each.
    restored.wait_type(cpu, cpu="384/4349")
    restored.set(instance_type_mixed_on_node="false")
    restored.wait_type(cpu, cpu="255/765")
    restored.wait_type(H100, accelerator="8/24 8/240 100/2400 0/0")
    restored.set(instance_type_mixed_on_node="true")
    restored.wait_type(cpu, cpu="384/4349")
    restored.set(node_management_manual="true")
    restored.set(node_management_manual="false")
    restored.set(instance_type_derived_from_node="nonsense")
    restored.settle()
    restored.unset()


def test_without_derived_types_no_check_is_asked_and_no_type_authored(restored: Cluster) -> None:
    restored.wait(CLUSTER_QUEUE, H200, until=lambda obj: checks_of(obj) == [NODE_DEVICES_CHECK], what="with its check")
    restored.set(instance_type_derived_from_node="false")
    restored.wait(CLUSTER_QUEUE, H200, until=lambda obj: obj is not None and not checks_of(obj), what="without a check")
    restored.admin.delete(INSTANCE_TYPE, H200)
    restored.wait_gone(INSTANCE_TYPE, H200)
    restored.wait_gone(CLUSTER_QUEUE, H200)
    restored.settle(quiet_s=LONG_QUIET_S)
    assert restored.names(INSTANCE_TYPE) == sorted(set(POOLS) - {H200})
    assert f"{H200}-8d" in restored.names(RESOURCE_FLAVOR)
    restored.unset()
    restored.wait_type(H200, accelerator="8/8 8/80 100/800 0/0")
    restored.wait(CLUSTER_QUEUE, H200, until=lambda obj: checks_of(obj) == [NODE_DEVICES_CHECK], what="with its check")


def test_b024_a_cordoned_node_is_not_promised(restored: Cluster) -> None:
    restored.admin.patch(NODE, "h100-01", {"spec": {"unschedulable": True}})
    restored.wait_type(H100, accelerator="8/16 8/160 100/1600 0/0")
    run_job(restored, job("elsewhere", entrance(restored, H100), pods=2, nvidia=8))
    assert nodes_of(restored, "elsewhere") == ["h100-02", "h100-03"]
    remove_job(restored, "elsewhere")
    assert quotas_of(restored.get(CLUSTER_QUEUE, H100)) == {f"{H100}-8d": "38400k"}
    restored.admin.patch(NODE, "h100-01", {"spec": {"unschedulable": None}})
    restored.wait_type(H100, accelerator="8/24 8/240 100/2400 0/0")


def test_b024_a_dead_node_is_not_promised_and_its_pod_is_evicted(restored: Cluster) -> None:
    """A flavor that tolerated everything would keep the Pod there for ever."""
    run_job(restored, job("on-all", entrance(restored, H100), pods=3, unreachable_s=5, nvidia=8))
    pod_on = {node: name for name, node in live_pods(restored, "on-all").items()}
    assert sorted(pod_on) == ["h100-01", "h100-02", "h100-03"]
    restored.admin.patch(NODE, "h100-01", {"metadata": {"labels": {KUBELET_LABEL: "dead"}}})
    restored.wait(
        POD,
        pod_on["h100-01"],
        TEAM,
        until=lambda obj: _condition_reason("DisruptionTarget")(obj) == "DeletionByTaintManager",
        what="evicted for its node's taint",
        timeout_s=240,
    )
    restored.wait_gone(POD, pod_on["h100-01"], TEAM)
    restored.wait_type(H100, accelerator="8/16 8/160 100/1600 0/0")
    remove_job(restored, "on-all")
    restored.admin.patch(NODE, "h100-01", {"metadata": {"labels": {KUBELET_LABEL: None}}})
    restored.wait_type(H100, accelerator="8/24 8/240 100/2400 0/0")
