"""Fleets: names, places, own ids, faults (the recorded set's README, section Fleet)."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from hack.fleet import (
    FleetNode,
    Machines,
    cleared,
    load_fleet,
    machine_names,
    own_id,
    repeat_machines,
    with_own_ids,
    write_fleet,
)

NODES = load_fleet()
BY_NAME = {node.name: node for node in NODES}
MACHINES = Machines()
RACK = "topology.gpustack.ai/rack"


def test_the_fleet_has_a_hundred_nodes() -> None:
    assert len(NODES) == len(BY_NAME) == 100
    assert {node.machine for node in NODES} == set(machine_names())


@pytest.mark.parametrize(
    ("name", "rack"),
    [("h100-004", "a-r02"), ("h100-005", "a-r03"), ("gb200-r01-t18", "a-r01"), ("ip-10-0-3-17.ec2.internal", None)],
)
def test_racks(name: str, rack: str | None) -> None:
    labels = BY_NAME[name].labels
    assert labels.get(RACK) == rack
    assert labels["topology.kubernetes.io/zone"]


def test_no_two_nodes_share_an_id_but_where_it_was_recorded() -> None:
    ids = Counter(card["uuid"] for node in NODES for card in MACHINES.of(node)["accelerators"])
    assert {uuid for uuid, count in ids.items() if count > 1} == {"GPU-XX", "0x0000000000000000"}


def test_the_rack_shares_its_nvlink_domain() -> None:
    domains = {MACHINES.of(node)["fabric"]["cluster_uuid"] for node in NODES if node.name.startswith("gb200")}
    assert domains == {"d6e48e05-efd5-a395-f7b0-22314ebf41d0"}


def test_an_all_zero_domain_stays_all_zero() -> None:
    assert set(MACHINES.of(BY_NAME["h100-001"])["fabric"]["cluster_uuid"]) == {"0", "-"}


@pytest.mark.parametrize(
    "uuid",
    [
        "GPU-7fb27c22-dbcd-cc28-6062-8440c2885339",
        "F5AB5DAB 056B1E D2B68B14 E895E97B 2A1CA857",
        "0x375A1D6115413E5B",
        "GPU-3cde1577fab69fd7",
    ],
)
def test_own_ids_keep_the_form_of_the_real_ones(uuid: str) -> None:
    mine, other = own_id(uuid, "a/0"), own_id(uuid, "b/0")
    assert mine != other != uuid
    assert mine == own_id(uuid, "a/0")
    assert len(mine) == len(uuid)
    assert [c.isalnum() for c in mine] == [c.isalnum() for c in uuid]
    assert mine.startswith(uuid[:4])
    assert (uuid.upper() == uuid) == (mine.upper() == mine) or "x" in uuid


def test_partition_instances_get_own_ids_too() -> None:
    value = [{"mig": {"instances": [{"ci": [{"uuid": "MIG-75d8fcfb-7ac3-9a40-b5df-e83a5246ce2d"}]}]}}]
    assert with_own_ids(value, "n", path="x") != value


def test_cleared_faults() -> None:
    cards = MACHINES.of(BY_NAME["rtx4090-001"])["accelerators"]
    assert [card["index"] for card in cards] == list(range(8))
    replaced = cards[5]
    assert (replaced["product"], replaced["pci_address"], replaced["physical_indexes"]) == (
        "NVIDIA GeForce RTX 4090",
        "0000:a1:00.0",
        [5],
    )
    assert replaced["health"] == {"state": "healthy", "xid": [], "ecc_uncorrected": None, "ecc_corrected": None}
    assert len({card["uuid"] for card in cards}) == 8


def test_cleared_counters() -> None:
    (card,) = cleared([{"uuid": "x", "health": {"state": "unhealthy", "ecc_uncorrected": 2, "ecc_corrected": 0}}])
    assert card["health"] == {"state": "healthy", "xid": [], "ecc_uncorrected": 0, "ecc_corrected": 0}


def test_kept_faults() -> None:
    assert MACHINES.of(BY_NAME["rtx4090-dead-001"])["accelerators"][5]["health"]["state"] == "lost"


def test_a_fleet_of_any_size() -> None:
    nodes = repeat_machines(["nvidia-t4-cloud-vm", "cpu-intel-8358"], 1000)
    assert [node.name for node in (nodes[0], nodes[-1])] == ["node-0001", "node-1000"]
    assert len({node.name for node in nodes}) == 1000


def test_a_written_fleet_starts_with_the_profile_tables(tmp_path: Path) -> None:
    path = tmp_path / "fleet.jsonl"
    write_fleet(path, [FleetNode("n1", "nvidia-t4-cloud-vm", {})], MACHINES)
    first, second = map(json.loads, path.read_text().splitlines())
    assert "a30-24gb" in first["profile_tables"]
    assert (second["name"], second["machine"]["name"]) == ("n1", "nvidia-t4-cloud-vm")


def test_a_fleet_that_does_not_add_up_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.write_text("nodes: 2\ngroups: [{pattern: n, count: 2, machine: x}]\n")
    with pytest.raises(ValueError, match="2 nodes with 1 names"):
        load_fleet(path)
