"""What is kept about nodes equals what reading all of them would say (decision 0410; design §8.4, §8.11)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controllers.contributors import Contributor, Contributors, flavors_of
from controllers.node_filing import NodeFiling
from controllers.node_view import FEATURES_BY_NODE, cached_labels
from controllers.pool_nodes import PoolNodes, pool_test, read_node
from kube.reconciler import Key, Object
from kube.runtime import SharedCaches
from kube.store import JOURNAL, Store
from nodefeature.fields import annotations_of, labels_of, name_of
from nodefeature.kinds import NODE, NODE_FEATURE, Kind
from nodefeature.labels import ACCELERATABLE, DEVICE_PREFIX, FALSE, GENERAL_PREFIX, MANAGED, SYSTEM_NAMESPACE, TRUE
from tests.builders.node_features import card_feature, worker_feature_of
from tests.builders.node_labels import cpu_pool_labels, platform
from tests.builders.nodes import MERGED, amd_labels, cpu_node, gpu_node, node

NAMES = ("a", "b", "c")
MODELS = ("nvidia-a10g", "nvidia-t4")
SELECTORS: tuple[dict[str, str], ...] = (
    {ACCELERATABLE: FALSE, **platform()},
    {ACCELERATABLE: TRUE, **platform()},
    *({ACCELERATABLE: TRUE, DEVICE_PREFIX + model: TRUE, **platform()} for model in MODELS),
    {ACCELERATABLE: TRUE, DEVICE_PREFIX + MODELS[0]: TRUE, GENERAL_PREFIX + "amd-23-1": TRUE, **platform()},
)


class Cached:
    """Caches as the runtime keeps them, filled by hand."""

    def __init__(self) -> None:
        self.caches = SharedCaches()
        for kind in (NODE, NODE_FEATURE):
            self.caches.declare(Store(kind))
        self.caches[NODE_FEATURE].add_index(FEATURES_BY_NODE)
        self._version = 0

    def put(self, kind: Kind, obj: Object) -> None:
        self._version += 1
        self.caches[kind].put({**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self._version)}})

    def remove(self, kind: Kind, name: str) -> None:
        self.caches[kind].remove(Key(name, SYSTEM_NAMESPACE if kind is NODE_FEATURE else ""))

    def contributors(self, *, cpu_aware: bool) -> dict[str, dict[str, Mapping[str, str]]]:
        """Return flavor -> node -> labels, from a walk over all nodes."""
        found: dict[str, dict[str, Mapping[str, str]]] = {}
        for one in self.caches[NODE].list():
            labels = cached_labels(one, self.caches)
            for flavor in flavors_of(labels, annotations_of(one), cpu_aware=cpu_aware):
                found.setdefault(flavor, {})[name_of(one)] = labels
        return found

    def pool(self, selector: Mapping[str, str]) -> set[str]:
        """Return the nodes of a pool, from a walk over all nodes."""
        facts = (read_node(name_of(one), cached_labels(one, self.caches)) for one in self.caches[NODE].list())
        return {fact.name for fact in facts if pool_test(selector).holds(fact)}


def nodes(name: str) -> st.SearchStrategy[Object]:
    cards = st.builds(gpu_node, st.just(name), st.sampled_from(MODELS), st.sampled_from((1, 2)))
    amd = cpu_node(name, "amd-23-1", labels=amd_labels())
    bare = [node(name), node(name, arch="arm64"), cpu_node(name), amd, gpu_node(name, labels={MANAGED: "false"})]
    return cards | st.sampled_from(bare)


def features(name: str) -> st.SearchStrategy[Object]:
    cpus = [{**MERGED, **cpu_pool_labels(key, "4")} for key in ("generic", "amd-23-1")]
    cards = st.builds(card_feature, st.just(name), st.sampled_from(MODELS), st.sampled_from((1, 2)))
    return cards | st.sampled_from([worker_feature_of(name, labels) for labels in (*cpus, {})])


NAME = st.sampled_from(NAMES)
STEP: st.SearchStrategy[tuple[str, Any]] = st.one_of(
    st.tuples(st.just("node"), NAME.flatmap(nodes)),
    st.tuples(st.just("feature"), NAME.flatmap(features)),
    st.tuples(st.just("no node"), NAME),
    st.tuples(
        st.just("no feature"),
        st.builds(lambda n, s: f"{n}-gpustack-{s}", NAME, st.sampled_from(["worker", "device-manager"])),
    ),
    st.tuples(st.just("ask"), st.none()),
)


@settings(max_examples=40, deadline=None)
@given(st.lists(STEP, max_size=25))
def test_what_is_kept_is_what_a_full_reading_says(steps: list[tuple[str, Any]]) -> None:
    world = Cached()
    kept, pools = Contributors(world.caches), PoolNodes(world.caches)
    flavors: set[str] = set()

    async def compare() -> None:
        for cpu_aware in (False, True):
            full = world.contributors(cpu_aware=cpu_aware)
            flavors.update(full)
            for flavor in flavors:
                found = await kept.of(flavor, cpu_aware=cpu_aware)
                assert {name_of(each.node): each.labels for each in found} == full.get(flavor, {})
        for selector in SELECTORS:
            assert {fact.name for fact in await pools.of(selector)} == world.pool(selector)

    for act, what in [*steps, ("ask", None)]:
        if act == "ask":
            asyncio.run(compare())
        elif act.startswith("no "):
            world.remove(NODE if act == "no node" else NODE_FEATURE, what)
        else:
            world.put(NODE if act == "node" else NODE_FEATURE, what)


def test_a_contributor_tells_each_label_as_its_labels_do() -> None:
    world = Cached()
    world.put(NODE, gpu_node("a", labels={MANAGED: TRUE}))
    world.put(NODE_FEATURE, worker_feature_of("a", {**MERGED, "extra": "1", MANAGED: "false"}))
    found = asyncio.run(Contributors(world.caches).of("gpustack-nvidia-a10g-linux-amd64-2d", cpu_aware=False))
    labels = found[0].labels
    assert (labels["extra"], labels[MANAGED]) == ("1", TRUE)
    assert {key: found[0].label(key) for key in labels} == labels


class Counting:
    """A filing that counts what it reads."""

    def __init__(self, world: Cached) -> None:
        self.reads: list[str] = []
        self.filing = NodeFiling(world.caches, self._read, lambda name: ("all",))

    def _read(self, one: Object, labels: Mapping[str, str]) -> str:
        assert labels.keys() >= labels_of(one).keys()
        self.reads.append(name_of(one))
        return name_of(one)


def fleet(count: int) -> Cached:
    world = Cached()
    for number in range(count):
        world.put(NODE, cpu_node(f"n{number}"))
    return world


@pytest.mark.parametrize("count", [10, 1000])
def test_a_question_reads_what_changed_whatever_the_fleet(count: int) -> None:
    world = fleet(count)
    counting = Counting(world)
    assert len(asyncio.run(counting.filing.under("all"))) == len(counting.reads) == count
    counting.reads.clear()
    world.put(NODE, cpu_node("n7", count=8))
    world.put(NODE_FEATURE, worker_feature_of("n8", {"extra": "1"}))
    world.remove(NODE, "n9")
    assert len(asyncio.run(counting.filing.under("all"))) == count - 1
    assert sorted(counting.reads) == ["n7", "n8"]
    assert asyncio.run(counting.filing.under("nowhere")) == ()
    assert len(counting.reads) == 2


def test_a_reader_too_far_behind_reads_everything() -> None:
    world = fleet(2)
    counting = Counting(world)
    asyncio.run(counting.filing.under("all"))
    world.remove(NODE, "n1")
    for _ in range(JOURNAL // 2 + 1):
        world.put(NODE, cpu_node("n0", count=8))
        world.put(NODE, cpu_node("n0"))
    assert asyncio.run(counting.filing.under("all")) == ("n0",)


def test_questions_at_the_same_time_share_the_reading_and_a_cut_off_one_loses_none() -> None:
    world = fleet(2000)
    counting = Counting(world)

    async def scenario() -> None:
        first = asyncio.ensure_future(counting.filing.under("all"))
        await asyncio.sleep(0)
        assert counting.reads
        first.cancel()
        both = await asyncio.gather(counting.filing.under("all"), counting.filing.under("all"))
        assert [len(found) for found in both] == [2000, 2000]
        assert len(counting.reads) == 2000, "each node once"

    asyncio.run(scenario())


def test_nodes_of_one_shape_share_it() -> None:
    world = fleet(3)
    found: tuple[Contributor, ...] = asyncio.run(
        Contributors(world.caches).of("gpustack-generic-linux-amd64-4c", cpu_aware=False)
    )
    assert len({id(each.shape) for each in found}) == 1
