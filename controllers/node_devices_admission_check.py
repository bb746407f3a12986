"""node_devices_admission_check: declares gate 3's AdmissionCheck usable (spec 04 §10.1).

For: Kueue, which stops a queue whose check is not Active; node_queue, which refers to active checks only.
In: AdmissionChecks. Out: condition `Active` on those that name our controller.
Promises: checks of other controllers are never touched; a check that is Active gets no write.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any, ClassVar

from controllers.queue_checks import NODE_DEVICES_CONTROLLER, is_active
from kube.client import Client
from kube.clock import Clock, second_time
from kube.reconciler import DONE, Caches, Index, Key, Object, Outcome, Rule, Watch
from nodefeature.fields import as_int, as_maps, at, is_deleting, name_of
from nodefeature.kinds import ADMISSION_CHECK, Kind

log = logging.getLogger(__name__)

_MESSAGE = "each Pod's cards are looked for on one node"


def _ours(old: Object | None, new: Object | None, caches: Caches) -> Iterable[Key]:
    return (Key(name_of(new)),) if at(new, "spec", "controllerName") == NODE_DEVICES_CONTROLLER else ()


class NodeDevicesAdmissionCheck:
    """Keeps the condition of one check."""

    NAME: ClassVar[str] = "node_devices_admission_check"
    WATCHES: ClassVar[tuple[Watch, ...]] = (Watch(ADMISSION_CHECK, _ours),)
    READS: ClassVar[tuple[Kind, ...]] = ()
    INDEXES: ClassVar[tuple[Index, ...]] = ()
    RBAC: ClassVar[tuple[Rule, ...]] = (
        Rule("kueue.x-k8s.io", "admissionchecks", ("get", "list", "watch")),
        Rule("kueue.x-k8s.io", "admissionchecks/status", ("patch",)),
    )

    def __init__(self, client: Client, caches: Caches, *, clock: Clock) -> None:
        self.client = client.as_manager("gpustack-node-devices-check")
        self.caches = caches
        self.clock = clock

    async def reconcile(self, key: Key) -> Outcome:
        """Set the condition when it does not hold."""
        check = self.caches[ADMISSION_CHECK].get(key)
        if check is None or is_deleting(check) or is_active(check):
            return DONE
        if at(check, "spec", "controllerName") != NODE_DEVICES_CONTROLLER:
            return DONE
        version = at(check, "metadata", "resourceVersion")
        body = {"metadata": {"resourceVersion": version}, "status": {"conditions": self._conditions(check)}}
        await self.client.patch(ADMISSION_CHECK, key.name, body, subresource="status")
        log.info("admission check is active", extra={"kind": "AdmissionCheck", "object": key.name})
        return DONE

    def _conditions(self, check: Object) -> list[Any]:
        others = [c for c in as_maps(at(check, "status", "conditions")) if c.get("type") != "Active"]
        active = {
            "type": "Active",
            "status": "True",
            "reason": "Ready",
            "message": _MESSAGE,
            "observedGeneration": as_int(at(check, "metadata", "generation")),
            "lastTransitionTime": second_time(self.clock.time()),
        }
        return [*others, active]
