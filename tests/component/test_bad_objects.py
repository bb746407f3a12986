"""Objects that cannot be, or are not ours: named, never followed, and nobody else suffers."""

from __future__ import annotations

import copy
from typing import Any

from kube.reconciler import Object
from nodefeature.fields import at
from nodefeature.kinds import (
    CLUSTER_QUEUE,
    DEVICES,
    INSTANCE_TYPE,
    LOCAL_QUEUE,
    NAMESPACE,
    NODE,
    NODE_FEATURE,
    RESOURCE_FLAVOR,
    TOPOLOGY,
    Kind,
)
from tests.builders.machines import a10g, machine, t4
from tests.builders.rows import case_json
from tests.builders.running_chain import RunningChain, scenario
from tests.component.walkthrough import (
    A10G_FLAVOR,
    A10G_IDLE,
    A10G_POOL,
    FREE,
    NODE_A10G,
    NODE_T4_A,
    NODE_T4_B,
    NOTHING,
    T4_POOL,
)

KINDS = {(kind.api_version, kind.kind): kind for kind in (NODE, NAMESPACE, RESOURCE_FLAVOR, CLUSTER_QUEUE)}
KINDS |= {(kind.api_version, kind.kind): kind for kind in (DEVICES, NODE_FEATURE, LOCAL_QUEUE, INSTANCE_TYPE, TOPOLOGY)}
T4_FULL = ("8/32Gi/100Gi", "4/4 4/40 100/400 0/0", "0/0", "Active")


async def still_works(chain: RunningChain) -> None:
    """Let another machine join, and see that it is served."""
    await chain.join(NODE_A10G)
    await chain.settle()
    assert chain.row(A10G_POOL) == A10G_IDLE


# Null and wrong-typed fields. The API server lets through what its schemas do not know; older versions of ours, etcd
# edits and other clients leave the rest, so these objects go into the store below its checks.

WRONG: tuple[tuple[Kind, Object], ...] = (
    (NODE, {"metadata": {"name": "w1", "labels": {"gpustack.ai/managed": "true"}}, "spec": [], "status": "gone"}),
    (NODE, {"metadata": {"name": "w2"}, "spec": {"taints": {"key": 1}}, "status": {"capacity": ["cpu"]}}),
    (NODE, {"metadata": {"name": "w3"}, "status": {"capacity": {"cpu": {}}, "conditions": [None, 7, {"type": 1}]}}),
    (NODE, {"metadata": {"name": "w4", "annotations": {"feature.gpustack.ai/cpu-name": "x"}}, "spec": {"taints": [3]}}),
    (DEVICES, {"metadata": {"name": "w1"}, "spec": {"groups": [None, {"id": 3, "accelerators": "many"}]}}),
    (DEVICES, {"metadata": {"name": "w2"}, "spec": None, "status": {"groups": {"id": "x"}}}),
    (
        DEVICES,
        {"metadata": {"name": "w3"}, "spec": {"groups": [{"id": "a", "manufacturer": "nvidia", "memory": "24G"}]}},
    ),
    (RESOURCE_FLAVOR, {"metadata": {"name": "w1", "labels": {"resource.gpustack.ai/type": "nodes"}}, "spec": []}),
    (RESOURCE_FLAVOR, {"metadata": {"name": "w2"}, "spec": {"nodeLabels": None, "tolerations": "all"}}),
    (CLUSTER_QUEUE, {"metadata": {"name": "w1"}, "spec": {"resourceGroups": {"a": 1}}, "status": []}),
    (
        CLUSTER_QUEUE,
        {
            "metadata": {"name": "w2", "labels": {"resource.gpustack.ai/type": "instancetypes"}},
            "spec": {"resourceGroups": [None, {"flavors": [{"resources": "cpu"}]}], "stopPolicy": 3},
            "status": {"conditions": "fine", "flavorsReservation": [7], "reservingWorkloads": "two"},
        },
    ),
    (LOCAL_QUEUE, {"metadata": {"name": "w1", "namespace": "default"}, "spec": None}),
    (INSTANCE_TYPE, {"metadata": {"name": "w1"}, "spec": None, "status": None}),
    (INSTANCE_TYPE, {"metadata": {"name": "w2"}, "spec": {"acceleratable": "yes", "os": 1, "unitResources": []}}),
    (TOPOLOGY, {"metadata": {"name": "w1"}, "spec": {"levels": None}}),
    (NAMESPACE, {"metadata": {"name": "w1"}, "spec": None, "status": "Active"}),
    (NODE_FEATURE, {"metadata": {"name": "w1-gpustack-worker", "namespace": "gpustack-system"}, "spec": "labels"}),
    (
        NODE_FEATURE,
        {
            "metadata": {
                "name": "w2-gpustack-worker",
                "namespace": "gpustack-system",
                "labels": {"nfd.node.kubernetes.io/node-name": "w2"},
            },
            "spec": {"labels": {"a": 1, "gpustack.ai/managed": None}, "features": []},
        },
    ),
)


