"""Hygon's vdev.conf: the examples and every rule of spec 06 §8.4."""

from __future__ import annotations

from dataclasses import replace

import pytest

from devicemanager.injection.request import InjectionRefused
from devicemanager.injection.vdev import VdevConf, VdevMalformed, next_vdev, parse_vdev, vdev_text
from tests.builders.injection import BDF, card

CARD = card(cores=80)
ONE = VdevConf(bus_id=BDF, units=0xFFFFF, count=20, vdev_id=3, pipe_id=1, mib=16384, device_id=0)


def test_four_quarters_and_no_fifth() -> None:
    taken: list[VdevConf] = []
    for _ in range(4):
        taken.append(next_vdev(CARD, percent=25, mib=1, position=0, taken=taken))
    assert [f"{conf.units & (2**64 - 1):#018x}/{conf.units >> 64:#x}" for conf in taken] == [
        "0x00000000000fffff/0x0",
        "0x000000fffff00000/0x0",
        "0x0fffff0000000000/0x0",
        "0xf000000000000000/0xffff",
    ]
    assert [(conf.vdev_id, conf.pipe_id) for conf in taken] == [(0, 0), (1, 1), (2, 2), (3, 3)]
    with pytest.raises(InjectionRefused, match="insufficient free compute units: need 20, 0 of 80 free"):
        next_vdev(CARD, percent=25, mib=1, position=0, taken=taken)


@pytest.mark.parametrize(("percent", "units"), [(33, 27), (1, 1), (100, 80), (200, 80)])
def test_units(percent: int, units: int) -> None:
    assert next_vdev(CARD, percent=percent, mib=1, position=0, taken=[]).count == units


def test_vdev_ids_are_the_nodes_and_pipe_ids_the_cards() -> None:
    other = replace(ONE, bus_id="0000:10:00.0", vdev_id=0, pipe_id=0)
    made = next_vdev(CARD, percent=25, mib=1, position=1, taken=[other])
    assert (made.vdev_id, made.pipe_id, made.device_id, made.units) == (1, 0, 1, 0xFFFFF)


@pytest.mark.parametrize(
    ("changes", "percent", "said"),
    [
        ({"cores": 129}, 25, "129 compute units"),
        ({"cores": 0}, 25, "0 compute units"),
        ({"bus_id": ""}, 25, "no PCI address"),
        ({"cores": 16}, 25, "beyond its 16"),
        ({}, 0, "has no compute unit"),
    ],
)
def test_refusals(changes: dict[str, object], percent: int, said: str) -> None:
    with pytest.raises(InjectionRefused, match=said):
        next_vdev(card(**({"cores": 80} | changes)), percent=percent, mib=1, position=0, taken=[ONE])


def test_ids_run_out() -> None:
    elsewhere = [replace(ONE, bus_id="x", units=0, vdev_id=n) for n in range(200)]
    with pytest.raises(InjectionRefused, match="all 200 vdev ids"):
        next_vdev(CARD, percent=25, mib=1, position=0, taken=elsewhere)
    here = [replace(ONE, units=0, vdev_id=n, pipe_id=n) for n in range(20)]
    with pytest.raises(InjectionRefused, match="all 20 pipe ids"):
        next_vdev(CARD, percent=25, mib=1, position=0, taken=here)


def test_round_trip() -> None:
    wide = replace(ONE, units=(1 << 80) - 1, count=80)
    assert parse_vdev(vdev_text(wide), "x") == wide


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("vdev_id: 3", "vdev_id: 3\nvdev_id: 4", "vdev_id stands there twice"),
        ("cu_mask: 0x0000000000000000\n", "", "exactly two cu_mask lines"),
        ("cu_count: 20\n", "", "cu_count is missing"),
        ("vdev_id: 3\n", "", "vdev_id is missing"),
        ("pipe_id: 1\n", "", "pipe_id is missing"),
        (f"PciBusId: {BDF}\n", "", "PciBusId is missing"),
        ("vdev_id: 3", "vdev_id: 200", "outside 0 to 199"),
        ("pipe_id: 1", "pipe_id: 20", "outside 0 to 19"),
        ("pipe_id: 1", "pipe_id: -1", "outside"),
        ("cu_count: 20", "cu_count: many", "is no number"),
    ],
)
def test_malformed(old: str, new: str, said: str) -> None:
    with pytest.raises(VdevMalformed, match=said):
        parse_vdev(vdev_text(ONE).replace(old, new), "vdev0.conf")


def test_memory_and_device_are_optional() -> None:
    text = vdev_text(ONE).replace("mem: 16384 MiB\n", "").replace("device_id: 0\n", "")
    assert parse_vdev(text, "x") == replace(ONE, mib=0)
