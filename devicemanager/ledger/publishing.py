"""Publishes who holds which card: `Devices.status` of the node (spec 06 §6).

For: the agent's process, of one node or of a fleet. In: the nodes' ledgers, the kubelets' word. Out: their status.
Trusts: Pods' records as far as `api.ledger.evidence` bears them out, and the kubelet.
Promises:
  - rebuilt wholesale from Pods, written only where the meaning differs: one write an allocation, none settled;
  - a write decided on an old object is refused by the server and decided again;
  - what the kubelet says is held and no record accounts for stays charged, and is said in the condition `LedgerTrusted`
    once it has lasted for two looks; a Pod that is just going never gets that far;
  - whoever follows the live Pods (reclaimers) hears of them only after a complete look.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

from api.devices import status_groups
from api.ledger.transport import ALLOCATED_ANNOTATION
from devicemanager.ledger.accounts import is_terminal
from devicemanager.ledger.kubelet_word import Kubelet
from devicemanager.ledger.node_ledger import PODS_BY_NODE, NodeLedger, Snapshot
from devicemanager.publisher.plan import patch_of
from kube.client import Client
from kube.clock import Clock, second_time
from kube.errors import NotFound
from kube.reconciler import DONE, After, Caches, Index, Key, Object, Outcome, Rule, Watch
from nodefeature.fields import annotations_of, as_maps, as_str, at, is_deleting, name_of
from nodefeature.kinds import DEVICES, POD, Kind

log = logging.getLogger(__name__)

CONDITION = "LedgerTrusted"
_MESSAGE = 1024
_FIRST_LOOK_S = 0.2
_SLOWEST_LOOK_S = 10.0

LivePods = Callable[[str, frozenset[str]], Awaitable[None]]
"""(node, uids of its Pods)."""


def _of_devices(old: Object | None, new: Object | None, _: Caches) -> Iterable[Key]:
    return [Key(name_of(new if new is not None else old))]


def _of_pod(old: Object | None, new: Object | None, _: Caches) -> Iterable[Key]:
    nodes = {as_str(at(pod, "spec", "nodeName")) for pod in (old, new) if pod is not None} - {""}
    return [Key(node) for node in nodes] if _state(old) != _state(new) else []


def _state(pod: Object | None) -> tuple[object, ...] | None:
    """Return what of a Pod the ledger, or a reclaimer, depends on."""
    if pod is None:
        return None
    return (
        annotations_of(pod).get(ALLOCATED_ANNOTATION),
        is_terminal(pod),
        is_deleting(pod),
        at(pod, "spec", "nodeName"),
    )


class LedgerPublisher:
    """Reconciles the status of a node's Devices object. State: how often a disagreement was seen, what was logged."""

    NAME: ClassVar[str] = "gpustack-device-ledger"
    WATCHES: ClassVar[tuple[Watch, ...]] = (Watch(DEVICES, _of_devices), Watch(POD, _of_pod))
    READS: ClassVar[tuple[Kind, ...]] = ()
    INDEXES: ClassVar[tuple[Index, ...]] = (PODS_BY_NODE,)
    RBAC: ClassVar[tuple[Rule, ...]] = (
        Rule(DEVICES.group, DEVICES.plural, ("get", "list", "watch")),
        Rule(DEVICES.group, f"{DEVICES.plural}/status", ("patch",)),
        Rule(POD.group, POD.plural, ("get", "list", "watch", "patch")),
    )

    def __init__(
        self,
        client: Client,
        caches: Caches,
        clock: Clock,
        *,
        ledgers: Mapping[str, NodeLedger],
        kubelets: Mapping[str, Kubelet],
        live_pods: LivePods | None = None,
    ) -> None:
        self.writes = 0
        self._client = client
        self._caches = caches
        self._clock = clock
        self._ledgers = ledgers
        self._kubelets = kubelets
        self._live_pods = live_pods
        self._suspected: dict[str, tuple[int, frozenset[str]]] = {}
        self._said: dict[str, frozenset[str]] = {}

    async def reconcile(self, key: Key) -> Outcome:
        """Bring the status of one node to what its Pods hold."""
        ledger = self._ledgers.get(key.name)
        devices = self._caches[DEVICES].get(key)
        if ledger is None:
            return DONE
        ledger.wake()
        if devices is None:
            return DONE
        kubelet = self._kubelets.get(key.name)
        word = await kubelet.word() if kubelet else None
        alive = ledger.settle()
        found = ledger.snapshot(word)
        looks, lasting = self._suspect(key.name, frozenset(found.disagreements))
        self._say(key.name, found, lasting)
        await self._publish(key.name, devices, found, lasting)
        if self._live_pods is not None:
            await self._live_pods(key.name, alive)
        return After(min(_FIRST_LOOK_S * 2**looks, _SLOWEST_LOOK_S)) if found.disagreements else DONE

    async def _publish(self, node: str, devices: Object, found: Snapshot, lasting: Sequence[str]) -> None:
        status: dict[str, Any] = {"groups": found.rebuilt.status["groups"]}
        stored = as_maps(at(devices, "status", "conditions"))
        conditions = conditions_with(stored, lasting, second_time(self._clock.time()))
        if conditions != stored:
            status["conditions"] = conditions
        plan = patch_of(devices, metadata={}, content={"status": status})
        if plan.patch is None:
            return
        try:
            await self._client.patch(DEVICES, node, plan.patch, subresource="status")
        except NotFound:
            return
        self.writes += 1
        log.info("ledger published", extra={"node": node, "held": held_cards(status_groups({"status": status}))})

    def _suspect(self, node: str, disagreements: frozenset[str]) -> tuple[int, list[str]]:
        """Return how many looks have disagreed in a row, and what has lasted since the look before."""
        looks, before = self._suspected.get(node, (0, frozenset()))
        if not disagreements:
            self._suspected.pop(node, None)
            return 0, []
        self._suspected[node] = (min(looks + 1, 16), disagreements)
        return looks, sorted(disagreements & before)

    def _say(self, node: str, found: Snapshot, lasting: Sequence[str]) -> None:
        problems = {str(problem) for problem in (*found.problems, *found.rebuilt.problems)} | set(lasting)
        for problem in sorted(problems - self._said.get(node, frozenset())):
            log.error("record not believed", extra={"node": node, "reason": problem})
        self._said[node] = frozenset(problems)


def conditions_with(stored: Sequence[Mapping[str, Any]], lasting: Sequence[str], now: str) -> list[Mapping[str, Any]]:
    """Return conditions with ours set; while all has always been well there is none."""
    old = next((condition for condition in stored if condition.get("type") == CONDITION), None)
    if old is None and not lasting:
        return list(stored)
    new = {
        "type": CONDITION,
        "status": "False" if lasting else "True",
        "reason": "KubeletDisagrees" if lasting else "Agreed",
        "message": "; ".join(lasting)[:_MESSAGE],
    }
    same = old is not None and old.get("status") == new["status"]
    new["lastTransitionTime"] = as_str(at(old, "lastTransitionTime")) if same else now
    others = [condition for condition in stored if condition.get("type") != CONDITION]
    return sorted([*others, new], key=lambda condition: as_str(condition.get("type")))


def held_cards(groups: Iterable[Mapping[str, Any]]) -> int:
    """Return how many cards of a ledger somebody holds."""
    return sum(1 for group in groups for row in as_maps(group.get("accelerators")) if row.get("mode"))
