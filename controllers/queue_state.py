"""What a ClusterQueue says: its plan, its stop policy, what it holds, and what Kueue last observed of it.

For: instance_type and node_queue, the two writers of a ClusterQueue (spec 04 §2, §7, §8).
In: a raw ClusterQueue, possibly half empty or edited by hand. Out: `QueueState`, a frozen value decisions read.
Promises: never raises; two spellings of the same plan (quantity text, null versus absent) read as equal states.
Trusts: whoever may write ClusterQueues (us, Kueue, administrators); tenants may not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from api.instance_type import HOLD
from nodefeature.fields import annotations_of, as_int, as_map, as_maps, as_str, at, is_deleting, name_of
from nodefeature.labels import EMPTY_PLAN_HOLD, TOPOLOGY_PREFIX, TRUE
from nodefeature.quantity import QuantityInvalid, parse_quantity, quantity_or_zero

TAS_QUEUE = TOPOLOGY_PREFIX + "tas-queue"
MIGRATION_PHASE = TOPOLOGY_PREFIX + "migration-phase"
MIGRATION_STOP_POLICY = TOPOLOGY_PREFIX + "migration-stop-policy"
QUEUE_ANNOTATIONS = (TAS_QUEUE, MIGRATION_PHASE, MIGRATION_STOP_POLICY, EMPTY_PLAN_HOLD)

DRAINING = "draining"
SWITCHED = "switched"

NONE = "None"
UNSET = "unset"
"""How a saved stop policy says that the field was absent."""

TOPOLOGY_READY = "TopologyReady"
ACTIVE = "Active"
STOPPED = "Stopped"

_UNREADABLE = -1
"""Stands for a quota nobody can read; equal to no quota of ours."""


class ResourceQuota(NamedTuple):
    """Quota of one resource in one flavor, in billionths; `limits` are the texts of borrowing and lending limits."""

    resource: str
    nano: int
    limits: tuple[str, str] = ("", "")


class FlavorQuotas(NamedTuple):
    """Quotas of one flavor."""

    flavor: str
    resources: tuple[ResourceQuota, ...]


class Group(NamedTuple):
    """One resource group."""

    covered: tuple[str, ...]
    flavors: tuple[FlavorQuotas, ...]


class Check(NamedTuple):
    """Reference to an AdmissionCheck; no flavors means all of them."""

    name: str
    flavors: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition; `status` is empty when the condition is absent."""

    status: str = ""
    reason: str = ""
    message: str = ""
    generation: int = 0


@dataclass(frozen=True, slots=True)
class Usage:
    """What Kueue reports as held: flavors listed at all, and flavors with a non-zero figure."""

    listed: frozenset[str] = frozenset()
    held: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class QueueState:
    """A ClusterQueue as decisions see it."""

    name: str
    generation: int = 0
    deleting: bool = False
    policy: str = ""
    """Empty when the field is absent; `stop_policy` reads that as `None`."""
    groups: tuple[Group, ...] = ()
    checks: tuple[Check, ...] = ()
    annotations: tuple[tuple[str, str], ...] = ()
    """Only ours, see QUEUE_ANNOTATIONS."""
    workloads: bool = False
    """Some workload reserves or is admitted."""
    reservation: Usage = Usage()
    usage: Usage = Usage()
    active: Condition = Condition()
    topology_ready: Condition = Condition()

    @property
    def stop_policy(self) -> str:
        """Return the stop policy in effect."""
        return self.policy or NONE

    @property
    def reserved(self) -> bool:
        """Say whether anything is held; pending workloads hold nothing."""
        return self.workloads or bool(self.reservation.held)

    @property
    def observed(self) -> bool:
        """Say whether Kueue's status speaks of the current generation."""
        return bool(self.active.status) and self.active.generation == self.generation

    @property
    def stopped(self) -> bool:
        """Say whether Kueue has seen the current stop policy and stopped the queue."""
        return self.observed and self.active.status == "False" and self.active.reason == STOPPED

    @property
    def flavors(self) -> frozenset[str]:
        """Return the names of the flavors in the groups."""
        return frozenset(quotas.flavor for group in self.groups for quotas in group.flavors)

    def annotation(self, key: str) -> str:
        """Return one of our annotations, empty when absent."""
        return dict(self.annotations).get(key, "")

    @property
    def marked_hold(self) -> bool:
        """Say whether the Hold is ours: the queue has no plan to admit by."""
        return self.stop_policy == HOLD and self.annotation(EMPTY_PLAN_HOLD) == TRUE

    @property
    def migrating(self) -> bool:
        """Say whether a plan change is under way."""
        return MIGRATION_PHASE in dict(self.annotations)

    def in_use(self, flavor: str) -> bool:
        """Say whether a flavor holds something, or Kueue does not say that it holds nothing."""
        held = flavor in self.reservation.held or flavor in self.usage.held
        return held or flavor not in self.reservation.listed or flavor not in self.usage.listed


