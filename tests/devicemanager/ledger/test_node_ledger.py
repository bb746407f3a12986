"""The node's ledger in memory: what asking again costs, and that it is never stale."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from api.ledger import rebuild as rebuilding
from api.ledger.modes import CARD_UNITS, Mode
from api.ledger.transport import Record
from devicemanager.ledger import node_ledger
from devicemanager.ledger.accounts import Entry
from devicemanager.ledger.kubelet_word import KubeletWord
from devicemanager.ledger.node_ledger import PODS_BY_NODE, NodeLedger
from kube.clock import SystemClock
from kube.store import Store
from nodefeature.kinds import DEVICES, POD
from tests.builders.agent_cards import T4, sliceable
from tests.builders.agent_world import NODE_NAME, REGISTRY, claiming, pod

SLICED = "nvidia.com/gpu.sliced"


class Node:
    """A ledger over caches that are filled by hand."""

    def __init__(self, *pods: dict[str, Any]) -> None:
        self.caches = {kind: Store(kind) for kind in (POD, DEVICES)}
        self.caches[POD].add_index(PODS_BY_NODE)
        self.version = 0
        self.put(DEVICES, {"metadata": {"name": NODE_NAME, "uid": "d"}, "spec": {"groups": sliceable(2, slices=8)}})
        for raw in pods:
            self.put(POD, raw)
        self.ledger = NodeLedger(NODE_NAME, self.caches, REGISTRY, SystemClock())

    def put(self, kind: Any, obj: dict[str, Any]) -> None:
        self.version += 1
        made = copy.deepcopy(obj)
        made["metadata"]["resourceVersion"] = str(self.version)
        self.caches[kind].put(made)


def sliced(name: str, units: int, card: int | None = None) -> dict[str, Any]:
    """Return a Pod that asks for a slice, with the record of one where a card is named."""
    raw = pod(name, claiming(sliced=1, sliced_units=units))
    if card is not None:
        row = {"id": f"GPU-{card}", "index": card, "mode": 3, "allocated": units}
        groups = [{"id": T4, "manufacturer": "nvidia", "accelerators": [row]}]
        record = {"main": {"devices": {"groups": groups}, "deviceIDs": [f"{T4}:GPU-{card}:0000"]}}
        raw["metadata"]["annotations"] = {"device.gpustack.ai/accelerator.allocated": json.dumps(record)}
    return raw


def entry(card: int, units: int) -> Entry:
    """Return what a container holds."""
    record = Record("main", T4, "nvidia", f"GPU-{card}", card, Mode.SLICED, units)
    return Entry.of([record], [f"{T4}:GPU-{card}:0001"])


def remaining(node: Node, **of: Any) -> list[int]:
    """Return what is left on each card."""
    return [use.remaining for use in node.ledger.snapshot(**of).cards.values()]


@pytest.fixture
def folds(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return what grows by one for each fold over all Pods."""
    counted: list[int] = []

    def rebuild(*args: Any, **more: Any) -> Any:
        counted.append(1)
        return rebuilding.rebuild(*args, **more)

    monkeypatch.setattr(node_ledger, "rebuild", rebuild)
    return counted


def test_a_ledger_is_folded_once_until_something_changes(folds: list[int]) -> None:
    node = Node(sliced("a", 160_000, 0), sliced("b", 320_000))
    for _ in range(3):
        node.ledger.wake()
        assert remaining(node) == [CARD_UNITS - 160_000, CARD_UNITS]
        assert remaining(node, without=("uid-b", "main")) == [CARD_UNITS - 160_000, CARD_UNITS]
    assert len(folds) == 1


def test_every_change_is_folded_at_once(folds: list[int]) -> None:
    a, b = sliced("a", 160_000, 0), sliced("b", 320_000)
    node = Node(a, b)
    assert remaining(node) == [1_440_000, CARD_UNITS]
    assert remaining(node, without=("uid-a", "main")) == [CARD_UNITS, CARD_UNITS]
    node.ledger.reserve(b, "main", entry(1, 320_000))
    assert remaining(node) == [1_440_000, 1_280_000]
    node.ledger.reserve(b, "main", None)
    assert remaining(node) == [1_440_000, CARD_UNITS]
    node.put(POD, {**a, "status": {"phase": "Succeeded"}})
    assert remaining(node) == [CARD_UNITS, CARD_UNITS]
    node.put(POD, sliced("c", 800_000, 1))
    assert remaining(node) == [CARD_UNITS, 800_000]
    groups = sliceable(3, slices=8)
    node.put(DEVICES, {"metadata": {"name": NODE_NAME, "uid": "d"}, "spec": {"groups": groups}})
    assert remaining(node) == [CARD_UNITS, 800_000, CARD_UNITS]
    word = KubeletWord({("default", "b"): {"main": {SLICED: frozenset({f"{T4}:GPU-2:0000"})}}})
    assert remaining(node, word=word) == [CARD_UNITS, 800_000, 1_280_000]
    assert remaining(node) == [CARD_UNITS, 800_000, CARD_UNITS]
    assert len(folds) == 9


def test_pods_that_only_the_kubelet_knows_are_named() -> None:
    node = Node(sliced("a", 160_000, 0))
    reserved = sliced("early", 160_000)
    word = KubeletWord({("default", name): {} for name in ("z", "a", "early", "b")})
    assert node.ledger.unknown(word) == [("default", "b"), ("default", "early"), ("default", "z")]
    node.ledger.reserve(reserved, "main", entry(1, 160_000))
    assert node.ledger.unknown(word) == [("default", "b"), ("default", "z")]
    node.put(POD, reserved)
    assert node.ledger.unknown(word) == [("default", "b"), ("default", "z")]
