"""Every recorded machine through detection: what comes out was worked out by hand from the file and its traps."""

from __future__ import annotations

import asyncio
import functools
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from devicemanager.detection import NOTHING_YET, Detection, DetectionOptions, look, next_detection
from devicemanager.detectors.recorded import RecordedDetector, RecordingUnreadable, load_fleet
from devicemanager.manufacturers.registry import MANUFACTURERS
from devicemanager.publisher.node_feature import device_labels
from hack.fleet import RECORDED, Machines, machine_names, write_fleet, write_machine
from hack.fleet import load_fleet as fleet_nodes
from nodefeature.labels import DEVICE_PREFIX
from tests.builders.rows import Row, row_id, rows

ALL = DetectionOptions(manufacturers=MANUFACTURERS)
ROWS = rows("06-recorded")
MACHINES = Machines()


def detect(detector: RecordedDetector) -> Detection:
    return next_detection(NOTHING_YET, asyncio.run(look(detector, MANUFACTURERS)), ALL)


@functools.cache
def detect_machine(name: str) -> Detection:
    return detect(RecordedDetector(MACHINES.recorded(name), MACHINES.profile_tables()))


def summary(group: Any) -> dict[str, Any]:
    cards = group["accelerators"]
    sliced = group["acceleratorSlicedDetail"]
    partitioned = [card["index"] for card in cards if card["status"]["physicalSliced"].get("count")]
    offers = {card["status"]["logicalSliced"].get("count", 0) for card in cards if card["index"] not in partitioned}
    assert len(offers) <= 1
    told: dict[str, Any] = {
        "key": f"{group['manufacturer']}-{group['id']}",
        "cards": len(cards),
        "memory": group["memory"],
        "cores": group.get("cores"),
        "family": group.get("family"),
        "slices": max(offers, default=0),
        "overcommit": sliced["logical"].get("coresPercentageOvercommit", False),
        "unhealthy": [card["index"] for card in cards if card["status"]["unhealthy"]],
        "partitioned": partitioned,
        "profiles": {p["name"]: p["count"] for p in sliced["physical"].get("profiles", [])},
        "partitions": sliced["physical"].get("count", 0),
    }
    return told


def wanted(group: Row) -> dict[str, Any]:
    defaults: dict[str, Any] = {
        "cores": None,
        "family": None,
        "unhealthy": [],
        "partitioned": [],
        "profiles": {},
        "partitions": 0,
    }
    return {**defaults, **{key: value for key, value in group.items() if key not in ("label", "driver")}}


@pytest.mark.parametrize("row", ROWS, ids=row_id)
def test_every_recorded_machine(row: Row) -> None:
    detection = detect_machine(row["row"])
    assert [summary(group) for group in detection.all_groups()] == [wanted(group) for group in row["groups"]]
    assert detection.answered == set(MANUFACTURERS)
    for found, parts in ((detection.all_findings(), "left_out"), (flat(detection.notes), "notes")):
        want = row.get(parts, [])
        assert len(found) == len(want), found
        assert all(part in text for part, text in zip(want, found, strict=True)), found


@pytest.mark.parametrize("row", ROWS, ids=row_id)
def test_labels_of_every_recorded_machine(row: Row) -> None:
    labels, problems = device_labels(detect_machine(row["row"]))
    assert problems == ()
    for group in row["groups"]:
        key = DEVICE_PREFIX + group["key"]
        assert labels[key] == "true"
        assert labels[f"{key}.count"] == str(group["cards"])
        assert labels[f"{key}.memory"] == group["label"]
        if "driver" in group:
            assert labels[f"{DEVICE_PREFIX}{group['key'].partition('-')[0]}.driver-version"] == group["driver"]
    assert bool(labels) == bool(row["groups"])


def test_a_machine_file_is_read_with_the_tables_beside_it() -> None:
    detector = RecordedDetector.load(RECORDED / "hygon-bw-mig.yaml")
    assert detect(detector) == detect_machine("hygon-bw-mig")


def test_a_machine_file_without_the_tables_it_names(tmp_path: Path) -> None:
    for name in ("nvidia-t4-cloud-vm", "hygon-bw-mig"):
        (tmp_path / f"{name}.yaml").write_text((RECORDED / f"{name}.yaml").read_text())
    assert RecordedDetector.load(tmp_path / "nvidia-t4-cloud-vm.yaml").cards
    with pytest.raises(RecordingUnreadable, match=r"name the partition profiles .*; put mig-profiles\.yaml"):
        RecordedDetector.load(tmp_path / "hygon-bw-mig.yaml")


def test_every_machine_has_a_row() -> None:
    assert [row["row"] for row in ROWS] == machine_names()


@pytest.mark.parametrize("name", machine_names())
def test_the_family_rules_agree_with_what_was_recorded(name: str) -> None:
    families = {card["product"]: card.get("family") for card in MACHINES.recorded(name)["accelerators"] if card["uuid"]}
    for group in detect_machine(name).all_groups():
        assert group.get("family") == families[group["name"]]


def flat(told: Any) -> list[str]:
    return [text for maker in sorted(told) for text in told[maker]]


def first_group(name: str) -> Any:
    return detect_machine(name).all_groups()[0]


def test_a_lost_card_shifts_our_index_not_the_minors() -> None:
    cards = first_group("nvidia-rtx4090-dead-card")["accelerators"]
    assert [(card["index"], card["physicalIndexes"]) for card in cards] == [
        (0, [0]),
        (1, [1]),
        (2, [2]),
        (3, [3]),
        (4, [4]),
        (5, [6]),
        (6, [7]),
    ]


