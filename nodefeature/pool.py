"""Pool labels: what an InstanceType and its ClusterQueue carry, and the selectors read back from them.

For: `instance_type`, `node_queue`, `node_devices`, `explain` (spec 01 §6, spec 04 §1.2).
In: labels and keys. Out: labels and selectors; None where a selector would take everything.
Promises: a selector never holds counts, capacities or network labels, only what tells pools apart.
"""

from __future__ import annotations

from collections.abc import Mapping

from nodefeature import labels as keys
from nodefeature.device_labels import device_models
from nodefeature.keys import GENERIC


def pool_schedule_labels(
    *, acceleratable: bool, cpu_aware: bool, general_group: str, accelerator_group: str, os: str, arch: str
) -> dict[str, str]:
    """Return the labels of a pool."""
    labels = {keys.ACCELERATABLE: keys.TRUE if acceleratable else keys.FALSE}
    if os:
        labels[keys.OS] = os
    if arch:
        labels[keys.ARCH] = arch
    if acceleratable and accelerator_group:
        labels[keys.DEVICE_PREFIX + accelerator_group] = keys.TRUE
    if cpu_aware and general_group and general_group != GENERIC:
        labels[keys.GENERAL_PREFIX + general_group] = keys.TRUE
    return labels


def pool_flavor_selector(labels: Mapping[str, str]) -> dict[str, str] | None:
    """Return the flavors of a pool as equal labels; None when nothing but os and arch would select."""
    features = _features(labels)
    if keys.ACCELERATABLE in labels:
        features[keys.ACCELERATABLE] = labels[keys.ACCELERATABLE]
    return features | _platform(labels) if features else None


def pool_devices_selector(labels: Mapping[str, str]) -> dict[str, str] | None:
    """Return the managed Devices of a pool as equal labels; None without a feature key."""
    features = _features(labels)
    return features | _platform(labels) | {keys.MANAGED: keys.TRUE} if features else None


def kept_out_by(node_labels: Mapping[str, str], pool_labels: Mapping[str, str]) -> list[str]:
    """Return what keeps a node out of a pool for as long as both are labelled so, in words; nothing without a pool."""
    if keys.ACCELERATABLE not in pool_labels:
        return []
    found = [] if keys.is_managed(node_labels) else [f"label {keys.MANAGED} is not {keys.TRUE}"]
    for key, value in _platform(pool_labels).items():
        if node_labels.get(key) != value:
            found.append(f"label {key} is not {value}")
    offered = {keys.DEVICE_PREFIX + model.key for model in device_models(node_labels) if model.count > 0}
    for key in _features(pool_labels):
        if key.startswith(keys.DEVICE_PREFIX) and key not in offered:
            found.append(f"it has no card {key.removeprefix(keys.DEVICE_PREFIX)}")
        elif key.startswith(keys.GENERAL_PREFIX) and node_labels.get(key) != keys.TRUE:
            found.append(f"it has no CPU {key.removeprefix(keys.GENERAL_PREFIX)}")
    return found


def is_feature_key(key: str) -> bool:
    """Say whether a label describes a CPU or a device model."""
    return key.startswith((keys.DEVICE_PREFIX, keys.GENERAL_PREFIX))


def matches(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """Say whether `labels` carry every pair of `selector`."""
    return all(labels.get(key) == value for key, value in selector.items())


def _features(labels: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in labels.items() if value == keys.TRUE and is_feature_key(key)}


def _platform(labels: Mapping[str, str]) -> dict[str, str]:
    return {key: labels[key] for key in (keys.OS, keys.ARCH) if key in labels}
