"""Stand-in for kube-scheduler: puts a Pod that nothing gates on a node that can carry it.

For: the devcluster. In: Pods without node and gates, Nodes, Pods already bound. Out: `spec.nodeName` and PodScheduled.
Kept: node selector, required node affinity with all six operators, taints of effect NoSchedule and NoExecute,
unschedulable nodes, every resource of `status.allocatable` (extended ones too).
Left out: scores (the first node by name wins), preferred rules, Pod affinity and spreading, preemption, volumes, the
binding sub-resource (the node name is patched), profiles other than `default-scheduler`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from hack.devcluster.standins.kueue.quota import milli, pod_requests
from hack.devcluster.standins.kueue.state import condition, with_condition
from kube.client import Client
from kube.clock import Clock
from kube.errors import Conflict, Invalid, NotFound
from kube.reconciler import DONE, Caches, Index, Key, Object, Outcome, Rule, Watch
from nodefeature.fields import (
    as_list,
    as_map,
    as_maps,
    as_str,
    at,
    is_deleting,
    labels_of,
    name_of,
    namespace_of,
    uid_of,
)
from nodefeature.kinds import NODE, POD, Kind

BY_NODE = "scheduler-node"
UNBOUND = "-"


def _waiting(old: Object | None, new: Object | None, caches: Caches) -> Iterable[Key]:
    """A waiting Pod wakes itself; a Pod that leaves or ends, and a changed Node, wake all that wait."""
    if new is not None and is_waiting(new):
        return [Key(name_of(new), namespace_of(new))]
    return _all_waiting(old, new, caches) if new is None or (has_ended(new) and not has_ended(old)) else []


def _all_waiting(_: Object | None, __: Object | None, caches: Caches) -> Iterable[Key]:
    return [Key(name_of(p), namespace_of(p)) for p in caches[POD].by(BY_NODE, UNBOUND) if is_waiting(p)]


def has_ended(pod: Mapping[str, Any] | None) -> bool:
    """Say whether a Pod holds nothing any more."""
    return as_str(at(pod, "status", "phase")) in ("Succeeded", "Failed")


def is_waiting(pod: Mapping[str, Any]) -> bool:
    """Say whether a Pod is this scheduler's to place."""
    return (
        not as_str(at(pod, "spec", "nodeName"))
        and not as_list(at(pod, "spec", "schedulingGates"))
        and not is_deleting(pod)
        and as_str(at(pod, "spec", "schedulerName")) in ("", "default-scheduler")
    )


class Scheduler:
    """Reconciles one Pod onto a node. One at a time: its decisions read what the previous ones wrote."""

    NAME: ClassVar[str] = "standin-scheduler"
    WATCHES: ClassVar[tuple[Watch, ...]] = (Watch(POD, _waiting), Watch(NODE, _all_waiting, window_s=0.5))
    READS: ClassVar[tuple[Kind, ...]] = ()
    INDEXES: ClassVar[tuple[Index, ...]] = (
        Index(POD, BY_NODE, lambda pod: [as_str(at(pod, "spec", "nodeName")) or UNBOUND]),
    )
    RBAC: ClassVar[tuple[Rule, ...]] = ()

    def __init__(self, client: Client, caches: Caches, clock: Clock) -> None:
        self._client = client
        self._caches = caches
        self._clock = clock
        # The cache lags behind our own writes: Pods we have bound that it still shows waiting.
        self._bound: dict[Key, tuple[str, Object]] = {}

    async def reconcile(self, key: Key) -> Outcome:
        """Bind the Pod, or say why no node can take it."""
        pod = self._caches[POD].get(key)
        if pod is None or not is_waiting(pod):
            self._bound.pop(key, None)
            return DONE
        if key in self._bound and uid_of(self._bound[key][1]) == uid_of(pod):
            return DONE
        nodes = sorted(self._caches[NODE].list(), key=name_of)
        fitting = next((n for n in nodes if not refusal(pod, n, held=self._held(name_of(n)))), None)
        try:
            if fitting is None:
                await self._report(pod, "False", "Unschedulable", f"0/{len(nodes)} nodes are available")
            else:
                await self._client.patch(POD, key.name, {"spec": {"nodeName": name_of(fitting)}}, key.namespace)
                self._bound[key] = (name_of(fitting), pod)
                await self._report(pod, "True", "Scheduled", "")
        except (Conflict, NotFound, Invalid):
            return DONE
        return DONE

    def _held(self, node: str) -> dict[str, int]:
        """Sum what the node's Pods ask for: those the cache shows, and those just bound."""
        pods = {Key(name_of(p), namespace_of(p)): p for p in self._caches[POD].by(BY_NODE, node)}
        for key, (where, pod) in list(self._bound.items()):
            shown = self._caches[POD].get(key)
            if shown is None or uid_of(shown) != uid_of(pod) or at(shown, "spec", "nodeName"):
                del self._bound[key]
            elif where == node:
                pods[key] = pod
        held: dict[str, int] = {}
        for pod in pods.values():
            if not has_ended(pod):
                for name, value in pod_requests(pod).items():
                    held[name] = held.get(name, 0) + value
        return held

    async def _report(self, pod: Object, status: str, reason: str, message: str) -> None:
        was = condition(pod, "PodScheduled")
        if was.get("status") == status and was.get("message") == message:
            return
        conditions = with_condition(
            pod, "PodScheduled", status=status, reason=reason, message=message, now=self._clock.time()
        )
        await self._client.patch(
            POD, name_of(pod), {"status": {"conditions": conditions}}, namespace_of(pod), subresource="status"
        )


