"""The ResourceFlavor, the Topology and the InstanceType that stand for a group of equal nodes, as decisions.

For: `node_flavor` (spec 04 §6, spec 01 §7.2).
In: contributors, settings, what is stored. Out: objects to create, merge patches, whether a flavor must be made again.
Promises: pure; equal input gives equal content whatever the order of nodes; extra labels and foreign annotations stay;
a note that the nodes stopped reporting keeps its value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from controllers.contributors import Contributor
from controllers.node_view import is_usable
from kube.reconciler import Object
from nodefeature.fields import annotations_of, as_map, as_maps, at, labels_of, name_of
from nodefeature.flavor import NodeFlavor
from nodefeature.keys import GENERIC, cpu_detail
from nodefeature.labels import (
    ACCELERATABLE,
    CPU_ANNOTATION_PREFIX,
    CPU_ONLY,
    DERIVED_FROM_NODE,
    HOSTNAME,
    NOTE_PREFIX,
    RESOURCE_TYPE,
    TOPOLOGY_PROFILE,
    TRUE,
)
from nodefeature.manufacturers import Manufacturers
from nodefeature.presets import Presets
from nodefeature.resource_flavor import (
    Tolerations,
    flavor_tolerations,
    resource_flavor_labels,
    resource_flavor_notes,
    resource_flavor_spec,
)
from nodefeature.topology import DEFAULT_LEVELS, DEFAULT_PROFILE, topology_name

TYPE_TOPOLOGY = "topology"
DISPLAY_LIMIT = 64
CPU_ONLY_DISPLAY = "CPU-only"
LOCAL_STORAGE = "100Gi"
_IDENTITY_NOTES = tuple(NOTE_PREFIX + note for note in ("product", "family", "memory", "cores", "cpuDetail"))
_MIXING_LABELS = (CPU_ONLY, ACCELERATABLE)


class SpecDrift(Enum):
    """How a stored flavor's spec differs from the wanted one."""

    NONE = "none"
    REMAKE = "remake"  # a setting changed what the spec must say: deleted and made again
    UPGRADE = "upgrade"  # made before flavors had a Topology: Kueue still lets it change
    FOREIGN = "foreign"  # somebody else's doing: reported, nothing is written


@dataclass(frozen=True, slots=True)
class FlavorPlan:
    """A ResourceFlavor as it should be."""

    name: str
    labels: Mapping[str, str]
    notes: Mapping[str, str]
    spec: Mapping[str, Any]
    problems: tuple[str, ...] = ()

    def new_object(self) -> Object:
        """Return the flavor to create."""
        return {
            "metadata": {"name": self.name, "labels": dict(self.labels), "annotations": dict(self.notes)},
            "spec": dict(self.spec),
        }

    def difference(self, stored: object, *, with_spec: bool) -> dict[str, Any]:
        """Return the merge patch of the stored flavor, guarded by its version; empty when nothing differs."""
        labels = {k: v for k, v in self.labels.items() if labels_of(stored).get(k) != v}
        shown = annotations_of(stored)
        notes: dict[str, str | None] = {k: v for k, v in self.notes.items() if shown.get(k) != v}
        notes |= dict.fromkeys(key for key in shown if key.startswith(NOTE_PREFIX) and key not in self.notes)
        patch: dict[str, Any] = {"spec": _replacing(at(stored, "spec"), self.spec)} if with_spec else {}
        if not (labels or notes or patch):
            return {}
        metadata: dict[str, Any] = {"resourceVersion": at(stored, "metadata", "resourceVersion")}
        if labels:
            metadata["labels"] = labels
        if notes:
            metadata["annotations"] = notes
        return {"metadata": metadata, **patch}


def plan_flavor(
    name: str,
    flavor: NodeFlavor,
    contributors: Sequence[Contributor],
    *,
    speaker: Contributor,
    stored: object,
    manufacturers: Manufacturers,
    mixed: bool,
    cpu_aware: bool,
    extra_taints: Sequence[str],
) -> FlavorPlan:
    """Return the flavor of its contributors; `flavor` is what its speaker (`speaker_of`) says of itself."""
    labels = speaker.labels
    profile = labels.get(TOPOLOGY_PROFILE, "")
    tolerations = _tolerations(manufacturers, flavor, contributors, stored, extra_taints)
    shows_cpu = cpu_aware or not flavor.acceleratable
    detail = cpu_detail(labels, annotations_of(speaker.node)) if shows_cpu else None
    notes = resource_flavor_notes(flavor, profile=profile, cpu=detail)
    silent = not _product_of(speaker, flavor)
    kept = {
        key: annotations_of(stored)[key] for key in _IDENTITY_NOTES if key in notes and key in annotations_of(stored)
    }
    return FlavorPlan(
        name,
        resource_flavor_labels(flavor, profile=profile, nodes=len(contributors)),
        {**notes, **kept} if silent else notes,
        resource_flavor_spec(flavor, profile=profile, mixed=mixed, tolerations=tolerations),
        tolerations.problems,
    )


def speaker_of(contributors: Sequence[Contributor], flavor: NodeFlavor) -> Contributor:
    """Return the contributor whose product, family and details the flavor shows: the first by name that reports one."""
    speaker = contributors[0]
    name, speaks = name_of(speaker.node), bool(_product_of(speaker, flavor))
    for contributor in contributors:
        other = name_of(contributor.node)
        # Names are compared first: of thousands of nodes only a few are asked for their product.
        if speaks and other >= name:
            continue
        if _product_of(contributor, flavor):
            speaker, name, speaks = contributor, other, True
        elif not speaks and other < name:
            speaker, name = contributor, other
    return speaker


