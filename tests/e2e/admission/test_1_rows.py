"""The tables of spec 05 through a real kube-apiserver, its defaults and schemas: webhooks over TLS, then the policies.

Pods are created as dry runs: what is asked of the webhooks is the same, and nothing is left behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from api.ledger.transport import ALLOCATED_ANNOTATION
from hack.controlplane.admin import Admin, path_of
from hack.controlplane.errors import RequestError
from hack.controlplane.manifests import SYSTEM_NAMESPACE
from hack.controlplane.product import AGENT, token
from hack.controlplane.replicas import Replicas
from nodefeature.fields import as_maps, at
from nodefeature.kinds import (
    CLUSTER_QUEUE,
    INSTANCE,
    INSTANCE_TYPE,
    LOCAL_QUEUE,
    MUTATING_WEBHOOK_CONFIGURATION,
    NODE,
    POD,
    VALIDATING_WEBHOOK_CONFIGURATION,
    WORKLOAD,
)
from nodefeature.labels import QUEUE_ENTRANCE, RESOURCE_TYPE, TYPE_INSTANCE_TYPES
from tests.builders.admission import GROUP, instance, pod
from tests.builders.rows import Row, row_id, rows
from tests.e2e.admission.conftest import NOT_REAL, entrance_of, name_of_pool

GPU = "nvidia.com/gpu"
SPACE = "team-a"
DRY = "?dryRun=All"

pytestmark = pytest.mark.timeout(600)


def refusal(act: Callable[[], Any]) -> RequestError | None:
    try:
        act()
    except RequestError as error:
        return error
    return None


def create_pod(admin: Admin, obj: Any, namespace: str = SPACE) -> Any:
    return admin.post(path_of(POD, namespace=namespace) + DRY, obj)


def queue_of(row: Row) -> str:
    return "research" if row["pool"] in NOT_REAL else entrance_of(row["pool"])


@pytest.mark.parametrize("row", rows("05-pod-validation"), ids=row_id)
def test_pod_validation(server: Replicas, row: Row) -> None:
    failed = refusal(lambda: create_pod(server.admin, pod(row["containers"], queue=entrance_of("80Gi"))))
    assert (failed is None) is (row["want"] == "ok"), failed


@pytest.mark.parametrize(
    "row", [row for row in rows("05-pod-mutation") if row["pool"] not in ("two types", "unreadable")], ids=row_id
)
def test_pod_mutation(server: Replicas, row: Row) -> None:
    made: list[Any] = []
    failed = refusal(lambda: made.append(create_pod(server.admin, pod(row["containers"], queue=queue_of(row)))))
    if row["want"] != "ok":
        assert failed is not None
        assert failed.code == {"reject": 422, "retry": 500}[row["want"]]
        assert row["says"] in str(failed)
        return
    if failed is not None:
        assert "validate.gpustack-worker.core.v1.pod" in str(failed), "validation refuses what mutation left alone"
        return
    containers = [*made[0]["spec"].get("initContainers", []), *made[0]["spec"]["containers"]]
    for container, asked, written in zip(containers, row["containers"], row["written"], strict=True):
        assert container["resources"].get("limits", {}) == {**asked["asks"], **written}
        assert container["resources"].get("requests", {}) == {**asked["asks"], **written}


def test_shared_pin(server: Replicas) -> None:
    made = create_pod(server.admin, pod([{"asks": {f"{GPU}.shared": "3"}}], queue=entrance_of("80Gi")))
    required = at(made, "spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    label = f"acceleratable.feature.gpustack.ai/{GROUP}.count"
    wanted = [{"key": label, "operator": "Gt", "values": ["2"]}]
    assert [term["matchExpressions"] for term in required["nodeSelectorTerms"]] == [wanted]


def stored(row: Row) -> Any:
    made = instance(**{"type": name_of_pool(row["pool"]), **row["old"]})
    made["metadata"] = {"name": "box", "namespace": SPACE}
    return made


def needs_nodes(row: Row) -> list[str]:
    return [spec["nodeName"] for spec in (row["spec"], row.get("old", {})) if spec.get("nodeName")]


@pytest.mark.parametrize("row", [r for r in rows("05-instance-validation") if "old" not in r], ids=row_id)
def test_instance_creation(server: Replicas, row: Row) -> None:
    obj = instance(**{"type": name_of_pool(row["pool"]), **row["spec"]})
    obj["metadata"] = {"generateName": "box-", "namespace": SPACE}
    if row["row"].endswith(("unset", "accelerator 0")):
        row = {**row, "want": "ok"}  # defaulting asks for one card before validation sees it
    failed = refusal(lambda: server.admin.post(path_of(INSTANCE, namespace=SPACE) + DRY, obj))
    assert (failed is None) is (row["want"] == "ok"), failed
    if failed is not None and row["want"] == "retry":
        assert failed.code == 500


@pytest.mark.parametrize("row", [r for r in rows("05-instance-validation") if "old" in r], ids=row_id)
def test_instance_update(server: Replicas, row: Row) -> None:
    admin = server.admin
    if row["pool"] == "not ready":
        row["old"].pop("resources")  # the stored one is stopped and asks for nothing yet
    for name in needs_nodes(row):
        admin.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    if row["row"] == "update: running changes type":
        row["spec"]["type"] = name_of_pool("capacity 4")  # defaulting refuses one that is not there
    if row["row"] == "start with slice 200/200":
        failed = refusal(lambda: admin.create(stored(row)))
        assert "should be less than or equal to 100" in str(failed), "the schema lets no such Instance be stored"
        return
    made = admin.create(stored(row))
    try:
        if row["phase"]:
            made = admin.replace({**made, "status": {"phase": row["phase"]}}, subresource="status")
        for name in needs_nodes(row):
            admin.delete(NODE, name)
        spec = {**made["spec"], **row["spec"]}
        if row["spec"].get("type") is None and "stop" not in row["spec"]:
            spec.pop("stop", None)
        failed = refusal(lambda: admin.replace({**made, "spec": spec}))
        assert (failed is None) is (row["want"] == "ok"), failed
        if failed is not None and row["want"] == "reject":
            assert row["says"].lower() in str(failed).lower()
    finally:
        admin.delete(INSTANCE, "box", SPACE)


def test_instance_in_a_reserved_namespace(server: Replicas) -> None:
    obj = {**instance(type=name_of_pool("sliceable")), "metadata": {"name": "box", "namespace": "kube-system"}}
    failed = refusal(lambda: server.admin.create(obj))
    assert failed is not None
    assert "cannot create instance in reserved namespace" in str(failed)


def test_instance_type_labels_and_immutability(server: Replicas) -> None:
    name = name_of_pool("80Gi")
    found = server.admin.get(INSTANCE_TYPE, name)
    assert found is not None
    assert found["metadata"]["labels"][QUEUE_ENTRANCE] == entrance_of("80Gi")
    failed = refusal(lambda: server.admin.patch(INSTANCE_TYPE, name, {"spec": {"os": "windows"}}))
    assert failed is not None
    assert failed.code == 422
    server.admin.patch(INSTANCE_TYPE, name, {"metadata": {"labels": {QUEUE_ENTRANCE: "stolen"}}})
    again = server.admin.get(INSTANCE_TYPE, name)
    assert again is not None
    assert again["metadata"]["labels"][QUEUE_ENTRANCE] == entrance_of("80Gi")


def test_workload_pin(server: Replicas) -> None:
    admin, name, entrance = server.admin, name_of_pool("80Gi"), entrance_of("80Gi")
    marks = {RESOURCE_TYPE: TYPE_INSTANCE_TYPES}
    api = {"apiVersion": CLUSTER_QUEUE.api_version}
    admin.apply({**api, "kind": CLUSTER_QUEUE.kind, "metadata": {"name": name, "labels": marks}, "spec": {}})
    queue = {"metadata": {"name": entrance, "namespace": SPACE}, "spec": {"clusterQueue": name}}
    admin.apply({**api, "kind": LOCAL_QUEUE.kind, **queue})
    container = {"name": "c", "image": "i", "resources": {"requests": {GPU: "2"}, "limits": {GPU: "2"}}}
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    spec = {"queueName": entrance, "podSets": [{"name": "main", "count": 1, "template": template}]}
    body = {**api, "kind": WORKLOAD.kind, "metadata": {"generateName": "w-", "namespace": SPACE}, "spec": spec}
    made = admin.post(path_of(WORKLOAD, namespace=SPACE) + DRY, body)
    affinity = at(made["spec"]["podSets"][0], "template", "spec", "affinity", "nodeAffinity")
    terms = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    label = f"exclusive-free-cards.fit.gpustack.ai/{GROUP}"
    assert terms[0]["matchExpressions"] == [{"key": label, "operator": "Gt", "values": ["1"]}]
    foreign = admin.post(path_of(WORKLOAD, namespace=SPACE) + DRY, {**body, "spec": {**spec, "queueName": "research"}})
    assert "affinity" not in foreign["spec"]["podSets"][0]["template"]["spec"]


@contextmanager
def as_agent(server: Replicas, node: str = "") -> Iterator[Admin]:
    """Lend a client of the agents' account; its token is bound to a Node when one is named."""
    plane, admin = server.control_plane, server.admin
    account = {"apiVersion": "v1", "kind": "ServiceAccount"}
    admin.apply({**account, "metadata": {"name": AGENT.name, "namespace": AGENT.namespace}})
    subject = {"kind": "ServiceAccount", "name": AGENT.name, "namespace": AGENT.namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    meta = {"name": "test-agent"}
    binding = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding"}
    admin.apply({**binding, "metadata": meta, "roleRef": role, "subjects": [subject]})
    held = token_of_node(admin, node) if node else token(admin, AGENT)
    agent = Admin(plane.server, authority=plane.authority, token=held)
    try:
        yield agent
    finally:
        agent.close()


def token_of_node(admin: Admin, node: str) -> str:
    """Make a Node and return a token of the agents' account that is bound to it."""
    found = admin.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}})
    bound = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": found["metadata"]["uid"]}
    spec = {"expirationSeconds": 3600, "boundObjectRef": bound}
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    made = admin.post(f"/api/v1/namespaces/{AGENT.namespace}/serviceaccounts/{AGENT.name}/token", request)
    return str(made["status"]["token"])