def read_queue(queue: Mapping[str, Any]) -> QueueState:
    """Return the state of a raw ClusterQueue."""
    spec, status = as_map(queue.get("spec")), as_map(queue.get("status"))
    annotations = annotations_of(queue)
    return QueueState(
        name=name_of(queue),
        generation=as_int(at(queue, "metadata", "generation")),
        deleting=is_deleting(queue),
        policy=as_str(spec.get("stopPolicy")),
        groups=tuple(_read_group(group) for group in as_maps(spec.get("resourceGroups"))),
        checks=tuple(
            Check(as_str(check.get("name")), _strings(check.get("onFlavors")))
            for check in as_maps(at(spec, "admissionChecksStrategy", "admissionChecks"))
        ),
        annotations=tuple((key, annotations[key]) for key in QUEUE_ANNOTATIONS if key in annotations),
        workloads=as_int(status.get("reservingWorkloads")) != 0 or as_int(status.get("admittedWorkloads")) != 0,
        reservation=_read_usage(status.get("flavorsReservation")),
        usage=_read_usage(status.get("flavorsUsage")),
        active=_read_condition(status, ACTIVE),
        topology_ready=_read_condition(status, TOPOLOGY_READY),
    )


def reserved_nano(queue: Mapping[str, Any], resource: str) -> int:
    """Return how much of a resource the queue's workloads reserve, in billionths."""
    return sum(
        quantity_or_zero(used.get("total")).nano
        for flavor in as_maps(at(queue, "status", "flavorsReservation"))
        for used in as_maps(flavor.get("resources"))
        if used.get("name") == resource
    )


def _read_group(group: Mapping[str, Any]) -> Group:
    return Group(
        covered=_strings(group.get("coveredResources")),
        flavors=tuple(
            FlavorQuotas(
                flavor=as_str(quotas.get("name")),
                resources=tuple(_read_quota(quota) for quota in as_maps(quotas.get("resources"))),
            )
            for quotas in as_maps(group.get("flavors"))
        ),
    )


def _read_quota(quota: Mapping[str, Any]) -> ResourceQuota:
    try:
        nano = parse_quantity(quota.get("nominalQuota")).nano
    except QuantityInvalid:
        nano = _UNREADABLE
    limits = (_limit_text(quota.get("borrowingLimit")), _limit_text(quota.get("lendingLimit")))
    return ResourceQuota(as_str(quota.get("name")), nano, limits)


def _limit_text(value: object) -> str:
    return "" if value is None else str(value)


def _read_usage(value: object) -> Usage:
    flavors = as_maps(value)
    held = [flavor for flavor in flavors if any(_holds(used) for used in as_maps(flavor.get("resources")))]
    return Usage(
        listed=frozenset(as_str(flavor.get("name")) for flavor in flavors),
        held=frozenset(as_str(flavor.get("name")) for flavor in held),
    )


def _holds(used: Mapping[str, Any]) -> bool:
    return bool(quantity_or_zero(used.get("total"))) or bool(quantity_or_zero(used.get("borrowed")))


def _read_condition(status: Mapping[str, Any], kind: str) -> Condition:
    for condition in as_maps(status.get("conditions")):
        if condition.get("type") == kind:
            return Condition(
                status=as_str(condition.get("status")),
                reason=as_str(condition.get("reason")),
                message=as_str(condition.get("message")),
                generation=as_int(condition.get("observedGeneration")),
            )
    return Condition()


def _strings(value: object) -> tuple[str, ...]:
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()
