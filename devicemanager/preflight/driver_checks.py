"""The driver's own part in slicing: one row a manufacturer that has one (spec 06 §15).

In: drivers of this node, None where there is none to ask; cards. Out: checks.
Promises: a mode is turned on only when that is allowed (never by a dry run), and never off.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from devicemanager.injection.cambricon import SmluDriver
from devicemanager.injection.cu_mask import CuLayout, window_length
from devicemanager.injection.driver_faults import DriverFault
from devicemanager.injection.entrance import Drivers
from devicemanager.injection.request import Card, InjectionRefused
from devicemanager.injection.share_flag import ShareFlagDriver, ensure_shared
from devicemanager.partitions.port import PartitionDriver
from devicemanager.preflight.report import Check, Depth, State

_NAMES = {
    "nvidia": "mig-partitioning",
    "thead": "mig-partitioning",
    "ascend": "container-share",
    "amd": "cu-mask-topology",
    "cambricon": "smlu-mode",
    "metax": "sgpu-mode",
}
_NO_DRIVER = "no driver interface is configured on this node"


def driver_check(
    maker: str,
    cards: Sequence[Card],
    drivers: Drivers,
    *,
    partitions: PartitionDriver | None = None,
    may_write: bool = False,
) -> Check | None:
    """Return the manufacturer's driver row; None where it has none."""
    name = _NAMES.get(maker)
    if name is None or not cards:
        return None
    questions: dict[str, Callable[[], tuple[State, str]]] = {
        "mig-partitioning": lambda: _partitions(partitions),
        "container-share": lambda: _shares(cards, drivers.share_flag, may_write=may_write),
        "cu-mask-topology": lambda: _layouts(cards, drivers.layouts.get),
        "smlu-mode": lambda: _smlus(cards, drivers.smlu, may_write=may_write),
        "sgpu-mode": lambda: _sgpus(cards, drivers),
    }
    try:
        state, said = questions[name]()
    except (DriverFault, InjectionRefused) as error:
        state, said = State.UNAVAILABLE, str(error)
    remedy = "" if state is not State.UNAVAILABLE else "see the reason; whole cards work all the same"
    depth = Depth.DECLARED if said == _NO_DRIVER else Depth.MEASURED
    return Check(about=maker, name=name, state=state, depth=depth, said=said, remedy=remedy)


def _partitions(driver: PartitionDriver | None) -> tuple[State, str]:
    if driver is None:
        return State.NOT_DECLARED, _NO_DRIVER
    on = driver.cards()
    if not on:
        return State.NOT_DECLARED, "no card is in partition mode"
    offers = {offer.name for card in on for offer in driver.read(card).offers if offer.placements}
    if not offers:
        return State.UNAVAILABLE, f"{len(on)} cards in partition mode offer no profile"
    return State.OK, f"{len(on)} cards offer {', '.join(sorted(offers))}"


def _shares(cards: Sequence[Card], driver: ShareFlagDriver | None, *, may_write: bool) -> tuple[State, str]:
    if driver is None:
        return State.UNAVAILABLE, _NO_DRIVER
    if may_write:
        notes = [note for card in cards if (note := ensure_shared(card, driver))]
        return State.OK, notes[0] if notes else f"on for {len(cards)} cards"
    off = [card.id for card in cards if not driver.is_shared(card)]
    return State.OK, f"off for {', '.join(off)}; turned on when first needed" if off else "on for all cards"


def _layouts(cards: Sequence[Card], layout_of: Callable[[str], CuLayout | None]) -> tuple[State, str]:
    lengths = []
    for card in cards:
        layout = layout_of(card.id)
        if layout is None:
            return State.UNAVAILABLE, f"card {card.id}: the layout of its compute units is not known"
        lengths.append(f"{card.id}: half is {window_length(layout, 50)} of {layout.compute_units} units")
    return State.OK, "; ".join(lengths)


def _smlus(cards: Sequence[Card], driver: SmluDriver | None, *, may_write: bool) -> tuple[State, str]:
    if driver is None:
        return State.UNAVAILABLE, _NO_DRIVER
    off = [card.physical_indexes[0] for card in cards if not driver.is_enabled(card.physical_indexes[0])]
    if off and may_write:
        for index in off:
            driver.enable(index)
        return State.OK, f"turned on for devices {', '.join(map(str, off))}"
    return State.OK, f"off for devices {', '.join(map(str, off))}; turned on when first needed" if off else "on"


def _sgpus(cards: Sequence[Card], drivers: Drivers) -> tuple[State, str]:
    if drivers.sgpu is None:
        return State.UNAVAILABLE, _NO_DRIVER
    live = sum(len(drivers.sgpu.subdevices(card.bus_id)) for card in cards)
    return State.OK, f"{len(cards)} cards, {live} subdevices"
