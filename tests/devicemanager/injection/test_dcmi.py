"""Ascend's share flag, against an object that behaves like libdcmi."""

from __future__ import annotations

from typing import Any

import pytest

from devicemanager.injection.dcmi import DcmiShareFlags
from devicemanager.injection.driver_faults import ApiMissing, DriverFault, NotDeclared
from devicemanager.injection.share_flag import ensure_shared
from tests.builders.injection import card

NPU = card(physical_indexes=(5, 2, 1))


class Library:
    """A library whose calls answer `code`; flags by (card, device)."""

    def __init__(self, code: int = 0, start: int = 0) -> None:
        self.flags: dict[tuple[int, int], int] = {}
        self.started = 0
        self._code = code
        self._start = start

    def dcmi_init(self) -> int:
        self.started += 1
        return self._start

    def dcmi_get_device_share_enable(self, number: Any, chip: Any, flag: Any) -> int:
        flag._obj.value = self.flags.get((number.value, chip.value), 0)
        return self._code

    def dcmi_set_device_share_enable(self, number: Any, chip: Any, flag: Any) -> int:
        self.flags[number.value, chip.value] = flag.value
        return self._code


def test_on_and_off() -> None:
    library = Library()
    driver = DcmiShareFlags(lambda: library)
    assert not driver.is_shared(NPU)
    assert ensure_shared(NPU, driver) == ""
    assert driver.is_shared(NPU)
    assert (library.flags, library.started) == ({(2, 1): 1}, 1)


@pytest.mark.parametrize(("code", "kind"), [(-8255, NotDeclared), (-8007, DriverFault)])
def test_refusals(code: int, kind: type[DriverFault]) -> None:
    with pytest.raises(kind):
        DcmiShareFlags(lambda: Library(code)).is_shared(NPU)


def test_a_driver_of_the_second_generation_starts_with_not_supported() -> None:
    assert "no container-share flag" in ensure_shared(NPU, DcmiShareFlags(lambda: Library(-8255, start=-8255)))


def test_what_is_missing() -> None:
    def absent() -> Any:
        raise OSError("no such file")

    with pytest.raises(ApiMissing, match="cannot be loaded: no such file"):
        DcmiShareFlags(absent).is_shared(NPU)
    with pytest.raises(ApiMissing, match="has no function"):
        DcmiShareFlags(type("Old", (), {"dcmi_init": lambda _self: 0})).share(NPU)
    with pytest.raises(ApiMissing, match="cannot be loaded"):
        DcmiShareFlags().share(NPU)
    with pytest.raises(DriverFault, match="dcmi_init: error 7"):
        DcmiShareFlags(lambda: Library(start=7)).share(NPU)
    with pytest.raises(DriverFault, match="no card and device number"):
        DcmiShareFlags(Library).share(card(physical_indexes=(5,)))
