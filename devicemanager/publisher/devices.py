"""The Devices object: inventory in spec, ledger and conditions in status (spec 06 §3.2, spec 02 §3).

In: the object as stored, the Node, the labels of its NodeFeature, what is believed about the cards. Out: plans.
Promises:
  - only groups of manufacturers that answered are added, replaced or dropped; all others stay as stored;
  - groups and cards stand in one canonical order, whatever order a library lists them in;
  - a card that somebody holds keeps its ledger row; a card that nobody holds has the row of a free card.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from api.devices import cards_of, spec_groups, status_groups
from api.ledger.rebuild import rebuild
from devicemanager.detection import Detection
from devicemanager.publisher.node_feature import maker_of_key
from devicemanager.publisher.plan import LEAVE, Plan, owned_by, patch_of, references_of
from kube.clock import second_time
from kube.reconciler import Object
from nodefeature import labels as keys
from nodefeature.fields import as_int, as_maps, as_str, at, labels_of, name_of
from nodefeature.kinds import DEVICES

_MESSAGE = 1024


def merge_groups(stored: Iterable[Mapping[str, Any]], detection: Detection) -> list[Mapping[str, Any]]:
    """Return the groups to store: what is believed of the manufacturers that answered, all others as stored."""
    kept = [group for group in stored if as_str(group.get("manufacturer")) not in detection.answered]
    return canonical_groups([*kept, *detection.all_groups()])


def canonical_groups(groups: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return groups by manufacturer, lowest index (empty groups last) and id; cards by index."""
    ordered = [
        {**group, "accelerators": sorted(cards_of(group), key=lambda card: as_int(card.get("index")))}
        if cards_of(group)
        else group
        for group in groups
    ]
    return sorted(ordered, key=_place)


def _place(group: Mapping[str, Any]) -> tuple[str, bool, int, str]:
    cards = cards_of(group)
    lowest = as_int(cards[0].get("index")) if cards else 0
    return as_str(group.get("manufacturer")), not cards, lowest, as_str(group.get("id"))


def plan_devices(
    stored: Object | None,
    node: Object,
    feature_labels: Mapping[str, str],
    detection: Detection,
    *,
    create_empty: bool = False,
) -> Plan:
    """Decide the write of metadata and spec."""
    groups = merge_groups(spec_groups(stored or {}), detection)
    labels = devices_labels(node, feature_labels)
    if stored is None:
        if not groups and not detection.findings and not create_empty:
            return LEAVE
        metadata = {"name": name_of(node), "labels": labels, "ownerReferences": owned_by(node)}
        return Plan(
            create={
                "apiVersion": DEVICES.api_version,
                "kind": DEVICES.kind,
                "metadata": metadata,
                "spec": {"groups": groups},
            }
        )
    gone = {key: None for key in labels_of(stored) if maker_of_key(key) in detection.answered and key not in labels}
    if keys.ACCELERATABLE not in labels:
        gone[keys.ACCELERATABLE] = None
    return patch_of(
        stored,
        metadata={"labels": {**labels, **gone}, "ownerReferences": owned_by(node, references_of(stored))},
        content={"spec": {"groups": groups}},
    )


def devices_labels(node: Mapping[str, Any], feature_labels: Mapping[str, str]) -> dict[str, str]:
    """Return the labels by which pools find this object: platform and device keys, counts left out."""
    on_node = labels_of(node)
    platform = {key: on_node[key] for key in (keys.OS, keys.ARCH) if key in on_node}
    features = {
        key: value
        for key, value in feature_labels.items()
        if key == keys.ACCELERATABLE or (key.startswith(keys.DEVICE_PREFIX) and not key.endswith(".count"))
    }
    return platform | features


def plan_status(stored: Object, detection: Detection, now: datetime) -> Plan:
    """Decide the write of ledger and conditions, from the spec as stored."""
    conditions = conditions_of(as_maps(at(stored, "status", "conditions")), detection, now)
    want: dict[str, Any] = {"groups": ledger_groups(spec_groups(stored), status_groups(stored))}
    if conditions:
        want["conditions"] = conditions
    return patch_of(stored, metadata={}, content={"status": want})


def ledger_groups(groups: Sequence[Mapping[str, Any]], stored: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the ledger of an inventory: rows that are held as stored, all others free."""
    held = {
        (as_str(group.get("manufacturer")), as_str(group.get("id")), as_str(row.get("id"))): row
        for group in stored
        for row in cards_of(group)
        if is_held(row)
    }
    ledger: list[Mapping[str, Any]] = []
    for group in rebuild(groups, ()).status["groups"]:
        place = (group["manufacturer"], group["id"])
        rows = [held.get((*place, row["id"]), row) for row in group["accelerators"]]
        rows = [{**row, "index": free["index"]} for row, free in zip(rows, group["accelerators"], strict=True)]
        ledger.append({**group, "accelerators": rows})
    return ledger


def is_held(row: Mapping[str, Any]) -> bool:
    """Say whether a ledger row charges somebody."""
    return as_int(row.get("mode")) != 0 or bool(row.get("allocatedProfiles"))


def conditions_of(stored: Sequence[Mapping[str, Any]], detection: Detection, now: datetime) -> list[Mapping[str, Any]]:
    """Return the conditions: one `Detected-<manufacturer>` for each manufacturer with something to say."""
    by_type = {as_str(condition.get("type")): condition for condition in stored}
    spoken = {*detection.groups, *detection.findings}
    for maker in sorted(spoken | {m for m in detection.answered | set(detection.troubles) if _type(m) in by_type}):
        if maker in spoken or maker in detection.troubles:
            by_type[_type(maker)] = _since(by_type.get(_type(maker)), _condition(maker, detection), now)
        else:
            del by_type[_type(maker)]
    return [by_type[kind] for kind in sorted(by_type)]


def _type(manufacturer: str) -> str:
    return f"Detected-{manufacturer}"


def _condition(manufacturer: str, detection: Detection) -> Object:
    trouble, findings = detection.troubles.get(manufacturer, ""), detection.findings.get(manufacturer, ())
    if trouble:
        return {"type": _type(manufacturer), "status": "False", "reason": "NotMeasured", "message": trouble[:_MESSAGE]}
    if findings:
        message = "; ".join(findings)
        return {"type": _type(manufacturer), "status": "False", "reason": "Incomplete", "message": message[:_MESSAGE]}
    return {"type": _type(manufacturer), "status": "True", "reason": "Complete", "message": ""}


def _since(old: Mapping[str, Any] | None, new: Object, now: datetime) -> Mapping[str, Any]:
    if old is None or old.get("status") != new["status"]:
        return {**new, "lastTransitionTime": second_time(now)}
    if new["reason"] == "NotMeasured" == old.get("reason"):
        return old  # libraries put numbers into their errors; the first text will do
    return {**new, "lastTransitionTime": as_str(old.get("lastTransitionTime")) or second_time(now)}
