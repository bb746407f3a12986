"""B019: null and wrong-typed fields, fed to every predicate, index, projection and reconciler of the process."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

import pytest

from controllers import RECONCILERS
from controllers.selections import SELECTIONS
from kube.reconciler import Index, Key, Object, Watch
from nodefeature.fields import name_of, namespace_of
from nodefeature.kinds import NODE, RESOURCE_FLAVOR
from tests.builders.chain import OUR_NODE_CONTROLLERS, bench
from tests.builders.fake_api import KINDS, FakeApi
from tests.builders.nodes import gpu_node
from tests.builders.rows import case_json

OBJECTS: list[Object] = case_json("B019-null-fields")["objects"]
BROKEN_META: list[Any] = [
    {},
    {"metadata": None},
    {"metadata": {"name": "x", "labels": [], "annotations": "a", "ownerReferences": {}, "finalizers": None}},
    {"metadata": {"name": "x", "labels": {"gpustack.ai/managed": 5, "resource.gpustack.ai/type": None}}},
    {"metadata": {"name": "x"}, "spec": [], "status": 7},
    {
        "metadata": {"name": "x"},
        "spec": {"taints": None, "groups": [None, 3]},
        "status": {"capacity": [], "groups": {}},
    },
    {"metadata": {"name": "x"}, "status": {"conditions": [None, "Ready"], "capacity": {"nvidia.com/gpu.sliced": None}}},
]
WATCHES = [(each.NAME, number, watch) for each in RECONCILERS for number, watch in enumerate(each.WATCHES)]
INDEXES = [(each.NAME, index) for each in RECONCILERS for index in each.INDEXES]


def of_kind(watch_kind: str) -> list[Object]:
    """Return the case's objects of a kind, and every other broken one: no predicate may rely on the kind's shape."""
    return [copy.deepcopy(obj) for obj in [*OBJECTS, *BROKEN_META] if obj.get("kind", watch_kind) == watch_kind]


@pytest.mark.parametrize(("name", "number", "watch"), WATCHES, ids=[f"{n}-{w.kind.kind}-{i}" for n, i, w in WATCHES])
def test_predicates(name: str, number: int, watch: Watch) -> None:
    caches = bench(FakeApi()).caches
    for broken in of_kind(watch.kind.kind):
        for old, new in (
            (None, broken),
            (broken, None),
            (broken, copy.deepcopy(broken)),
            (broken, {"metadata": {"name": "x"}}),
        ):
            for key in watch.keys(old, new, caches):
                assert isinstance(key, Key)


@pytest.mark.parametrize(("name", "index"), INDEXES, ids=[f"{n}-{i.kind.kind}-{i.name}" for n, i in INDEXES])
def test_indexes(name: str, index: Index) -> None:
    for broken in of_kind(index.kind.kind):
        assert all(isinstance(value, str) for value in index.values(broken))


@pytest.mark.parametrize("kind", SELECTIONS, ids=str)
def test_projections(kind: Any) -> None:
    project = SELECTIONS[kind].project
    for broken in of_kind(kind.kind) if project else ():
        assert project is not None
        assert isinstance(project(broken), dict)


def test_reconcilers_go_on() -> None:
    """Every object of the case beside a healthy node: nothing raises, the healthy node has its pool."""

    async def scenario() -> None:
        api = FakeApi()
        kinds = {kind.kind: kind for kind in KINDS}
        for broken in OBJECTS:
            api.add(kinds[broken["kind"]], broken)
        for kind in SELECTIONS:
            api.add(
                kind, {"metadata": {"name": "x", "labels": None, "annotations": None}, "spec": None, "status": None}
            )
        api.add(NODE, gpu_node("healthy"))
        chain = bench(api, OUR_NODE_CONTROLLERS)
        await chain.settle()
        assert chain.errors == []
        assert "gpustack-nvidia-a10g-linux-amd64-2d" in api.names(RESOURCE_FLAVOR)
        for reconciler in chain.reconcilers:
            for broken in OBJECTS:
                await reconciler.reconcile(Key(name_of(broken), namespace_of(broken)))
            await reconciler.reconcile(Key("nobody"))

    asyncio.run(scenario())
