"""node_queue_entrance on an API in memory (spec 04 §9, cases B019, B027, B051)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from controllers.node_queue_entrance import NodeQueueEntrance, local_queue, mend_patch
from kube.errors import Forbidden
from kube.reconciler import Object
from kube.requests import Request
from nodefeature.fields import name_of
from nodefeature.kinds import CLUSTER_QUEUE, LOCAL_QUEUE, NAMESPACE
from nodefeature.labels import CLUSTER_QUEUE_ANNOTATION
from tests.builders.chain import bench, ours
from tests.builders.fake_api import Bench, FakeApi
from tests.builders.queues import cluster_queue, namespace
from tests.builders.rows import case_json

POOL = "gpustack-nvidia-a10g-linux-amd64"
ENTRANCE = "gpustack-fnv64-7bc37bef52624161"
NULLS = case_json("B019-null-fields")["objects"]


class World:
    """Namespaces and one queue on an API in memory."""

    def __init__(self, *namespaces: str, home: str = "gpustack-system") -> None:
        self.api = FakeApi()
        self.api.add(NAMESPACE, *(namespace(name) for name in namespaces))
        self.api.add(CLUSTER_QUEUE, cluster_queue(POOL))
        self.bench: Bench = bench(self.api, ("node_queue_entrance",), namespace=home)

    def run(self, seconds: float = 0.0) -> list[str]:
        """Settle, let time pass, return our writes."""

        async def go() -> list[str]:
            writes = await self.bench.settle()
            if seconds:
                writes += await self.bench.advance(seconds)
            return [str(write) for write in ours(writes)]

        return asyncio.run(go())

    def entrances(self) -> list[str]:
        return sorted(key.namespace for key in self.api.store[LOCAL_QUEUE])

    def get(self, where: str) -> Object:
        found = self.api.get(LOCAL_QUEUE, ENTRANCE, where)
        assert found is not None
        return found


def test_the_operators_own_namespace_is_reserved_whatever_its_name() -> None:
    world = World("default", "gpustack-system", "gpus", home="gpus")
    world.run()
    assert world.entrances() == ["default", "gpustack-system"]


def test_every_namespace_that_is_not_reserved_gets_an_entrance() -> None:
    world = World("default", "team-a", "kube-system", "kube-public", "kube-node-lease", "gpustack-system")
    world.run()
    assert world.entrances() == ["default", "team-a"]
    found = world.get("team-a")
    assert found["metadata"]["annotations"] == {CLUSTER_QUEUE_ANNOTATION: POOL}
    assert found["spec"] == {"clusterQueue": POOL}
    assert found["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "ClusterQueue",
            "name": POOL,
            "uid": world.api.get(CLUSTER_QUEUE, POOL)["metadata"]["uid"],  # type: ignore[index]  # it is there
            "controller": True,
        }
    ]


def test_b027_settled_entrances_are_never_written_also_after_a_restart() -> None:
    world = World("default", "team-a")
    world.run()
    assert world.run(600) == []
    assert asyncio.run(bench(world.api, ("node_queue_entrance",)).settle()) == []
    world.api.edit(LOCAL_QUEUE, ENTRANCE, {"metadata": {"annotations": {"touched": "x"}}}, "team-a")
    assert world.run(600) == []


def test_new_namespace_and_new_queue_are_opened() -> None:
    world = World("default")
    world.run()
    world.api.add(NAMESPACE, namespace("fresh"))
    world.api.add(CLUSTER_QUEUE, cluster_queue("other"))
    world.run()
    assert len(world.api.store[LOCAL_QUEUE]) == 4


def test_deleted_entrance_comes_back_at_once() -> None:
    world = World("default", "team-a")
    world.run()
    world.api.remove(LOCAL_QUEUE, ENTRANCE, "team-a")
    assert len(world.run()) == 1
    assert world.entrances() == ["default", "team-a"]


@pytest.mark.parametrize(
    "edit",
    [
        pytest.param({"metadata": {"annotations": {CLUSTER_QUEUE_ANNOTATION: None}}}, id="annotation gone"),
        pytest.param({"metadata": {"annotations": {CLUSTER_QUEUE_ANNOTATION: "other"}}}, id="annotation changed"),
        pytest.param({"metadata": {"ownerReferences": []}}, id="owner gone"),
        pytest.param({"spec": {"clusterQueue": "other"}}, id="leads elsewhere: replaced"),
    ],
)
def test_entrance_edited_by_hand_is_mended(edit: dict[str, Any]) -> None:
    world = World("default")
    world.run()
    before = world.get("default")
    world.api.edit(LOCAL_QUEUE, ENTRANCE, edit, "default")
    assert 1 <= len(world.run()) <= 2
    after = world.get("default")
    assert (after["metadata"]["annotations"], after["spec"]) == (before["metadata"]["annotations"], before["spec"])
    assert after["metadata"]["ownerReferences"] == before["metadata"]["ownerReferences"]


def test_somebody_elses_local_queue_with_our_name_is_left_alone() -> None:
    world = World("default")
    foreign = {"metadata": {"name": ENTRANCE, "namespace": "default"}, "spec": {"clusterQueue": "theirs"}}
    world.api.add(LOCAL_QUEUE, foreign)
    assert world.run(60) == []
    assert world.get("default")["spec"] == {"clusterQueue": "theirs"}


def test_entrance_of_a_namesake_queue_gets_the_new_owner() -> None:
    world = World("default")
    world.run()
    world.api.remove(CLUSTER_QUEUE, POOL)
    fresh = cluster_queue(POOL)
    fresh["metadata"]["uid"] = "second"
    world.api.add(CLUSTER_QUEUE, fresh)
    world.run()
    owners = world.get("default")["metadata"]["ownerReferences"]
    assert [owner["uid"] for owner in owners] == ["second"]


def _terminating(request: Request) -> Exception | None:
    if request.method != "POST" or "/namespaces/going-" not in request.path:
        return None
    status = {"reason": "Forbidden", "code": 403, "details": {"causes": [{"reason": "NamespaceTerminating"}]}}
    return Forbidden(status, 403, "Forbidden")


def test_b051_namespaces_that_are_going_cost_at_most_one_refused_create_each() -> None:
    stay, go = [f"stay-{i}" for i in range(20)], [f"going-{i}" for i in range(10)]
    world = World(*stay, *go)
    refused: list[str] = []

    def fault(request: Request) -> Exception | None:
        error = _terminating(request)
        if error:
            refused.append(request.path)
        return error

    world.api.faults.append(fault)  # the server knows before our cache does
    world.run(30)
    assert world.entrances() == sorted(stay)
    assert len(refused) == len(go)
    for name in go:
        world.api.add(NAMESPACE, namespace(name, deleting=True))
    world.api.add(NAMESPACE, namespace("fresh"))
    world.run(600)
    assert len(refused) == len(go), "then silence"
    assert "fresh" in world.entrances()
    assert world.bench.errors == []


def test_b051_namespace_that_comes_back_is_opened() -> None:
    world = World("going-0")
    world.api.faults.append(_terminating)
    world.run(30)
    world.api.faults.clear()
    world.api.remove(NAMESPACE, "going-0")
    world.run()
    world.api.add(NAMESPACE, namespace("going-0"))
    world.run()
    assert world.entrances() == ["going-0"]


def test_another_refusal_is_retried_and_stops_no_other_namespace() -> None:
    world = World("default", "quota")
    errors = [Forbidden({"reason": "Forbidden", "message": "exceeded quota"}, 403, "Forbidden")]

    def fault(request: Request) -> Exception | None:
        return errors.pop() if errors and "/namespaces/quota/" in request.path else None

    world.api.faults.append(fault)
    world.run()
    assert world.entrances() == ["default"]
    assert len(world.bench.errors) == 1
    world.run(60)
    assert world.entrances() == ["default", "quota"]


def test_deleting_queue_opens_nothing() -> None:
    world = World("default")
    world.api.add(CLUSTER_QUEUE, cluster_queue("going", deleting=True))
    world.run()
    assert len(world.api.store[LOCAL_QUEUE]) == 1


@pytest.mark.parametrize("obj", NULLS, ids=lambda obj: f"{obj['kind']}-{obj['metadata']['name']}")
def test_b019_null_fields_stop_nobody(obj: dict[str, Any]) -> None:
    world = World("default")
    for watch in NodeQueueEntrance.WATCHES:
        for old, new in ((None, obj), (obj, obj), (obj, None), ({}, obj), (obj, {})):
            list(watch.keys(old, new, world.bench.caches))
    kinds = {k.kind: k for k in (NAMESPACE, CLUSTER_QUEUE, LOCAL_QUEUE)}
    if obj["kind"] in kinds:
        world.api.add(kinds[obj["kind"]], obj)
    world.run()
    assert world.bench.errors == []
    assert "default" in world.entrances()


def test_null_metadata_of_a_local_queue_is_mended() -> None:
    queue = cluster_queue(POOL)
    queue["metadata"]["uid"] = "u"
    wanted = local_queue(queue, "default")
    current = {"metadata": {"name": name_of(wanted), "annotations": None, "ownerReferences": None}, "spec": None}
    assert set(mend_patch(current, wanted)["metadata"]) == {"annotations", "ownerReferences"}
    assert mend_patch(wanted, wanted) == {}
