"""InstancePersistentVolume: a claim on storage, kept as a PersistentVolumeClaim of the same name.

For: the v1 resource (spec 02 §10). In: specs, the StorageClass. Out: defaults, problems, phase.
Promises: pure; an update is judged on the first immutable field that changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypedDict

from api.problems import Problem, problem, require
from nodefeature.fields import annotations_of, as_bool, as_str, at
from nodefeature.quantity import same_quantity

DEFAULT_CAPACITY = "20Gi"
ACCESS_MODES = ("ReadWriteMany", "ReadWriteOnce", "ReadOnlyMany", "ReadWriteOncePod")
_DEFAULT_CLASS = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)
_PHASES = {"Bound": "Available", "Lost": "Unavailable"}


class InstancePersistentVolumeSpec(TypedDict, total=False):
    """What a person asks for."""

    displayName: str
    description: str
    type: str
    capacity: str
    accessMode: str


def default_class(storage_classes: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the cluster's default StorageClass."""
    for storage_class in storage_classes:
        if any(annotations_of(storage_class).get(key) == "true" for key in _DEFAULT_CLASS):
            return storage_class
    return None


def default_access_mode(storage_class: Mapping[str, Any]) -> str:
    """Return the access mode of a volume that names none."""
    waits = as_str(at(storage_class, "volumeBindingMode")) == "WaitForFirstConsumer"
    return "ReadWriteOnce" if waits or as_bool(at(storage_class, "allowVolumeExpansion")) else "ReadWriteMany"


def spec_problems(spec: InstancePersistentVolumeSpec) -> list[Problem]:
    """Return what is wrong with a volume that has its defaults."""
    mode = spec.get("accessMode")
    return require(mode in ACCESS_MODES, "spec.accessMode", mode, f"must be one of {', '.join(ACCESS_MODES)}")


def update_problems(old: InstancePersistentVolumeSpec, new: InstancePersistentVolumeSpec) -> list[Problem]:
    """Return the first immutable field that changes."""
    if (old.get("type") or "") != (new.get("type") or ""):
        return [problem("spec.type", new.get("type"), "field is immutable")]
    if old.get("capacity") != new.get("capacity") and not same_quantity(old.get("capacity"), new.get("capacity")):
        return [problem("spec.capacity", new.get("capacity"), "field is immutable")]
    if old.get("accessMode") != new.get("accessMode"):
        return [problem("spec.accessMode", new.get("accessMode"), "field is immutable")]
    return []


def phase_of_claim(claim_phase: str) -> str:
    """Return a volume's phase from its claim's."""
    return _PHASES.get(claim_phase, "Pending")
