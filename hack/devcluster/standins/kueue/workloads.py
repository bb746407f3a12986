"""The life of a Workload: quota, checks, admission, eviction.

For: the devcluster. In: Workloads, their queues, checks, owning Pods. Out: `status` of Workloads.
Kept from Kueue: quota is reserved before checks are asked; a Retry evicts; an eviction is **two writes**: first the
condition Evicted with all checks back to Pending, then, once no owning Pod runs any more, the reservation goes. A
controller that answers between them is the race of case B006. Evicted stays True until quota is reserved anew.
HoldAndDrain evicts what is admitted, Hold does not; what only holds quota loses it in one write under either.
Waiting Workloads are woken the important and old ones first; one that does not fit does not block others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar

from hack.devcluster.standins.kueue.eviction import (
    eviction_reason,
    inadmissible_reason,
    is_running,
    rejected_check,
    requeueing,
    reset_check,
)
from hack.devcluster.standins.kueue.pods import workload_name
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
from nodefeature.fields import as_int, as_map, as_maps, as_str, at, is_deleting, name_of, namespace_of
from nodefeature.kinds import CLUSTER_QUEUE, LOCAL_QUEUE, POD, RESOURCE_FLAVOR, WORKLOAD, Kind


def rank(workload: Mapping[str, Any]) -> tuple[int, str, str]:
    """Return what Workloads are tried by: priority, then age, then name."""
    return (
        -as_int(at(workload, "spec", "priority")),
        as_str(at(workload, "metadata", "creationTimestamp")),
        name_of(workload),
    )


def _keys(workloads: Iterable[Object]) -> list[Key]:
    return [Key(name_of(w), namespace_of(w)) for w in sorted(workloads, key=rank)]


def _workloads_of_queue(old: Object | None, new: Object | None, caches: Caches) -> Iterable[Key]:
    return _keys(workloads_of(name_of(new if new is not None else old), caches))


def _workloads_of_local(old: Object | None, new: Object | None, caches: Caches) -> Iterable[Key]:
    local = new if new is not None else old
    return _keys(caches[WORKLOAD].by(BY_QUEUE, f"{namespace_of(local)}/{name_of(local)}"))


def _self_and_rivals(old: Object | None, new: Object | None, caches: Caches) -> Iterable[Key]:
    """A Workload wakes itself; one that let quota go wakes those that wait in the same queue."""
    keys = dict.fromkeys(Key(name_of(obj), namespace_of(obj)) for obj in (old, new) if obj is not None)
    if old is not None and reserving(old) and (new is None or not reserving(new)):
        waiting = (w for w in workloads_of(queue_of_workload(old, caches), caches) if not reserving(w))
        keys |= dict.fromkeys(_keys(waiting))
    return keys


def _workload_of_pod(old: Object | None, new: Object | None, _: Caches) -> Iterable[Key]:
    """A Pod that stops running lets an evicted Workload go."""
    return [Key(workload_name(name_of(old)), namespace_of(old))] if is_running(old) and not is_running(new) else []


@dataclass(frozen=True, slots=True)
class Assumed:
    """What was reserved for a Workload that the cache still shows waiting at `version`."""

    queue: str
    usage: tuple[tuple[str, str, int], ...]
    version: object


class WorkloadLife:
    """Reconciles one Workload."""

    NAME: ClassVar[str] = "standin-kueue-workload"
    WATCHES: ClassVar[tuple[Watch, ...]] = (
        Watch(WORKLOAD, _self_and_rivals),
        Watch(CLUSTER_QUEUE, _workloads_of_queue, window_s=0.1),
        Watch(LOCAL_QUEUE, _workloads_of_local),
        Watch(POD, _workload_of_pod),
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
        self._assumed: dict[Key, Assumed] = {}

    async def reconcile(self, key: Key) -> Outcome:
        """Move one Workload one step."""
        workload = self._caches[WORKLOAD].get(key)
        if workload is None or condition_is(workload, "Finished", "True") or is_deleting(workload):
            self._assumed.pop(key, None)
            return DONE
        queue = self._caches[CLUSTER_QUEUE].get(Key(queue_of_workload(workload, self._caches)))
        try:
            if reserving(workload):
                return await self._keep(workload, queue)
            assumed = self._assumed.get(key)
            if assumed is not None and assumed.version == version_of(workload):
                return DONE
            self._assumed.pop(key, None)
            return await self._try(key, workload, queue)
        except (Conflict, NotFound):
            return After(0.05)

    async def _keep(self, workload: Object, queue: Object | None) -> Outcome:
        """Quota is held: finish an eviction, start one, give back what was never admitted, or admit."""
        if condition_is(workload, "Evicted", "True"):
            pods = (o for o in as_maps(at(workload, "metadata", "ownerReferences")) if o.get("kind") == "Pod")
            keys = (Key(as_str(o.get("name")), namespace_of(workload)) for o in pods)
            if not any(is_running(self._caches[POD].get(key)) for key in keys):
                await self._release(workload)
            return DONE
        if rejected_check(workload):
            await self._client.patch(WORKLOAD, name_of(workload), {"spec": {"active": False}}, namespace_of(workload))
            return DONE
        why = eviction_reason(workload, queue)
        if why:
            await self._evict(workload, *why)
            return DONE
        lost = inadmissible_reason(workload, queue)
        if lost:
            await self._give_back(workload, "Inadmissible", lost)
            return DONE
        checks = as_maps(at(workload, "status", "admissionChecks"))
        ready = all(check.get("state") == "Ready" for check in checks)
        if ready and not condition_is(workload, "Admitted", "True"):
            await self._write(
                workload, {}, "Admitted", status="True", reason="Admitted", message="The workload is admitted"
            )
        return DONE

    async def _try(self, key: Key, workload: Object, queue: Object | None) -> Outcome:
        """No quota is held: reserve it if the Workload may be tried, the queue is open and it fits."""
        if at(workload, "spec", "active") is False:
            if not condition_is(workload, "Evicted", "True"):
                await self._evict(workload, "Deactivated", "The workload is deactivated", 0)
            return DONE
        again = requeueing(workload, queue, self._clock.time())
        if isinstance(again, float):
            return After(again) if again > 0 else DONE
        if again:
            fields = {"requeueState": {"requeueAt": None}} if again == "BackoffFinished" else {}
            await self._write(
                workload, fields, "Requeued", status="True", reason=again, message="It may be tried again"
            )
            return DONE
        if queue is None or not condition_is(queue, "Active", "True"):
            return DONE
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
        await self._reserve(key, workload, name_of(queue), found, checks=check_names(queue))
        return DONE

    async def _reserve(
        self, key: Key, workload: Object, queue: str, found: list[PodSetAssignment], *, checks: list[str]
    ) -> None:
        """Promise the quota, ask the checks, and close an earlier eviction, in one write."""
        usage = tuple((flavor, r, a.usage[r]) for a in found for r, flavor in a.flavors.items())
        self._assumed[key] = Assumed(queue, usage, version_of(workload))
        asked = {as_str(c.get("name")): dict(c) for c in as_maps(at(workload, "status", "admissionChecks"))}
        fresh = {"state": "Pending", "message": "", "lastTransitionTime": self._stamp()}
        evicted = condition(workload, "Evicted")
        if evicted.get("status") == "True":
            workload = self._conditioned(
                workload,
                "Evicted",
                status="False",
                reason="QuotaReserved",
                message=f"Previously: {evicted.get('message')}",
            )
        fields: dict[str, Any] = {
            "admission": {"clusterQueue": queue, "podSetAssignments": [assignment_object(a) for a in found]},
            "admissionChecks": [asked.get(name) or {"name": name, **fresh} for name in checks],
        }
        message = f"Quota reserved in ClusterQueue {queue}"
        try:
            await self._write(workload, fields, "QuotaReserved", status="True", reason="QuotaReserved", message=message)
        except (Conflict, NotFound):
            self._assumed.pop(key, None)
            raise

    def _reserved(self, queue: str) -> dict[tuple[str, str], int]:
        held: dict[tuple[str, str], int] = {}
        seen: set[Key] = set()
        for workload in workloads_of(queue, self._caches):
            if reserving(workload):
                seen.add(Key(name_of(workload), namespace_of(workload)))
                for flavor, resource, value in usage_of(workload):
                    held[flavor, resource] = held.get((flavor, resource), 0) + value
        for key, assumed in self._assumed.items():
            if assumed.queue == queue and key not in seen:
                for flavor, resource, value in assumed.usage:
                    held[flavor, resource] = held.get((flavor, resource), 0) + value
        return held

    async def _evict(self, workload: Object, reason: str, message: str, requeue_s: int) -> None:
        """First write: Evicted, checks back to Pending; the reservation still stands."""
        checks = [reset_check(c, self._stamp()) for c in as_maps(at(workload, "status", "admissionChecks"))]
        fields: dict[str, Any] = {"admissionChecks": checks} if checks else {}
        if requeue_s:
            due = self._clock.time() + timedelta(seconds=requeue_s)
            fields["requeueState"] = {"requeueAt": due.strftime("%Y-%m-%dT%H:%M:%SZ")}
        elif reason == "Deactivated":
            fields["requeueState"] = None
        await self._write(workload, fields, "Evicted", status="True", reason=reason, message=message)

    async def _release(self, workload: Object) -> None:
        """Second write: the reservation goes, and the Workload waits until it may be tried again."""
        evicted = condition(workload, "Evicted")
        reason, message = as_str(evicted.get("reason")), as_str(evicted.get("message"))
        waiting = self._conditioned(workload, "Requeued", status="False", reason=reason, message=message)
        await self._give_back(waiting, "Pending", message)

    async def _give_back(self, workload: Object, reason: str, message: str) -> None:
        bare = self._conditioned(workload, "QuotaReserved", status="False", reason=reason, message=message)
        if condition_is(bare, "Admitted", "True"):
            checks = as_maps(at(bare, "status", "admissionChecks"))
            ready = all(check.get("state") == "Ready" for check in checks)
            lost = "NoReservation" if ready else "NoReservationUnsatisfiedChecks"
            bare = self._conditioned(bare, "Admitted", status="False", reason=lost, message="There is no reservation")
        await self._patch(bare, {"admission": None, "conditions": at(bare, "status", "conditions")})
        self._assumed.pop(Key(name_of(workload), namespace_of(workload)), None)

    def _conditioned(self, workload: Object, kind: str, *, status: str, reason: str, message: str) -> Object:
        """Return the Workload as it would be with one condition set."""
        conditions = with_condition(
            workload, kind, status=status, reason=reason, message=message, now=self._clock.time()
        )
        return {**workload, "status": {**as_map(workload.get("status")), "conditions": conditions}}

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


def version_of(workload: Mapping[str, Any]) -> object:
    """Return what changes with every write."""
    return at(workload, "metadata", "resourceVersion")


def assignment_object(assignment: PodSetAssignment) -> dict[str, Any]:
    """Return the API form of an assignment."""
    return {
        "name": assignment.name,
        "count": assignment.count,
        "flavors": dict(assignment.flavors),
        "resourceUsage": {resource: quantity_text(value) for resource, value in assignment.usage.items()},
    }
