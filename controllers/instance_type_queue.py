"""The ClusterQueue behind an InstanceType: how it is born, what its labels say, and who may hold it.

For: instance_type (spec 04 §7: ensureClusterQueue, syncInactive).
In: an InstanceType, its queue's state, the awareness setting. Out: a new queue, label changes, one `HoldChange`.
Promises: pure; the spec of an existing queue is never aligned, only its stop policy between Hold and None; applying a
change and asking again changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from api.instance_type import HOLD, HOLD_AND_DRAIN
from controllers.queue_state import MIGRATION_STOP_POLICY, NONE, UNSET, QueueState
from nodefeature.fields import as_bool, as_str, at, labels_of, name_of
from nodefeature.kinds import CLUSTER_QUEUE
from nodefeature.labels import EMPTY_PLAN_HOLD, RESOURCE_TYPE, TRUE, TYPE_INSTANCE_TYPES
from nodefeature.pool import is_feature_key, pool_schedule_labels


@dataclass(frozen=True, slots=True)
class PoolIdentity:
    """Which hardware an InstanceType stands for."""

    acceleratable: bool
    general_group: str
    accelerator_group: str
    os: str
    arch: str


@dataclass(frozen=True, slots=True)
class HoldChange:
    """At most one write: on the queue (policy, annotations) or on the type (`inactive`)."""

    policy: str | None = None
    annotations: Mapping[str, str | None] = field(default_factory=dict)
    inactive: bool = False
    """True: set `spec.inactive` of the type."""

    def __bool__(self) -> bool:
        return self.policy is not None or bool(self.annotations) or self.inactive


STABLE = HoldChange()


def identity_of(instance_type: Mapping[str, Any]) -> PoolIdentity:
    """Return the pool of an InstanceType."""
    spec = at(instance_type, "spec")
    return PoolIdentity(
        acceleratable=as_bool(at(spec, "acceleratable")),
        general_group=as_str(at(spec, "generalGroup")),
        accelerator_group=as_str(at(spec, "acceleratorGroup")),
        os=as_str(at(spec, "os")),
        arch=as_str(at(spec, "arch")),
    )


def schedule_labels(pool: PoolIdentity, *, aware: bool) -> dict[str, str]:
    """Return the labels that select the pool's flavors."""
    return pool_schedule_labels(
        acceleratable=pool.acceleratable,
        cpu_aware=aware,
        general_group=pool.general_group,
        accelerator_group=pool.accelerator_group,
        os=pool.os,
        arch=pool.arch,
    )


def new_queue(instance_type: Mapping[str, Any], *, aware: bool) -> dict[str, Any]:
    """Return the queue of a type that has none: isolated, and held until the first plan is written."""
    labels = schedule_labels(identity_of(instance_type), aware=aware)
    return {
        "apiVersion": CLUSTER_QUEUE.api_version,
        "kind": CLUSTER_QUEUE.kind,
        "metadata": {
            "name": name_of(instance_type),
            "labels": {**labels, RESOURCE_TYPE: TYPE_INSTANCE_TYPES},
            "annotations": {EMPTY_PLAN_HOLD: TRUE},
        },
        "spec": {
            "namespaceSelector": {},
            "stopPolicy": HOLD,
            "flavorFungibility": {"whenCanBorrow": "TryNextFlavor", "whenCanPreempt": "MayStopSearch"},
            "preemption": {
                "reclaimWithinCohort": "Never",
                "borrowWithinCohort": {"policy": "Never"},
                "withinClusterQueue": "LowerPriority",
            },
        },
    }


def label_changes(queue: Mapping[str, Any], wanted: Mapping[str, str]) -> dict[str, str | None]:
    """Return the labels to set, and (as None) the feature keys to take away; other labels stay."""
    current, target = labels_of(queue), {**wanted, RESOURCE_TYPE: TYPE_INSTANCE_TYPES}
    changes: dict[str, str | None] = {key: None for key in current if is_feature_key(key) and key not in target}
    return changes | {key: value for key, value in target.items() if current.get(key) != value}


def sync_inactive(state: QueueState, *, inactive: bool) -> HoldChange:
    """Return the one change that brings the stop policy and `spec.inactive` together (spec 04 §7, table)."""
    if state.migrating:
        return _sync_saved(state, inactive=inactive)
    marked = state.annotation(EMPTY_PLAN_HOLD) == TRUE
    if state.stop_policy == HOLD_AND_DRAIN:
        return STABLE if inactive else HoldChange(inactive=True)
    if state.stop_policy == HOLD:
        if inactive:
            # The administrator adopts the hold: it now outlives the first plan.
            return HoldChange(annotations={EMPTY_PLAN_HOLD: None}) if marked else STABLE
        if marked:
            return STABLE
        return HoldChange(policy=NONE) if state.groups else HoldChange(annotations={EMPTY_PLAN_HOLD: TRUE})
    return HoldChange(policy=HOLD) if inactive else STABLE


def _sync_saved(state: QueueState, *, inactive: bool) -> HoldChange:
    """During a migration the wish goes into the stop policy that the migration will restore."""
    saved = state.annotation(MIGRATION_STOP_POLICY)
    if inactive and saved in (NONE, UNSET):
        return HoldChange(annotations={MIGRATION_STOP_POLICY: HOLD})
    if not inactive and saved == HOLD:
        return HoldChange(annotations={MIGRATION_STOP_POLICY: NONE})
    return STABLE
