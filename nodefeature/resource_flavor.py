"""The content of a ResourceFlavor (spec 01 §7.2, design §8.5).

For: `node_flavor`.
In: a node flavor, its profile, how many nodes contribute, their taints, settings. Out: labels, notes, spec.
Promises:
  - equal input gives equal content, list order included, so a settled flavor is never rewritten;
  - tolerated are vendor taints, taints of `gpustack.ai` domains and what the administrator lists; never everything;
  - Kueue's bounds hold: node labels never exceed 8; tolerations beyond 8 are left out and named.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from nodefeature import labels as keys
from nodefeature.fields import as_str
from nodefeature.flavor import NodeFlavor
from nodefeature.keys import CpuDetail
from nodefeature.manufacturers import Manufacturers
from nodefeature.topology import flavor_object_name, topology_name

MAX_TOLERATIONS = 8
_EFFECTS = frozenset({"NoSchedule", "PreferNoSchedule", "NoExecute"})


@dataclass(frozen=True, slots=True)
class Tolerations:
    """The tolerations of a flavor, and one sentence for each that Kueue has no room for."""

    items: tuple[dict[str, Any], ...]
    problems: tuple[str, ...] = ()


def resource_flavor_name(flavor: NodeFlavor, profile: str) -> str:
    """Return the object's name: no suffix for the default profile."""
    return flavor_object_name(flavor.name, profile)


def resource_flavor_labels(flavor: NodeFlavor, *, profile: str, nodes: int) -> dict[str, str]:
    """Return the object's labels; `nodes` is the number of contributing nodes."""
    labels = {
        keys.RESOURCE_TYPE: keys.TYPE_NODES,
        keys.ACCELERATABLE: keys.TRUE if flavor.acceleratable else keys.FALSE,
        keys.OS: flavor.os,
        keys.ARCH: flavor.arch,
        keys.TOPOLOGY_PROFILE: profile,
        flavor.own_label: keys.TRUE,
        f"{flavor.own_label}.count": str(flavor.count),
        f"{flavor.own_label}.capacity": str(nodes * flavor.count),
    }
    if flavor.acceleratable and _is_cpu_aware(flavor):
        labels[keys.GENERAL_PREFIX + flavor.general_key] = keys.TRUE
    return labels


def resource_flavor_notes(flavor: NodeFlavor, *, profile: str, cpu: CpuDetail | None) -> dict[str, str]:
    """Return the object's annotations `note.gpustack.ai/*`, a whole set: those not in it are to be removed.

    `cpu` is given for CPU flavors, and for device flavors while CPUs are told apart.
    """
    notes = {
        "acceleratable": keys.TRUE if flavor.acceleratable else keys.FALSE,
        "generalGroup": flavor.general_key,
        "acceleratorGroup": flavor.accelerator_key,
        "manufacturer": flavor.manufacturer,
        "product": flavor.product,
        "family": flavor.family,
        "memory": flavor.memory,
        "cores": flavor.cores,
        "topologyProfile": profile,
    }
    if cpu is not None:
        detail = cpu.note(with_identity=flavor.acceleratable)
        notes["cpuDetail"] = json.dumps(detail, separators=(",", ":"), ensure_ascii=False)
    return {keys.NOTE_PREFIX + note: value for note, value in notes.items()}


def resource_flavor_spec(flavor: NodeFlavor, *, profile: str, mixed: bool, tolerations: Tolerations) -> dict[str, Any]:
    """Return the object's spec; `mixed` is setting `instance-type-mixed-on-node`."""
    node_labels = dict(flavor.node_labels) | {keys.TOPOLOGY_PROFILE: profile}
    if not flavor.acceleratable and not mixed:
        node_labels[keys.CPU_ONLY] = keys.TRUE
    spec: dict[str, Any] = {"nodeLabels": node_labels, "topologyName": topology_name(profile)}
    if tolerations.items:
        spec["tolerations"] = [dict(item) for item in tolerations.items]
    return spec


def flavor_tolerations(
    registry: Manufacturers,
    flavor: NodeFlavor,
    *,
    taints: Iterable[Mapping[str, Any]],
    extra: Iterable[Mapping[str, Any]] = (),
) -> Tolerations:
    """Return what Pods of a flavor tolerate.

    `taints` are those of the contributing nodes: a toleration names its key, so `gpustack.ai` taints and other
    vendors' taints of a mixed node are tolerated as they are met. `extra` is setting `workload-tolerations`, first
    in line when Kueue's bound of 8 is reached.
    """
    wanted = [_plain(item) for item in extra]
    base = registry.base(flavor.manufacturer) if flavor.acceleratable else ""
    if base:
        wanted.append(_exists(base, "NoSchedule"))
    met = {
        (as_str(taint.get("key")), as_str(taint.get("effect"))) for taint in taints if _is_tolerated(registry, taint)
    }
    wanted += [_exists(key, effect) for key, effect in sorted(met)]
    unique = list({json.dumps(item, sort_keys=True): item for item in wanted}.values())
    left_out = tuple(
        f"toleration of {item.get('key', 'every key')!r} is left out of flavor {flavor.name}: Kueue takes "
        f"{MAX_TOLERATIONS}; shorten setting workload-tolerations"
        for item in unique[MAX_TOLERATIONS:]
    )
    return Tolerations(tuple(unique[:MAX_TOLERATIONS]), left_out)


def _is_cpu_aware(flavor: NodeFlavor) -> bool:
    return keys.GENERAL_PREFIX + flavor.general_key in flavor.node_labels


def _is_tolerated(registry: Manufacturers, taint: Mapping[str, Any]) -> bool:
    key, effect = as_str(taint.get("key")), as_str(taint.get("effect"))
    if key in registry.by_base:
        return effect == "NoSchedule"
    domain = key.partition("/")[0] + "/"
    return effect in _EFFECTS and (domain == keys.DOMAIN or domain.endswith("." + keys.DOMAIN))


def _exists(key: str, effect: str) -> dict[str, Any]:
    return {"key": key, "operator": "Exists", "effect": effect}


def _plain(item: Mapping[str, Any]) -> dict[str, Any]:
    return {field: value for field, value in item.items() if value not in (None, "")}