def refusal(pod: Mapping[str, Any], node: Mapping[str, Any], *, held: Mapping[str, int]) -> str:
    """Return why a node cannot take a Pod; empty when it can."""
    spec = as_map(pod.get("spec"))
    labels = labels_of(node)
    if is_deleting(node) or at(node, "spec", "unschedulable") is True:
        return "unschedulable"
    if any(labels.get(k) != v for k, v in as_map(spec.get("nodeSelector")).items()):
        return "node selector"
    required = at(spec, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    if required is not None and not any(_term_holds(t, node) for t in as_maps(at(required, "nodeSelectorTerms"))):
        return "node affinity"
    for taint in as_maps(at(node, "spec", "taints")):
        if taint.get("effect") in ("NoSchedule", "NoExecute") and not tolerated(
            taint, as_maps(spec.get("tolerations"))
        ):
            return f"taint {taint.get('key')}"
    room = as_map(at(node, "status", "allocatable"))
    for name, value in pod_requests(pod).items():
        if value and held.get(name, 0) + value > milli(room.get(name)):
            return f"insufficient {name}"
    return ""


def tolerated(taint: Mapping[str, Any], tolerations: Iterable[Mapping[str, Any]]) -> bool:
    """Say whether one of the tolerations covers a taint."""
    for toleration in tolerations:
        if toleration.get("effect") not in (None, "", taint.get("effect")):
            continue
        key = as_str(toleration.get("key"))
        if toleration.get("operator") == "Exists":
            if key in ("", taint.get("key")):
                return True
        elif key == taint.get("key") and as_str(toleration.get("value")) == as_str(taint.get("value")):
            return True
    return False


def _term_holds(term: Mapping[str, Any], node: Mapping[str, Any]) -> bool:
    labels = labels_of(node)
    fields = {"metadata.name": name_of(node)}
    expressions = as_maps(term.get("matchExpressions"))
    by_field = as_maps(term.get("matchFields"))
    if not expressions and not by_field:
        return False
    return all(_holds(e, labels) for e in expressions) and all(_holds(e, fields) for e in by_field)


def _holds(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    key, op = as_str(expression.get("key")), as_str(expression.get("operator"))
    values = [as_str(v) for v in as_list(expression.get("values"))]
    have = labels.get(key)
    if op == "Exists":
        return have is not None
    if op == "DoesNotExist":
        return have is None
    if op == "In":
        return have in values
    if op == "NotIn":
        return have not in values
    if op in ("Gt", "Lt") and have is not None and len(values) == 1:
        try:
            left, right = int(have), int(values[0])
        except ValueError:
            return False
        return left > right if op == "Gt" else left < right
    return False
