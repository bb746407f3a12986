"""What cannot be true in a Devices object: named, so that a person can find who wrote it.

For: the agent's and the instance_type controller's logs and conditions. In: a raw Devices object.
Out: problems with the path of the field, the value, the rule; bounded to `LIMIT`.
Promises: never raises; readers go on with what is possible whether or not anybody looks at these.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from api.devices import group_key
from api.ledger.capability import profile_ceiling, profiles_of
from api.ledger.fit import logical_ceiling, physical_ceiling
from api.ledger.modes import CARD_UNITS, Mode, mode_of
from api.problems import Problem, problem
from nodefeature.fields import as_list, as_map, as_str, at

LIMIT = 64
_CardKey = tuple[str, str, str]


def ledger_problems(devices: Mapping[str, Any]) -> list[Problem]:
    """Return what is impossible in the inventory and the ledger of a node."""
    cards = _cards(devices)
    return list(islice(_all_problems(devices, cards), LIMIT))


def _all_problems(devices: Mapping[str, Any], cards: Mapping[_CardKey, Mapping[str, Any]]) -> Iterator[Problem]:
    yield from _inventory_problems(devices)
    seen: set[_CardKey] = set()
    for path, group, row in _rows(devices, "status"):
        if not isinstance(row, Mapping):
            yield problem(path, row, "must be an object")
            continue
        key = _key(group, row)
        if key in seen:
            yield problem(f"{path}.id", key[2], "stands there twice; the first row counts")
        seen.add(key)
        yield from _row_problems(path, row, cards.get(key))
    for key in cards:
        if key not in seen:
            yield problem("status.groups", "/".join(key), "has no ledger row; it offers nothing until it has one")


def _inventory_problems(devices: Mapping[str, Any]) -> Iterator[Problem]:
    groups = at(devices, "spec", "groups")
    if groups is not None and not isinstance(groups, list):
        yield problem("spec.groups", groups, "must be a list")
    pools = Counter(group_key(as_map(group)) for group in as_list(groups))
    for pool, count in pools.items():
        if not pool:
            yield problem("spec.groups", None, "a group has no id or no manufacturer")
        elif count > 1:
            yield problem("spec.groups", pool, f"{count} groups have one key")
    ids: set[_CardKey] = set()
    for path, group, card in _rows(devices, "spec"):
        if not isinstance(card, Mapping) or not as_str(card.get("id")):
            yield problem(f"{path}.id", None, "must name the card")
            continue
        if _key(group, card) in ids:
            yield problem(f"{path}.id", card.get("id"), "stands there twice; the first one counts")
        ids.add(_key(group, card))
        if logical_ceiling(card) and physical_ceiling(card):
            yield problem(f"{path}.status", None, "reports slices and partitions; it counts as partitioned only")


def _row_problems(path: str, row: Mapping[str, Any], card: Mapping[str, Any] | None) -> Iterator[Problem]:
    if card is None:
        yield problem(f"{path}.id", row.get("id"), "is not in the inventory; it is not counted")
        return
    mode = row.get("mode")
    if mode_of(mode) is None or mode_of(mode) is Mode.VISIBILITY:
        yield problem(f"{path}.mode", mode, "must be a mode from 0 to 4; the card offers nothing")
    remaining = row.get("remaining")
    if remaining is not None and (isinstance(remaining, bool) or not isinstance(remaining, int)):
        yield problem(f"{path}.remaining", remaining, "must be an integer; 0 is assumed")
    elif remaining is not None and not 0 <= remaining <= CARD_UNITS:
        yield problem(f"{path}.remaining", remaining, f"must be within 0 and {CARD_UNITS} units")
    limits = {as_str(profile.get("name")): profile_ceiling(profile) for profile in profiles_of(card)}
    for field in ("allocatedProfiles", "remainingProfiles"):
        yield from _profile_problems(f"{path}.{field}", row.get(field), limits)


def _profile_problems(path: str, raw: object, limits: Mapping[str, int]) -> Iterator[Problem]:
    if raw is not None and not isinstance(raw, list):
        yield problem(path, raw, "must be a list")
    for index, item in enumerate(as_list(raw)):
        name, count = as_str(at(item, "name")), at(item, "count")
        where = f"{path}[{index}]"
        if name not in limits:
            yield problem(f"{where}.name", name, "is no profile of the card")
        elif count is not None and (isinstance(count, bool) or not isinstance(count, int)):
            yield problem(f"{where}.count", count, "must be an integer; 0 is assumed")
        elif count is not None and not 0 <= count <= limits[name]:
            yield problem(f"{where}.count", count, f"must be within 0 and {limits[name]}")


def _cards(devices: Mapping[str, Any]) -> dict[_CardKey, Mapping[str, Any]]:
    found: dict[_CardKey, Mapping[str, Any]] = {}
    for _, group, card in _rows(devices, "spec"):
        if isinstance(card, Mapping):
            found.setdefault(_key(group, card), card)
    return found


def _rows(devices: Mapping[str, Any], part: str) -> Iterator[tuple[str, Mapping[str, Any], object]]:
    for g, group in enumerate(as_list(at(devices, part, "groups"))):
        for c, card in enumerate(as_list(at(group, "accelerators"))):
            yield f"{part}.groups[{g}].accelerators[{c}]", group, card


def _key(group: Mapping[str, Any], card: Mapping[str, Any]) -> _CardKey:
    return as_str(group.get("manufacturer")), as_str(group.get("id")), as_str(card.get("id"))