def _product_of(contributor: Contributor, flavor: NodeFlavor) -> str:
    if flavor.acceleratable:
        return contributor.label(f"{flavor.own_label}.product")
    name = contributor.annotation(CPU_ANNOTATION_PREFIX + "name")
    return "" if name.startswith("@") else name


def products_of(contributors: Iterable[Contributor], flavor: NodeFlavor) -> set[str]:
    """Return the product strings behind a device flavor; CPU names differ by clock and are meant to meet in one key."""
    if not flavor.acceleratable:
        return set()
    label = f"{flavor.own_label}.product"
    return {contributor.label(label) for contributor in contributors} - {""}


def _tolerations(
    manufacturers: Manufacturers,
    flavor: NodeFlavor,
    contributors: Sequence[Contributor],
    stored: object,
    extra_taints: Sequence[str],
) -> Tolerations:
    """Return the tolerations of a flavor, fixed when it is made (decision 0181).

    A stored flavor keeps the taints it was made for; new ones count only when no node is usable without them.
    """
    extra = [{"key": key, "operator": "Exists"} for key in extra_taints]
    met = [taint for contributor in contributors for taint in as_maps(at(contributor.node, "spec", "taints"))]
    fresh = flavor_tolerations(manufacturers, flavor, taints=met, extra=extra)
    if not at(stored, "spec", "topologyName"):
        return fresh
    kept = flavor_tolerations(manufacturers, flavor, taints=as_maps(at(stored, "spec", "tolerations")), extra=extra)
    if kept.items == fresh.items or any(is_usable(each.node, kept.items) for each in contributors):
        return kept
    return fresh if any(is_usable(each.node, fresh.items) for each in contributors) else kept


def spec_drift(stored: object, wanted: Mapping[str, Any]) -> SpecDrift:
    """Return how the stored spec differs; Kueue lets no flavor with a Topology change."""
    spec = as_map(at(stored, "spec"))
    if _comparable(spec) == _comparable(wanted):
        return SpecDrift.NONE
    if not spec.get("topologyName"):
        return SpecDrift.UPGRADE
    return SpecDrift.REMAKE if _fixed_part(spec) == _fixed_part(wanted) else SpecDrift.FOREIGN


def _replacing(stored: object, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return `wanted` as a merge patch that leaves nothing of `stored` behind."""
    spec = as_map(stored)
    patch: dict[str, Any] = dict.fromkeys(key for key in spec if key not in wanted) | dict(wanted)
    wanted_labels = as_map(wanted.get("nodeLabels"))
    stale = dict.fromkeys(key for key in as_map(spec.get("nodeLabels")) if key not in wanted_labels)
    return patch | {"nodeLabels": {**stale, **wanted_labels}}


def _comparable(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return a spec without the difference between absent, null and empty."""
    return {key: value for key, value in spec.items() if value not in (None, [], {})}


def _fixed_part(spec: Mapping[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in _comparable(spec).items() if key != "tolerations"}
    labels = as_map(kept.get("nodeLabels"))
    return kept | {"nodeLabels": {key: value for key, value in labels.items() if key not in _MIXING_LABELS}}


def default_topology() -> Object:
    """Return the Topology of the default profile: hosts, nothing above."""
    return {
        "metadata": {"name": topology_name(DEFAULT_PROFILE), "labels": {RESOURCE_TYPE: TYPE_TOPOLOGY}},
        "spec": {"levels": [{"nodeLabel": level} for level in DEFAULT_LEVELS]},
    }


def topology_levels(topology: object) -> tuple[str, ...]:
    """Return the ordered label keys of a Topology."""
    return tuple(str(level.get("nodeLabel") or "") for level in as_maps(at(topology, "spec", "levels")))


def has_default_levels(topology: object) -> bool:
    """Say whether a Topology still describes hosts and nothing above them."""
    return topology_levels(topology) == (HOSTNAME,)


def derived_type(flavor: NodeFlavor, presets: Presets, *, cpu_aware: bool) -> Object:
    """Return the InstanceType to author for a flavor's pool (spec 01 §8.5)."""
    if flavor.acceleratable:
        tier = presets.lookup(flavor.manufacturer, flavor.product)
        unit = {"cpu": str(tier.cpu), "ram": str(tier.ram)}
        display = flavor.product
    else:
        unit = {"cpu": "1", "ram": "2Gi"}
        display = flavor.product if cpu_aware else CPU_ONLY_DISPLAY
    return {
        "metadata": {
            "name": flavor.queue_name(cpu_aware=cpu_aware),
            "labels": {DERIVED_FROM_NODE: TRUE},
        },
        "spec": {
            "generalGroup": flavor.general_group(cpu_aware=cpu_aware) or GENERIC,
            "acceleratorGroup": flavor.accelerator_key,
            "acceleratable": flavor.acceleratable,
            "os": flavor.os,
            "arch": flavor.arch,
            "displayName": display[:DISPLAY_LIMIT],
            "unitResources": unit,
            "localStorage": LOCAL_STORAGE,
        },
    }
