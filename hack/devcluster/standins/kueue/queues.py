"""ClusterQueues and ResourceFlavors as Kueue keeps them: the Active condition, usage figures, finalizers.

For: the devcluster. In: queues, flavors, checks, topologies, Workloads. Out: status and finalizers only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from hack.devcluster.standins.kueue.quota import milli
from hack.devcluster.standins.kueue.state import (
    CONTROLLER_FINALIZER,
    condition_is,
    queue_of_workload,
    reserving,
    with_condition,
)
from kube.client import Client
from kube.clock import Clock
from kube.errors import Conflict, NotFound
from kube.reconciler import DONE, Caches, Index, Key, Object, Outcome, Rule, Watch
from nodefeature.fields import as_list, as_map, as_maps, as_str, at, is_deleting, name_of
from nodefeature.kinds import ADMISSION_CHECK, CLUSTER_QUEUE, LOCAL_QUEUE, RESOURCE_FLAVOR, TOPOLOGY, WORKLOAD, Kind

BY_FLAVOR = "kueue-flavor"
BY_QUEUE = "kueue-queue"
BY_HOLDER = "kueue-holder"


def flavor_names(queue: Mapping[str, Any]) -> list[str]:
    """Return the flavors a queue names, in order."""
    groups = as_maps(at(queue, "spec", "resourceGroups"))
    return [as_str(flavor.get("name")) for group in groups for flavor in as_maps(group.get("flavors"))]


def check_names(queue: Mapping[str, Any]) -> list[str]:
    """Return the admission checks a queue names."""
    checks = as_maps(at(queue, "spec", "admissionChecksStrategy", "admissionChecks"))
    return [as_str(check.get("name")) for check in checks]


def _self(old: Object | None, new: Object | None, _: Caches) -> Iterable[Key]:
    return [Key(name_of(new if new is not None else old))]


def _queues_of_flavor(old: Object | None, new: Object | None, caches: Caches) -> Iterable[Key]:
    name = name_of(new if new is not None else old)
    return [Key(name_of(queue)) for queue in caches[CLUSTER_QUEUE].by(BY_FLAVOR, name)]


def _every_queue(_: Object | None, __: Object | None, caches: Caches) -> Iterable[Key]:
    return [Key(name_of(queue)) for queue in caches[CLUSTER_QUEUE].list()]


def _queue_of_workload(old: Object | None, new: Object | None, caches: Caches) -> Iterable[Key]:
    return {Key(name) for obj in (old, new) if obj is not None and (name := queue_of_workload(obj, caches))}


class ClusterQueueStatus:
    """Reconciles one ClusterQueue's finalizer and status."""

    NAME: ClassVar[str] = "standin-kueue-clusterqueue"
    WATCHES: ClassVar[tuple[Watch, ...]] = (
        Watch(CLUSTER_QUEUE, _self),
        Watch(RESOURCE_FLAVOR, _queues_of_flavor),
        Watch(TOPOLOGY, _every_queue, window_s=0.5),
        Watch(ADMISSION_CHECK, _every_queue, window_s=0.2),
        Watch(WORKLOAD, _queue_of_workload, window_s=0.1),
    )
    READS: ClassVar[tuple[Kind, ...]] = (LOCAL_QUEUE,)
    INDEXES: ClassVar[tuple[Index, ...]] = (
        Index(CLUSTER_QUEUE, BY_FLAVOR, flavor_names),
        Index(WORKLOAD, BY_QUEUE, lambda obj: [f"{at(obj, 'metadata', 'namespace')}/{at(obj, 'spec', 'queueName')}"]),
        Index(WORKLOAD, BY_HOLDER, lambda obj: [name] if (name := holder_of(obj)) else []),
        Index(LOCAL_QUEUE, BY_QUEUE, lambda obj: [as_str(at(obj, "spec", "clusterQueue"))]),
    )
    RBAC: ClassVar[tuple[Rule, ...]] = ()

    def __init__(self, client: Client, caches: Caches, clock: Clock) -> None:
        self._client = client
        self._caches = caches
        self._clock = clock

    async def reconcile(self, key: Key) -> Outcome:
        """Keep the finalizer and the status of one queue."""
        queue = self._caches[CLUSTER_QUEUE].get(key)
        if queue is None:
            return DONE
        workloads = workloads_of(key.name, self._caches)
        held = [w for w in workloads if reserving(w)]
        finalizers = as_list(at(queue, "metadata", "finalizers"))
        if is_deleting(queue):
            if CONTROLLER_FINALIZER in finalizers and not held:
                await set_finalizers(self._client, CLUSTER_QUEUE, queue, drop=True)
                return DONE
        elif CONTROLLER_FINALIZER not in finalizers:
            queue = await set_finalizers(self._client, CLUSTER_QUEUE, queue, drop=False)
        status, reason, message = active_condition(queue, self._caches)
        wanted = queue_status(queue, workloads)
        wanted["conditions"] = with_condition(
            queue, "Active", status=status, reason=reason, message=message, now=self._clock.time()
        )
        if wanted != {k: v for k, v in as_map(queue.get("status")).items() if k in wanted}:
            # Kueue updates the whole status of the version it read, so that a condition of others is never lost.
            version = at(queue, "metadata", "resourceVersion")
            patch = {"metadata": {"resourceVersion": version}, "status": wanted}
            try:
                await self._client.patch(CLUSTER_QUEUE, key.name, patch, subresource="status")
            except NotFound:
                return DONE
        return DONE