def test_two_chips_behind_one_address_are_two_cards() -> None:
    cards = first_group("ascend-310p3-duo")["accelerators"]
    assert [card["topology"]["pciBusId"] for card in cards] == ["0000:01:00.0"] * 2 + ["0000:81:00.0"] * 2
    assert [card["physicalIndexes"] for card in cards] == [[0, 2, 0], [1, 2, 1], [2, 5, 0], [3, 5, 1]]


def test_an_id_with_blanks_becomes_one_word() -> None:
    card = first_group("ascend-910b4-a2")["accelerators"][0]
    assert card["id"] == "F5AB5DAB-056B1E-D2B68B14-E895E97B-2A1CA857"
    assert card["topology"]["roce"] == {"ip": "10.20.0.11", "subnetMask": "255.255.255.0", "gateway": "10.20.0.1"}


def test_numa_follows_the_card_not_its_number() -> None:
    cards = first_group("ascend-910b4-a2")["accelerators"]
    assert [card["topology"]["numaAffinity"] for card in cards] == ["6", "6", "4", "4", "0", "0", "2", "2"]


def test_an_unknown_numa_node_gives_no_affinity() -> None:
    topology = first_group("nvidia-t4-cloud-vm")["accelerators"][0]["topology"]
    assert (topology["numaAffinity"], topology["cpuAffinity"], topology["pciRootId"]) == ("", "", "")
    assert "pciSwitches" not in topology


def test_a_card_the_bus_does_not_show_keeps_its_address_alone() -> None:
    card = first_group("nvidia-rtx4070-wsl2-laptop")["accelerators"][0]
    assert card["topology"] == {
        "pciBusId": "0000:01:00.0",
        "pciRootId": "",
        "pciClass": "",
        "numaAffinity": "",
        "cpuAffinity": "",
    }
    assert "physicalIndexes" not in card


def test_switches_stand_innermost_first() -> None:
    machine = MACHINES.recorded("nvidia-dgx-h100")
    paths = {device["address"]: device.get("path") for device in machine["pci"]}
    topology = first_group("nvidia-dgx-h100")["accelerators"][0]["topology"]
    path = paths[topology["pciBusId"]]
    assert topology["pciRootId"] == path[0]
    assert topology["pciSwitches"] == path[::-1]
    assert topology["pciClass"] == "0302"


def test_cpus_near_a_card_come_from_its_numa_node() -> None:
    cards = first_group("nvidia-rtx4090-dead-card")["accelerators"]
    assert cards[0]["topology"]["cpuAffinity"] == "0-31,64-95"
    assert cards[6]["topology"]["cpuAffinity"] == "32-63,96-127"


def test_placements_are_the_legal_set_of_an_empty_card() -> None:
    card = first_group("nvidia-rtx-pro-6000-mig")["accelerators"][0]
    profiles = {profile["name"]: profile for profile in card["status"]["physicalSliced"]["profiles"]}
    assert profiles["2g.48gb"] == {
        "name": "2g.48gb",
        "memoryMib": 48512,
        "computeSlices": 2,
        "memorySlices": 6,
        "count": 2,
        "placements": [{"start": 0, "length": 6}, {"start": 6, "length": 6}],
    }


def test_the_fleet_of_100_puts_every_card_into_the_right_pool(tmp_path: Path) -> None:
    nodes = fleet_nodes()
    write_fleet(tmp_path / "fleet.jsonl", nodes, MACHINES)
    detectors = load_fleet(tmp_path / "fleet.jsonl")
    assert list(detectors) == [node.name for node in nodes]
    pools: Counter[str] = Counter()
    odd, ids = [], []
    for name, detector in detectors.items():
        detection = detect(detector)
        for group in detection.all_groups():
            pools[f"{group['manufacturer']}-{group['id']}"] += len(group["accelerators"])
            ids += [card["id"] for card in group["accelerators"]]
        odd += [name] if detection.findings else []
    assert pools == {
        "amd-instinct-mi308x-oam": 16,
        "ascend-310p3": 8,
        "ascend-910": 32,
        "ascend-910b4-1": 40,
        "cambricon-mlu590-m9": 16,
        "hygon-bw100": 8,
        "hygon-bw101": 1,
        "hygon-k100-ai": 16,
        "iluvatar-bi-v150": 32,
        "iluvatar-mr-v100-duo": 2,
        "metax-mars-x201": 1,
        "metax-mxc550": 16,
        "mthreads-mtt-s5000": 16,
        "nvidia-a100-sxm4-40gb": 32,
        "nvidia-a100-sxm4-80gb": 8,
        "nvidia-b200": 8,
        "nvidia-gb10": 2,
        "nvidia-gb200": 72,
        "nvidia-geforce-rtx-3090-ti": 1,
        "nvidia-geforce-rtx-4070-laptop-gpu": 1,
        "nvidia-geforce-rtx-4080-super": 1,
        "nvidia-geforce-rtx-4090": 23,
        "nvidia-geforce-rtx-5090": 1,
        "nvidia-h100-80gb-hbm3": 80,
        "nvidia-h200": 32,
        "nvidia-rtx-pro-6000-blackwell-server-edition": 16,
        "nvidia-tesla-t4": 3,
        "nvidia-tesla-v100-pcie-16gb": 1,
        "thead-ppu-zw810e": 32,
    }
    assert odd == [
        "rtx4090-dead-001",
        "halo-01",
        "halo-02",
        "mint-01",
        "mint-02",
        "mixed-01",
        "npu-duo-001",
        "npu-duo-002",
    ]
    assert len(set(ids)) == len(ids)


def test_a_machine_file_can_be_written_for_one_node(tmp_path: Path) -> None:
    node = next(node for node in fleet_nodes() if node.name == "rtx4090-001")
    detector = RecordedDetector.load(write_machine(tmp_path, node, MACHINES))
    (group,) = detect(detector).all_groups()
    assert len(group["accelerators"]) == 8
    assert not detect(detector).findings
