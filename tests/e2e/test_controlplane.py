"""The control plane itself: what the product will lean on is there and works.

Asserted are objects in the cluster, as everywhere in this folder.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from hack.controlplane import audit
from hack.controlplane.admin import Admin, Object
from hack.controlplane.components import KUBELET_LABEL
from hack.controlplane.control_plane import CHAIN, ENGINES, ControlPlane
from hack.controlplane.errors import ProcessDiedError, RequestError
from hack.controlplane.manifests import SYSTEM_NAMESPACE, namespace_manifest
from hack.controlplane.product import Account
from nodefeature.fields import as_maps, at, labels_of, name_of
from nodefeature.kinds import (
    CLUSTER_QUEUE,
    LOCAL_QUEUE,
    NAMESPACE,
    NODE,
    NODE_FEATURE,
    POD,
    RESOURCE_FLAVOR,
    WORKLOAD,
    Kind,
)
from tests.e2e.scenarios import FIGURE

pytestmark = pytest.mark.timeout(600)

NODE_NAME = "machine-a"
CREDITS = "credits.gpustack.ai/nvidia"
TEAM = "team-a"
LEASE = Kind("coordination.k8s.io", "v1", "leases", "Lease", namespaced=True)


def machine(name: str, **capacity: str) -> Object:
    amounts = {"cpu": "16", "memory": "64Gi", "ephemeral-storage": "200Gi", "pods": "110", **capacity}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}},
        "status": {"capacity": amounts, "allocatable": {k: v for k, v in amounts.items() if "/" not in k}},
    }


def node_feature(node: str, **labels: str) -> Object:
    meta = {"name": f"{node}-test", "namespace": SYSTEM_NAMESPACE, "labels": {"nfd.node.kubernetes.io/node-name": node}}
    return {
        "apiVersion": NODE_FEATURE.api_version,
        "kind": "NodeFeature",
        "metadata": meta,
        "spec": {"features": {"flags": {}, "attributes": {}, "instances": {}}, "labels": labels},
    }


def pod(name: str, *, queue: str = "", node: str = "", **limits: str) -> Object:
    labels = {"kueue.x-k8s.io/queue-name": queue} if queue else {}
    container = {"name": "main", "image": "registry.example/app:1", "resources": {"limits": limits}}
    spec: dict[str, Any] = {"containers": [container], "terminationGracePeriodSeconds": 1}
    if node:
        spec["nodeName"] = node
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": TEAM, "labels": labels},
        "spec": spec,
    }


def is_condition(obj: Object | None, kind: str, status: str = "True") -> bool:
    return any(c.get("type") == kind and c.get("status") == status for c in as_maps(at(obj, "status", "conditions")))


def is_running(obj: Object | None) -> bool:
    return at(obj, "status", "phase") == "Running" and is_condition(obj, "Ready")


@pytest.fixture(scope="module")
def node(control_plane: ControlPlane) -> Iterator[str]:
    admin = control_plane.admin
    admin.create(machine(NODE_NAME))
    yield NODE_NAME
    admin.delete(NODE, NODE_NAME)
    admin.delete(NODE_FEATURE, f"{NODE_NAME}-test", SYSTEM_NAMESPACE)


@pytest.fixture(scope="module")
def team(control_plane: ControlPlane) -> Iterator[str]:
    """A namespace in which Pods can be made: its default account exists."""
    admin = control_plane.admin
    admin.apply(namespace_manifest(TEAM))
    account = Kind("", "v1", "serviceaccounts", "ServiceAccount", namespaced=True)
    admin.wait(account, "default", TEAM, until=bool)
    yield TEAM
    admin.delete(NAMESPACE, TEAM)
    admin.wait(NAMESPACE, TEAM, until=lambda obj: obj is None, what="gone", timeout_s=60)


@pytest.fixture(scope="module")
def queue(control_plane: ControlPlane, node: str, team: str) -> Iterator[str]:
    """A LocalQueue over one flavor with room for three cards."""
    admin = control_plane.admin
    group = {
        "coveredResources": [CREDITS],
        "flavors": [{"name": "cards", "resources": [{"name": CREDITS, "nominalQuota": "4800k"}]}],
    }
    meta = {"name": "cards"}
    local = {"name": "cards", "namespace": team}
    for kind, metadata, spec in (
        ("ResourceFlavor", meta, {"nodeLabels": {"kubernetes.io/hostname": node}}),
        ("ClusterQueue", meta, {"namespaceSelector": {}, "resourceGroups": [group]}),
        ("LocalQueue", local, {"clusterQueue": "cards"}),
    ):
        obj = {"apiVersion": RESOURCE_FLAVOR.api_version, "kind": kind, "metadata": metadata, "spec": spec}
        admin.create(obj)
    admin.wait(CLUSTER_QUEUE, "cards", until=lambda obj: is_condition(obj, "Active"), what="Active")
    yield "cards"
    # Each is held by Kueue as long as the one before is there: what runs after this starts without them.
    for left in admin.list(POD, team):
        admin.delete(POD, name_of(left), team, grace_s=0)
    admin.delete(LOCAL_QUEUE, "cards", team)
    for held in (CLUSTER_QUEUE, RESOURCE_FLAVOR):
        admin.delete(held, "cards")
        admin.wait(held, "cards", until=lambda obj: obj is None, what="gone")


def test_every_process_runs_and_the_server_says_its_version(control_plane: ControlPlane, admin: Admin) -> None:
    assert set(control_plane.running) == {*ENGINES, *CHAIN}
    assert admin.version() == "v1.36.3"
    assert admin.list(NODE) == []


def test_it_was_ready_within_a_minute(
    control_plane: ControlPlane, record_property: Callable[[str, object], None]
) -> None:
    record_property(FIGURE, f"control plane: ready {control_plane.ready_in_s:.1f} s after its start")
    assert 0 < control_plane.ready_in_s < 60


def test_a_node_gets_a_kubelet(admin: Admin, node: str) -> None:
    admin.wait(NODE, node, until=lambda obj: is_condition(obj, "Ready"), what="Ready")
    admin.wait(LEASE, node, "kube-node-lease", until=bool, what="there")


def test_labels_of_a_node_feature_reach_the_node(admin: Admin, node: str) -> None:
    admin.create(node_feature(node, **{"gpustack.ai/managed": "true", "feature.gpustack.ai/acceleratable": "true"}))
    merged = admin.wait(NODE, node, until=lambda obj: labels_of(obj).get("gpustack.ai/managed") == "true", timeout_s=60)
    assert labels_of(merged)["feature.gpustack.ai/acceleratable"] == "true"


def test_allocatable_follows_capacity(admin: Admin, node: str) -> None:
    admin.patch(NODE, node, {"status": {"capacity": {"nvidia.com/gpu": "4"}}}, subresource="status")
    admin.wait(NODE, node, until=lambda obj: at(obj, "status", "allocatable", "nvidia.com/gpu") == "4", timeout_s=60)


def test_a_queued_pod_is_gated_charged_admitted_bound_and_runs(admin: Admin, queue: str) -> None:
    admin.patch(NODE, NODE_NAME, {"status": {"capacity": {"nvidia.com/gpu": "4"}}}, subresource="status")
    created = admin.create(pod("two-cards", queue=queue, **{"cpu": "1", "nvidia.com/gpu": "2"}))
    # With topology-aware scheduling on, Kueue holds every queued Pod behind both gates.
    gates = {gate["name"] for gate in created["spec"]["schedulingGates"]}
    assert gates == {"kueue.x-k8s.io/admission", "kueue.x-k8s.io/topology"}
    running = admin.wait(POD, "two-cards", TEAM, until=is_running, what="Running and Ready")
    assert at(running, "spec", "nodeName") == NODE_NAME
    (workload,) = admin.list(WORKLOAD, TEAM)
    (assignment,) = workload["status"]["admission"]["podSetAssignments"]
    assert assignment["resourceUsage"][CREDITS] == "3200k"
    assert assignment["flavors"][CREDITS] == "cards"


def test_a_pod_beyond_the_quota_waits_until_room_is_made(admin: Admin, queue: str) -> None:
    admin.create(pod("two-more", queue=queue, **{"nvidia.com/gpu": "2"}))
    wait_without_quota(admin, "two-more")
    assert at(admin.get(POD, "two-more", TEAM), "spec", "schedulingGates")
    admin.delete(POD, "two-cards", TEAM)
    admin.wait(POD, "two-more", TEAM, until=is_running, what="Running and Ready")
    admin.delete(POD, "two-more", TEAM)
    admin.wait(POD, "two-more", TEAM, until=lambda obj: obj is None, what="gone")


def wait_without_quota(admin: Admin, name: str) -> None:
    """Follow Workloads until Kueue has said of a Pod's that it gets no quota."""
    seen: Object = {}
    for _, workload in admin.watch(WORKLOAD, TEAM, timeout_s=60):  # without a version it begins with all there are
        if name not in {owner.get("name") for owner in as_maps(at(workload, "metadata", "ownerReferences"))}:
            continue
        seen = workload
        assert not is_condition(workload, "QuotaReserved"), workload
        if is_condition(workload, "QuotaReserved", "False"):
            return
    raise AssertionError(f"Kueue has not judged the Workload of {name}: {seen or 'there is none'}")