class ResourceFlavorFinalizer:
    """Keeps a flavor until no queue names it."""

    NAME: ClassVar[str] = "standin-kueue-resourceflavor"
    WATCHES: ClassVar[tuple[Watch, ...]] = (
        Watch(RESOURCE_FLAVOR, _self),
        Watch(CLUSTER_QUEUE, lambda old, new, _: {Key(n) for obj in (old, new) if obj for n in flavor_names(obj)}),
    )
    READS: ClassVar[tuple[Kind, ...]] = ()
    INDEXES: ClassVar[tuple[Index, ...]] = ()
    RBAC: ClassVar[tuple[Rule, ...]] = ()

    def __init__(self, client: Client, caches: Caches) -> None:
        self._client = client
        self._caches = caches

    async def reconcile(self, key: Key) -> Outcome:
        """Add the finalizer to a live flavor, drop it from a deleted one that nobody names."""
        flavor = self._caches[RESOURCE_FLAVOR].get(key)
        if flavor is None:
            return DONE
        has = CONTROLLER_FINALIZER in as_list(at(flavor, "metadata", "finalizers"))
        named = any(True for _ in self._caches[CLUSTER_QUEUE].by(BY_FLAVOR, key.name))
        if is_deleting(flavor):
            if has and not named:
                await set_finalizers(self._client, RESOURCE_FLAVOR, flavor, drop=True)
        elif not has:
            await set_finalizers(self._client, RESOURCE_FLAVOR, flavor, drop=False)
        return DONE


def workloads_of(queue: str, caches: Caches) -> list[Object]:
    """Return the Workloads that hold quota of `queue`, and those that wait for it through a LocalQueue."""
    found = list(caches[WORKLOAD].by(BY_HOLDER, queue))
    for local in caches[LOCAL_QUEUE].by(BY_QUEUE, queue):
        through = caches[WORKLOAD].by(BY_QUEUE, f"{at(local, 'metadata', 'namespace')}/{name_of(local)}")
        found.extend(w for w in through if not holder_of(w))
    return found


def holder_of(workload: Mapping[str, Any]) -> str:
    """Return the ClusterQueue whose quota a Workload holds; empty when it holds none."""
    return as_str(at(workload, "status", "admission", "clusterQueue"))


async def set_finalizers(client: Client, kind: Kind, obj: Object, *, drop: bool) -> Object:
    """Add or drop Kueue's finalizer on the version that was read; a conflict is somebody else's turn."""
    have = as_list(at(obj, "metadata", "finalizers"))
    want = [f for f in have if f != CONTROLLER_FINALIZER] + ([] if drop else [CONTROLLER_FINALIZER])
    patch = {"metadata": {"finalizers": want, "resourceVersion": at(obj, "metadata", "resourceVersion")}}
    try:
        return await client.patch(kind, name_of(obj), patch)
    except (Conflict, NotFound):
        return obj


