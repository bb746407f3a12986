"""RDMA and fabric labels: spec 01 §5.5-5.6."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodefeature.destinations import is_label_value
from nodefeature.network_labels import (
    Distance,
    FabricRecord,
    NetworkEndpoint,
    PciPosition,
    bus_distance,
    distance_word,
    fabric_labels,
    fabric_record,
    network_endpoints,
    pci_position,
    rdma_labels,
)

R = "feature.gpustack.ai/rdma."
F = "feature.gpustack.ai/fabric."
CARD = PciPosition("0000:01:00.0", "root0", ("sw0", "root0"), "0")


def nic(
    *, numa: str = "0", root: str = "root0", switch: str = "sw0", rdma: bool = True, link: str = ""
) -> NetworkEndpoint:
    position = PciPosition("0000:02:00.0", root, (switch, root), numa)
    return NetworkEndpoint(position, rdma=rdma, link_state=link)


def rdma(capable: str, numa: str | None = None, distance: str | None = None) -> dict[str, str]:
    pairs = {R + "capable": capable, R + "numa": numa, R + "distance": distance}
    return {label: value for label, value in pairs.items() if value is not None}


@pytest.mark.parametrize(
    ("endpoints", "cards", "want"),
    [
        ([nic(link="OK")], [CARD], rdma("true", "0", "PIX")),
        ([nic(link="failed")], [CARD], {}),
        ([nic(link="Failed")], [CARD], {}),
        ([nic(link="unverified", rdma=False)], [CARD], rdma("true", "0", "PIX")),
        ([nic(rdma=False)], [CARD], {}),
        ([nic(rdma=True)], [CARD], rdma("true", "0", "PIX")),
        ([nic(link="failed"), nic(numa="1", root="root1", switch="sw1", link="ok")], [CARD], rdma("true", "1", "SYS")),
        ([nic()], [], rdma("true", "0")),
        ([nic(numa="")], [CARD], rdma("true", None, "PIX")),
        ([nic(numa=n) for n in ("12", "0", "1", "0")], [], rdma("true", "0_1_12")),
        ([nic(numa="0,1")], [], rdma("true")),
        ([nic(numa=str(n)) for n in range(100, 120)], [], rdma("true")),
        ([], [CARD], {}),
    ],
    ids=[
        "verified NIC behind the innermost bridge",
        "link failed",
        "link Failed, as stored",
        "unverified unbound NIC",
        "plain NIC without verdict",
        "bound NIC without verdict",
        "broken NIC and a good one far away",
        "no accelerators",
        "NUMA unknown",
        "NUMA ids sorted as text",
        "composite NUMA value",
        "NUMA list too long",
        "no interfaces",
    ],
)
def test_rdma_labels(endpoints: list[NetworkEndpoint], cards: list[PciPosition], want: dict[str, str]) -> None:
    assert rdma_labels(endpoints, cards) == want


def test_a_virtual_function_takes_its_parents_path_and_its_own_numa() -> None:
    interfaces = [
        {
            "name": "eth0",
            "pciBusId": "0000:02:00.0",
            "pciRootId": "root0",
            "pciSwitches": ["sw0", "root0"],
            "numaAffinity": "0",
            "rdma": False,
            "virtualFunctions": [
                {"numaAffinity": "1", "rdma": True, "link": {"state": "OK"}},
                {"numaAffinity": None, "rdma": False},
            ],
        },
        None,
        {"virtualFunctions": None, "link": None},
    ]
    endpoints = network_endpoints(interfaces)
    assert [endpoint.usable for endpoint in endpoints] == [False, True, False, False]
    assert endpoints[2].position.numa == "0"
    assert rdma_labels(endpoints, [CARD]) == rdma("true", "1", "PIX")


@pytest.mark.parametrize("shapeless", [None, {}, "x", [1, None]])
def test_interfaces_of_any_shape(shapeless: object) -> None:
    assert network_endpoints(shapeless) == ()
    assert pci_position(shapeless) == PciPosition()
    assert fabric_record(shapeless) is None


@pytest.mark.parametrize(
    ("left", "right", "want"),
    [
        (CARD, PciPosition("b", "root0", ("sw0", "root0"), "1"), Distance.PIX),
        (CARD, PciPosition("b", "root0", ("sw1", "root0"), "1"), Distance.PXB),
        (CARD, PciPosition("b", "root1", ("sw1", "root1"), "0"), Distance.NODE),
        (CARD, PciPosition("b", "root1", ("sw1", "root1"), "1"), Distance.SYS),
        (CARD, PciPosition("b", "root1", (), ""), Distance.UNK),
        (CARD, PciPosition("", "root0", ("sw0",), "0"), Distance.UNK),
        (CARD, PciPosition("b", "", ("sw0",), "0"), Distance.UNK),
        (PciPosition("a", "root0", (), "0"), PciPosition("b", "root0", (), "0"), Distance.PXB),
    ],
)
def test_bus_distance(left: PciPosition, right: PciPosition, want: Distance) -> None:
    assert bus_distance(left, right) is want
    assert bus_distance(right, left) is want


@pytest.mark.parametrize(
    ("number", "word"),
    [
        (0, "SELF"),
        (5, "LINK"),
        (10, "PIX"),
        (20, "PXB"),
        (30, "PHB"),
        (40, "NODE"),
        (50, "SYS"),
        (100, "UNK"),
        (7, "UNK"),
    ],
)
def test_distance_word(number: int, word: str) -> None:
    assert distance_word(number) == word


def fabric(domain: str, members: str | None = None) -> dict[str, str]:
    return {F + "domain": domain} | ({} if members is None else {F + "members": members})


@pytest.mark.parametrize(
    ("records", "want"),
    [
        ([FabricRecord("ub", "7", None, 384)] * 2, fabric("ub-7", "384")),
        ([FabricRecord("ub", "7", None, 384), FabricRecord("ub", "7", None, 128)], fabric("ub-7")),
        ([FabricRecord("ub", "7"), FabricRecord("xgmi", "7")], {}),
        ([FabricRecord("nvlink", "c0", 1)] * 2, fabric("nvlink-c0-1")),
        ([FabricRecord("nvlink", "c0", 0)] * 2, fabric("nvlink-c0-0")),
        ([FabricRecord("nvlink", "c0", 0), FabricRecord("nvlink", "c0", 1)], {}),
        ([FabricRecord("", "7")], {}),
        ([FabricRecord("ub", "7"), None], {}),
        ([FabricRecord("ub", "f" * 64)], {}),
        ([FabricRecord("nvlink", "f" * 32, 4294967295, 72)], fabric("nvlink-" + "f" * 32 + "-4294967295", "72")),
        ([], {}),
        ([None], {}),
    ],
)
def test_fabric_labels(records: list[FabricRecord | None], want: dict[str, str]) -> None:
    assert fabric_labels(records) == want


@pytest.mark.parametrize(
    ("raw", "want"),
    [
        ({"kind": "ub", "id": "7", "memberCount": 384}, FabricRecord("ub", "7", None, 384)),
        ({"kind": "nvlink", "id": "c0", "cliqueId": 0}, FabricRecord("nvlink", "c0", 0)),
        ({"kind": "nvlink", "id": "c0", "cliqueId": None}, FabricRecord("nvlink", "c0")),
    ],
)
def test_fabric_record(raw: dict[str, Any], want: FabricRecord) -> None:
    assert fabric_record(raw) == want


@given(st.lists(st.text(max_size=40), max_size=4), st.text(max_size=60), st.text(max_size=60))
def test_values_are_legal_whatever_was_read(numas: list[str], kind: str, identity: str) -> None:
    labels = rdma_labels([nic(numa=numa) for numa in numas], [CARD]) | fabric_labels([FabricRecord(kind, identity)])
    assert all(is_label_value(value) for value in labels.values())
