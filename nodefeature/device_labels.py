"""Device labels: what the agent says about its cards, and what everybody reads back (spec 01 §5.1-5.2).

For: the agent's NodeFeature, flavors, capacity, Devices labels.
In: detected groups, or the labels of a Node or a flavor. Out: labels, or the device models they describe.
Promises:
  - groups that meet in one key are counted together and reported, never one in place of the other (design §8.1);
  - labels in another spelling (`hygon-k100_ai`) are read under their clean key, and remembered as found;
  - a count that is no plain positive number is worth nothing and is named.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from nodefeature import labels as keys
from nodefeature.destinations import legal_labels
from nodefeature.fields import as_int, as_list, as_map, as_str
from nodefeature.keys import clean_key, manufacturer_of
from nodefeature.manufacturers import MANUFACTURER_NAMES
from nodefeature.product_names import label_value_of
from nodefeature.quantity import QuantityInvalid, memory_label, parse_amount

_KNOWN = frozenset(MANUFACTURER_NAMES)
# What stands behind a key in the labels that describe it. A product may well be called "true".
_SIBLINGS = frozenset({"product", "memory", "cores", "count", "family", "comcap", "capacity"})
# Kubernetes compares label values as text, so only the one plain spelling of a count can be selected by.
_COUNT = re.compile(r"[1-9][0-9]{0,8}|0")


@dataclass(frozen=True, slots=True)
class DeviceGroup:
    """The accelerators of one model on one node, as detected. Memory in MiB; empty or 0 where the driver is silent."""

    manufacturer: str
    id: str
    name: str
    memory_mib: int = 0
    cores: int = 0
    count: int = 0
    driver_version: str = ""
    runtime_version: str = ""
    compute_capability: str = ""
    family: str = ""

    @property
    def key(self) -> str:
        """Return the key that labels, tokens and names share."""
        return clean_key(f"{self.manufacturer}-{self.id}")


@dataclass(frozen=True, slots=True)
class DeviceModel:
    """One device model read from labels. `label` is the key as spelled there, `count` 0 when it is unusable."""

    key: str
    label: str
    count: int
    product: str
    family: str
    memory: str
    cores: str

    @property
    def manufacturer(self) -> str:
        """Return the model's manufacturer."""
        return manufacturer_of(self.key)


@dataclass(frozen=True, slots=True)
class DeviceReading:
    """Device models read from labels, and one sentence for everything that cannot be used."""

    models: tuple[DeviceModel, ...]
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DeviceLabels:
    """Labels of detected groups, and one sentence for everything that was left out or joined."""

    labels: Mapping[str, str]
    problems: tuple[str, ...] = ()


def device_group(raw: object) -> DeviceGroup:
    """Return a group as it stands in `Devices.spec.groups[]`; absent or wrong-typed fields are empty."""
    group = as_map(raw)
    return DeviceGroup(
        manufacturer=as_str(group.get("manufacturer")),
        id=as_str(group.get("id")),
        name=as_str(group.get("name")),
        memory_mib=as_int(group.get("memory")),
        cores=as_int(group.get("cores")),
        count=len(as_list(group.get("accelerators"))),
        driver_version=as_str(group.get("driverVersion")),
        runtime_version=as_str(group.get("runtimeVersion")),
        compute_capability=as_str(group.get("computeCapability")),
        family=as_str(group.get("family")),
    )


def acceleratable_labels(groups: Iterable[DeviceGroup]) -> DeviceLabels:
    """Return the labels of detected groups; a group without accelerators adds nothing."""
    merged, problems = _merged(group for group in groups if group.count > 0)
    labels: dict[str, str] = {}
    for key, group in merged.items():
        labels |= _group_labels(key, group)
    checked = legal_labels(labels, about="device labels")
    return DeviceLabels(checked.labels, (*problems, *checked.problems))


def _merged(groups: Iterable[DeviceGroup]) -> tuple[dict[str, DeviceGroup], list[str]]:
    merged: dict[str, DeviceGroup] = {}
    problems: list[str] = []
    for group in groups:
        key = group.key
        other = merged.get(key)
        if other is None:
            merged[key] = group
            continue
        problems.append(
            f"device groups {other.name!r} ({other.memory_mib} MiB) and {group.name!r} ({group.memory_mib} MiB) "
            f"share the key {key!r} and are counted together; set GPUSTACK_DEVICES_GROUP_ID_WITH_MEMORY=true "
            "when their memory tells them apart"
        )
        # The smaller card speaks for both: what a label promises must hold on every card behind it.
        smaller = min(other, group, key=lambda each: each.memory_mib)
        merged[key] = replace(smaller, count=other.count + group.count)
    return merged, problems