def test_kueues_webhook_and_conversion_answer(admin: Admin, queue: str) -> None:
    bad = {"apiVersion": CLUSTER_QUEUE.api_version, "kind": "ClusterQueue", "metadata": {"name": "bad"}}
    group = {"coveredResources": ["cpu"], "flavors": []}
    with pytest.raises(RequestError) as refused:
        admin.create({**bad, "spec": {"resourceGroups": [group, group]}})
    assert refused.value.code == httpx.codes.UNPROCESSABLE_ENTITY
    older = Kind("kueue.x-k8s.io", "v1beta1", "clusterqueues", "ClusterQueue", namespaced=False)
    assert at(admin.get(older, queue), "apiVersion") == "kueue.x-k8s.io/v1beta1"


def test_garbage_and_namespaces_are_collected(admin: Admin) -> None:
    admin.create(namespace_manifest("passing"))
    owner = admin.create(config_map("owner", {}))
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
    admin.create(config_map("owned", {"ownerReferences": [reference]}))
    kind = admin.kind_of(owner)
    admin.delete(kind, "owner", "passing")
    admin.wait(kind, "owned", "passing", until=lambda obj: obj is None, what="collected")
    admin.delete(NAMESPACE, "passing")
    admin.wait(NAMESPACE, "passing", until=lambda obj: obj is None, what="gone")


