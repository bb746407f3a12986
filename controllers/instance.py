"""instance: from a person's Instance to its Pod and Service, and back to its status (spec 05 §8-§10).

For: people, who read the status, wait for its conditions and look at its Events.
In: Instances, their Pods, Services and Workloads, the type and queue of their pool, nodes, settings.
Out: one Pod an Instance, one Service if it has ports, the Instance's status, `spec.stop` when the pool drains, Events.
Promises:
- a Pod is created once and replaced only when it is gone, or was refused by its kubelet while the Instance is young;
- a Pod of somebody else's that has the Instance's name is neither taken over nor deleted, and is named;
- an Instance goes only after its Pod has gone, whoever collects garbage: a card is never left behind;
- a stop that the pool forces is two writes, the status first, so that the webhook lets a starting Instance be stopped;
- the status is written when its meaning differs, never otherwise; killed anywhere, the next run goes on from there.
Trusts: see the modules it asks (`instance_pod`, `instance_status`, `instance_placement`).
State: when a Pod that was refused may be built anew; lost with the process, and then it is built at once.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, ClassVar

from api.instance import DELETING, STARTING, STOPPING
from api.instance_conditions import EventReason, Reason
from api.instance_type import Phase
from controllers.instance_events import Step, steps_between
from controllers.instance_lookups import Lookups
from controllers.instance_placement import RBAC as PLACEMENT_RBAC
from controllers.instance_pod import PodFacts, is_own_pod, render_pod, variables_left_out
from controllers.instance_progress import was_rejected
from controllers.instance_rules import rebuild_pause_s, stop_reason, tells_of_a_pod, type_lacks
from controllers.instance_services import SERVICE_RBAC, Services
from controllers.instance_status import (
    Status,
    World,
    leaving_status,
    running_status,
    starting_status,
    stopped_status,
    waiting_status,
)
from controllers.instance_watches import INDEXES, WATCHES
from controllers.settings import LiveSettings
from kube.client import Client
from kube.clock import Clock, second_time
from kube.errors import AlreadyExists, BadRequest, Conflict, Forbidden, Invalid, NotFound, Terminal
from kube.events import RULE as EVENT_RULE
from kube.events import EventRecorder
from kube.meaning import meaning_differs
from kube.reconciler import DONE, After, Caches, Index, Key, Object, Outcome, Rule, Watch
from nodefeature.fields import as_bool, as_int, as_list, as_map, at, is_deleting, name_of, namespace_of, uid_of
from nodefeature.kinds import DEVICES, INSTANCE, NODE, POD, Kind
from nodefeature.labels import LOCKED, SYSTEM_NAMESPACE
from nodefeature.manufacturers import Manufacturers

log = logging.getLogger(__name__)

GOING = After(2.0)
"""A Pod or Service is on its way out, or a node port on its way in; the watch usually comes first."""
VOLUMES_S = 5.0
TYPE_S = 30.0
REFUSED_S = 30.0
PENDING = "Pending"


class Instance:
    """Reconciles one Instance."""

    NAME: ClassVar[str] = "instance"
    WATCHES: ClassVar[tuple[Watch, ...]] = WATCHES
    READS: ClassVar[tuple[Kind, ...]] = (NODE, DEVICES)
    INDEXES: ClassVar[tuple[Index, ...]] = INDEXES
    RBAC: ClassVar[tuple[Rule, ...]] = (
        Rule("worker.gpustack.ai", "instances", ("list", "watch", "patch")),
        Rule("worker.gpustack.ai", "instances/status", ("update",)),
        # Without these, a cluster with owner-reference admission on refuses the controller references.
        Rule("worker.gpustack.ai", "instances/finalizers", ("update",)),
        Rule("", "pods/finalizers", ("update",)),
        Rule("", "pods", ("get", "list", "watch", "create", "delete")),
        Rule("worker.gpustack.ai", "instancetypes", ("get", "list", "watch")),
        Rule("kueue.x-k8s.io", "clusterqueues", ("list", "watch")),
        Rule("kueue.x-k8s.io", "workloads", ("list", "watch")),
        Rule("", "secrets", ("list", "watch"), SYSTEM_NAMESPACE),
        Rule("worker.gpustack.ai", "devices", ("list", "watch")),
        Rule("", "nodes", ("get", "list", "watch")),
        Rule("node.k8s.io", "runtimeclasses", ("get",)),
        EVENT_RULE,
        *SERVICE_RBAC,
        *PLACEMENT_RBAC,
    )

    def __init__(
        self, client: Client, caches: Caches, *, settings: LiveSettings, manufacturers: Manufacturers, clock: Clock
    ) -> None:
        self.client = client.as_manager("gpustack-instance")
        self.caches = caches
        self.settings = settings
        self.manufacturers = manufacturers
        self.clock = clock
        self.events = EventRecorder(self.client, clock, INSTANCE)
        self.look = Lookups(self.client, caches)
        self.services = Services(self.client, caches, self.events)
        self._not_before: dict[Key, float] = {}

    async def reconcile(self, key: Key) -> Outcome:
        """Bring one Instance's Pod, Service and status to where they should be; the first rule that fits wins."""
        instance = self.caches[INSTANCE].get(key)
        if instance is None:
            self._not_before.pop(key, None)
            self.services.forget(key)
            return DONE
        if is_deleting(instance):
            return await self._release(instance)
        instance = await self._locked(instance)
        cached = self.caches[POD].get(key)
        pod = cached if cached is None or is_own_pod(instance, cached) else await self.look.own_pod(instance)
        if as_bool(at(instance, "spec", "stop")):
            return await self._stop(instance, pod)
        instance_type = await self.look.type_of(instance)
        why = stop_reason(instance, instance_type, self.look.queue_of(instance))
        if instance_type is None or why:
            return await self._drain(instance, pod, why)
        if pod is None:
            if cached is not None:
                return await self._taken(instance, cached)
            return await self._create(instance, instance_type)
        pause_s = rebuild_pause_s(instance, pod) if was_rejected(pod) else None
        if pause_s is not None:
            return await self._rebuild(instance, pod, pause_s)
        return await self._keep(instance, pod)

    # A life's end

    async def _release(self, instance: Object) -> Outcome:
        """Let a deleted Instance go once its Pod has gone; the server is asked, not the cache."""
        finalizers = as_list(at(instance, "metadata", "finalizers"))
        if LOCKED not in finalizers:
            return DONE
        pod = await self.look.own_pod(instance)
        if pod is None:
            try:
                await self._patch_finalizers(instance, [f for f in finalizers if f != LOCKED])
            except NotFound:
                return DONE  # gone already: the cache is behind
            log.info("instance released", extra={"kind": INSTANCE.kind})
            return DONE
        status = leaving_status(instance, DELETING, Reason.DELETING, "", self._now())
        await self._write(instance, status, pod)
        await self._delete_pod(pod)
        return GOING

    async def _stop(self, instance: Object, pod: Object | None) -> Outcome:
        """Delete the Pod; without one the Instance is stopped."""
        status = stopped_status(instance, self.settings.now(), self._now())
        if pod is None:
            if not meaning_differs(as_map(instance.get("status")), status):
                return DONE
            pod = await self.look.own_pod(instance)
        if pod is None:
            await self._write(instance, status, None)
            return DONE
        message = str(at(instance, "status", "phaseMessage") or "") if _is(instance, STOPPING) else ""
        await self._write(instance, leaving_status(instance, STOPPING, Reason.STOPPING, message, self._now()), pod)
        await self._delete_pod(pod)
        return GOING

    async def _drain(self, instance: Object, pod: Object | None, why: str) -> Outcome:
        """Stop an Instance whose pool drains or is gone: first the status says so, then the spec."""
        told = () if _is(instance, STOPPING) else (Step(EventReason.DRAINED, f"stopped: {why}", "Warning"),)
        status = leaving_status(instance, STOPPING, Reason.STOPPING, why, self._now())
        instance = await self._write(instance, status, pod, told)
        version = at(instance, "metadata", "resourceVersion")
        patch = {"metadata": {"resourceVersion": version}, "spec": {"stop": True}}
        try:
            await self.client.patch(INSTANCE, name_of(instance), patch, namespace_of(instance))
        except Invalid as refused:
            raise Terminal(f"the Instance cannot be stopped as it stands: {refused}") from refused
        log.info("instance stopped as its pool drains", extra={"kind": INSTANCE.kind, "reason": why})
        return DONE

    # A Pod's beginning

    async def _create(self, instance: Object, instance_type: Object) -> Outcome:
        """Create the Pod, or say what it waits for."""
        pause_s = self._not_before.get(_key(instance), 0.0) - self.clock.now()
        if pause_s > 0:
            return After(pause_s)
        lacking = type_lacks(instance_type)
        if lacking:
            # Pending, not Starting: what has not begun may be stopped (spec 05 §7.2).
            return await self._wait(instance, Phase(PENDING, lacking), Reason.INSTANCE_TYPE_NOT_READY, TYPE_S)
        placement = await self.look.placement(instance, restricts=self._places_volumes())
        if placement.waiting:
            phase = Phase(STARTING, placement.waiting)
            return await self._wait(instance, phase, Reason.VOLUME_NOT_READY, VOLUMES_S)
        if tells_of_a_pod(instance):
            instance = await self._write(instance, starting_status(instance, self.settings.now(), self._now()), None)
        facts = PodFacts(
            instance=instance,
            instance_type=instance_type,
            settings=self.settings.now(),
            registry=self.manufacturers,
            hostname=await self.look.hostname(instance),
            runtime_class=await self.look.runtime_class(instance_type, self.manufacturers),
            node_terms=placement.terms,
        )
        left_out = variables_left_out(as_map(at(instance, "spec")), instance_type)
        if left_out:
            message = f"variables that say which cards a container sees are left out: {', '.join(left_out)}"
            await self._tell(instance, None, Step(EventReason.VARIABLES_LEFT_OUT, message, "Warning"))
        return await self._post(instance, render_pod(facts))

    async def _post(self, instance: Object, pod: Object) -> Outcome:
        try:
            await self.client.create(POD, pod)
        except AlreadyExists:
            found = await self.look.pod(instance)  # our cache is behind, or the name is somebody else's
            return DONE if found is None or is_own_pod(instance, found) else await self._taken(instance, found)
        except NotFound:
            return DONE  # the namespace is gone
        except (Forbidden, Invalid, BadRequest) as refused:
            if "NamespaceTerminating" in refused.causes():
                return DONE
            phase = Phase(STARTING, f"the Pod was refused: {refused}")
            return await self._wait(instance, phase, Reason.POD_REFUSED, REFUSED_S)
        log.info("pod created", extra={"kind": POD.kind})
        return DONE

    async def _taken(self, instance: Object, pod: Object) -> Outcome:
        """Say that the Pod of the Instance's name is not its own; never touch it."""
        message = f'the Pod "{name_of(pod)}" is not this Instance\'s; delete it, or this Instance cannot run'
        return await self._wait(instance, Phase(PENDING, message), Reason.FOREIGN_POD, REFUSED_S)

    async def _wait(self, instance: Object, phase: Phase, reason: Reason, seconds: float) -> Outcome:
        await self._write(instance, waiting_status(instance, phase, reason, self.settings.now(), self._now()), None)
        return After(seconds)

    # A Pod's life

    async def _rebuild(self, instance: Object, pod: Object, pause_s: float) -> Outcome:
        """Take away a Pod that its kubelet refused; a new one follows after the pause."""
        if is_deleting(pod):
            return GOING
        self._not_before[_key(instance)] = self.clock.now() + pause_s
        said = as_map(pod.get("status")).get("message") or "no reason given"
        message = f"the node refused the Pod ({said}); a new one follows in {pause_s:.0f} s"
        await self._tell(instance, pod, Step(EventReason.REBUILT, message, "Warning"))
        await self._delete_pod(pod)
        return After(pause_s)

    async def _keep(self, instance: Object, pod: Object) -> Outcome:
        """Publish the ports, show what is."""
        service = await self.services.ensure(instance, pod)
        node = await self.look.node_of(pod)
        world = World(
            instance=instance,
            pod=pod,
            service=service.found,
            node=node,
            devices=self.look.devices_of(pod),
            workload=self.look.workload_of(pod),
            settings=self.settings.now(),
            registry=self.manufacturers,
            now=self._now(),
        )
        await self._write(instance, running_status(world), pod)
        if is_deleting(pod):
            return GOING
        return DONE if service.wait_s is None else After(service.wait_s)

    # Writing

    async def _write(
        self, instance: Object, status: Status, pod: Mapping[str, Any] | None, told: tuple[Step, ...] | None = None
    ) -> Object:
        """Store a status that differs, its Events first: what was told twice is told once (`kube.events`)."""
        stored = as_map(instance.get("status"))
        if not meaning_differs(stored, status):
            return instance
        for step in steps_between(stored, status["conditions"]) if told is None else told:
            await self._tell(instance, pod, step)
        return await self.client.update(INSTANCE, {**instance, "status": status}, subresource="status")

    async def _tell(self, instance: Object, pod: Mapping[str, Any] | None, step: Step) -> None:
        subject = uid_of(pod) or str(as_int(at(instance, "metadata", "generation")))
        await self.events.record(instance, step.reason, step.message, event_type=step.event_type, subject=subject)

    async def _locked(self, instance: Object) -> Object:
        finalizers = as_list(at(instance, "metadata", "finalizers"))
        return instance if LOCKED in finalizers else await self._patch_finalizers(instance, [*finalizers, LOCKED])

    async def _patch_finalizers(self, instance: Object, finalizers: list[Any]) -> Object:
        metadata = {"finalizers": finalizers, "resourceVersion": at(instance, "metadata", "resourceVersion")}
        return await self.client.patch(INSTANCE, name_of(instance), {"metadata": metadata}, namespace_of(instance))

    async def _delete_pod(self, pod: Object) -> None:
        if is_deleting(pod):
            return
        try:
            await self.client.delete(POD, name_of(pod), namespace_of(pod), uid=uid_of(pod))
        except (NotFound, Conflict):
            return  # gone already, or a namesake took its place
        log.info("pod deleted", extra={"kind": POD.kind})

    def _places_volumes(self) -> bool:
        return self.settings.now().instance_persistent_volume_placement

    def _now(self) -> str:
        return second_time(self.clock.time())


def _key(instance: Mapping[str, Any]) -> Key:
    return Key(name_of(instance), namespace_of(instance))


def _is(instance: Mapping[str, Any], phase: str) -> bool:
    return bool(at(instance, "status", "phase") == phase)
