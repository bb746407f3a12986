"""From a manufacturer's raw answers to the groups of a Devices object.

For: the agent and `detect`. Recorded and real cards come through here alike.
In: the cards one library listed, the host's buses. Out: groups in canonical order, one sentence for everything that
was left out, repaired or folded (`findings`), and one for each profile that is never published (`notes`).
Promises:
  - pure, never raises for what a library says; one bad card or profile is left out and named, its neighbours stay;
  - a card without an identity of its own is never published; the running index counts published cards only;
  - group ids are unique within a manufacturer (decision 0221).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from api.devices import Accelerator, AcceleratorStatus, DeviceGroup, PhysicalSliced
from api.ledger.capability import group_detail
from devicemanager.answers import Bus, RawCard
from devicemanager.grouping import Group, Member, settle_groups
from devicemanager.identity import card_id
from devicemanager.manufacturers.registry import RULES
from devicemanager.manufacturers.rules import Rules, partitioned
from devicemanager.product import clean_product, clean_text
from devicemanager.profiles import NO_PARTITIONS, physical_sliced
from devicemanager.topology import topology_of
from nodefeature.manufacturers import DEFAULT_MANUFACTURERS, Manufacturers

# What lies beyond these is no reading of a card, and the API server would refuse the whole object for it.
_MAX_MEMORY_MIB = 2**31 - 1
_MAX_COUNT = 2**31 - 1
_MAX_INDEXES = 64


@dataclass(frozen=True, slots=True)
class Inventory:
    """What one manufacturer has on this node."""

    groups: tuple[DeviceGroup, ...]
    findings: tuple[str, ...]
    notes: tuple[str, ...] = ()


def take_inventory(
    manufacturer: str,
    cards: Iterable[RawCard],
    bus: Bus,
    *,
    registry: Manufacturers = DEFAULT_MANUFACTURERS,
    id_with_memory: bool = False,
) -> Inventory:
    """Return the groups of one manufacturer's cards (spec 06 §2.2-§2.7)."""
    rules = RULES[manufacturer]
    findings: list[str] = []
    notes: dict[str, None] = {}
    members: list[Member] = []
    for card, uuid in _identified(rules, sorted(cards, key=lambda c: c.index), findings):
        physical = physical_sliced(card, registry) if partitioned(card) else NO_PARTITIONS
        notes.update(dict.fromkeys(f"{manufacturer} {card.product!r}: {note}" for note in physical.notes))
        members.append(
            _member(rules, card, uuid, index=len(members), bus=bus, physical=physical.sliced, findings=findings)
        )
    settled = settle_groups(manufacturer, members, id_with_memory=id_with_memory)
    groups = tuple(_group(rules, group) for group in settled.groups)
    return Inventory(groups, (*findings, *settled.findings), tuple(notes))


def _identified(rules: Rules, cards: Sequence[RawCard], findings: list[str]) -> list[tuple[RawCard, str]]:
    """Return the usable cards with their ids; every other one is named."""
    named: list[tuple[RawCard, str]] = []
    for card in cards:
        if rules.skipped(card):
            continue
        uuid = card_id(card.uuid)
        if card.health == "lost":
            findings.append(f"{where(card)}: lost and left out: {card.detail or 'the driver has no handle for it'}")
        elif not uuid:
            findings.append(f"{where(card)}: left out: its uuid {card.uuid!r} does not tell it from other cards")
        else:
            named.append((card, uuid))
    return _without_twins(named, findings)


def _without_twins(named: Sequence[tuple[RawCard, str]], findings: list[str]) -> list[tuple[RawCard, str]]:
    """Keep one of several entries for one card; leave out different cards that share an id: none can be addressed."""
    places: dict[str, list[str]] = {}
    for card, uuid in named:
        places.setdefault(uuid, []).append(card.pci_address or card.bus_id)
    kept: list[tuple[RawCard, str]] = []
    seen: set[str] = set()
    for card, uuid in named:
        if len(set(places[uuid])) > 1:
            findings.append(f"{where(card)}: left out: another card has the same uuid {uuid}")
        elif uuid in seen:
            findings.append(f"{where(card)}: left out: a second entry for the card {uuid} at the same PCI address")
        else:
            seen.add(uuid)
            kept.append((card, uuid))
    return kept


def _member(
    rules: Rules,
    card: RawCard,
    uuid: str,
    *,
    index: int,
    bus: Bus,
    physical: PhysicalSliced,
    findings: list[str],
) -> Member:
    product = clean_product(card.product)
    findings.extend(f"{where(card)}: {sentence}" for sentence in product.findings)
    memory = rules.memory_mib(card) or 0
    if not 0 <= memory <= _MAX_MEMORY_MIB:
        findings.append(f"{where(card)}: memory of {memory} MiB is impossible; published as unknown (0)")
        memory = 0
    if partitioned(card) and not physical:
        findings.append(f"{where(card)}: unhealthy: its partition mode is on and no profile is usable")
    accelerator: Accelerator = {"id": uuid, "index": index}
    if card.physical_indexes:
        accelerator["physicalIndexes"] = [n for n in card.physical_indexes if 0 <= n <= _MAX_COUNT][:_MAX_INDEXES]
    accelerator["topology"] = topology_of(card, bus)
    accelerator["status"] = _status(rules, card, physical)
    return Member(name=product.name, memory_mib=memory, card=card, accelerator=accelerator)


def _status(rules: Rules, card: RawCard, physical: PhysicalSliced) -> AcceleratorStatus:
    slices = rules.slices(card)
    # A partitioned card that no profile fits can be used neither whole nor in parts: it must not look free.
    useless = partitioned(card) and not physical
    return {
        "unhealthy": rules.unhealthy(card) or useless,
        "logicalSliced": (
            {"coresPercentageOvercommit": slices.overcommit, "count": slices.count} if slices.count else {}
        ),
        "physicalSliced": physical,
    }


def _group(rules: Rules, group: Group) -> DeviceGroup:
    first = group.members[0].card
    published: DeviceGroup = {
        "id": group.group_id,
        "manufacturer": rules.manufacturer,
        "name": group.name,
        "memory": group.memory_mib,
    }
    cores = rules.cores(first)
    if cores is not None and 0 < cores <= _MAX_COUNT:
        published["cores"] = cores
    if driver := clean_text(rules.driver_version(first)):
        published["driverVersion"] = driver
    if runtime := clean_text(first.runtime_version):
        published["runtimeVersion"] = runtime
    capability = clean_text(first.compute_capability)
    if capability and not capability.startswith("0."):
        published["computeCapability"] = capability
    if family := clean_text(rules.family(first)):
        published["family"] = family
    accelerators = [member.accelerator for member in group.members]
    published["accelerators"] = accelerators
    published["acceleratorSlicedDetail"] = group_detail(accelerators)
    return published


def where(card: RawCard) -> str:
    """Name a card for people: manufacturer, driver index and bus address."""
    place = card.pci_address or card.bus_id
    return f"{card.manufacturer} card {card.index}" + (f" at {place}" if place else "")