def config_map(name: str, more: Object) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "passing", **more}}


def test_an_account_has_its_own_rights_and_no_more(control_plane: ControlPlane) -> None:
    account = Account(name="looker")
    rules = [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]}]
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "looker"}}
    subject = {"kind": "ServiceAccount", "name": account.name, "namespace": account.namespace}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "looker"}
    binding = {**role, "kind": "ClusterRoleBinding", "roleRef": reference, "subjects": [subject]}
    manifest = yaml.safe_dump_all([{**role, "rules": rules}, binding])
    since = audit.position(control_plane.audit_log)
    document = yaml.safe_load(control_plane.product_kubeconfig(manifest, account).read_text())
    ours = Admin(control_plane.server, authority=control_plane.authority, token=document["users"][0]["user"]["token"])
    try:
        ours.list(NODE)
        with pytest.raises(RequestError) as refused:
            ours.list(POD)
    finally:
        ours.close()
    assert refused.value.code == httpx.codes.FORBIDDEN
    denied = audit.forbidden(control_plane.audit_log, user=account.user, since=since)
    assert [(request.verb, request.resource) for request in denied] == [("list", "pods")]


def test_a_node_marked_dead_gets_no_heartbeat(admin: Admin) -> None:
    dying = machine("machine-dying")
    admin.create(dying)
    admin.wait(LEASE, "machine-dying", "kube-node-lease", until=bool, what="there")
    admin.patch(NODE, "machine-dying", {"metadata": {"labels": {KUBELET_LABEL: "dead"}}})
    admin.wait(
        NODE, "machine-dying", until=lambda obj: is_condition(obj, "Ready", "Unknown"), timeout_s=120, what="NotReady"
    )
    admin.delete(NODE, "machine-dying")


@pytest.mark.parametrize("name", ["etcd", "kube-apiserver", "kueue", "nfd-master", "kube-controller-manager"])
def test_a_restarted_process_comes_back_with_the_objects(
    control_plane: ControlPlane, admin: Admin, node: str, name: str
) -> None:
    before = control_plane.running[name]
    control_plane.restart(name)
    assert not before.is_alive()
    admin.wait(NODE, node, until=bool, what="still there")


def test_a_killed_process_is_not_a_death_but_an_unasked_end_is(control_plane: ControlPlane) -> None:
    control_plane.kill("kwok")
    control_plane.check()
    control_plane.start_process("kwok")
    os.kill(control_plane.running["kwok"].pid, 9)
    with pytest.raises(ProcessDiedError, match=r"kwok was ended by signal 9; last lines of .*kwok\.log:\n.+"):
        await_death(control_plane)
    control_plane.kill("kwok")
    control_plane.start_process("kwok")


def await_death(control_plane: ControlPlane) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        control_plane.check()


def test_compaction_expires_old_versions(control_plane: ControlPlane, admin: Admin, node: str) -> None:
    page = admin.page(NAMESPACE, limit=1)
    admin.patch(NODE, node, {"metadata": {"annotations": {"compacted": "soon"}}})
    control_plane.compact()
    expired = await_refusal(admin, token=page["metadata"]["continue"])
    assert (expired.code, expired.reason) == (httpx.codes.GONE, "Expired")


def await_refusal(admin: Admin, token: str) -> RequestError:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            admin.page(NAMESPACE, limit=1, token=token)
        except RequestError as error:
            return error
        time.sleep(0.5)  # kube-apiserver learns of a compaction within 15 s
    raise AssertionError("the page token is still good")


def test_a_second_control_plane_runs_beside_it(control_plane: ControlPlane, tmp_path: Path) -> None:
    with ControlPlane(tmp_path / "second", cache=control_plane.tools.cache, chain=()) as second:
        assert second.server != control_plane.server
        assert second.admin.list(NODE) == []
        processes = list(second.running.values())
    assert not any(process.is_alive() for process in processes)
    control_plane.check()
