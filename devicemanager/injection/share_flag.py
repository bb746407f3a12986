"""Ascend's container-share flag: several containers may use one NPU only while it is on (spec 06 §8.1).

In: a driver that reads and writes it. Out: it is on, or a refusal. Promises: it is never turned off.
"""

from __future__ import annotations

from typing import Protocol

from devicemanager.injection.driver_faults import ApiMissing, DriverFault, NotDeclared
from devicemanager.injection.request import Card, InjectionRefused


class ShareFlagDriver(Protocol):
    """Reads and writes the flag of one card. ApiMissing, NotDeclared and other DriverFaults are told apart."""

    def is_shared(self, card: Card) -> bool:
        """Say whether the flag is on."""

    def share(self, card: Card) -> None:
        """Turn the flag on."""


def ensure_shared(card: Card, driver: ShareFlagDriver) -> str:
    """Turn the flag on where it is off; returns a note where the driver does not declare it."""
    unread = ""
    try:
        if driver.is_shared(card):
            return ""
    except NotDeclared:
        return f"accelerator {card.id}: this driver has no container-share flag; taken as shared"
    except ApiMissing as error:
        raise InjectionRefused(
            f"accelerator {card.id}: the driver cannot share it between containers: {error}"
        ) from error
    except DriverFault as error:
        unread = str(error)
    try:
        driver.share(card)
    except ApiMissing as error:
        raise InjectionRefused(
            f"accelerator {card.id}: the driver cannot share it between containers: {error}"
        ) from error
    except DriverFault as error:
        before = f"reading it failed ({unread}), then " if unread else ""
        raise InjectionRefused(
            f"accelerator {card.id}: its container-share flag is off: {before}turning it on failed ({error}); "
            f"on the node: {remedy(card)}"
        ) from error
    return ""


def remedy(card: Card) -> str:
    """Return the command that turns the flag on by hand."""
    number, chip = (*card.physical_indexes[1:3], 0, 0)[:2]
    return f"npu-smi set -t device-share -i {number} -c {chip} -d 1"