@scenario(NODE_T4_B)
async def test_b019_nulls_and_wrong_types_anywhere(chain: RunningChain) -> None:
    await chain.settle()
    given = [(KINDS.get((obj["apiVersion"], obj["kind"])), obj) for obj in case_json("B019-null-fields")["objects"]]
    for kind, obj in (*given, *WRONG):
        if kind is not None:
            chain.put(kind, obj)
    await chain.run(120)
    assert not chain.log.errors
    assert chain.row(T4_POOL) == T4_FULL
    await still_works(chain)
    await chain.restart_controllers()
    await chain.run(120)
    assert not chain.log.errors
    assert (chain.row(T4_POOL), chain.row(A10G_POOL)) == (T4_FULL, A10G_IDLE)


# Devices without a node.


@scenario(NODE_T4_B)
async def test_devices_of_a_node_that_never_was(chain: RunningChain) -> None:
    await chain.settle()
    ghost = chain.object(DEVICES, "node-t4-b")
    metadata = {"name": "ghost", "labels": ghost["metadata"]["labels"]}
    await chain.create(DEVICES, {"metadata": metadata, "spec": ghost["spec"]})
    await chain.settle()
    assert chain.find(DEVICES, "ghost") is None
    assert chain.row(T4_POOL) == T4_FULL


@scenario(NODE_T4_B, NODE_T4_A)
async def test_devices_of_a_node_replaced_by_a_namesake(chain: RunningChain) -> None:
    await chain.settle()
    before = chain.object(NODE, "node-t4-b")["metadata"]["uid"]
    await chain.charge("node-t4-b", {"index": 0, "mode": 1, "remaining": 0})
    await chain.delete(NODE, "node-t4-b")
    await chain.kill("agent node-t4-b")
    await chain.join({**NODE_T4_B, "accelerators": NODE_T4_B["accelerators"][:2]})
    await chain.run(600)
    after = chain.object(NODE, "node-t4-b")["metadata"]["uid"]
    assert after != before
    for kind, name, namespace in (
        (DEVICES, "node-t4-b", ""),
        (NODE_FEATURE, "node-t4-b-gpustack-worker", "gpustack-system"),
        (NODE_FEATURE, "node-t4-b-gpustack-device-manager", "gpustack-system"),
    ):
        owners = chain.object(kind, name, namespace)["metadata"]["ownerReferences"]
        assert [owner["uid"] for owner in owners] == [after]
    assert chain.row(T4_POOL) == ("8/32Gi/100Gi", "2/3 2/30 100/300 0/0", "0/0", "Active")


@scenario(NODE_A10G, NODE_T4_A)
async def test_a_deleted_node_leaves_its_pools(chain: RunningChain) -> None:
    await chain.settle()
    await chain.kill("agent node-a10g")
    await chain.delete(NODE, "node-a10g")
    await chain.settle()
    assert A10G_FLAVOR not in chain.flavors()
    assert chain.find(DEVICES, "node-a10g") is None
    assert chain.row(A10G_POOL)[1:] == (NOTHING, "0/0", "Inactive")
    assert chain.row(T4_POOL)[1] == "1/1 1/10 100/100 0/0"


# Ledgers that cannot be.

ROWS: tuple[tuple[str, dict[str, Any], str, str], ...] = (
    ("unknown-card", {"id": "GPU-nobody", "index": 9, "mode": 0, "remaining": 1_600_000}, "GPU-nobody", "4/4"),
    ("too-many-units", {**FREE, "remaining": 99_000_000}, "must be within 0 and 1600000 units", "4/4"),
    ("negative", {"mode": 3, "remaining": -16_000}, "must be within 0 and 1600000 units", "3/3"),
    ("unknown-mode", {"mode": 9, "remaining": 1_600_000}, "must be a mode from 0 to 4", "3/3"),
    ("text", {"mode": 3, "remaining": "half"}, "must be an integer", "3/3"),
)


@scenario(NODE_A10G, NODE_T4_B)
async def test_a_ledger_that_cannot_be(chain: RunningChain) -> None:
    await chain.settle()
    good = chain.object(DEVICES, "node-t4-b")
    for row, wrong, said, left in ROWS:
        stored = copy.deepcopy(good)
        cards = stored["status"]["groups"][0]["accelerators"]
        if "id" in wrong:
            cards.append(wrong)
        else:
            cards[0] = {"id": cards[0]["id"], "index": 0, **wrong}
        chain.put(DEVICES, stored)
        await chain.run(30)
        assert chain.row(T4_POOL)[1].partition(" ")[0] == left, row
        assert chain.said("object=node-t4-b", "status.groups[0].accelerators", said), row
    assert chain.row(A10G_POOL) == A10G_IDLE
    await chain.charge("node-a10g", {"index": 0, "mode": 3, "remaining": 1_280_000})
    await chain.settle()
    assert chain.row(A10G_POOL)[1] == "0/0 0/0 80/80 0/0"


