"""The walk-through of spec 07 §10 on the real control plane.

NFD as published leaves `@` in annotations unresolved, so CPU keys here are `<vendor>-<family>-<id>`; pools, quotas,
entrances and figures are the specification's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from hack.controlplane.admin import Object
from hack.controlplane.manifests import SYSTEM_NAMESPACE, namespace_manifest
from hack.fleet import FleetNode
from nodefeature.fields import at, labels_of
from nodefeature.kinds import (
    CLUSTER_QUEUE,
    CONFIG_MAP,
    DEVICES,
    INSTANCE_TYPE,
    LOCAL_QUEUE,
    NAMESPACE,
    NODE_FEATURE,
    RESOURCE_FLAVOR,
)
from nodefeature.queue_names import NODE_DEVICES_CHECK
from tests.builders.machines import a10g, machine, t4
from tests.e2e.chain.cluster import Cluster, checks_of, quotas_of

pytestmark = pytest.mark.timeout(600)

CPU_POOL = "gpustack-generic-linux-amd64"
A10G_POOL = "gpustack-nvidia-a10g-linux-amd64"
T4_POOL = "gpustack-nvidia-tesla-t4-linux-amd64"
MACHINES = {
    "node-cpu": machine("node-cpu", cores=16, vendor="AMD", cpu="AMD EPYC 7R13"),
    "node-a10g": machine("node-a10g", cores=4, vendor="AMD", cpu="AMD EPYC 7R32", cards=[a10g()]),
    "node-t4-a": machine("node-t4-a", cores=4, cards=[t4()]),
    "node-t4-b": machine("node-t4-b", cores=48, cards=[t4()] * 4),
}


@pytest.fixture(scope="module")
def four(cluster: Cluster) -> Iterator[Cluster]:
    """Return the cluster with the walk-through's four machines, settled."""
    cluster.join(*(FleetNode(name, "", {}) for name in MACHINES), machines=MACHINES)
    cluster.wait_type(T4_POOL, accelerator="4/5 4/50 100/500 0/0")
    cluster.wait_type(CPU_POOL, cpu="48/72")
    cluster.settle()
    yield cluster
    cluster.clear()


def test_07_10_1_initial(four: Cluster) -> None:
    assert four.names(RESOURCE_FLAVOR) == [
        "gpustack-amd-6-85-linux-amd64-16c",
        "gpustack-amd-6-85-linux-amd64-4c",
        "gpustack-intel-6-85-linux-amd64-48c",
        "gpustack-intel-6-85-linux-amd64-4c",
        "gpustack-nvidia-a10g-linux-amd64-1d",
        "gpustack-nvidia-tesla-t4-linux-amd64-1d",
        "gpustack-nvidia-tesla-t4-linux-amd64-4d",
    ]
    assert four.names(CLUSTER_QUEUE) == four.names(INSTANCE_TYPE) == [CPU_POOL, A10G_POOL, T4_POOL]
    assert four.names(DEVICES) == ["node-a10g", "node-t4-a", "node-t4-b"]


@pytest.mark.parametrize(
    ("name", "entrance", "unit", "accelerator", "cpu"),
    [
        (CPU_POOL, "gpustack-fnv64-7aa0010633cb3725", "1/2Gi/100Gi", "0/0 0/0 0/0 0/0", "48/72"),
        (A10G_POOL, "gpustack-fnv64-7bc37bef52624161", "8/64Gi/100Gi", "1/1 1/10 100/100 0/0", "0/0"),
        (T4_POOL, "gpustack-fnv64-199cb01104a7efc8", "8/32Gi/100Gi", "4/5 4/50 100/500 0/0", "0/0"),
    ],
)
def test_07_10_1_types(four: Cluster, name: str, entrance: str, unit: str, accelerator: str, cpu: str) -> None:
    status = four.get(INSTANCE_TYPE, name)["status"]
    summary = status["summary"]
    assert (status["entrance"], status["phase"]) == (entrance, "Active")
    assert (summary["unit"], summary["accelerator"], summary["cpu"]) == (unit, accelerator, cpu)
    assert at(four.get(LOCAL_QUEUE, entrance, "default"), "spec", "clusterQueue") == name


def test_07_10_1_the_queue_of_the_a10g_pool(four: Cluster) -> None:
    queue = four.get(CLUSTER_QUEUE, A10G_POOL)
    assert labels_of(queue)["resource.gpustack.ai/type"] == "instancetypes"
    assert quotas_of(queue) == {"gpustack-nvidia-a10g-linux-amd64-1d": "1600k"}
    assert at(queue, "spec", "resourceGroups")[0]["coveredResources"] == ["credits.gpustack.ai/nvidia"]
    assert checks_of(queue) == [NODE_DEVICES_CHECK]


def test_07_10_1_the_flavor_of_the_a10g_pool(four: Cluster) -> None:
    flavor = four.get(RESOURCE_FLAVOR, "gpustack-nvidia-a10g-linux-amd64-1d")
    key = "acceleratable.feature.gpustack.ai/nvidia-a10g"
    assert labels_of(flavor)["resource.gpustack.ai/type"] == "nodes"
    assert (labels_of(flavor)[f"{key}.count"], labels_of(flavor)[f"{key}.capacity"]) == ("1", "1")
    pinned = flavor["spec"]["nodeLabels"]
    assert pinned["gpustack.ai/managed"] == "true"
    assert (pinned["kubernetes.io/os"], pinned["kubernetes.io/arch"]) == ("linux", "amd64")
    assert (pinned[key], pinned[f"{key}.count"]) == ("true", "1")


