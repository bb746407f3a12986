"""Ascend's container-share flag through the driver's library libdcmi.

For: `share_flag`. In: the shared object, given by tests. Out: a driver.
Promises: the library is loaded at the first question; a missing library or function is told apart from a refusal, and
both from a generation of the driver that has no such flag.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from devicemanager.injection.driver_faults import ApiMissing, DriverFault, NotDeclared
from devicemanager.injection.request import Card

_PLACES = ("libdcmi.so", "/usr/local/Ascend/driver/lib64/driver/libdcmi.so", "/usr/local/dcmi/libdcmi.so")
_NOT_SUPPORTED = -8255
_ON = 1


class DcmiShareFlags:
    """The flags of this node's NPUs. Methods block."""

    def __init__(self, load: Callable[[], Any] | None = None) -> None:
        self._load = load or _load
        self._library: Any = None

    def is_shared(self, card: Card) -> bool:
        """Say whether the flag is on."""
        flag = ctypes.c_int()
        self._ask("dcmi_get_device_share_enable", card, ctypes.byref(flag))
        return flag.value == _ON

    def share(self, card: Card) -> None:
        """Turn the flag on."""
        self._ask("dcmi_set_device_share_enable", card, ctypes.c_int(_ON))

    def _ask(self, function: str, card: Card, argument: Any) -> None:
        if len(card.physical_indexes) < 3:
            raise DriverFault(f"{function}: accelerator {card.id} carries no card and device number")
        _, number, chip = card.physical_indexes[:3]
        called = getattr(self._opened(), function, None)
        if called is None:
            raise ApiMissing(f"libdcmi has no function {function}")
        answer = called(ctypes.c_int(number), ctypes.c_int(chip), argument)
        if answer == _NOT_SUPPORTED:
            raise NotDeclared(f"{function}: not supported by this driver")
        if answer != 0:
            raise DriverFault(f"{function}: error {answer}")

    def _opened(self) -> Any:
        if self._library is None:
            try:
                library = self._load()
            except OSError as error:
                raise ApiMissing(f"libdcmi cannot be loaded: {error}") from error
            started = library.dcmi_init()
            if started not in (0, _NOT_SUPPORTED):
                raise DriverFault(f"dcmi_init: error {started}")
            self._library = library
        return self._library


def _load() -> ctypes.CDLL:
    reason = OSError("it is not installed")
    for place in _PLACES:
        try:
            return ctypes.CDLL(place)
        except OSError as error:
            reason = error
    raise reason
