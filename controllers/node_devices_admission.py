"""node_devices_admission: gate 3, the AdmissionCheck `gpustack-node-devices` (spec 04 §10; design §8.10).

For: Kueue, which admits a Workload with quota once its checks are Ready.
In: Workloads with a quota reservation, ledgers and Pods through `CardBook`. Out: the state of our check on a Workload.
Promises:
- Ready or Retry, never Rejected; Retry names model, family, role and the nearest miss;
- two Workloads judged in the same instant never share a card, whatever the caches show yet;
- nothing is written while a Workload is evicted, without reservation, inactive, finished or admitted (case B006): the
  verdict is applied to the very version it was decided on, to our element of the list alone;
- a Ready that stands is kept, its cards with it; a refused Workload is judged again only when a card was freed that
  could help it, and gets the same answer otherwise; one that mixes families is judged whenever it asks;
- nobody is preempted.
Trusts: Devices and allocation records (agents only), Kueue's status of Workloads. What tenants ask for is a demand.
State: promises and refusals, in `CardBook` and here; a restart reads or judges them again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from api.ledger.fit_words import (
    miss_message,
    ready_message,
    unassigned_message,
    unresolved_message,
    vanished_message,
)
from api.ledger.workload_fit import PodGroup
from controllers.admission_watches import (
    FLAVORS_BY_MODEL,
    WAITING,
    check_changed,
    devices_changed,
    pod_changed,
    workload_changed,
)
from controllers.card_book import CardBook
from controllers.card_claims import CHARGED_PODS, PODS_BY_CLAIMANT, WORKLOADS_BY_OWNER
from controllers.card_fleet import DEVICES_BY_MODEL, NODES_BY_HOSTNAME
from controllers.queue_checks import NODE_DEVICES_CONTROLLER
from controllers.workload_admission import Demands, check_states, may_be_judged
from kube.client import Client
from kube.clock import Clock, second_time
from kube.errors import ApiError
from kube.reconciler import DONE, After, Caches, Index, Key, Object, Outcome, Rule, Watch
from nodefeature.fields import as_str, at, name_of, uid_of
from nodefeature.kinds import ADMISSION_CHECK, DEVICES, NODE, POD, RESOURCE_FLAVOR, WORKLOAD, Kind
from nodefeature.manufacturers import Manufacturers

log = logging.getLogger(__name__)

RETRY_S = 30
FIELD_MANAGER = "gpustack-node-devices"
READY, RETRY = "Ready", "Retry"
_DEVICES_WINDOW_S = 0.2
_PODS_WINDOW_S = 0.5


@dataclass(frozen=True, slots=True)
class Verdict:
    """What our check says."""

    state: str
    message: str

    @property
    def delay_s(self) -> int | None:
        """Return how long Kueue waits before it tries again."""
        return RETRY_S if self.state == RETRY else None


@dataclass(frozen=True, slots=True)
class _Refusal:
    """A Retry, and what it was decided on."""

    uid: str
    groups: tuple[PodGroup, ...]
    serial: int
    verdict: Verdict


class NodeDevicesAdmission:
    """Judges one Workload. `judged` and `recalled` count verdicts that looked at cards, and that did not have to."""

    NAME: ClassVar[str] = "node_devices_admission"
    WATCHES: ClassVar[tuple[Watch, ...]] = (
        Watch(WORKLOAD, workload_changed),
        Watch(DEVICES, devices_changed, _DEVICES_WINDOW_S),
        Watch(POD, pod_changed, _PODS_WINDOW_S),
        Watch(ADMISSION_CHECK, check_changed),
    )
    READS: ClassVar[tuple[Kind, ...]] = (NODE, RESOURCE_FLAVOR)
    INDEXES: ClassVar[tuple[Index, ...]] = (
        CHARGED_PODS,
        DEVICES_BY_MODEL,
        FLAVORS_BY_MODEL,
        NODES_BY_HOSTNAME,
        PODS_BY_CLAIMANT,
        WAITING,
        WORKLOADS_BY_OWNER,
    )
    RBAC: ClassVar[tuple[Rule, ...]] = (
        Rule("kueue.x-k8s.io", "workloads", ("get", "list", "watch")),
        Rule("kueue.x-k8s.io", "workloads/status", ("patch",)),
        Rule("kueue.x-k8s.io", "admissionchecks", ("get", "list", "watch")),
        Rule("kueue.x-k8s.io", "resourceflavors", ("get", "list", "watch")),
        Rule("worker.gpustack.ai", "devices", ("get", "list", "watch")),
        Rule("", "nodes", ("get", "list", "watch")),
        Rule("", "pods", ("get", "list", "watch")),
    )

    def __init__(self, client: Client, caches: Caches, *, manufacturers: Manufacturers, clock: Clock) -> None:
        self.client = client.as_manager(FIELD_MANAGER)
        self.caches = caches
        self.clock = clock
        self.book = CardBook(caches, manufacturers)
        self.judged = 0
        self.recalled = 0
        self._refused: dict[Key, _Refusal] = {}

    async def reconcile(self, key: Key) -> Outcome:
        """Give a verdict when one is asked for and differs from what the Workload has."""
        names = self._our_checks()
        if not self._is_asked(key, names):
            return DONE
        await self.book.catch_up(names)
        # From here to the promise nobody else has a turn.
        workload = self.caches[WORKLOAD].get(key)
        if workload is None or not self._is_asked(key, names):
            return DONE
        self.book.refresh(names)
        verdict = self._judge(key, workload)
        body = verdict_body(workload, names, verdict, second_time(self.clock.time()))
        if body is not None:
            await self._write(key, body, verdict)
        return DONE if verdict.state == READY else After(RETRY_S)

    def _our_checks(self) -> list[str]:
        checks = self.caches[ADMISSION_CHECK].list()
        return [name_of(c) for c in checks if at(c, "spec", "controllerName") == NODE_DEVICES_CONTROLLER]

    def _is_asked(self, key: Key, names: Sequence[str]) -> bool:
        workload = self.caches[WORKLOAD].get(key)
        if workload is None:
            self._refused.pop(key, None)
            return False
        states = check_states(workload, names)
        return may_be_judged(workload) and any(state.get("state") != READY for state in states)

    def _judge(self, key: Key, workload: Object) -> Verdict:
        demands = self.book.demands(workload)
        lost = _without_place(demands)
        if lost is not None:
            self.book.withdraw(key)
            return lost
        known = self._refused.get(key)
        if known is not None and self._still_holds(known, workload, demands.groups):
            self.recalled += 1
            return known.verdict
        self.judged += 1
        found = self.book.fit(key, demands.groups)
        if found.miss is None:
            self._refused.pop(key, None)
            self.book.assume(key, workload, found.places)
            return Verdict(READY, ready_message(demands.groups))
        self.book.withdraw(key)
        verdict = Verdict(RETRY, miss_message(found.miss, self.book.promised_on(found.miss.node)))
        self._refused[key] = _Refusal(uid_of(workload), demands.groups, self.book.fleet.serial, verdict)
        return verdict

    def _still_holds(self, known: _Refusal, workload: Object, groups: Sequence[PodGroup]) -> bool:
        same = known.uid == uid_of(workload) and known.groups == groups
        if not same or _is_mixed(groups):
            return False
        return not any(self.book.fleet.freed_since(known.serial, group) for group in groups)

    async def _write(self, key: Key, body: Object, verdict: Verdict) -> None:
        try:
            await self.client.apply(WORKLOAD, body, subresource="status")
        except ApiError as refused:
            if refused.code < 500:
                self.book.withdraw(key)  # of any other failure we cannot know whether it was written
            raise
        extra = {"kind": "Workload", "object": str(key), "reason": verdict.message}
        log.info("workload may start" if verdict.state == READY else "workload must wait for cards", extra=extra)


def _is_mixed(groups: Sequence[PodGroup]) -> bool:
    """Say whether Pods may begin to fit though of nothing they ask for, each taken alone, there is more."""
    needs = [need for group in groups for need in group.needs]
    return len({(need.family, need.profile) for need in needs}) > 1 or not all(need.key for need in needs)


def _without_place(demands: Demands) -> Verdict | None:
    """Return the verdict on Pods of which the admission does not say where their cards are."""
    if demands.unassigned:
        return Verdict(RETRY, unassigned_message(demands.unassigned))
    if demands.vanished:
        return Verdict(RETRY, vanished_message(*zip(*demands.vanished, strict=True)))
    if demands.unresolved:
        return Verdict(RETRY, unresolved_message(*zip(*demands.unresolved, strict=True)))
    return None


def verdict_body(workload: Object, names: Sequence[str], verdict: Verdict, now: str) -> Object | None:
    """Return what to apply for all checks of ours on a Workload; None when it says so already."""
    states = check_states(workload, names)
    if all(_says(state, verdict) for state in states):
        return None
    meta = {key: at(workload, "metadata", key) for key in ("name", "namespace", "resourceVersion")}
    return {
        "metadata": {key: value for key, value in meta.items() if value is not None},
        "status": {"admissionChecks": [_state(state, verdict, now) for state in states]},
    }


def _says(state: Mapping[str, Any], verdict: Verdict) -> bool:
    said = (state.get("state"), as_str(state.get("message")))
    return said == (verdict.state, verdict.message) and (
        verdict.delay_s is None or state.get("requeueAfterSeconds") == verdict.delay_s
    )


def _state(state: Mapping[str, Any], verdict: Verdict, now: str) -> Object:
    same = state.get("state") == verdict.state
    said: Object = {
        "name": state.get("name"),
        "state": verdict.state,
        "message": verdict.message,
        "lastTransitionTime": as_str(state.get("lastTransitionTime")) if same else now,
    }
    return said | ({"requeueAfterSeconds": verdict.delay_s} if verdict.delay_s is not None else {})
