"""Plain Pods under Kueue: a gated Pod gets a Workload, an admitted one loses its gate.

For: the devcluster. In: Pods with the queue label that were created with Kueue's scheduling gate, their Workloads.
Out: Workloads, and the Pods' gates, node selectors and tolerations; evicted Pods are deleted, as Kueue does.
Left out: Pod groups; adding the gate (Kueue's webhook does it; here whoever creates the Pod).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from hack.devcluster.standins.kueue.eviction import is_running
from hack.devcluster.standins.kueue.state import GATE, QUEUE_LABEL, condition_is
from kube.client import Client
from kube.clock import Clock
from kube.errors import AlreadyExists, Conflict, NotFound
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
from nodefeature.hashing import fnv64
from nodefeature.kinds import POD, RESOURCE_FLAVOR, WORKLOAD, Kind


def workload_name(pod: str) -> str:
    """Return the name of a Pod's Workload: unique per Pod, at most 63 characters."""
    return f"pod-{pod[:48].rstrip('-.')}-{fnv64(pod)[:8]}"


def _pod(old: Object | None, new: Object | None, _: Caches) -> Iterable[Key]:
    pod = new if new is not None else old
    return [Key(name_of(pod), namespace_of(pod))] if QUEUE_LABEL in labels_of(pod) else []


def _owner(old: Object | None, new: Object | None, _: Caches) -> Iterable[Key]:
    workload = new if new is not None else old
    owners = as_maps(at(workload, "metadata", "ownerReferences"))
    return [Key(as_str(o.get("name")), namespace_of(workload)) for o in owners if o.get("kind") == "Pod"]


class PodIntegration:
    """Reconciles one queued Pod with its Workload."""

    NAME: ClassVar[str] = "standin-kueue-pod"
    WATCHES: ClassVar[tuple[Watch, ...]] = (Watch(POD, _pod), Watch(WORKLOAD, _owner))
    READS: ClassVar[tuple[Kind, ...]] = (RESOURCE_FLAVOR,)
    INDEXES: ClassVar[tuple[Index, ...]] = ()
    RBAC: ClassVar[tuple[Rule, ...]] = ()

    def __init__(self, client: Client, caches: Caches, clock: Clock) -> None:
        self._client = client
        self._caches = caches
        self._clock = clock

    async def reconcile(self, key: Key) -> Outcome:
        """Create, open, finish or delete."""
        pod = self._caches[POD].get(key)
        workload = self._caches[WORKLOAD].get(Key(workload_name(key.name), key.namespace))
        try:
            if pod is None or is_deleting(pod):
                # A Pod that still runs holds its quota until it is gone.
                if workload is not None and not is_running(pod):
                    await self._client.delete(WORKLOAD, name_of(workload), key.namespace)
            elif workload is None:
                if gated(pod):
                    await self._client.create(WORKLOAD, workload_for(pod))
            elif as_str(at(pod, "status", "phase")) in ("Succeeded", "Failed"):
                await self._finish(workload)
            elif (
                gated(pod)
                and condition_is(workload, "Admitted", "True")
                and not condition_is(workload, "Evicted", "True")
            ):
                await self._client.patch(POD, key.name, opening_patch(pod, workload, self._caches), key.namespace)
            elif not gated(pod) and condition_is(workload, "Evicted", "True"):
                await self._client.delete(POD, key.name, key.namespace, uid=uid_of(pod))
        except (AlreadyExists, Conflict, NotFound):
            return DONE
        return DONE

    async def _finish(self, workload: Object) -> None:
        if condition_is(workload, "Finished", "True"):
            return
        stamp = self._clock.time().strftime("%Y-%m-%dT%H:%M:%SZ")
        conditions = [*as_maps(at(workload, "status", "conditions"))]
        conditions.append(
            {"type": "Finished", "status": "True", "reason": "Succeeded", "message": "", "lastTransitionTime": stamp}
        )
        patch = {"status": {"conditions": conditions}}
        await self._client.patch(WORKLOAD, name_of(workload), patch, namespace_of(workload), subresource="status")


def gated(pod: Mapping[str, Any]) -> bool:
    """Say whether Kueue's gate still stands."""
    return any(gate.get("name") == GATE for gate in as_maps(at(pod, "spec", "schedulingGates")))


def workload_for(pod: Mapping[str, Any]) -> Object:
    """Return the Workload of a Pod."""
    spec = {k: v for k, v in as_map(pod.get("spec")).items() if k != "schedulingGates"}
    owner = {"apiVersion": "v1", "kind": "Pod", "name": name_of(pod), "uid": uid_of(pod), "controller": True}
    return {
        "apiVersion": WORKLOAD.api_version,
        "kind": WORKLOAD.kind,
        "metadata": {
            "name": workload_name(name_of(pod)),
            "namespace": namespace_of(pod),
            "ownerReferences": [owner],
        },
        "spec": {
            "active": True,
            "queueName": labels_of(pod)[QUEUE_LABEL],
            "podSets": [{"name": "main", "count": 1, "template": {"spec": spec}}],
        },
    }


def opening_patch(pod: Mapping[str, Any], workload: Mapping[str, Any], caches: Caches) -> Object:
    """Return the patch that lets an admitted Pod be scheduled: gate off, the flavors' labels and tolerations on."""
    selector = dict(as_map(at(pod, "spec", "nodeSelector")))
    tolerations = list(as_list(at(pod, "spec", "tolerations")))
    for assignment in as_maps(at(workload, "status", "admission", "podSetAssignments")):
        for name in sorted({as_str(v) for v in as_map(assignment.get("flavors")).values()}):
            flavor = caches[RESOURCE_FLAVOR].get(Key(name))
            selector.update(as_map(at(flavor, "spec", "nodeLabels")))
            tolerations.extend(t for t in as_list(at(flavor, "spec", "tolerations")) if t not in tolerations)
    gates = [g for g in as_maps(at(pod, "spec", "schedulingGates")) if g.get("name") != GATE]
    return {"spec": {"schedulingGates": gates or None, "nodeSelector": selector, "tolerations": tolerations}}
