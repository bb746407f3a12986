"""How busy this node's cards are: samples, the snapshot that is kept, and its text.

For: `serve`, whose loop samples; the exporter and `/monitor/snapshot`, which only read; the command `monitor`.
In: a meter, what was detected, a clock. Out: a Snapshot (spec 06 §2.4).
Promises:
  - only the loop touches hardware; readers get the last snapshot and its age;
  - an absent figure was not measured; nothing is ever 0 by default, and a card without memory of its own has no memory
    figures at all (case B036);
  - a card is named by its published id and running index; a card that was not detected is not shown;
  - a pass in which nobody could be measured leaves the last snapshot, which then grows old by itself.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from api.devices import DeviceGroup
from devicemanager.answers import Failed
from devicemanager.identity import card_id
from devicemanager.usage import CardUsage, Meter
from kube.clock import Clock
from nodefeature.fields import as_bool, as_int, as_str, at

log = logging.getLogger(__name__)

STALE_PERIODS = 3


@dataclass(frozen=True, slots=True)
class CardSample:
    """One published card and its figures, None where nothing was measured."""

    manufacturer: str
    card_id: str
    index: int
    name: str
    memory_mib: int | None
    unhealthy: bool
    usage: CardUsage

    @property
    def memory_used_mib(self) -> int | None:
        """Return used MiB; None also where there is nothing to be a part of."""
        return self.usage.memory_used_mib if self.memory_mib else None

    @property
    def memory_percent(self) -> int | None:
        """Return used memory in percent, truncated."""
        return percent(self.memory_used_mib, self.memory_mib)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One sample of all cards that could be measured."""

    taken: datetime
    taken_at: float
    """Monotonic seconds: age must not follow a clock that somebody sets."""
    period_s: float
    cards: tuple[CardSample, ...]
    troubles: Mapping[str, str]

    def age(self, now: float) -> float:
        """Return seconds since it was taken."""
        return max(now - self.taken_at, 0.0)

    def is_stale(self, now: float) -> bool:
        """Say whether it is older than three periods."""
        return self.age(now) > STALE_PERIODS * self.period_s

    def card(self, card: str) -> CardSample | None:
        """Return a card's sample."""
        return next((one for one in self.cards if one.card_id == card), None)


class Monitor:
    """Samples every period; `snapshot` is the last one that held any card."""

    def __init__(self, meter: Meter, clock: Clock, *, period_s: float = 15.0) -> None:
        self.snapshot: Snapshot | None = None
        self.period_s = period_s
        self._meter = meter
        self._clock = clock
        self._troubles: Mapping[str, str] = {}

    def fresh(self) -> Snapshot | None:
        """Return the snapshot while it is not stale."""
        snapshot = self.snapshot
        return None if snapshot is None or snapshot.is_stale(self._clock.now()) else snapshot

    async def sample(self, groups: Sequence[DeviceGroup]) -> Snapshot:
        """Measure the detected cards once and keep the result when it holds any."""
        makers = sorted({as_str(group.get("manufacturer")) for group in groups})
        answers = await asyncio.gather(*(self._meter.measure(maker) for maker in makers))
        used: dict[str, CardUsage] = {}
        troubles: dict[str, str] = {}
        for maker, answer in zip(makers, answers, strict=True):
            if isinstance(answer, Failed):
                troubles[maker] = answer.reason
            else:
                used.update({card_id(card.uuid): card for card in answer.cards})
        self._log(troubles)
        cards = tuple(_samples(groups, used))
        made = Snapshot(self._clock.time(), self._clock.now(), self.period_s, cards, troubles)
        if cards:
            self.snapshot = made
        return made

    def _log(self, troubles: Mapping[str, str]) -> None:
        for maker, reason in troubles.items():
            if maker not in self._troubles:
                log.warning("cards not measured", extra={"manufacturer": maker, "reason": reason})
        self._troubles = troubles


def percent(used: int | None, total: int | None) -> int | None:
    """Return used of total in percent, truncated; None when either was not measured or there is no total."""
    return used * 100 // total if used is not None and total else None


def snapshot_body(snapshot: Snapshot, slices: Sequence[Mapping[str, Any]] | None = None) -> dict[str, Any]:
    """Return a snapshot as `/monitor/snapshot` and `monitor` show it; what was not measured is absent."""
    stamp = _stamp(snapshot.taken)
    makers = sorted({card.manufacturer for card in snapshot.cards})
    body: dict[str, Any] = {
        "timestamp": stamp,
        "periodSeconds": math.ceil(snapshot.period_s),
        "groups": [
            {
                "manufacturer": maker,
                "timestamp": stamp,
                "accelerators": [_row(card) for card in snapshot.cards if card.manufacturer == maker],
            }
            for maker in makers
        ],
    }
    if slices is not None:
        body["slices"] = {"schemaVersion": 1, "records": list(slices)}
    return body


def table_rows(snapshot: Snapshot) -> list[tuple[str, ...]]:
    """Return one row a card: what was not measured shows as `-`."""
    return [
        (
            card.manufacturer,
            str(card.index),
            card.name,
            card.card_id,
            _pair(card.memory_used_mib, card.memory_mib, "MiB"),
            _with_unit(card.usage.cores, "%"),
            _with_unit(card.usage.temperature, "C"),
            _with_unit(card.usage.power_w, "W"),
            "unhealthy" if card.unhealthy else "healthy",
        )
        for card in snapshot.cards
    ]


TABLE_HEADER = ("MANUFACTURER", "INDEX", "NAME", "ID", "MEMORY", "CORES", "TEMPERATURE", "POWER", "HEALTH")


def _samples(groups: Iterable[DeviceGroup], used: Mapping[str, CardUsage]) -> Iterable[CardSample]:
    for group in groups:
        memory = as_int(group.get("memory")) or None
        for card in group["accelerators"]:
            usage = used.get(as_str(card.get("id")))
            if usage is None:
                continue
            detected = as_bool(at(card, "status", "unhealthy"))
            yield CardSample(
                as_str(group.get("manufacturer")),
                as_str(card.get("id")),
                as_int(card.get("index")),
                as_str(group.get("name")),
                memory,
                detected if usage.unhealthy is None else usage.unhealthy or detected,
                usage,
            )


def _row(card: CardSample) -> dict[str, Any]:
    figures = {
        "id": card.card_id,
        "index": card.index,
        "memory": card.memory_mib,
        "memoryUsage": card.memory_used_mib,
        "memoryUtilization": card.memory_percent,
        "coresUtilization": card.usage.cores,
        "temperature": card.usage.temperature,
        "powerUsage": card.usage.power_w,
        "unhealthy": card.unhealthy,
    }
    return {name: value for name, value in figures.items() if value is not None}


def _pair(used: int | None, total: int | None, unit: str) -> str:
    return f"{'-' if used is None else used} / {total} {unit}" if total else "-"


def _with_unit(value: int | None, unit: str) -> str:
    return "-" if value is None else f"{value} {unit}"


def _stamp(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")
