"""node_capacity: counting keys of sliced and partitioned accelerators in a Node's capacity (spec 04 §4, spec 01 §10).

For: the scheduler and Kueue, which fit Pods by these keys.
In: Node (labels, `status.capacity`), the Devices of the same name. Out: one merge patch of `status.capacity`.
Promises: all keys of a family or none, in one patch, which never reaches a namesake of the Node it was made for; bare
pools and foreign keys are never touched; equal amounts written differently are no difference; a key no longer wanted
stays 60 s and while a Pod on the node holds it.
Trusts: Devices (agents only), Node labels and capacity (kubelet, NFD, administrators).
State: since when a node carries unwanted keys, and what was said about it; lost on restart, which only delays.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from controllers.device_cards import capacity_cards, signature
from controllers.node_view import FEATURES_BY_NODE, cached_labels, node_of_feature
from controllers.reports import Reports
from kube.client import Client
from kube.clock import Clock
from kube.reconciler import DONE, After, Caches, Index, Key, Object, Outcome, Rule, Watch
from nodefeature.capacity import Card, capacity_patch, plan_capacity
from nodefeature.fields import as_map, as_maps, at, has_ended, is_deleting, labels_of, name_of, str_map, uid_of
from nodefeature.kinds import DEVICES, NODE, NODE_FEATURE, POD, Kind
from nodefeature.labels import DEVICE_PREFIX, MANAGED, is_managed
from nodefeature.manufacturers import Manufacturers
from nodefeature.quantity import quantity_or_zero

log = logging.getLogger(__name__)

WINDOW_S = 3.0
HOLD_S = 60.0


def _node_keys(old: Object | None, new: Object | None, caches: Caches) -> Iterable[Key]:
    if new is None or is_deleting(new):
        return ()
    changed = old is None or labels_changed(labels_of(old), labels_of(new)) or family_changed(old, new)
    return (Key(name_of(new)),) if changed else ()


def _device_keys(old: Object | None, new: Object | None, caches: Caches) -> Iterable[Key]:
    shown = new if new is not None else old
    if old is not None and new is not None:
        # The mark itself is read from the node; the Devices only mirror it.
        if is_managed(labels_of(old)) == is_managed(labels_of(new)) and signature(old) == signature(new):
            return ()
    elif not is_managed(labels_of(shown)):
        return ()
    return (Key(name_of(shown)),)


def _feature_keys(old: Object | None, new: Object | None, caches: Caches) -> Iterable[Key]:
    node = node_of_feature(new if new is not None else old)
    before, after = (str_map(at(obj, "spec", "labels")) for obj in (old, new))
    return (Key(node),) if node and labels_changed(before, after) else ()


class NodeCapacity:
    """Keeps the counting keys of one node."""

    NAME: ClassVar[str] = "node_capacity"
    WATCHES: ClassVar[tuple[Watch, ...]] = (
        Watch(NODE, _node_keys, WINDOW_S),
        Watch(DEVICES, _device_keys, WINDOW_S),
        Watch(NODE_FEATURE, _feature_keys, WINDOW_S),
    )
    READS: ClassVar[tuple[Kind, ...]] = ()
    INDEXES: ClassVar[tuple[Index, ...]] = (FEATURES_BY_NODE,)
    RBAC: ClassVar[tuple[Rule, ...]] = (
        Rule("", "nodes", ("get", "list", "watch")),
        Rule("", "nodes/status", ("patch",)),
        Rule("worker.gpustack.ai", "devices", ("get", "list", "watch")),
        Rule("nfd.k8s-sigs.io", "nodefeatures", ("get", "list", "watch")),
        Rule("", "pods", ("list",)),
    )

    def __init__(self, client: Client, caches: Caches, *, manufacturers: Manufacturers, clock: Clock) -> None:
        self.client = client.as_manager("gpustack-node-capacity")
        self.caches = caches
        self.manufacturers = manufacturers
        self.clock = clock
        self._unwanted_since: dict[str, float] = {}
        self._reports = Reports()

    async def reconcile(self, key: Key) -> Outcome:
        """Patch what differs; come back when unwanted keys may go."""
        node = self.caches[NODE].get(key)
        if node is None or is_deleting(node):
            self._unwanted_since.pop(key.name, None)
            self._reports.forget(key.name)
            return DONE
        capacity = as_map(at(node, "status", "capacity"))
        labels = cached_labels(node, self.caches)
        # Without the mark there are no cards: every key of ours becomes unwanted.
        cards = capacity_cards(self.caches[DEVICES].get(key)) if is_managed(labels) else []
        held, hold_s = await self._held(key.name, self._unwanted(labels, capacity, cards))
        plan = plan_capacity(self.manufacturers, labels=labels, capacity=capacity, cards=cards, held=held)
        for problem in self._reports.news(key.name, plan.problems):
            log.warning("capacity left out", extra={"kind": "Node", "object": key.name, "reason": problem})
        patch = capacity_patch(self.manufacturers, capacity=capacity, plan=plan)
        if patch:
            body = {"metadata": {"uid": uid_of(node)}, "status": {"capacity": patch}}
            await self.client.patch(NODE, key.name, body, subresource="status")
            log.info("node capacity patched", extra={"kind": "Node", "object": key.name, "keys": sorted(patch)})
        return After(hold_s) if hold_s else DONE

    def _unwanted(
        self, labels: Mapping[str, str], capacity: Mapping[str, object], cards: Sequence[Card]
    ) -> tuple[str, ...]:
        plan = plan_capacity(self.manufacturers, labels=labels, capacity=capacity, cards=cards)
        patch = capacity_patch(self.manufacturers, capacity=capacity, plan=plan)
        return tuple(key for key, value in patch.items() if value is None)

    async def _held(self, node: str, unwanted: tuple[str, ...]) -> tuple[tuple[str, ...], float]:
        """Return the unwanted keys that stay, and for how many seconds (design §8.4)."""
        if not unwanted:
            self._unwanted_since.pop(node, None)
            return (), 0.0
        left = self._unwanted_since.setdefault(node, self.clock.now()) + HOLD_S - self.clock.now()
        if left > 0:
            return unwanted, left
        pods = await self.client.list(POD, field_selector=f"spec.nodeName={node}")
        held = tuple(key for key in unwanted if any(holds(pod, key) for pod in pods))
        if held:
            return held, HOLD_S
        self._unwanted_since.pop(node, None)
        return (), 0.0


def holds(pod: Mapping[str, Any], resource: str) -> bool:
    """Say whether a Pod that has not finished asks for `resource`."""
    if has_ended(pod):
        return False
    containers = (*as_maps(at(pod, "spec", "containers")), *as_maps(at(pod, "spec", "initContainers")))
    return any(
        resource in as_map(at(container, "resources", part))
        for container in containers
        for part in ("requests", "limits")
    )


def labels_changed(old: Mapping[str, str], new: Mapping[str, str]) -> bool:
    """Say whether the mark or an accelerator label differs."""
    return _own_labels(old) != _own_labels(new)


def _own_labels(labels: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in labels.items() if key.startswith((MANAGED, DEVICE_PREFIX))}


def family_changed(old: object, new: object) -> bool:
    """Say whether a sliced or partitioned key of `status.capacity` was added, removed or changed in amount."""
    before, after = (
        {k: quantity_or_zero(v) for k, v in as_map(at(node, "status", "capacity")).items() if _is_family(k)}
        for node in (old, new)
    )
    return before != after


def _is_family(resource: str) -> bool:
    return ".sliced" in resource or ".partitioned" in resource
