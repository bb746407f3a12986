"""Which cards make one group, and what it is called (decision 0221).

In: cards with cleaned names and corrected memory. Out: groups whose ids are unique within the manufacturer.
Promises:
  - equal name and equal memory: one group;
  - equal name and memory that differs by less than the label shows: one group with the smallest memory, named;
  - two groups that would carry one id: the first by name and memory keeps it, the next gets the memory suffix, and
    what still collides is left out; each of these is named. The order does not depend on which cards are alive.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from api.devices import Accelerator
from devicemanager.answers import RawCard
from nodefeature.keys import device_group_id
from nodefeature.quantity import memory_label


@dataclass(frozen=True, slots=True)
class Member:
    """One published card with what decides its group."""

    name: str
    memory_mib: int
    card: RawCard
    accelerator: Accelerator


@dataclass(frozen=True, slots=True)
class Group:
    """Cards of one model, by index."""

    group_id: str
    name: str
    memory_mib: int
    members: tuple[Member, ...]


@dataclass(frozen=True, slots=True)
class Settled:
    """Groups by lowest index, and what had to be done to tell them apart."""

    groups: tuple[Group, ...]
    findings: tuple[str, ...]


def settle_groups(manufacturer: str, members: Iterable[Member], *, id_with_memory: bool) -> Settled:
    """Return the groups of one manufacturer's cards."""
    findings: list[str] = []
    taken: dict[str, Group] = {}
    for (name, _label), same in sorted(_by_name_and_label(members).items(), key=_content_order):
        group = _fold(manufacturer, name, same, findings)
        suffix = group.memory_mib if id_with_memory else None
        group = replace(group, group_id=device_group_id(manufacturer, name, memory_mib=suffix))
        if group.group_id in taken:
            group = _told_apart(manufacturer, group, taken, findings)
        if group.group_id:
            taken[group.group_id] = group
    groups = sorted(taken.values(), key=lambda g: (g.members[0].accelerator["index"], g.group_id))
    return Settled(tuple(groups), tuple(findings))


def _by_name_and_label(members: Iterable[Member]) -> dict[tuple[str, str], list[Member]]:
    by_key: dict[tuple[str, str], list[Member]] = {}
    for member in members:
        by_key.setdefault((member.name, memory_label(member.memory_mib)), []).append(member)
    return by_key


def _content_order(item: tuple[tuple[str, str], Sequence[Member]]) -> tuple[str, int]:
    (name, _label), members = item
    return name, min(member.memory_mib for member in members)


def _fold(manufacturer: str, name: str, members: Sequence[Member], findings: list[str]) -> Group:
    sizes = sorted({member.memory_mib for member in members})
    if len(sizes) > 1:
        findings.append(
            f"{manufacturer} {name!r}: cards of {', '.join(map(str, sizes))} MiB make one group of {sizes[0]} MiB each"
        )
    return Group("", name, sizes[0], tuple(members))


def _told_apart(manufacturer: str, group: Group, taken: dict[str, Group], findings: list[str]) -> Group:
    other = taken[group.group_id]
    longer = device_group_id(manufacturer, group.name, memory_mib=group.memory_mib)
    about = (
        f"{manufacturer} {group.name!r} ({group.memory_mib} MiB) has the key {group.group_id} of "
        f"{other.name!r} ({other.memory_mib} MiB)"
    )
    if longer in taken:
        cards = ", ".join(member.accelerator["id"] for member in group.members)
        findings.append(f"{about}, also with its memory: left out: {cards}")
        return replace(group, group_id="")
    findings.append(f"{about}: published as {longer}")
    return replace(group, group_id=longer)
