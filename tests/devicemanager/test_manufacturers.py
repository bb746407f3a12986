"""Spec 06 §2.5-§2.7: families, health, slices, one row a rule."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from devicemanager.answers import RawCard, RawProfile
from devicemanager.manufacturers.registry import MANUFACTURERS, RULES
from devicemanager.manufacturers.rules import Slices
from nodefeature.manufacturers import MANUFACTURER_NAMES


def card(manufacturer: str, **changes: Any) -> RawCard:
    return replace(RawCard(manufacturer, 0), **changes)


def test_all_known_manufacturers_have_rules() -> None:
    assert MANUFACTURERS == MANUFACTURER_NAMES


@pytest.mark.parametrize(
    ("capability", "want"),
    [
        ("1.3", "Tesla"),
        ("2.0", "Fermi"),
        ("3.5", "Kepler"),
        ("4.0", ""),
        ("5.2", "Maxwell"),
        ("6.1", "Pascal"),
        ("7.0", "Volta"),
        ("7.2", "Volta"),
        ("7.5", "Turing"),
        ("8.0", "Ampere"),
        ("8.8", "Ampere"),
        ("8.9", "Ada-Lovelace"),
        ("9.0", "Hopper"),
        ("10.0", "Blackwell"),
        ("11.0", ""),
        ("12.1", "Blackwell"),
        ("", ""),
        ("8", ""),
        ("eight.nine", ""),
        ("-8.9", ""),
    ],
)
def test_nvidia_family(capability: str, want: str) -> None:
    assert RULES["nvidia"].family(card("nvidia", compute_capability=capability)) == want


@pytest.mark.parametrize(
    ("soc", "want"),
    [
        ("910PremiumA", "910"),
        ("910ProA", "910"),
        ("910A", "910"),
        ("910ProB", "910"),
        ("910B", "910"),
        ("310P1", "310P"),
        ("310P7", "310P"),
        ("Ascend310P3", "310P"),
        ("910B1", "910B"),
        ("910B2C", "910B"),
        ("Ascend910B4-1", "910B"),
        ("310B4", "310B"),
        ("910_9391", "910C"),
        ("Ascend910", "910C"),
        ("Ascend910_9382", "910C"),
        ("910_9579", "950"),
        ("950", "950"),
        ("Ascend950PR", "950"),
        ("310P9", "310P"),
        ("I2", "310P"),
        ("X310B", "310B"),
        ("910B9", "910B"),
        ("A2G1", "910B"),
        ("910Z", "910"),
        ("Atlas", ""),
        ("", ""),
    ],
)
def test_ascend_family(soc: str, want: str) -> None:
    assert RULES["ascend"].family(card("ascend", soc=soc)) == want


@pytest.mark.parametrize(
    ("product", "want"),
    [("MXC550", "MXC"), ("MetaX C500", "MXC"), ("MXN100", "MXN"), ("MXG2000", "MXG"), ("Mars X201", ""), (None, "")],
)
def test_metax_family(product: str | None, want: str) -> None:
    assert RULES["metax"].family(card("metax", product=product)) == want


def test_amd_family_is_the_librarys_word() -> None:
    assert RULES["amd"].family(card("amd", architecture="GC 11.0.0")) == "GC 11.0.0"


HEALTH: list[tuple[str, dict[str, Any], bool]] = [
    ("nvidia", {"ecc_uncorrected": 2}, True),
    ("nvidia", {"ecc_uncorrected": 0, "ecc_corrected": 37}, False),
    ("nvidia", {"ecc_uncorrected": None}, False),
    ("nvidia", {"ecc_uncorrected": None, "health": "unhealthy"}, True),
    ("thead", {"ecc_uncorrected": 1}, True),
    ("ascend", {"ecc_enabled": True, "ecc_corrected": 1}, True),
    ("ascend", {"ecc_enabled": True, "ecc_uncorrected": 1}, True),
    ("ascend", {"ecc_enabled": False, "ecc_corrected": 1}, False),
    ("ascend", {"health": "unhealthy"}, True),
    ("cambricon", {"health": "unhealthy"}, True),
    ("cambricon", {"health": "healthy", "ecc_uncorrected": 5}, False),
    ("iluvatar", {"health": "unhealthy"}, True),
    ("metax", {"ecc_uncorrected": 1}, True),
    ("hygon", {"ecc_uncorrected": 1}, True),
    ("amd", {"ecc_uncorrected": 1}, True),
    ("amd", {"ecc_uncorrected": 0}, False),
    ("mthreads", {"health": "healthy"}, False),
]


@pytest.mark.parametrize(("maker", "readings", "want"), HEALTH)
def test_health(maker: str, readings: dict[str, Any], want: bool) -> None:
    assert RULES[maker].unhealthy(card(maker, **readings)) is want


SLICES: list[tuple[str, dict[str, Any], Slices]] = [
    ("nvidia", {}, Slices(128, overcommit=True)),
    ("nvidia", {"partition_mode": "disabled"}, Slices(128, overcommit=True)),
    ("nvidia", {"partition_mode": "enabled"}, Slices()),
    ("amd", {}, Slices(128, overcommit=True)),
    ("thead", {"partition_mode": "disabled"}, Slices(128, overcommit=True)),
    ("thead", {"partition_mode": "enabled"}, Slices()),
    ("ascend", {"soc": "Ascend910B4"}, Slices(63, overcommit=True)),
    ("ascend", {"soc": "Ascend910B4", "runtime_version": "9.1"}, Slices(63, overcommit=True)),
    ("ascend", {"soc": "Ascend910B4", "runtime_version": "10.0"}, Slices()),
    ("ascend", {"soc": "Ascend310P3", "runtime_version": "8.2"}, Slices()),
    ("ascend", {"soc": "Ascend310P3", "runtime_version": "9"}, Slices(63, overcommit=True)),
    ("ascend", {"soc": "Ascend950", "runtime_version": "8.5"}, Slices()),
    ("ascend", {"soc": "Ascend310B1"}, Slices()),
    ("ascend", {"soc": "Ascend910B4", "runtime_version": "N/A"}, Slices(63, overcommit=True)),
    ("mthreads", {}, Slices(16)),
    ("hygon", {"partition_mode": "disabled"}, Slices(4)),
    ("hygon", {"partition_mode": "unsupported"}, Slices(4)),
    ("hygon", {"partition_mode": "enabled"}, Slices()),
    ("hygon", {"partition_mode": None}, Slices()),
    ("metax", {}, Slices(16)),
    ("cambricon", {}, Slices(16)),
    ("iluvatar", {}, Slices(128, overcommit=True)),
]


@pytest.mark.parametrize(("maker", "readings", "want"), SLICES)
def test_slices(maker: str, readings: dict[str, Any], want: Slices) -> None:
    assert RULES[maker].slices(card(maker, **readings)) == want


MEMORY: list[tuple[dict[str, Any], int | None]] = [
    ({"memory_mib": 15360, "ecc_enabled": True, "memory_bus_bits": 256, "compute_capability": "7.5"}, 16384),
    ({"memory_mib": 15360, "ecc_enabled": False, "memory_bus_bits": 256, "compute_capability": "7.5"}, 15360),
    ({"memory_mib": 81559, "ecc_enabled": True, "memory_bus_bits": 5120, "compute_capability": "9.0"}, 81559),
    ({"memory_mib": 15360, "ecc_enabled": True, "memory_bus_bits": None, "compute_capability": "7.5"}, 15360),
    ({"memory_mib": 15360, "ecc_enabled": True, "memory_bus_bits": 0, "compute_capability": "7.5"}, 15360),
    ({"memory_mib": 97887, "ecc_enabled": True, "memory_bus_bits": 512, "compute_capability": "12.0"}, 97887),
    ({"memory_mib": 15360, "ecc_enabled": "On-die", "memory_bus_bits": 256, "compute_capability": "7.5"}, 15360),
    ({"memory_mib": None, "ecc_enabled": True, "memory_bus_bits": 256}, None),
]


@pytest.mark.parametrize(("readings", "want"), MEMORY)
def test_nvidia_memory(readings: dict[str, Any], want: int | None) -> None:
    assert RULES["nvidia"].memory_mib(card("nvidia", **readings)) == want


def test_hygon_counts_cores_from_profiles_while_partitioned() -> None:
    profiles = (RawProfile("2g.15gb", 4, 16380, 1, 1, (0,), cores=20), RawProfile("8g.63gb", 1, 65520, 4, 4, (0,), 80))
    assert RULES["hygon"].cores(card("hygon", cores=20, partition_mode="enabled", profiles=profiles)) == 80
    assert RULES["hygon"].cores(card("hygon", cores=120, partition_mode="disabled", profiles=profiles)) == 120


@pytest.mark.parametrize(("version", "want"), [("v6.2.29", "6.2"), ("5.10", "5.10"), (None, "")])
def test_cambricon_shortens_driver_versions(version: str | None, want: str) -> None:
    assert RULES["cambricon"].driver_version(card("cambricon", driver_version=version)) == want