def test_b008_allocations_are_the_agents_to_write(server: Replicas) -> None:
    admin, forged = server.admin, {ALLOCATED_ANNOTATION: "{}"}
    server.until(
        lambda: refusal(lambda: create_pod(admin, pod([{}], queue="", annotations=forged))) is not None,
        "policies are in force",
    )
    plain = admin.create({**pod([{}], queue=""), "metadata": {"name": "plain", "namespace": SPACE}})
    patch = {"metadata": {"annotations": forged}}
    try:
        for subresource in ("", "status"):
            failed = refusal(lambda sub=subresource: admin.patch(POD, "plain", patch, SPACE, subresource=sub))  # type: ignore[misc] # a default argument binds the loop's name
            assert failed is not None
            assert "written by the node's agent alone" in str(failed)
        target = {"apiVersion": "v1", "kind": "Node", "name": "n"}
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": "plain", "annotations": forged},
            "target": target,
        }
        assert refusal(lambda: admin.post(path_of(POD, "plain", SPACE, "binding"), binding)) is not None
        with as_agent(server) as agent:
            agent.patch(POD, "plain", patch, SPACE)
        gone = {"metadata": {"annotations": {ALLOCATED_ANNOTATION: None}}}
        assert refusal(lambda: admin.patch(POD, "plain", gone, SPACE)) is not None
        admin.patch(POD, "plain", {"metadata": {"labels": {"other": "write"}}}, SPACE)
    finally:
        admin.delete(POD, "plain", SPACE, grace_s=0)
    assert plain["metadata"]["name"] == "plain"