def active_condition(queue: Mapping[str, Any], caches: Caches) -> tuple[str, str, str]:
    """Return status, reason and message of condition Active: the first reason in Kueue's order, every message."""
    if is_deleting(queue):
        return "False", "Terminating", "Can't admit new workloads; the queue is terminating"
    wrong = _what_is_wrong(queue, caches)
    if wrong:
        said = ", ".join(message for _, message in wrong)
        return "False", wrong[0][0], f"Can't admit new workloads: {said}."
    return "True", "Ready", "Can admit new workloads"


def _what_is_wrong(queue: Mapping[str, Any], caches: Caches) -> list[tuple[str, str]]:
    flavors = {name: caches[RESOURCE_FLAVOR].get(Key(name)) for name in flavor_names(queue)}
    checks = {name: caches[ADMISSION_CHECK].get(Key(name)) for name in sorted(check_names(queue))}
    missing = [name for name, flavor in flavors.items() if flavor is None]
    absent = [name for name, check in checks.items() if check is None]
    inactive = [
        name for name, check in checks.items() if check is not None and not condition_is(check, "Active", "True")
    ]
    wrong = []
    if as_str(at(queue, "spec", "stopPolicy")) in ("Hold", "HoldAndDrain"):
        wrong.append(("Stopped", "is stopped"))
    if missing:
        wrong.append(("FlavorNotFound", f"references missing ResourceFlavor(s): {','.join(missing)}"))
    if absent:
        wrong.append(("AdmissionCheckNotFound", f"references missing AdmissionCheck(s): {','.join(absent)}"))
    if inactive:
        wrong.append(("AdmissionCheckInactive", f"references inactive AdmissionCheck(s): {','.join(inactive)}"))
    for name, flavor in flavors.items():
        topology = as_str(at(flavor, "spec", "topologyName"))
        if topology and caches[TOPOLOGY].get(Key(topology)) is None:
            wrong.append(("TopologyNotFound", f"there is no Topology {topology!r} for flavor {name!r}"))
    return wrong


def queue_status(queue: Mapping[str, Any], workloads: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return counts and per-flavor figures; every flavor and resource of the spec is listed, also at zero."""
    reserved: dict[tuple[str, str], int] = {}
    used: dict[tuple[str, str], int] = {}
    counts = {"pendingWorkloads": 0, "reservingWorkloads": 0, "admittedWorkloads": 0}
    for workload in workloads:
        if condition_is(workload, "Finished", "True"):
            continue
        if not reserving(workload):
            counts["pendingWorkloads"] += 1
            continue
        admitted = condition_is(workload, "Admitted", "True")
        counts["reservingWorkloads"] += 1
        counts["admittedWorkloads"] += admitted
        for flavor, resource, value in usage_of(workload):
            reserved[flavor, resource] = reserved.get((flavor, resource), 0) + value
            if admitted:
                used[flavor, resource] = used.get((flavor, resource), 0) + value
    return {**counts, "flavorsReservation": _figures(queue, reserved), "flavorsUsage": _figures(queue, used)}


def usage_of(workload: Mapping[str, Any]) -> Iterable[tuple[str, str, int]]:
    """Yield (flavor, resource, thousandths) of a Workload's admission."""
    for assignment in as_maps(at(workload, "status", "admission", "podSetAssignments")):
        usage = as_map(assignment.get("resourceUsage"))
        for resource, flavor in as_map(assignment.get("flavors")).items():
            yield as_str(flavor), resource, milli(usage.get(resource))


def _figures(queue: Mapping[str, Any], held: Mapping[tuple[str, str], int]) -> list[dict[str, Any]]:
    figures: dict[str, dict[str, int]] = {}
    for group in as_maps(at(queue, "spec", "resourceGroups")):
        for flavor in as_maps(group.get("flavors")):
            name = as_str(flavor.get("name"))
            figures[name] = {
                as_str(r.get("name")): held.get((name, as_str(r.get("name"))), 0)
                for r in as_maps(flavor.get("resources"))
            }
    for (name, resource), value in held.items():
        figures.setdefault(name, {})[resource] = value
    return [
        {
            "name": name,
            "resources": [{"name": r, "total": quantity_text(v), "borrowed": "0"} for r, v in figure.items()],
        }
        for name, figure in figures.items()
    ]


def quantity_text(thousandths: int) -> str:
    """Return plain decimal text, whole when it is whole."""
    return str(thousandths // 1000) if thousandths % 1000 == 0 else f"{thousandths}m"
