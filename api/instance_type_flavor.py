"""InstanceTypeFlavor: the catalogue of pools, projected from the operator's ResourceFlavors.

For: the v1 resource (list only; spec 02 §5). In: raw ResourceFlavors and whether pools are split by CPU.
Out: rows. Promises: no row is stored; equal specs collapse whatever their nodes, os and arch; memory sorts by amount.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypedDict

from nodefeature.fields import annotations_of, as_str, is_deleting
from nodefeature.keys import GENERIC
from nodefeature.labels import NOTE_PREFIX, TRUE
from nodefeature.quantity import QuantityInvalid, parse_quantity
from nodefeature.queue_names import catalogue_flavor_name

_NOTES = ("manufacturer", "product", "family")
_CARD_NOTES = ("memory", "cores")


class InstanceTypeFlavorSpec(TypedDict, total=False):
    """One pool, whatever its os and arch."""

    generalGroup: str
    acceleratorGroup: str
    acceleratable: bool
    manufacturer: str
    product: str
    family: str
    memory: str
    cores: str


class InstanceTypeFlavor(TypedDict):
    """A raw InstanceTypeFlavor; its metadata is a name alone."""

    apiVersion: str
    kind: str
    metadata: dict[str, Any]
    spec: InstanceTypeFlavorSpec


def flavors_of(resource_flavors: Iterable[Mapping[str, Any]], *, aware: bool) -> list[InstanceTypeFlavor]:
    """Return the catalogue in its order."""
    rows: dict[tuple[tuple[str, object], ...], InstanceTypeFlavorSpec] = {}
    for flavor in resource_flavors:
        spec = _spec(annotations_of(flavor), aware=aware)
        if not is_deleting(flavor) and (spec.get("generalGroup") or spec.get("acceleratorGroup")):
            rows.setdefault(tuple(sorted(spec.items())), spec)
    return [_object(spec) for spec in sorted(rows.values(), key=_order)]


def _spec(annotations: Mapping[str, str], *, aware: bool) -> InstanceTypeFlavorSpec:
    notes = {key: annotations.get(NOTE_PREFIX + key, "") for key in (*_NOTES, *_CARD_NOTES)}
    general = annotations.get(NOTE_PREFIX + "generalGroup", "")
    spec: dict[str, Any]
    if annotations.get(NOTE_PREFIX + "acceleratable") == TRUE:
        group = annotations.get(NOTE_PREFIX + "acceleratorGroup", "")
        spec = {"acceleratable": True, "acceleratorGroup": group, "generalGroup": general if aware else "", **notes}
    elif aware:
        spec = {"acceleratable": False, "generalGroup": general, **{key: notes[key] for key in _NOTES}}
    else:
        spec = {"acceleratable": False, "generalGroup": GENERIC, "manufacturer": GENERIC}
    kept = {key: value for key, value in spec.items() if value != ""}
    return kept  # type: ignore[return-value]  # the keys are those of the spec


def _object(spec: InstanceTypeFlavorSpec) -> InstanceTypeFlavor:
    name = catalogue_flavor_name(
        general_group=spec.get("generalGroup", ""), accelerator_group=spec.get("acceleratorGroup", "")
    )
    return {
        "apiVersion": "worker.gpustack.ai/v1",
        "kind": "InstanceTypeFlavor",
        "metadata": {"name": name},
        "spec": spec,
    }


def _order(spec: InstanceTypeFlavorSpec) -> tuple[str, str, int, int, str, str, str]:
    memory = as_str(spec.get("memory"))
    try:
        rank, amount = 0, parse_quantity(memory).nano
    except QuantityInvalid:
        rank, amount = 1, 0
    return (
        spec.get("manufacturer", ""),
        spec.get("product", ""),
        rank,
        amount,
        memory if rank else "",
        spec.get("generalGroup", ""),
        spec.get("acceleratorGroup", ""),
    )