def test_an_agent_writes_its_own_node_s_objects_alone(server: Replicas) -> None:
    kind = {"apiVersion": "worker.gpustack.ai/v1alpha1", "kind": "Devices", "spec": {"groups": []}}
    placed = {**pod([{}], queue=""), "metadata": {"name": "placed", "namespace": SPACE}}
    placed["spec"]["nodeName"] = "other"
    server.admin.create(placed)
    patch = {"metadata": {"annotations": {ALLOCATED_ANNOTATION: "{}"}}}
    with as_agent(server, "own") as agent:
        agent.create({**kind, "metadata": {"name": "own"}})
        failed = refusal(lambda: agent.create({**kind, "metadata": {"name": "other"}}))
        assert failed is not None
        assert "the agent of node own writes objects of that node alone" in str(failed)
        assert refusal(lambda: agent.patch(POD, "placed", patch, SPACE)) is not None
    with as_agent(server) as unbound:
        unbound.patch(POD, "placed", patch, SPACE)
    server.admin.delete(POD, "placed", SPACE, grace_s=0)


@pytest.mark.parametrize(
    "kind", [MUTATING_WEBHOOK_CONFIGURATION, VALIDATING_WEBHOOK_CONFIGURATION], ids=lambda kind: kind.kind
)
def test_hand_edits_and_absence_are_repaired(server: Replicas, kind: Any) -> None:
    admin = server.admin
    name = "gpustack-worker-mutation" if kind is MUTATING_WEBHOOK_CONFIGURATION else "gpustack-worker-validation"
    before = admin.get(kind, name)
    assert before is not None
    edited = {**before, "webhooks": [{**before["webhooks"][0], "failurePolicy": "Ignore"}]}
    admin.replace(edited)
    server.until(
        lambda: as_maps((admin.get(kind, name) or {}).get("webhooks")) == before["webhooks"], "edit repaired", 45
    )
    admin.delete(kind, name)
    server.until(lambda: admin.get(kind, name) is not None, "absence repaired", 45)
    settled = admin.get(kind, name)
    assert settled is not None
    assert settled["webhooks"] == before["webhooks"]
    assert SYSTEM_NAMESPACE in str(settled["webhooks"])