# Somebody else's.


@scenario(NODE_A10G)
async def test_foreign_objects_that_look_like_ours(chain: RunningChain) -> None:
    await chain.settle()
    labels = {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", "feature.gpustack.ai/acceleratable": "true"}
    labels["acceleratable.feature.gpustack.ai/nvidia-a10g"] = "true"
    foreign: dict[str, Any] = {"name": "gpustack-nvidia-a10g-linux-amd64-9d", "labels": labels}
    await chain.create(RESOURCE_FLAVOR, {"metadata": foreign, "spec": {"nodeLabels": {"a": "b"}}})
    queue = {"metadata": {"name": "gpustack-nvidia-t4-linux-amd64", "labels": labels}, "spec": {"stopPolicy": "None"}}
    await chain.create(CLUSTER_QUEUE, queue)
    local = {"metadata": {"name": "mine", "namespace": "default"}, "spec": {"clusterQueue": A10G_POOL}}
    await chain.create(LOCAL_QUEUE, local)
    before = {
        kind: chain.object(kind, name, namespace)["spec"]
        for kind, name, namespace in (
            (RESOURCE_FLAVOR, foreign["name"], ""),
            (CLUSTER_QUEUE, "gpustack-nvidia-t4-linux-amd64", ""),
            (LOCAL_QUEUE, "mine", "default"),
        )
    }
    await chain.settle()
    await chain.restart_controllers()
    await chain.settle()
    assert chain.object(RESOURCE_FLAVOR, foreign["name"])["spec"] == before[RESOURCE_FLAVOR]
    assert chain.object(CLUSTER_QUEUE, "gpustack-nvidia-t4-linux-amd64")["spec"] == before[CLUSTER_QUEUE]
    assert chain.object(LOCAL_QUEUE, "mine", "default")["spec"] == before[LOCAL_QUEUE]
    assert chain.quotas(A10G_POOL) == {A10G_FLAVOR: "1600k"}
    assert chain.row(A10G_POOL) == A10G_IDLE


@scenario(NODE_A10G)
async def test_a_foreign_queue_has_the_name_of_ours(chain: RunningChain) -> None:
    await chain.create(
        CLUSTER_QUEUE, {"metadata": {"name": T4_POOL}, "spec": {"namespaceSelector": {"matchLabels": {"a": "b"}}}}
    )
    await chain.join(NODE_T4_A)
    await chain.settle()
    assert chain.type(T4_POOL)["status"]["phase"] == "Inactive"
    assert "is not managed by this operator" in chain.type(T4_POOL)["status"]["phaseMessage"]
    assert not chain.queue(T4_POOL)["spec"].get("resourceGroups")
    assert chain.row(A10G_POOL) == A10G_IDLE
    await chain.delete(CLUSTER_QUEUE, T4_POOL)
    await chain.run(120)
    assert chain.row(T4_POOL)[1:] == ("1/1 1/10 100/100 0/0", "0/0", "Active")


@scenario(NODE_A10G)
async def test_a_flavor_whose_spec_was_edited_is_named(chain: RunningChain) -> None:
    await chain.settle()
    await chain.edit(
        RESOURCE_FLAVOR,
        A10G_FLAVOR,
        {"spec": {"nodeLabels": {"acceleratable.feature.gpustack.ai/nvidia-a10g.count": "7"}}},
    )
    await chain.run(60)
    assert "delete the flavor to have it made again" in chain.events_about(A10G_FLAVOR)[0]
    assert chain.said(f"object={A10G_FLAVOR}", "spec differs from what the nodes say")
    await chain.delete(RESOURCE_FLAVOR, A10G_FLAVOR)
    await still_works_again(chain)


async def still_works_again(chain: RunningChain) -> None:
    await chain.run(120)
    assert (
        at(chain.object(RESOURCE_FLAVOR, A10G_FLAVOR), "spec", "nodeLabels")[
            "acceleratable.feature.gpustack.ai/nvidia-a10g.count"
        ]
        == "1"
    )
    assert chain.row(A10G_POOL) == A10G_IDLE


@scenario(machine("one", cards=[a10g()]), machine("two", cards=[a10g(), t4()]))
async def test_a_key_of_another_node_never_mixes(chain: RunningChain) -> None:
    await chain.settle()
    assert chain.quotas(A10G_POOL) == {A10G_FLAVOR: "3200k"}
    assert chain.quotas(T4_POOL) == {"gpustack-nvidia-tesla-t4-linux-amd64-1d": "1600k"}
    assert chain.row(A10G_POOL)[1] == "1/2 1/20 100/200 0/0"
