"""The vendors' package: what its devices become."""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any

import pytest

from devicemanager.answers import Empty, Found, Roce
from devicemanager.detectors.vendor_runtime import detect, physical_indexes


def package(name: str, devices: Any) -> Any:
    class Detector:
        def detect_info(self) -> Any:
            if isinstance(devices, Exception):
                raise devices
            return devices

    return SimpleNamespace(**{name: Detector})


def device(**more: Any) -> SimpleNamespace:
    fields = {
        "index": 2,
        "name": "910B4-1",
        "uuid": "F5AB5DAB 056B1E",
        "memory": 65536,
        "cores": 20,
        "compute_capability": None,
        "driver_version": "25.5.0",
        "runtime_version": None,
        "memory_status": SimpleNamespace(value="healthy"),
        "appendix": {},
    }
    return SimpleNamespace(**{**fields, **more})


def test_an_ascend_card() -> None:
    more = {"arch_family": "Ascend910B4", "bdf": "0000:c1:00.0", "numa": "6", "roce_ip": "10.20.0.11"}
    listed = [device(appendix={**more, "physical_id": 1, "card_id": 2, "device_id": 0, "roce_mask": "255.0.0.0"})]
    answer = detect("ascend", package("AscendDetector", listed))
    assert isinstance(answer, Found)
    (card,) = answer.cards
    assert (card.soc, card.bus_id, card.numa, card.health) == ("Ascend910B4", "0000:c1:00.0", 6, "healthy")
    assert card.physical_indexes == (1, 2, 0)
    assert card.roce == Roce("10.20.0.11", "255.0.0.0", "")


@pytest.mark.parametrize(("mig", "want"), [(True, "enabled"), (False, "disabled"), (None, "disabled")])
def test_partition_mode_where_there_is_one(mig: bool | None, want: str) -> None:
    answer = detect("hygon", package("HygonDetector", [device(appendix={"mig": mig} if mig is not None else {})]))
    assert isinstance(answer, Found)
    assert answer.cards[0].partition_mode == want


def test_not_supported_is_an_empty_answer() -> None:
    assert detect("amd", package("AMDDetector", None)) == Empty(
        "the vendor's library is not installed or does not start"
    )


def test_errors_of_the_vendor_are_seen() -> None:
    with pytest.raises(KeyError):
        detect("amd", package("AMDDetector", KeyError("libamd_smi.so")))


def test_no_package_is_an_empty_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", absent)
    assert detect("amd") == Empty("the Python package gpustack-runtime is not installed")


@pytest.mark.parametrize(
    ("maker", "more", "want"),
    [
        ("amd", {"card_id": 9, "renderd_id": 136}, (9, 136)),
        ("hygon", {"card_id": 1}, (1,)),
        ("metax", {"renderd_id": 128}, ()),
        ("iluvatar", {"minor_number": 3}, (3,)),
        ("thead", {"minor_number": None}, ()),
        ("cambricon", {}, (5,)),
        ("mthreads", {}, (5,)),
        ("ascend", {"physical_id": 7, "dcmi_version": "2"}, (7, 5, 0)),
    ],
)
def test_physical_indexes(maker: str, more: dict[str, Any], want: tuple[int, ...]) -> None:
    assert physical_indexes(maker, 5, more) == want
