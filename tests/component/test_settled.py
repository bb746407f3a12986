"""A settled cluster: nobody writes, a change costs what it must, what hands have changed comes back (case B027)."""

from __future__ import annotations

from collections import Counter
from typing import Any

from nodefeature.fields import annotations_of, labels_of
from nodefeature.kinds import (
    CLUSTER_QUEUE,
    DEVICES,
    INSTANCE_TYPE,
    LOCAL_QUEUE,
    NODE,
    NODE_FEATURE,
    RESOURCE_FLAVOR,
    TOPOLOGY,
    Kind,
)
from nodefeature.labels import SYSTEM_NAMESPACE
from tests.builders.running_chain import RunningChain, Written, scenario
from tests.component.test_worked_examples import ASCEND, DGX, EPYC
from tests.component.walkthrough import A10G_FLAVOR, A10G_POOL, FLEET, NODE_A10G, SLICE_20, T4_POOL, WHOLE

TEN_MINUTES = 600.0
A10G_ENTRANCE = "gpustack-fnv64-7bc37bef52624161"
A10G_KEY = "acceleratable.feature.gpustack.ai/nvidia-a10g"
STATUS_OF_TYPES = "instancetypes.worker.gpustack.ai/status"


async def writes_in(chain: RunningChain, seconds: float = TEN_MINUTES) -> Counter[Written]:
    before, version = chain.written(), chain.store.version
    await chain.run(seconds)
    found = chain.written() - before
    assert found or chain.store.version == version, chain.last_changes()
    return found


@scenario(EPYC, DGX, ASCEND, *FLEET)
async def test_b027_nobody_writes_for_ten_minutes_nor_after_a_restart(chain: RunningChain) -> None:
    await chain.settle()
    assert await writes_in(chain) == Counter()
    await chain.restart_controllers()
    assert await writes_in(chain) == Counter()
    await chain.stop("standins")
    chain.start_standins()
    assert await writes_in(chain) == Counter()


@scenario(*FLEET)
async def test_one_ledger_change_costs_one_status_write(chain: RunningChain) -> None:
    await chain.settle()
    for node, pool, row, fits in (
        ("node-a10g", A10G_POOL, SLICE_20, 1),
        ("node-t4-b", T4_POOL, WHOLE, 1),
        ("node-t4-b", T4_POOL, SLICE_20, 0),  # three whole cards are free beside it, as before
    ):
        before, version = chain.written(), chain.type(pool)["metadata"]["resourceVersion"]
        await chain.charge(node, {"index": 0, **row})
        await chain.settle()
        by_product = Counter({w: n for w, n in (chain.written() - before).items() if "device-manager" not in w.manager})
        assert by_product == Counter(
            {
                Written("update", STATUS_OF_TYPES, "gpustack-instance-type", 200): 1,
                Written("patch", "nodes", "gpustack-node-fit", 200): fits,
            }
        )
        assert chain.type(pool)["metadata"]["resourceVersion"] != version


@scenario(NODE_A10G)
async def test_one_ledger_change_costs_one_status_write_for_each_sibling(chain: RunningChain) -> None:
    await chain.settle()
    spec = dict(chain.type(A10G_POOL)["spec"])
    await chain.create(INSTANCE_TYPE, {"metadata": {"name": "mine"}, "spec": spec})
    await chain.settle()
    before = chain.written()
    await chain.charge("node-a10g", {"index": 0, **SLICE_20})
    await chain.settle()
    assert (chain.written() - before)[Written("update", STATUS_OF_TYPES, "gpustack-instance-type", 200)] == 2
    assert chain.row("mine")[1] == chain.row(A10G_POOL)[1] == "0/0 0/0 80/80 0/0"


OURS: tuple[tuple[Kind, str, str], ...] = (
    (NODE, "node-a10g", ""),
    (NODE_FEATURE, "node-a10g-gpustack-worker", SYSTEM_NAMESPACE),
    (NODE_FEATURE, "node-a10g-gpustack-device-manager", SYSTEM_NAMESPACE),
    (DEVICES, "node-a10g", ""),
    (RESOURCE_FLAVOR, A10G_FLAVOR, ""),
    (CLUSTER_QUEUE, A10G_POOL, ""),
    (LOCAL_QUEUE, A10G_ENTRANCE, "default"),
    (INSTANCE_TYPE, A10G_POOL, ""),
    (TOPOLOGY, "gpustack-fnv64-87bf574bea2a4f23", ""),
)


@scenario(NODE_A10G)
async def test_b027_a_foreign_annotation_costs_nothing(chain: RunningChain) -> None:
    await chain.settle()
    for kind, name, namespace in OURS:
        await chain.edit(kind, name, {"metadata": {"annotations": {"example.com/touched": "by hand"}}}, namespace)
    assert await writes_in(chain) == Counter()
    for kind, name, namespace in OURS:
        assert annotations_of(chain.object(kind, name, namespace))["example.com/touched"] == "by hand"


CHECKS = {"admissionChecks": [{"name": "x"}]}
WORKER_KEY = "general.feature.gpustack.ai/amd"
A10G_WORKER = "node-a10g-gpustack-worker"


def labels(changed: dict[str, str | None]) -> dict[str, Any]:
    return {"metadata": {"labels": changed}}


def notes(changed: dict[str, str | None]) -> dict[str, Any]:
    return {"metadata": {"annotations": changed}}


