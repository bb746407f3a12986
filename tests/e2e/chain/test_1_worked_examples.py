"""The worked examples of spec 04 §13 on the real control plane.

As in the walk-through, CPU keys are `<vendor>-<family>-<id>`. `tests/component` has the examples' other halves, whose
figures do not depend on Kueue, NFD or a scheduler.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from hack.fleet import FleetNode
from nodefeature.fields import as_maps, at, labels_of
from nodefeature.kinds import CLUSTER_QUEUE, DEVICES, INSTANCE_TYPE, LOCAL_QUEUE, NODE, NODE_FEATURE, RESOURCE_FLAVOR
from nodefeature.labels import MANAGED, SYSTEM_NAMESPACE
from nodefeature.quantity import quantity_or_zero
from tests.builders.machines import machine
from tests.component.test_worked_examples import A100_POOL, ASCEND_POOL, DGX, PROFILES
from tests.component.test_worked_examples import ASCEND as ASCEND_MACHINE
from tests.e2e.chain.cluster import Cluster, Machine, quotas_of

pytestmark = pytest.mark.timeout(600)

CPU_POOL = "gpustack-generic-linux-amd64"
EPYC_64 = "gpustack-amd-6-85-linux-amd64-64c"
XEON_16 = "gpustack-intel-6-85-linux-amd64-16c"
OWN = "general.feature.gpustack.ai/amd-6-85"


@pytest.fixture
def bare(cluster: Cluster) -> Iterator[Cluster]:
    """Return the cluster without machines, and leave it so."""
    yield cluster
    cluster.clear()


def join(cluster: Cluster, *machines: Machine) -> None:
    """Let machines join under their own names."""
    nodes = [FleetNode(str(one["name"]), "", {}) for one in machines]
    cluster.join(*nodes, machines={str(one["name"]): one for one in machines})


def epyc(name: str) -> Machine:
    return machine(name, cores=64, vendor="AMD", cpu="AMD EPYC 7571")


def test_04_13_1_a_cpu_node_and_more_of_them(bare: Cluster) -> None:
    join(bare, epyc("cpu-1"))
    bare.wait_type(CPU_POOL, unit="1/2Gi/100Gi", accelerator="0/0 0/0 0/0 0/0", cpu="64/64")
    assert {MANAGED: "true", OWN: "true", f"{OWN}.count": "64"}.items() <= bare.merged_labels("cpu-1").items()
    assert bare.names(RESOURCE_FLAVOR) == [EPYC_64]
    flavor = bare.get(RESOURCE_FLAVOR, EPYC_64)
    assert [labels_of(flavor)[f"{OWN}{part}"] for part in ("", ".count", ".capacity")] == ["true", "64", "64"]
    assert labels_of(flavor)["feature.gpustack.ai/acceleratable"] == "false"
    made = bare.get(INSTANCE_TYPE, CPU_POOL)
    assert (made["spec"]["displayName"], made["status"]["entrance"]) == ("CPU-only", "gpustack-fnv64-7aa0010633cb3725")
    queue = bare.wait_queue(CPU_POOL, quotas={EPYC_64: "64"}, stop="None")
    assert [group["coveredResources"] for group in at(queue, "spec", "resourceGroups")] == [["cpu"]]
    join(bare, machine("cpu-2", cores=16, cpu="Intel Xeon 8358"))
    bare.wait_type(CPU_POOL, cpu="64/80")
    assert list(quotas_of(bare.get(CLUSTER_QUEUE, CPU_POOL)).items()) == [(XEON_16, "16"), (EPYC_64, "64")]
    join(bare, epyc("cpu-3"), epyc("cpu-4"))
    bare.wait_queue(CPU_POOL, quotas={XEON_16: "16", EPYC_64: "192"}, stop="None")
    bare.wait_type(CPU_POOL, cpu="64/208")


def test_04_13_2_eight_a100_one_of_them_in_mig_mode(bare: Cluster) -> None:
    join(bare, DGX)
    bare.wait_type(A100_POOL, unit="12/128Gi/100Gi", accelerator="7/7 7/70 100/700 1/7")
    flavor = f"{A100_POOL}-8d"
    bare.wait_queue(A100_POOL, quotas={flavor: "12800k"}, stop="None")
    assert bare.names(RESOURCE_FLAVOR) == ["gpustack-intel-6-85-linux-amd64-128c", flavor]
    for entrance in ("gpustack-fnv64-7593aa9990f92889", "gpustack-fnv64-7aa0010633cb3725"):
        bare.wait(LOCAL_QUEUE, entrance, "default", until=bool, what="there")
    wait_counted(
        bare,
        "gpu-1",
        {
            "sliced.units": 11_200_000,
            "sliced.cores-percentage": 89_600,
            "sliced.memory-percentage": 700,
            "sliced.memory-mib": 573_440,
            "partitioned.units": 1_600_000,
            **{f"partitioned.mig-{name}": count for name, count in PROFILES.items()},
        },
    )
    assert profiles(bare, "remainingProfiles") == PROFILES
    assert profiles(bare, "allocatedProfiles") == {}


def test_04_13_2_a_slice_and_a_partition_in_the_ledger(bare: Cluster) -> None:
    join(bare, DGX)
    bare.wait_type(A100_POOL, accelerator="7/7 7/70 100/700 1/7")
    bare.stop_agents("gpu-1")  # the rows below are what an agent writes for Pods that no kubelet here can start
    carved = {
        "index": 7,
        "mode": 4,
        "remaining": 1_600_000,
        "allocatedProfiles": [{"name": "3g.40gb", "count": 1}],
        "remainingProfiles": [{"name": "1g.10gb", "count": 4}, {"name": "3g.40gb", "count": 1}],
    }
    charge(bare, "gpu-1", {"index": 0, "mode": 3, "remaining": 1_120_000}, carved)
    bare.wait_type(A100_POOL, accelerator="6/6 6/60 100/670 1/4")
    assert profiles(bare, "remainingProfiles") == {**dict.fromkeys(PROFILES, 0), "1g.10gb": 4, "3g.40gb": 1}
    assert profiles(bare, "allocatedProfiles") == {"3g.40gb": 1}
    left = {"1g.10gb": 4, "1g.20gb": 0, "2g.20gb": 0, "3g.40gb": 2, "4g.40gb": 0, "7g.80gb": 0}
    wait_counted(bare, "gpu-1", {f"partitioned.mig-{name}": count for name, count in left.items()})
    units = counted(bare.get(NODE, "gpu-1"))
    assert (units["sliced.units"], units["partitioned.units"]) == (11_200_000, 1_600_000)


def test_04_13_3_ascend_on_arm64(bare: Cluster) -> None:
    join(bare, ASCEND_MACHINE)
    bare.wait_type(ASCEND_POOL, unit="8/64Gi/100Gi", accelerator="8/8 8/80 100/800 0/0")
    assert bare.names(RESOURCE_FLAVOR) == [f"{ASCEND_POOL}-8d", "gpustack-generic-linux-arm64-192c"]
    queue = bare.wait_queue(ASCEND_POOL, quotas={f"{ASCEND_POOL}-8d": "12800k"}, stop="None")
    assert [group["coveredResources"] for group in at(queue, "spec", "resourceGroups")] == [
        ["credits.gpustack.ai/ascend"]
    ]
    for entrance in ("gpustack-fnv64-6f6c3bb35df85e85", "gpustack-fnv64-fa718fcaa467d489"):
        bare.wait(LOCAL_QUEUE, entrance, "default", until=bool, what="there")
    wait_counted(
        bare,
        "npu-1",
        {
            "sliced.units": 12_800_000,
            "sliced.cores-percentage": 50_400,
            "sliced.memory-percentage": 800,
            "sliced.memory-mib": 524_288,
        },
    )


def test_04_13_4_manual_management(bare: Cluster) -> None:
    bare.set(node_management_manual="true")
    join(bare, epyc("cpu-1"))
    bare.wait(NODE_FEATURE, "cpu-1-gpustack-worker", SYSTEM_NAMESPACE, until=bool, what="there")
    bare.settle()
    assert MANAGED not in labels_of(bare.get(NODE, "cpu-1"))
    assert (bare.names(RESOURCE_FLAVOR), bare.names(INSTANCE_TYPE)) == ([], [])
    bare.admin.patch(NODE, "cpu-1", {"metadata": {"labels": {MANAGED: "true"}}})
    bare.wait_type(CPU_POOL, cpu="64/64")
    bare.admin.patch(NODE, "cpu-1", {"metadata": {"labels": {MANAGED: "false"}}})
    bare.wait_gone(RESOURCE_FLAVOR, EPYC_64)
    bare.wait_type(CPU_POOL, cpu="0/0", phase="Inactive")


def charge(cluster: Cluster, node: str, *rows: dict[str, Any]) -> None:
    """Write ledger rows as an agent does; each row names its card by `index`."""
    groups = cluster.get(DEVICES, node)["status"]["groups"]
    for row in rows:
        cards = groups[0]["accelerators"]
        position = next(n for n, card in enumerate(cards) if card["index"] == row["index"])
        cards[position] = {"id": cards[position]["id"], **row}
    cluster.admin.patch(DEVICES, node, {"status": {"groups": groups}}, subresource="status")


def counted(node: object) -> dict[str, int]:
    """Return a node's counting keys without the manufacturer's resource."""
    found = {}
    for key, text in (at(node, "status", "capacity") or {}).items():
        for family in ("sliced.", "partitioned."):
            _, separator, rest = key.partition(f".{family}")
            if separator:
                found[f"{family}{rest}"] = quantity_or_zero(text).floor()
    return found


def wait_counted(cluster: Cluster, node: str, want: dict[str, int]) -> None:
    """Wait until a node's counting keys show the given amounts."""
    cluster.wait(NODE, node, until=lambda obj: want.items() <= counted(obj).items(), what=f"counting {want}")


def profiles(cluster: Cluster, part: str) -> dict[str, int]:
    """Return one list of profile counts of the A100 pool."""
    view = at(cluster.get(INSTANCE_TYPE, A100_POOL), "status", "acceleratorPartitioned", part)
    return {entry["name"]: entry.get("count", 0) for entry in as_maps(view)}
