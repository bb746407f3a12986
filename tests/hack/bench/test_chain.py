"""The pure parts of `bench-chain`: fleets, figures, rows."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from hack.bench.chain_cluster import FLAGS, registered, terms
from hack.bench.chain_floor import FLOOR, floor_crd
from hack.bench.chain_real import ROUND_S, ROUNDS, accelerator_quota, latency_rows
from hack.bench.figures import Figures, as_table
from hack.bench.fleet import MACHINES, write_fleet_file


@pytest.mark.parametrize("nodes", [3, 100, 1000])
def test_a_fleet_has_its_size_and_equal_shares(tmp_path: Path, nodes: int) -> None:
    fleet = write_fleet_file(tmp_path / "fleet.yaml", nodes)
    shares = Counter(node.machine for node in fleet)
    assert len({node.name for node in fleet}) == nodes
    assert max(shares.values()) - min(shares.values()) <= 1


def test_the_table_shows_growth_from_the_first_size_to_the_last() -> None:
    small, large = Figures(100, {"s": 2.0, "writes": 0.0}), Figures(1000, {"s": 30.0, "writes": 0.0, "more": 1.0})
    assert as_table([small, large]).splitlines() == [
        "        100 nodes  1000 nodes   growth",
        "s               2          30  15.00 x",
        "writes          0           0        -",
    ]


def test_latency_rows_are_ratios_to_the_floor() -> None:
    rows = latency_rows(4, status=[0.02, 0.04, 0.06, 0.08], floor=[0.01, 0.01, 0.02, 0.02])
    assert (rows["changes"], rows["changes followed by a status write"]) == (4, 4)
    assert rows["change, status p50 ms"] == pytest.approx(40)
    assert rows["change, p50 / floor"] == pytest.approx(4)
    assert rows["change, p99 / floor"] == pytest.approx(4)


def test_a_change_that_nothing_followed_shows() -> None:
    rows = latency_rows(2, status=[3.1], floor=[0.01, 0.01])
    assert rows["changes followed by a status write"] < rows["changes"]


def test_a_hundred_changes_and_each_outlasts_its_window() -> None:
    assert ROUNDS * len(MACHINES) >= 100
    assert ROUND_S > 3 + 1


def test_only_credits_are_accelerators() -> None:
    resources = [{"name": "credits.gpustack.ai/nvidia", "nominalQuota": "3200k"}, {"name": "cpu", "nominalQuota": "8"}]
    queue = {"spec": {"resourceGroups": [{"flavors": [{"resources": resources}, {"resources": None}]}]}}
    assert accelerator_quota(queue) == 3_200_000
    assert accelerator_quota({}) == 0


def test_what_is_set_otherwise_is_said() -> None:
    assert all(flag in terms() for flags in FLAGS.values() for flag in flags)


def test_the_floors_kind_is_its_crds() -> None:
    crd = floor_crd()
    assert crd["metadata"]["name"] == FLOOR.group_resource
    assert crd["spec"]["versions"][0]["subresources"] == {"status": {}}


def test_a_registered_node_has_an_annotation_and_keeps_the_rest() -> None:
    node = {"kind": "Node", "metadata": {"name": "n"}, "status": {"capacity": {}}}
    assert len(registered(node)["metadata"]["annotations"]) == 1
    assert registered(node)["metadata"]["name"] == "n"
    assert registered(node)["status"] == node["status"]
    assert "annotations" not in node["metadata"]
