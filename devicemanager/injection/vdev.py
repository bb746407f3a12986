"""Hygon's vdev.conf: one hard slice of one card's compute units (spec 06 §8.4).

For: `hygon`. In: the other slices of the node. Out: the next one, and the file's text.
Promises: never a compute unit, a vdev id or a pipe id twice; a file that cannot be read entirely is an error, because
what it holds would be given away a second time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from devicemanager.injection.request import Card, InjectionRefused

MAX_CORES = 128
_WORD = 64
_MAX_VDEVS = 200
_MAX_PIPES = 20
_SINGLE_KEYS = frozenset({"PciBusId", "cu_count", "mem", "device_id", "vdev_id", "pipe_id", "enable"})


class VdevMalformed(InjectionRefused):
    """A vdev.conf that does not hold what it must."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VdevConf:
    """One slice. Bit n of `units` is compute unit n."""

    bus_id: str
    units: int
    count: int
    vdev_id: int
    pipe_id: int
    mib: int = 0
    device_id: int = 0


def vdev_text(conf: VdevConf) -> str:
    """Return the file."""
    low, high = conf.units & (2**_WORD - 1), conf.units >> _WORD
    lines = (
        f"PciBusId: {conf.bus_id}",
        f"cu_mask: 0x{low:016x}",
        f"cu_mask: 0x{high:016x}",
        f"cu_count: {conf.count}",
        f"mem: {conf.mib} MiB",
        f"device_id: {conf.device_id}",
        f"vdev_id: {conf.vdev_id}",
        f"pipe_id: {conf.pipe_id}",
        "enable: 1",
    )
    return "\n".join(lines) + "\n"


def parse_vdev(text: str, where: str) -> VdevConf:
    """Read a file; VdevMalformed with `where` when anything that must be there is missing, doubled or impossible."""
    values, masks = _fields(text, where)
    if len(masks) != 2:
        raise VdevMalformed(f"{where}: exactly two cu_mask lines are expected, not {len(masks)}")
    if not values.get("PciBusId"):
        raise VdevMalformed(f"{where}: PciBusId is missing")
    low, high = (_number(mask, where, "cu_mask", limit=2**_WORD) for mask in masks)
    return VdevConf(
        bus_id=values["PciBusId"],
        units=low | high << _WORD,
        count=_number(values.get("cu_count"), where, "cu_count", limit=MAX_CORES + 1),
        vdev_id=_number(values.get("vdev_id"), where, "vdev_id", limit=_MAX_VDEVS),
        pipe_id=_number(values.get("pipe_id"), where, "pipe_id", limit=_MAX_PIPES),
        mib=_number(values.get("mem", "0").removesuffix("MiB").strip(), where, "mem", limit=2**31),
        device_id=_number(values.get("device_id", "0"), where, "device_id", limit=2**31),
    )


def next_vdev(card: Card, *, percent: int, mib: int, position: int, taken: Collection[VdevConf]) -> VdevConf:
    """Return the next slice of a card beside those that are taken on the node."""
    if not card.bus_id:
        raise InjectionRefused(f"accelerator {card.id} has no PCI address; it cannot be sliced")
    if not 0 < card.cores <= MAX_CORES:
        raise InjectionRefused(f"accelerator {card.id} has {card.cores} compute units; 1 to {MAX_CORES} can be sliced")
    need = min(-(-percent * card.cores // 100), card.cores)
    if need <= 0:
        raise InjectionRefused(f"a slice of {percent} % of accelerator {card.id} has no compute unit")
    beside = [conf for conf in taken if conf.bus_id == card.bus_id]
    used = _used_units(card, beside)
    free = [unit for unit in range(card.cores) if not used >> unit & 1]
    if len(free) < need:
        raise InjectionRefused(
            f"accelerator {card.id}: insufficient free compute units: need {need}, {len(free)} of {card.cores} free"
        )
    return VdevConf(
        bus_id=card.bus_id,
        units=sum(1 << unit for unit in islice(free, need)),
        count=need,
        vdev_id=_lowest((conf.vdev_id for conf in taken), _MAX_VDEVS, "vdev ids on this node"),
        pipe_id=_lowest((conf.pipe_id for conf in beside), _MAX_PIPES, f"pipe ids on accelerator {card.id}"),
        mib=mib,
        device_id=position,
    )


def _used_units(card: Card, beside: Iterable[VdevConf]) -> int:
    used = 0
    for conf in beside:
        used |= conf.units
    if used >> card.cores:
        raise InjectionRefused(f"accelerator {card.id}: a slice holds a compute unit beyond its {card.cores}")
    return used


def _lowest(used: Iterable[int], limit: int, what: str) -> int:
    taken = set(used)
    number = next((number for number in range(limit) if number not in taken), None)
    if number is None:
        raise InjectionRefused(f"all {limit} {what} are taken")
    return number


def _fields(text: str, where: str) -> tuple[dict[str, str], list[str]]:
    values: dict[str, str] = {}
    masks: list[str] = []
    for key, value in _pairs(text):
        if key == "cu_mask":
            masks.append(value)
        elif key in values:
            raise VdevMalformed(f"{where}: {key} stands there twice")
        elif key in _SINGLE_KEYS:
            values[key] = value
    return values, masks


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        if colon:
            yield key.strip(), value.strip()


def _number(text: str | None, where: str, key: str, *, limit: int) -> int:
    if text is None:
        raise VdevMalformed(f"{where}: {key} is missing")
    try:
        number = int(text, 0)
    except ValueError as error:
        raise VdevMalformed(f"{where}: {key}: {text!r} is no number") from error
    if not 0 <= number < limit:
        raise VdevMalformed(f"{where}: {key}: {number} is outside 0 to {limit - 1}")
    return number
