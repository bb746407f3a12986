"""Tests of the kubelet's part: allocatable follows capacity."""

from __future__ import annotations

from typing import Any

import pytest

from hack.controlplane.kubelet import Kubelets, allocatable_change, status_change
from nodefeature.kinds import DEVICES, NODE
from nodefeature.manufacturers import build_manufacturers

ROWS: dict[str, tuple[Any, Any, dict[str, str | None]]] = {
    "a new extended resource": ({"cpu": "4", "nvidia.com/gpu": "2"}, {"cpu": "4"}, {"nvidia.com/gpu": "2"}),
    "a changed one": ({"nvidia.com/gpu": "1"}, {"nvidia.com/gpu": "2"}, {"nvidia.com/gpu": "1"}),
    "a vanished one": ({"cpu": "4"}, {"cpu": "4", "nvidia.com/gpu": "2"}, {"nvidia.com/gpu": None}),
    "zero is a value": ({"nvidia.com/gpu": "0"}, {"nvidia.com/gpu": "2"}, {"nvidia.com/gpu": "0"}),
    "equal maps": ({"nvidia.com/gpu": "2"}, {"nvidia.com/gpu": "2"}, {}),
    "reserved cpu stays reserved": ({"cpu": "4", "memory": "8Gi"}, {"cpu": "3500m", "memory": "7Gi"}, {}),
    "native names with a domain": ({"kubernetes.io/batch-cpu": "1"}, {}, {}),
    "no status": (None, None, {}),
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
def test_allocatable_change(row: tuple[Any, Any, dict[str, str | None]]) -> None:
    capacity, allocatable, want = row
    assert allocatable_change({"status": {"capacity": capacity, "allocatable": allocatable}}) == want


CARD = {"id": "a", "index": 0, "status": {"logicalSliced": {"count": 4}}}


@pytest.mark.parametrize(
    ("capacity", "groups", "changed"),
    [
        ({}, [], {}),
        ({"cpu": "4"}, [{"manufacturer": "nvidia", "id": "t4", "accelerators": [CARD]}], {"1", "10", "4", "512"}),
        ({"nvidia.com/gpu": "8"}, [], {"0"}),
        ({"nvidia.com/gpu": "0"}, [], set()),
        ({"example.com/cards": "8"}, [], set()),
    ],
    ids=["nothing", "a card", "cards gone", "cards long gone", "another's"],
)
def test_pools_follow_the_inventory(
    capacity: dict[str, str], groups: list[dict[str, object]], changed: set[str]
) -> None:
    node = {"status": {"capacity": capacity, "allocatable": dict(capacity)}}
    devices = {"spec": {"groups": groups}}
    change = status_change(node, devices, build_manufacturers({}))
    assert set(change.get("capacity", {}).values()) - {"0"} == set(changed) - {"0"}
    assert change.get("capacity", {}) == change.get("allocatable", {})


def test_an_amount_on_a_node_without_an_inventory_is_somebody_elses() -> None:
    node = {"status": {"capacity": {"nvidia.com/gpu": "4"}, "allocatable": {}}}
    assert status_change(node, {}, build_manufacturers({})) == {"allocatable": {"nvidia.com/gpu": "4"}}


class Server:
    """What the kubelets send."""

    def __init__(self) -> None:
        self.patches: list[tuple[str, Any]] = []

    def patch(self, _kind: Any, name: str, patch: Any, **_more: str) -> dict[str, Any]:
        self.patches.append((name, patch))
        return node_with(patch["status"]["capacity"], patch["status"]["allocatable"])


def node_with(capacity: dict[str, str], allocatable: dict[str, str]) -> dict[str, Any]:
    return {"metadata": {"name": "n"}, "status": {"capacity": capacity, "allocatable": allocatable}}


def test_a_change_is_written_by_who_looks_and_once() -> None:
    server = Server()
    kubelets = Kubelets(server, build_manufacturers({}))  # type: ignore[arg-type]  # only `patch` is called
    devices = {"metadata": {"name": "n"}, "spec": {"groups": [{"manufacturer": "nvidia", "accelerators": [CARD]}]}}
    kubelets.take(DEVICES, devices, gone=False)
    kubelets.take(NODE, node_with({}, {}), gone=False)
    assert server.patches == [], "whoever follows a watch does not write"
    kubelets.look_at("n")
    kubelets.look_at("n")
    assert [name for name, _ in server.patches] == ["n"]
    assert server.patches[0][1]["status"]["capacity"]["nvidia.com/gpu"] == "1"


def owned(uid: str) -> dict[str, Any]:
    owners = [{"kind": "Node", "name": "n", "uid": uid, "controller": True}]
    groups = [{"manufacturer": "nvidia", "accelerators": [CARD]}]
    return {"metadata": {"name": "n", "ownerReferences": owners}, "spec": {"groups": groups}}


def test_the_inventory_of_a_namesake_before_says_nothing() -> None:
    server = Server()
    kubelets = Kubelets(server, build_manufacturers({}))  # type: ignore[arg-type]  # only `patch` is called
    node = node_with({"cpu": "4"}, {"cpu": "4"})
    node["metadata"]["uid"] = "new"
    kubelets.take(NODE, node, gone=False)
    kubelets.take(DEVICES, owned("old"), gone=False)
    kubelets.look_at("n")
    kubelets.take(DEVICES, owned("old"), gone=True)
    kubelets.look_at("n")
    assert server.patches == []
    kubelets.take(DEVICES, owned("new"), gone=False)
    kubelets.look_at("n")
    (_, patch) = server.patches[0]
    assert patch["metadata"] == {"uid": "new"}, "a patch meant for a namesake must not reach this Node"
    assert patch["status"]["capacity"]["nvidia.com/gpu"] == "1"


def test_pools_of_a_deleted_inventory_stay_as_zeros() -> None:
    server = Server()
    kubelets = Kubelets(server, build_manufacturers({}))  # type: ignore[arg-type]  # only `patch` is called
    kubelets.take(NODE, node_with({"nvidia.com/gpu": "1"}, {"nvidia.com/gpu": "1"}), gone=False)
    kubelets.take(DEVICES, {"metadata": {"name": "n"}}, gone=True)
    kubelets.look_at("n")
    assert server.patches[0][1]["status"]["capacity"] == {"nvidia.com/gpu": "0"}


def test_a_node_that_is_gone_is_left_alone() -> None:
    server = Server()
    kubelets = Kubelets(server, build_manufacturers({}))  # type: ignore[arg-type]  # only `patch` is called
    kubelets.take(NODE, node_with({"nvidia.com/gpu": "1"}, {}), gone=False)
    kubelets.take(NODE, node_with({}, {}), gone=True)
    kubelets.look_at("n")
    assert server.patches == []