def _group_labels(key: str, group: DeviceGroup) -> dict[str, str]:
    maker = keys.DEVICE_PREFIX + manufacturer_of(key)
    model = keys.DEVICE_PREFIX + key
    optional = {
        f"{maker}.driver-version": label_value_of(group.driver_version),
        f"{maker}.runtime-version": label_value_of(group.runtime_version),
        f"{model}.family": label_value_of(group.family),
        f"{model}.comcap": label_value_of(group.compute_capability),
    }
    return {
        keys.ACCELERATABLE: keys.TRUE,
        maker: keys.TRUE,
        model: keys.TRUE,
        f"{model}.product": label_value_of(group.name),
        f"{model}.memory": memory_label(group.memory_mib),
        f"{model}.cores": str(group.cores),
        f"{model}.count": str(group.count),
    } | {label: value for label, value in optional.items() if value}


def device_keys(labels: Mapping[str, str]) -> tuple[str, ...]:
    """Return the keys of the device models in any label map, sorted."""
    return tuple(sorted(_spellings(labels)))


def device_models(labels: Mapping[str, str]) -> tuple[DeviceModel, ...]:
    """Return the device models in any label map, sorted by key."""
    return read_devices(labels).models


def device_label_problems(labels: Mapping[str, str]) -> tuple[str, ...]:
    """Return a sentence for each device label that cannot be used, or that another one displaces."""
    return read_devices(labels).problems


def read_devices(labels: Mapping[str, str]) -> DeviceReading:
    """Return the device models in any label map and what is wrong with them, in one walk over the labels."""
    models: list[DeviceModel] = []
    problems: list[str] = []
    for key, found in sorted(_spellings(labels).items()):
        if len(found) > 1:
            spelled = ", ".join(repr(spelling) for spelling in found)
            problems.append(f"device labels {spelled} clean to one key {key!r}; {found[0]!r} counts")
        label = keys.DEVICE_PREFIX + found[0]
        problems += (*count_problems(labels, f"{label}.count"), *_memory_problems(labels, f"{label}.memory"))
        models.append(_model(labels, key, found[0]))
    problems += _strangers(labels)
    return DeviceReading(tuple(models), tuple(problems))


def label_count(labels: Mapping[str, str], label: str) -> int:
    """Return a count label's number; 0 when it is absent or no plain number of at most nine digits."""
    value = labels.get(label, "")
    return int(value) if _COUNT.fullmatch(value) else 0


def count_problems(labels: Mapping[str, str], label: str) -> tuple[str, ...]:
    """Return a sentence when a count label is there but not usable."""
    value = labels.get(label)
    if value is None or _COUNT.fullmatch(value):
        return ()
    return (f"label {label}={value!r} must be a plain number such as 8; it counts as nothing",)


def _memory_problems(labels: Mapping[str, str], label: str) -> tuple[str, ...]:
    value = labels.get(label)
    if value is None:
        return ()
    try:
        parse_amount(value, field=f"label {label}")
    except QuantityInvalid as refused:
        return (f"{refused}; its memory counts as nothing",)
    return ()


def _strangers(labels: Mapping[str, str]) -> Iterable[str]:
    """Name counts of models whose manufacturer nobody here knows."""
    for label in labels:
        if label.startswith(keys.DEVICE_PREFIX) and label.endswith(".count"):
            spelling = label.removeprefix(keys.DEVICE_PREFIX)
            maker = spelling.partition("-")[0]
            if maker not in _KNOWN and labels.get(label.removesuffix(".count")) == keys.TRUE:
                yield f"label {label}: {maker!r} is none of {', '.join(sorted(_KNOWN))}; it counts as nothing"


def is_accelerated(labels: Mapping[str, str]) -> bool:
    """Say whether a node is known to have accelerators."""
    return labels.get(keys.ACCELERATABLE) == keys.TRUE or bool(_spellings(labels))


def _spellings(labels: Mapping[str, str]) -> dict[str, list[str]]:
    """Return clean key -> spellings found, the clean spelling first."""
    found: dict[str, list[str]] = {}
    for label in [label for label in labels if label.startswith(keys.DEVICE_PREFIX)]:
        if labels[label] != keys.TRUE:
            continue
        spelling = label.removeprefix(keys.DEVICE_PREFIX)
        maker, dash, _ = spelling.partition("-")
        stem, _, suffix = label.rpartition(".")
        is_sibling = suffix in _SIBLINGS and labels.get(stem) == keys.TRUE
        if dash and maker in _KNOWN and not is_sibling:
            found.setdefault(clean_key(spelling), []).append(spelling)
    for key, spelled in found.items():
        spelled.sort(key=lambda each: (each != key, each))
    return found


def _model(labels: Mapping[str, str], key: str, spelling: str) -> DeviceModel:
    label = keys.DEVICE_PREFIX + spelling
    return DeviceModel(
        key=key,
        label=spelling,
        count=label_count(labels, f"{label}.count"),
        product=labels.get(f"{label}.product", ""),
        family=labels.get(f"{label}.family", ""),
        memory=labels.get(f"{label}.memory", ""),
        cores=labels.get(f"{label}.cores", ""),
    )
