"""The transport record: what a device plugin wrote on a Pod about the cards of its containers.

For: rebuilding the ledger, `Instance.status.allocations`, the device plugin (spec 02 §3.2, spec 06 §6.1).
In: the Pod annotation `device.gpustack.ai/accelerator.allocated`. Out: records, and all that is wrong with them.
Trusts: nothing. The annotation's text may be anybody's (a ValidatingAdmissionPolicy reserves it to agents, but it may
be missing); figures that no card has are refused, never wrapped or charged.
Promises: never raises; text that cannot be read at all is told apart from text without records.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from api.devices import LedgerCard, LedgerGroup
from api.ledger.modes import CARD_UNITS, Mode, mode_of
from api.ledger.placements import Placement, placements_of
from api.problems import Problem, problem
from nodefeature.fields import annotations_of, as_int, as_list, as_map, as_maps, as_str, at

ALLOCATED_ANNOTATION = "device.gpustack.ai/accelerator.allocated"
PREFERRED_ID_ANNOTATION = "device.gpustack.ai/accelerator.preferred-id"
PREFERRED_INDEX_ANNOTATION = "device.gpustack.ai/accelerator.preferred-index"
MAX_TEXT = 262_144
"""Bytes: kube-apiserver's own limit on all annotations of an object together."""


@dataclass(frozen=True, slots=True)
class Record:
    """What one container holds on one card."""

    container: str
    group_id: str
    manufacturer: str
    card_id: str
    index: int
    mode: Mode
    allocated: int
    profile: str = ""
    placements: tuple[Placement, ...] = ()
    physical_id: str = ""
    logical_placements: tuple[Placement, ...] = ()


@dataclass(frozen=True, slots=True)
class Transport:
    """A Pod's whole annotation. `readable` is False when the text is no JSON object of containers."""

    records: tuple[Record, ...] = ()
    device_ids: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """(container, tokens) in ascending container order."""
    problems: tuple[Problem, ...] = ()
    readable: bool = True


EMPTY = Transport()


def transport_of(pod: Mapping[str, Any]) -> Transport:
    """Return the record of a Pod; an absent annotation holds nothing."""
    return parse(annotations_of(pod).get(ALLOCATED_ANNOTATION))


def parse(text: str | None) -> Transport:
    """Read an annotation's text. Possible records are kept, impossible ones named and dropped."""
    if text is None:
        return EMPTY
    raw = _decode(text)
    if not isinstance(raw, dict):
        rule = "must be a JSON object of container names"
        return Transport(problems=(problem(ALLOCATED_ANNOTATION, text, rule),), readable=False)
    problems: list[Problem] = []
    records: list[Record] = []
    tokens: list[tuple[str, tuple[str, ...]]] = []
    readable = True
    for container in sorted(raw):
        entry = raw[container]
        path = f"{ALLOCATED_ANNOTATION}[{container}]"
        if not isinstance(at(entry, "devices", "groups"), list | None):
            problems.append(problem(f"{path}.devices.groups", at(entry, "devices", "groups"), "must be a list"))
            readable = False
            continue
        records += _container_records(container, entry, path, problems)
        tokens.append((container, tuple(as_str(token) for token in as_list(at(entry, "deviceIDs")))))
    return Transport(tuple(records), tuple(tokens), tuple(problems), readable)


def fold_groups(text: str | None) -> list[LedgerGroup]:
    """Return a Pod's containers folded into one group list, as `Instance.status.allocations` shows it.

    Containers in ascending order, groups by id in first-seen order with the first one's manufacturer, cards appended
    and never merged, each card as written. A missing or malformed annotation yields no groups.
    """
    raw = as_map(_decode(text)) if text is not None else {}
    folded: dict[str, LedgerGroup] = {}
    for _, container in sorted(raw.items(), key=itemgetter(0)):
        for group in as_maps(at(container, "devices", "groups")):
            group_id = as_str(group.get("id"))
            into = folded.setdefault(
                group_id, {"id": group_id, "manufacturer": as_str(group.get("manufacturer")), "accelerators": []}
            )
            into["accelerators"].extend(_shown_card(card) for card in as_maps(group.get("accelerators")))
    return list(folded.values())


def dump(records: Iterable[Record], device_ids: Mapping[str, Iterable[str]]) -> str:
    """Return the annotation's text for the given records and kubelet tokens of each container; keys are ordered."""
    containers: dict[str, list[Record]] = {name: [] for name in device_ids}
    for record in records:
        containers.setdefault(record.container, []).append(record)
    body = {
        name: {"devices": {"groups": _grouped(held)}, "deviceIDs": list(device_ids.get(name, ()))}
        for name, held in sorted(containers.items())
    }
    return json.dumps(body, separators=(",", ":"))