def test_07_10_2_unmanage_and_manage(four: Cluster) -> None:
    flavors = ("gpustack-nvidia-a10g-linux-amd64-1d", "gpustack-amd-6-85-linux-amd64-4c")
    four.admin.patch(
        NODE_FEATURE,
        "node-a10g-gpustack-worker",
        {"spec": {"labels": {"gpustack.ai/managed": "false"}}},
        SYSTEM_NAMESPACE,
    )
    for flavor in flavors:
        four.wait_gone(RESOURCE_FLAVOR, flavor)
    four.wait_type(A10G_POOL, phase="Inactive", accelerator="0/0 0/0 0/0 0/0")
    four.wait_type(CPU_POOL, cpu="48/68")
    queue = four.wait_queue(A10G_POOL, quotas={})
    assert at(queue, "spec", "stopPolicy") != "None"
    four.admin.patch(
        NODE_FEATURE,
        "node-a10g-gpustack-worker",
        {"spec": {"labels": {"gpustack.ai/managed": "true"}}},
        SYSTEM_NAMESPACE,
    )
    four.wait_type(A10G_POOL, accelerator="1/1 1/10 100/100 0/0")
    four.wait_type(CPU_POOL, cpu="48/72")
    four.wait_queue(A10G_POOL, quotas={"gpustack-nvidia-a10g-linux-amd64-1d": "1600k"}, stop="None")


def test_07_10_4_an_admin_type_beside_a_derived_one(four: Cluster) -> None:
    name = "a10g-12c128g"
    spec = {
        "acceleratorGroup": "nvidia-a10g",
        "generalGroup": "generic",
        "acceleratable": True,
        "os": "linux",
        "arch": "amd64",
        "unitResources": {"cpu": "12", "ram": "128Gi"},
        "localStorage": "200Gi",
    }
    body = {"apiVersion": INSTANCE_TYPE.api_version, "kind": "InstanceType", "metadata": {"name": name}, "spec": spec}
    four.admin.create(body)
    made = four.wait_type(name, accelerator="1/1 1/10 100/100 0/0", unit="12/128Gi/200Gi")
    # Specification 07 shows the hash of another name here; the rule of 01 §8 counts.
    assert made["status"]["entrance"] == "gpustack-fnv64-d4c0e6cd72686015"
    assert quotas_of(four.get(CLUSTER_QUEUE, name)) == quotas_of(four.get(CLUSTER_QUEUE, A10G_POOL))
    four.admin.delete(INSTANCE_TYPE, name)
    four.wait_gone(INSTANCE_TYPE, name)
    four.wait_gone(CLUSTER_QUEUE, name)
    four.wait_type(A10G_POOL, accelerator="1/1 1/10 100/100 0/0")


def test_b051_namespaces_that_go_hold_nobody_up(four: Cluster) -> None:
    going = [f"going-{number:02d}" for number in range(30)]
    entrances = [four.get(INSTANCE_TYPE, pool)["status"]["entrance"] for pool in (CPU_POOL, A10G_POOL, T4_POOL)]
    for name in going:
        four.admin.apply(namespace_manifest(name))
    for name in going:
        for entrance in entrances:
            four.wait(LOCAL_QUEUE, entrance, name, until=bool, what="there")
    kept: Object = {"name": "kept", "namespace": going[0], "finalizers": ["e2e.example/kept"]}
    four.admin.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": kept})
    since = four.position()
    for name in going[:10]:
        four.admin.delete(NAMESPACE, name)
    four.admin.apply(namespace_manifest("newcomer"))
    for entrance in entrances:
        four.wait(LOCAL_QUEUE, entrance, "newcomer", until=bool, what="there while others go", timeout_s=10)
    for name in going[1:10]:
        four.wait_gone(NAMESPACE, name)
    refused = Counter(r.namespace for r in four.requests(since) if r.code == 403)
    assert all(refused[name] <= 2 * len(entrances) for name in refused), refused
    four.settle()
    since = four.position()
    four.hold(10)
    assert [str(request) for request in four.requests(since) if not request.is_quiet] == []
    four.admin.patch(CONFIG_MAP, "kept", {"metadata": {"finalizers": None}}, going[0])
    for name in ("newcomer", *going[10:]):
        four.admin.delete(NAMESPACE, name)
    for name in ("newcomer", *going):
        four.wait_gone(NAMESPACE, name)


def test_07_10_5_cpu_awareness_on_and_off(four: Cluster) -> None:
    before = four.meaning()
    four.set(instance_type_aware_cpu_manufacturer="true")
    aware = "gpustack-intel-6-85--nvidia-tesla-t4-linux-amd64"
    four.wait_type(aware, accelerator="4/5 4/50 100/500 0/0")
    four.wait_type("gpustack-amd-6-85--nvidia-a10g-linux-amd64", accelerator="1/1 1/10 100/100 0/0")
    four.wait_type("gpustack-amd-6-85-linux-amd64", cpu="16/20")
    four.wait_type("gpustack-intel-6-85-linux-amd64", cpu="48/52")
    queue = four.get(CLUSTER_QUEUE, aware)
    assert labels_of(queue)["general.feature.gpustack.ai/intel-6-85"] == "true"
    four.set(instance_type_aware_cpu_manufacturer="false")
    four.wait_type(T4_POOL, accelerator="4/5 4/50 100/500 0/0")
    four.wait_type(CPU_POOL, cpu="48/72")
    for name in ("gpustack-amd-6-85-linux-amd64", "gpustack-intel-6-85-linux-amd64", aware):
        four.admin.delete(INSTANCE_TYPE, name)
        four.wait_gone(INSTANCE_TYPE, name)
    four.admin.delete(INSTANCE_TYPE, "gpustack-amd-6-85--nvidia-a10g-linux-amd64")
    four.wait_gone(INSTANCE_TYPE, "gpustack-amd-6-85--nvidia-a10g-linux-amd64")
    four.settle()
    assert four.meaning() == before
