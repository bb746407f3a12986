"""One round: what is published until the next one (spec 06 §13.2).

In: the Instances of the node, the kubelet's summary, who exports. Out: a frozen Round.
Promises: nothing is carried over from the round before; a source that failed is a verdict, never an old figure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from devicemanager.exporter.attribution import NO_SHARES, Shares
from devicemanager.exporter.instance_pods import InstancePod
from nodefeature.fields import as_maps, as_str, at, is_deleting, labels_of, name_of, namespace_of
from nodefeature.labels import TRUE

COMPONENT = "app.kubernetes.io/component"
COMPONENT_VALUE = "device-manager"
MANUFACTURER = "gpustack.ai/manufacturer"


@dataclass(frozen=True, slots=True)
class PodUsage:
    """What the kubelet measured of one Pod, rounded up; None where it said nothing."""

    cpu_milli: int | None = None
    memory_mib: int | None = None
    storage_mib: int | None = None


@dataclass(frozen=True, slots=True)
class Round:
    """What holds until the next round.

    `exports_pods`: this manager publishes the Pods' families. `kubelet` is None when the kubelet could not be read.
    """

    pods: tuple[InstancePod, ...] = ()
    exports_pods: bool = True
    kubelet: Mapping[str, PodUsage] | None = None
    kubelet_seconds: float | None = None
    shares: Shares = NO_SHARES
    is_listed: bool = True


NO_ROUND = Round(is_listed=False)
"""Before the first round, and when the Pods could not be listed: the verdict alone."""


def kubelet_usage(summary: Mapping[str, Any]) -> dict[str, PodUsage]:
    """Return usage by Pod uid from `/stats/summary`."""
    return {
        as_str(at(pod, "podRef", "uid")): PodUsage(
            _rounded_up(at(pod, "cpu", "usageNanoCores"), 1_000_000),
            _rounded_up(at(pod, "memory", "workingSetBytes"), 2**20),
            _rounded_up(at(pod, "ephemeral-storage", "usedBytes"), 2**20),
        )
        for pod in as_maps(summary.get("pods"))
    }


def exports_pods(name: str, namespace: str, managers: Iterable[Mapping[str, Any]]) -> bool:
    """Say whether this manager's Pod publishes the Pods' families: the Ready one whose manufacturer sorts first.

    `managers` are the Pods of this node in this namespace that carry the component's label.
    """
    mine = ""
    ready: list[str] = []
    for pod in managers:
        maker = labels_of(pod).get(MANUFACTURER, "")
        if labels_of(pod).get(COMPONENT) != COMPONENT_VALUE or not maker or is_deleting(pod) or not _is_ready(pod):
            continue
        ready.append(maker)
        if (name_of(pod), namespace_of(pod)) == (name, namespace):
            mine = maker
    return bool(mine) and mine == min(ready)


def _is_ready(pod: Mapping[str, Any]) -> bool:
    conditions = as_maps(at(pod, "status", "conditions"))
    return any(one.get("type") == "Ready" and as_str(one.get("status")).lower() == TRUE for one in conditions)


def _rounded_up(value: object, unit: int) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        return None
    return -(-value // unit)