EDITS: tuple[tuple[str, Kind, str, dict[str, Any], bool], ...] = (
    ("queue-groups", CLUSTER_QUEUE, A10G_POOL, {"spec": {"resourceGroups": []}}, False),
    ("queue-hold", CLUSTER_QUEUE, A10G_POOL, {"spec": {"stopPolicy": "Hold"}}, False),
    ("queue-checks", CLUSTER_QUEUE, A10G_POOL, {"spec": {"admissionChecksStrategy": CHECKS}}, False),
    ("queue-label", CLUSTER_QUEUE, A10G_POOL, labels({"feature.gpustack.ai/acceleratable": None}), False),
    ("queue-mark", CLUSTER_QUEUE, A10G_POOL, notes({"topology.gpustack.ai/tas-queue": None}), False),
    ("queue-verdict", CLUSTER_QUEUE, A10G_POOL, {"status": {"conditions": None}}, True),
    ("flavor-label", RESOURCE_FLAVOR, A10G_FLAVOR, labels({f"{A10G_KEY}.capacity": "9"}), False),
    ("flavor-note", RESOURCE_FLAVOR, A10G_FLAVOR, notes({"note.gpustack.ai/product": None}), False),
    ("entrance-owner", LOCAL_QUEUE, A10G_ENTRANCE, {"metadata": {"ownerReferences": None}}, False),
    ("entrance-note", LOCAL_QUEUE, A10G_ENTRANCE, {"metadata": {"annotations": None}}, False),
    ("entrance-queue", LOCAL_QUEUE, A10G_ENTRANCE, {"spec": {"clusterQueue": "elsewhere"}}, False),
    ("type-finalizer", INSTANCE_TYPE, A10G_POOL, {"metadata": {"finalizers": []}}, False),
    ("type-status", INSTANCE_TYPE, A10G_POOL, {"status": {"phase": "Inactive", "summary": {"cpu": "9/9"}}}, True),
    ("worker-labels", NODE_FEATURE, A10G_WORKER, {"spec": {"labels": {WORKER_KEY: None}}}, False),
    ("devices-label", DEVICES, "node-a10g", labels({"gpustack.ai/managed": None}), False),
    ("capacity", NODE, "node-a10g", {"status": {"capacity": {"nvidia.com/gpu.sliced.units": "7"}}}, True),
)  # fmt: skip


@scenario(NODE_A10G)
async def test_ours_edited_by_hand_converges(chain: RunningChain) -> None:
    await chain.settle()
    for row, kind, name, patch, status in EDITS:
        namespace = {LOCAL_QUEUE: "default", NODE_FEATURE: SYSTEM_NAMESPACE}.get(kind, "")
        before = chain.object(kind, name, namespace)
        await chain.edit(kind, name, patch, namespace, status=status)
        found = await writes_in(chain, 120.0)
        product = {w: n for w, n in found.items() if w.manager.startswith("gpustack-")}
        # A queue whose label goes loses its per-card check and gets it back.
        assert 1 <= sum(product.values()) <= 8, (row, product)
        assert meaning(chain.object(kind, name, namespace)) == meaning(before), row
        assert chain.row(A10G_POOL)[3] == "Active", row
    assert await writes_in(chain) == Counter()


@scenario(NODE_A10G)
async def test_ours_deleted_by_hand_comes_back(chain: RunningChain) -> None:
    await chain.settle()
    row = chain.row(A10G_POOL)
    for kind, name, namespace in OURS[1:]:
        before = chain.object(kind, name, namespace)
        await chain.delete(kind, name, namespace)
        await chain.run(60)  # an agent's pass, and what follows it
        await chain.settle()
        after = chain.object(kind, name, namespace)
        assert after["metadata"]["uid"] != before["metadata"]["uid"], name
        assert labels_of(after) == labels_of(before), name
        assert chain.row(A10G_POOL) == row, name
        assert chain.quotas(A10G_POOL) == {A10G_FLAVOR: "1600k"}, name
        assert A10G_ENTRANCE in chain.entrances(), name
    assert await writes_in(chain) == Counter()


@scenario(*FLEET)
async def test_a_flavor_deleted_beside_others_comes_back(chain: RunningChain) -> None:
    await chain.settle()
    row, quotas = chain.row(T4_POOL), chain.quotas(T4_POOL)
    await chain.delete(RESOURCE_FLAVOR, "gpustack-nvidia-tesla-t4-linux-amd64-1d")
    await chain.run(120)
    await chain.settle()
    assert (chain.row(T4_POOL), chain.quotas(T4_POOL)) == (row, quotas)
    assert "deletionTimestamp" not in chain.object(RESOURCE_FLAVOR, next(iter(quotas)))["metadata"]


def meaning(obj: dict[str, Any]) -> dict[str, Any]:
    """Return an object without what every write changes."""
    metadata = {k: v for k, v in obj["metadata"].items() if k not in ("resourceVersion", "generation", "uid")}
    metadata.pop("creationTimestamp", None)
    metadata.pop("managedFields", None)
    rest = {key: value for key, value in obj.items() if key != "metadata"}
    status = dict(rest.get("status") or {})
    status["conditions"] = sorted(
        (c.get("type"), c.get("status"), c.get("reason")) for c in status.get("conditions") or ()
    )
    return {**rest, "metadata": metadata, "status": status}