def preferred_cards(pod: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Return the cards a user prefers: (ids, indexes). Indexes count only when the id annotation is absent."""
    annotations = annotations_of(pod)
    ids = annotations.get(PREFERRED_ID_ANNOTATION)
    if ids is not None:
        return tuple(part for part in map(str.strip, ids.split(",")) if part), ()
    indexes = map(str.strip, annotations.get(PREFERRED_INDEX_ANNOTATION, "").split(","))
    return (), tuple(int(part) for part in indexes if part.isascii() and part.isdecimal() and len(part) < 10)


def record_row(record: Record) -> LedgerCard:
    """Return a record as a row of the annotation; absent parts are not written."""
    row: LedgerCard = {"id": record.card_id, "index": record.index, "mode": int(record.mode)}
    if record.allocated:
        row["allocated"] = record.allocated
    if record.profile:
        row["allocatedPhysicalProfile"] = record.profile
    if record.placements:
        row["allocatedPhysicalPlacements"] = [{"start": p.start, "length": p.length} for p in record.placements]
    if record.physical_id:
        row["allocatedPhysicalID"] = record.physical_id
    if record.logical_placements:
        row["allocatedLogicalPlacements"] = [{"start": p.start, "length": p.length} for p in record.logical_placements]
    return row


def _grouped(records: Iterable[Record]) -> list[LedgerGroup]:
    groups: dict[tuple[str, str], LedgerGroup] = {}
    for record in records:
        group = groups.setdefault(
            (record.group_id, record.manufacturer),
            {"id": record.group_id, "manufacturer": record.manufacturer, "accelerators": []},
        )
        group["accelerators"].append(record_row(record))
    return list(groups.values())


def _decode(text: str) -> Any:
    """Return decoded JSON; None for text that is too long, malformed, too deep or holds integers too long to read."""
    if len(text) > MAX_TEXT:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _container_records(container: str, entry: Any, path: str, problems: list[Problem]) -> list[Record]:
    records = []
    for g, group in enumerate(as_list(at(entry, "devices", "groups"))):
        for c, card in enumerate(as_list(at(group, "accelerators"))):
            where = f"{path}.devices.groups[{g}].accelerators[{c}]"
            record = _record(container, group, card, where, problems)
            if record is not None:
                records.append(record)
    return records


def _record(container: str, group: Any, card: Any, path: str, problems: list[Problem]) -> Record | None:
    mode = mode_of(at(card, "mode"))
    allocated = at(card, "allocated")
    units = as_int(allocated)
    if not as_str(at(group, "id")) or not as_str(at(card, "id")):
        problems.append(problem(f"{path}.id", at(card, "id"), "group and card must be named"))
    elif mode is None or mode is Mode.NONE:
        problems.append(problem(f"{path}.mode", at(card, "mode"), "must be an allocation mode from 1 to 5"))
    elif allocated is not None and not _is_int(allocated):
        problems.append(problem(f"{path}.allocated", allocated, "must be an integer"))
    elif mode is not Mode.VISIBILITY and not 0 < units <= CARD_UNITS:
        problems.append(problem(f"{path}.allocated", units, f"must be within 1 and {CARD_UNITS} units"))
    else:
        return Record(
            container=container,
            group_id=as_str(at(group, "id")),
            manufacturer=as_str(at(group, "manufacturer")),
            card_id=as_str(at(card, "id")),
            index=as_int(at(card, "index")),
            mode=mode,
            allocated=CARD_UNITS if mode is Mode.EXCLUSIVE else (0 if mode is Mode.VISIBILITY else units),
            profile=as_str(at(card, "allocatedPhysicalProfile")),
            placements=placements_of(at(card, "allocatedPhysicalPlacements")),
            physical_id=as_str(at(card, "allocatedPhysicalID")),
            logical_placements=placements_of(at(card, "allocatedLogicalPlacements")),
        )
    return None


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


_SHOWN_KEYS: tuple[str, ...] = tuple(LedgerCard.__annotations__)


def _shown_card(card: Mapping[str, Any]) -> LedgerCard:
    """Keep the fields that the status schema has, so that a foreign key cannot make the status write fail."""
    shown: dict[str, Any] = {key: card[key] for key in _SHOWN_KEYS if card.get(key) is not None}
    return shown  # type: ignore[return-value]  # the keys were just selected from LedgerCard itself
