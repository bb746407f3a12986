"""One pass over all manufacturers, and what is believed after it.

For: the agent's loop and `detect`.
In: the last belief and this pass's answers. Out: the next belief, frozen.
Promises (spec 06 §2.4, design §7, case B015):
  - an error, or nobody to ask, carries the manufacturer's last groups forward and is named; a manufacturer that never
    answered stays absent;
  - a successful pass replaces what was held, also by nothing; recovery needs no restart;
  - one manufacturer's trouble changes nothing for another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from api.devices import DeviceGroup
from devicemanager.answers import Answer, Bus, Detector, Empty, Failed, Found
from devicemanager.inventory import Inventory, take_inventory
from nodefeature.manufacturers import DEFAULT_MANUFACTURERS, Manufacturers


@dataclass(frozen=True, slots=True)
class Detection:
    """What is believed about a node's cards.

    `answered` holds the manufacturers that answered at least once: only about these may anything be removed.
    `troubles` says for each manufacturer without an answer this time why; `findings` what was left out or repaired;
    `notes` which partition profiles are never published.
    """

    groups: Mapping[str, tuple[DeviceGroup, ...]] = field(default_factory=dict)
    answered: frozenset[str] = frozenset()
    troubles: Mapping[str, str] = field(default_factory=dict)
    findings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    notes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def all_groups(self) -> list[DeviceGroup]:
        """Return every group, manufacturers in order."""
        return [group for manufacturer in sorted(self.groups) for group in self.groups[manufacturer]]

    def all_findings(self) -> list[str]:
        """Return every finding, manufacturers in order."""
        return [finding for manufacturer in sorted(self.findings) for finding in self.findings[manufacturer]]


NOTHING_YET = Detection()


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectionOptions:
    """What a pass asks and how it names."""

    manufacturers: tuple[str, ...]
    registry: Manufacturers = DEFAULT_MANUFACTURERS
    id_with_memory: bool = False


@dataclass(frozen=True, slots=True)
class Look:
    """What one pass heard, untouched."""

    answers: Mapping[str, Answer]
    bus: Bus


async def look(detector: Detector, manufacturers: Sequence[str]) -> Look:
    """Read the bus once and ask every manufacturer at the same time."""
    bus = await detector.bus()
    answers = await asyncio.gather(*(detector.detect(manufacturer, bus) for manufacturer in manufacturers))
    return Look(dict(zip(manufacturers, answers, strict=True)), bus)


def next_detection(last: Detection, seen: Look, options: DetectionOptions) -> Detection:
    """Return the belief after a pass."""
    held = {
        name: Inventory(last.groups.get(name, ()), last.findings.get(name, ()), last.notes.get(name, ()))
        for name in {*last.groups, *last.findings, *last.notes}
    }
    answered, troubles = set(last.answered), {}
    for manufacturer, answer in seen.answers.items():
        if isinstance(answer, Found):
            held[manufacturer] = take_inventory(
                manufacturer,
                answer.cards,
                seen.bus,
                registry=options.registry,
                id_with_memory=options.id_with_memory,
            )
        elif isinstance(answer, Empty):
            held.pop(manufacturer, None)
        else:
            word = "could not be measured" if isinstance(answer, Failed) else "could not be asked"
            kept = "; its last known cards are kept" if last.groups.get(manufacturer) else ""
            troubles[manufacturer] = f"{manufacturer} {word}: {answer.reason}{kept}"
            continue
        answered.add(manufacturer)
    return Detection(
        {name: inventory.groups for name, inventory in held.items() if inventory.groups},
        frozenset(answered),
        troubles,
        {name: inventory.findings for name, inventory in held.items() if inventory.findings},
        {name: inventory.notes for name, inventory in held.items() if inventory.notes},
    )


def unready_reason(detection: Detection) -> str:
    """Say why nothing can be published yet; empty once any manufacturer has answered."""
    return "" if detection.answered else "; ".join(_sorted_values(detection.troubles)) or "no detection pass has ended"


def _sorted_values(texts: Mapping[str, str]) -> Iterable[str]:
    return (texts[key] for key in sorted(texts))
