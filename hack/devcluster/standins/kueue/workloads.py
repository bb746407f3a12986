"""The life of a Workload: quota, checks, admission, eviction.

For: the devcluster. In: Workloads, their queues, checks. Out: `status` of Workloads.
Kept from Kueue: quota is reserved before checks are asked; a Retry evicts; an eviction is **two writes** (first the
condition Evicted with all checks back to Pending, then the reservation goes): a controller that answers between them
is the race of case B006; `active=false`, HoldAndDrain and deletion free quota; older and more important Workloads
are tried first, and one that does not fit does not block others (BestEffortFIFO).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, ClassVar

from hack.devcluster.standins.kueue.queues import (
    BY_QUEUE,
    check_names,
    quantity_text,
    usage_of,
    workloads_of,
)
from hack.devcluster.standins.kueue.quota import PodSetAssignment, Transformation, assign
from hack.devcluster.standins.kueue.state import condition, condition_is, queue_of_workload, reserving, with_condition
from kube.client import Client
from kube.clock import Clock
from kube.errors import Conflict, NotFound
from kube.reconciler import DONE, After, Caches, Index, Key, Object, Outcome, Rule, Watch
from nodefeature.fields import as_int, as_maps, as_str, at, is_deleting, name_of, namespace_of
from nodefeature.kinds import CLUSTER_QUEUE, LOCAL_QUEUE, RESOURCE_FLAVOR, WORKLOAD, Kind


def _workloads_of_queue(old: Object | None, new: Object | None, caches: Caches) -> Iterable[Key]:
    return [Key(name_of(w), namespace_of(w)) for w in workloads_of(name_of(new if new is not None else old), caches)]


def _workloads_of_local(old: Object | None, new: Object | None, caches: Caches) -> Iterable[Key]:
    local = new if new is not None else old
    waiting = caches[WORKLOAD].by(BY_QUEUE, f"{namespace_of(local)}/{name_of(local)}")
    return [Key(name_of(w), namespace_of(w)) for w in waiting]


def _self_and_rivals(old: Object | None, new: Object | None, caches: Caches) -> Iterable[Key]:
    """A Workload wakes itself; one that let quota go wakes those that wait in the same queue."""
    keys = {Key(name_of(obj), namespace_of(obj)) for obj in (old, new) if obj is not None}
    if old is not None and reserving(old) and (new is None or not reserving(new)):
        queue = queue_of_workload(old, caches)
        keys |= {Key(name_of(w), namespace_of(w)) for w in workloads_of(queue, caches) if not reserving(w)}
    return keys


class WorkloadLife:
    """Reconciles one Workload."""

    NAME: ClassVar[str] = "standin-kueue-workload"
    WATCHES: ClassVar[tuple[Watch, ...]] = (
        Watch(WORKLOAD, _self_and_rivals),
        Watch(CLUSTER_QUEUE, _workloads_of_queue, window_s=0.1),
        Watch(LOCAL_QUEUE, _workloads_of_local),
    )
    READS: ClassVar[tuple[Kind, ...]] = (RESOURCE_FLAVOR,)
    INDEXES: ClassVar[tuple[Index, ...]] = ()
    RBAC: ClassVar[tuple[Rule, ...]] = ()

    def __init__(
        self, client: Client, caches: Caches, clock: Clock, *, transformations: Mapping[str, Transformation]
    ) -> None:
        self._client = client
        self._caches = caches
        self._clock = clock
        self._transformations = transformations
        # The cache lags behind our own writes; what was just reserved here must not be given away twice.
        self._assumed: dict[Key, tuple[str, tuple[tuple[str, str, int], ...]]] = {}

    async def reconcile(self, key: Key) -> Outcome:
        """Move one Workload one step."""
        workload = self._caches[WORKLOAD].get(key)
        if workload is None or condition_is(workload, "Finished", "True") or is_deleting(workload):
            self._assumed.pop(key, None)
            return DONE
        queue = self._caches[CLUSTER_QUEUE].get(Key(queue_of_workload(workload, self._caches)))
        try:
            if reserving(workload):
                return await self._keep(key, workload, queue)
            self._assumed.pop(key, None)
            return await self._try(key, workload, queue)
        except (Conflict, NotFound):
            return After(0.05)

    async def _keep(self, key: Key, workload: Object, queue: Object | None) -> Outcome:
        """Quota is held: finish an eviction, start one, or admit once every check is Ready."""
        if condition_is(workload, "Evicted", "True"):
            return await self._release(workload)
        why = eviction_reason(workload, queue)
        if why:
            return await self._evict(workload, *why)
        checks = as_maps(at(workload, "status", "admissionChecks"))
        ready = all(check.get("state") == "Ready" for check in checks)
        if ready and not condition_is(workload, "Admitted", "True"):
            await self._write(workload, {}, "Admitted", status="True", reason="Admitted", message="Admitted")
        return DONE

    async def _try(self, key: Key, workload: Object, queue: Object | None) -> Outcome:
        """No quota is held: reserve it if the queue is open and it fits."""
        if at(workload, "spec", "active") is False or queue is None or not condition_is(queue, "Active", "True"):
            return DONE
        wait = seconds_until_requeue(workload, self._clock.time())
        if wait > 0:
            return After(wait)
        found = assign(
            as_maps(at(workload, "spec", "podSets")),
            queue.get("spec") or {},
            reserved=self._reserved(name_of(queue)),
            flavors={name_of(f): f for f in self._caches[RESOURCE_FLAVOR].list()},
            transformations=self._transformations,
        )
        if isinstance(found, str):
            if condition(workload, "QuotaReserved").get("message") != found:
                await self._write(workload, {}, "QuotaReserved", status="False", reason="Pending", message=found)
            return DONE
        admission = {"clusterQueue": name_of(queue), "podSetAssignments": [assignment_object(a) for a in found]}
        checks = [
            {"name": n, "state": "Pending", "message": "", "lastTransitionTime": self._stamp()}
            for n in check_names(queue)
        ]
        self._assumed[key] = (
            name_of(queue),
            tuple((flavor, r, a.usage[r]) for a in found for r, flavor in a.flavors.items()),
        )
        fields: dict[str, Any] = {"admission": admission, "admissionChecks": checks}
        message = f"Quota reserved in ClusterQueue {name_of(queue)}"
        await self._write(workload, fields, "QuotaReserved", status="True", reason="QuotaReserved", message=message)
        return DONE

    def _reserved(self, queue: str) -> dict[tuple[str, str], int]:
        held: dict[tuple[str, str], int] = {}
        seen: set[Key] = set()
        for workload in workloads_of(queue, self._caches):
            if reserving(workload):
                seen.add(Key(name_of(workload), namespace_of(workload)))
                for flavor, resource, value in usage_of(workload):
                    held[flavor, resource] = held.get((flavor, resource), 0) + value
        for key, (where, usage) in self._assumed.items():
            if where == queue and key not in seen:
                for flavor, resource, value in usage:
                    held[flavor, resource] = held.get((flavor, resource), 0) + value
        return held

    async def _evict(self, workload: Object, reason: str, message: str, requeue_s: int) -> Outcome:
        """First write: Evicted, checks back to Pending; the reservation still stands."""
        checks = [
            {
                "name": c.get("name"),
                "state": "Pending",
                "message": "Reset to Pending after eviction",
                "lastTransitionTime": self._stamp(),
            }
            for c in as_maps(at(workload, "status", "admissionChecks"))
        ]
        fields: dict[str, Any] = {"admissionChecks": checks}
        if requeue_s:
            at_time = self._clock.time() + timedelta(seconds=requeue_s)
            count = as_int(at(workload, "status", "requeueState", "count")) + 1
            fields["requeueState"] = {"count": count, "requeueAt": at_time.strftime("%Y-%m-%dT%H:%M:%SZ")}
        await self._write(workload, fields, "Evicted", status="True", reason=reason, message=message)
        return DONE

    async def _release(self, workload: Object) -> Outcome:
        """Second write: the reservation goes, and the Workload waits again."""
        now = self._clock.time()
        conditions = with_condition(
            workload, "QuotaReserved", status="False", reason="Pending", message="Evicted", now=now
        )
        for kind in ("Admitted", "Evicted"):
            held = {"status": {"conditions": conditions}, "metadata": workload.get("metadata")}
            if condition(held, kind):
                reason = "NoReservation" if kind == "Admitted" else "Requeued"
                conditions = with_condition(
                    held, kind, status="False", reason=reason, message="The workload waits again", now=now
                )
        await self._patch(workload, {"admission": None, "conditions": conditions})
        self._assumed.pop(Key(name_of(workload), namespace_of(workload)), None)
        return DONE

    async def _write(
        self, workload: Object, fields: dict[str, Any], kind: str, *, status: str, reason: str, message: str
    ) -> None:
        conditions = with_condition(
            workload, kind, status=status, reason=reason, message=message, now=self._clock.time()
        )
        await self._patch(workload, {**fields, "conditions": conditions})

    async def _patch(self, workload: Object, status: dict[str, Any]) -> None:
        patch = {"metadata": {"resourceVersion": at(workload, "metadata", "resourceVersion")}, "status": status}
        await self._client.patch(WORKLOAD, name_of(workload), patch, namespace_of(workload), subresource="status")

    def _stamp(self) -> str:
        return self._clock.time().strftime("%Y-%m-%dT%H:%M:%SZ")


def eviction_reason(workload: Mapping[str, Any], queue: Mapping[str, Any] | None) -> tuple[str, str, int] | None:
    """Return (reason, message, seconds before it may be tried again) when a Workload must give its quota back."""
    if at(workload, "spec", "active") is False:
        return "Deactivated", "The workload is deactivated", 0
    if queue is None or as_str(at(queue, "spec", "stopPolicy")) == "HoldAndDrain":
        return "ClusterQueueStopped", "The ClusterQueue is stopped", 0
    for check in as_maps(at(workload, "status", "admissionChecks")):
        if check.get("state") == "Retry":
            wait = as_int(check.get("requeueAfterSeconds"))
            return "AdmissionCheck", f"At least one admission check is false: {check.get('name')}", wait
    return None


def seconds_until_requeue(workload: Mapping[str, Any], now: datetime) -> float:
    """Return how long an evicted Workload still has to wait; 0 when it may be tried."""
    text = as_str(at(workload, "status", "requeueState", "requeueAt"))
    if not text:
        return 0.0
    try:
        due = datetime.fromisoformat(text)
    except ValueError:
        return 0.0
    return max((due - now).total_seconds(), 0.0)


def assignment_object(assignment: PodSetAssignment) -> dict[str, Any]:
    """Return the API form of an assignment."""
    return {
        "name": assignment.name,
        "count": assignment.count,
        "flavors": dict(assignment.flavors),
        "resourceUsage": {resource: quantity_text(value) for resource, value in assignment.usage.items()},
    }
