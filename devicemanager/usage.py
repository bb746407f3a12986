"""How busy cards are, as their libraries say.

For: `detectors.usage_*`, which read; `monitor`, which samples.
In: a library's figures; `None` means that it did not answer. Out: frozen data, and its form on one line of text.
Promises: nothing measured is ever turned into zero; figures no card can have count as not measured.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from devicemanager.answers import Failed
from nodefeature.fields import as_int, as_list, as_map, as_maps, as_str, at


@dataclass(frozen=True, slots=True)
class ProcessUsage:
    """One process on a card; memory in MiB, compute in percent of the card."""

    pid: int
    memory_mib: int | None = None
    cores: int | None = None


@dataclass(frozen=True, slots=True)
class PartitionUsage:
    """One hardware partition by its own handle."""

    uuid: str
    memory_mib: int | None = None
    memory_used_mib: int | None = None
    cores: int | None = None


@dataclass(frozen=True, slots=True)
class CardUsage:
    """One card. `process_memory` and `process_cores` say why processes were not measured; empty when they were."""

    uuid: str
    memory_mib: int | None = None
    memory_used_mib: int | None = None
    cores: int | None = None
    temperature: int | None = None
    power_w: int | None = None
    unhealthy: bool | None = None
    processes: tuple[ProcessUsage, ...] = ()
    process_memory: str = "unsupported"
    process_cores: str = "unsupported"
    partitions: tuple[PartitionUsage, ...] = ()


@dataclass(frozen=True, slots=True)
class Measured:
    """A manufacturer's cards were measured."""

    cards: tuple[CardUsage, ...]


class Meter(Protocol):
    """Measures a manufacturer's cards. Never raises for what a library does."""

    async def measure(self, manufacturer: str) -> Measured | Failed:
        """Return how busy the cards are now."""


def dump_usage(answer: Measured | Failed) -> str:
    """Return an answer as one line."""
    if isinstance(answer, Failed):
        return json.dumps({"failed": answer.reason})
    return json.dumps({"used": [dataclasses.asdict(card) for card in answer.cards]})


def load_usage(line: str | bytes) -> Measured | Failed:
    """Return the answer on a line; Failed when it is none."""
    try:
        said = as_map(json.loads(line))
    except ValueError:
        return Failed("the helper process wrote a line that is no JSON")
    if "used" in said:
        return Measured(tuple(_card(raw) for raw in as_maps(said["used"])))
    return Failed(as_str(said.get("failed")) or "the helper process wrote a line that is no answer")


def reading(value: object, *, low: int = 0, high: int = 2**31 - 1) -> int | None:
    """Return a figure as a whole number; None when it is no number or outside what can be."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if low <= value <= high else None  # a NaN is in no range


def _card(raw: Mapping[str, Any]) -> CardUsage:
    unhealthy = raw.get("unhealthy")
    return CardUsage(
        uuid=as_str(raw.get("uuid")),
        memory_mib=reading(raw.get("memory_mib")),
        memory_used_mib=reading(raw.get("memory_used_mib")),
        cores=reading(raw.get("cores"), high=100),
        temperature=reading(raw.get("temperature"), low=-273, high=1000),
        power_w=reading(raw.get("power_w"), high=1_000_000),
        unhealthy=unhealthy if isinstance(unhealthy, bool) else None,
        processes=tuple(
            ProcessUsage(as_int(one.get("pid")), reading(one.get("memory_mib")), reading(one.get("cores"), high=100))
            for one in as_maps(as_list(at(raw, "processes")))
        ),
        process_memory=as_str(raw.get("process_memory")),
        process_cores=as_str(raw.get("process_cores")),
        partitions=tuple(
            PartitionUsage(
                as_str(one.get("uuid")),
                reading(one.get("memory_mib")),
                reading(one.get("memory_used_mib")),
                reading(one.get("cores"), high=100),
            )
            for one in as_maps(as_list(at(raw, "partitions")))
        ),
    )
