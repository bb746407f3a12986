"""node_fit: spec 01 §5.7, design §8.10."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from controllers import RECONCILERS
from controllers.node_fit import NodeFit
from kube.reconciler import Object
from nodefeature.fit_labels import only_fit_labels
from nodefeature.kinds import DEVICES, NODE, NODE_FEATURE, POD
from nodefeature.labels import MANAGED
from tests.builders.chain import bench
from tests.builders.fake_api import Bench, FakeApi
from tests.builders.gate_world import gate_devices, gate_pod, taken, whole
from tests.builders.inventory import devices, group, partitioned_card, plain_card, row
from tests.builders.nodes import gpu_node

MODEL = "nvidia-a10g"


class World:
    """One node with eight cards."""

    def __init__(self, *rows: Any, node: Object | None = None, shown: Object | None = None) -> None:
        self.api = FakeApi()
        self.api.add(NODE, node or gpu_node("n", count=8))
        self.api.add(DEVICES, shown or gate_devices("n", *rows))
        self.bench: Bench = bench(self.api, ("node_fit",))

    def run(self) -> dict[str, str]:
        """Settle; return the fit labels without their domain."""
        asyncio.run(self.bench.settle())
        assert self.bench.errors == []
        node = self.api.get(NODE, "n")
        assert node is not None
        labels = only_fit_labels(node["metadata"]["labels"])
        assert all(label.endswith(f".fit.gpustack.ai/{MODEL}") for label in labels)
        return {label.partition(".fit.")[0]: value for label, value in labels.items()}


def fit(sliced: int | None, shared: int, exclusive: int) -> dict[str, str]:
    """Return the labels with these figures."""
    figures = {"shared-free-cards": str(shared), "exclusive-free-cards": str(exclusive)}
    return figures | ({"sliced-max-free-units": str(sliced)} if sliced is not None else {})


@pytest.mark.parametrize(
    ("rows", "want"),
    [
        ([], fit(1_600_000, 8, 8)),
        (taken(*range(8)), fit(0, 0, 0)),
        (taken(*range(7)), fit(1_600_000, 1, 1)),
        ([row(n, remaining=160_000 * n, mode=2) for n in range(8)], fit(0, 7, 0)),
        ([*taken(*range(7)), row(7, remaining=480_000, mode=3)], fit(480_000, 0, 0)),
        ([*taken(*range(7)), row(7, remaining=480_000, mode=77)], fit(0, 0, 0)),
    ],
    ids=["all free", "all held", "one free", "shared, the first full", "one sliced", "unknown mode"],
)
def test_figures(rows: list[Any], want: dict[str, str]) -> None:
    world = World(*rows)
    assert world.run() == want
    assert [(w.verb, w.manager) for w in world.api.writes] == [("patch", "gpustack-node-fit")]
    assert set(world.api.writes[0].body) == {"metadata"}
    world.api.writes.clear()
    assert world.run() == want
    assert world.api.writes == [], "a settled node gets no write"


@pytest.mark.parametrize(
    ("cards", "want"),
    [
        ([plain_card(0)], fit(None, 1, 1)),
        ([partitioned_card(0, {"1g.6gb": 4})], {}),
        ([], {}),
    ],
    ids=["not sliceable", "partitioned only", "no card"],
)
def test_a_population_without_cards_has_no_label(cards: list[Any], want: dict[str, str]) -> None:
    ledger = [{"id": "a10g", "manufacturer": "nvidia", "accelerators": [row(0)]}]
    assert World(shown=devices("n", group("nvidia", "a10g", cards), ledger=ledger)).run() == want


def test_a_node_that_is_no_longer_managed_loses_them() -> None:
    world = World()
    assert world.run() == fit(1_600_000, 8, 8)
    world.api.edit(NODE, "n", {"metadata": {"labels": {MANAGED: "false"}}})
    assert world.run() == {}
    world.api.edit(NODE, "n", {"metadata": {"labels": {MANAGED: "true"}}})
    assert world.run() == fit(1_600_000, 8, 8)


def test_b003_a_mark_that_nfd_took_away_still_counts() -> None:
    world = World()
    name = {"name": "n-gpustack-worker", "namespace": "gpustack-system"}
    feature: dict[str, Any] = {"metadata": name, "spec": {"labels": {MANAGED: "true"}}}
    world.api.add(NODE_FEATURE, feature)
    world.run()
    world.api.edit(NODE, "n", {"metadata": {"labels": {MANAGED: None}}})
    assert world.run() == fit(1_600_000, 8, 8)


def test_a_record_counts_before_the_ledger_says_so() -> None:
    world = World(*taken(*range(6)))
    world.run()
    world.api.add(POD, gate_pod("p", uid="u", node="n", record=[whole(7)]))
    assert world.run() == fit(1_600_000, 1, 1)


def test_a_ledger_that_swaps_one_holder_for_another_is_counted_again() -> None:
    """One publication takes the gone Pod's card back and shows the new Pod's: by itself it frees nothing."""
    world = World(*taken(0))
    world.api.add(POD, gate_pod("p", uid="u", node="n", record=[whole(1)]))
    assert world.run() == fit(1_600_000, 6, 6), "the gone Pod's card is in the ledger, the new one's on record"
    world.api.add(DEVICES, gate_devices("n", *taken(1)))
    assert world.run() == fit(1_600_000, 7, 7)


def test_a_slice_slot_is_counted_by_records() -> None:
    world = World(shown=_two_slots())
    assert world.run() == fit(1_600_000, 1, 1)
    slices = [{"id": "card-0", "index": 0, "mode": 3, "allocated": 160_000}]
    limits = {"nvidia.com/gpu.sliced": "1", "nvidia.com/gpu.sliced.units": "160000"}
    world.api.add(POD, *(gate_pod(f"p{n}", uid=f"u{n}", node="n", limits=limits, record=slices) for n in range(2)))
    assert world.run() == fit(0, 0, 0), "units are left, but no slot"


def test_edited_labels_are_mended() -> None:
    world = World()
    world.run()
    key = f"shared-free-cards.fit.gpustack.ai/{MODEL}"
    stale = "exclusive-free-cards.fit.gpustack.ai/nvidia-t4"
    world.api.edit(NODE, "n", {"metadata": {"labels": {key: "99", stale: "4"}}})
    assert world.run() == fit(1_600_000, 8, 8)


def test_b019_nulls() -> None:
    world = World(shown={"metadata": {"name": "n"}, "spec": None, "status": {"groups": None}})
    assert world.run() == {}


def test_a_fit_label_wakes_nobody_else() -> None:
    """It changes with every Pod; everybody who watches Nodes would run for nothing."""
    api = FakeApi()
    caches = bench(api, ()).caches
    old = gpu_node("n", count=8)
    new = gpu_node("n", count=8, labels={f"shared-free-cards.fit.gpustack.ai/{MODEL}": "3"})
    woken = {
        reconciler.NAME
        for reconciler in RECONCILERS
        for watch in reconciler.WATCHES
        if watch.kind == NODE and tuple(watch.keys(old, new, caches))
    }
    assert woken == {NodeFit.NAME}


def _two_slots() -> Object:
    card = {"id": "card-0", "index": 0, "status": {"logicalSliced": {"count": 2}, "physicalSliced": {}}}
    ledger = [{"id": "a10g", "manufacturer": "nvidia", "accelerators": [row(0)]}]
    return devices("n", group("nvidia", "a10g", [card]), ledger=ledger)
