"""What to do with a queue: fill it, hold it, drain it, or lead it from one plan to another.

For: node_queue (spec 04 §8, its [TAS] part).
In: the queue's state, the plan, the reason against it, the settings. Out: `Decision`: the changed fields, the
TopologyReady verdict, and when to look again.
Promises:
- pure, and stable: applying a decision and asking again ends in a decision that changes nothing;
- a queue without a plan never admits: it is held, and the hold is marked as ours;
- a plan that drops a flavor somebody holds, or may hold, is written only after the queue has drained;
- an administrator's Hold or HoldAndDrain on a queue with quota is never lifted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from api.instance_type import HOLD, HOLD_AND_DRAIN
from controllers.queue_plan import RECHECK_S, Plan, Refusal
from controllers.queue_state import (
    DRAINING,
    MIGRATION_PHASE,
    MIGRATION_STOP_POLICY,
    NONE,
    SWITCHED,
    TAS_QUEUE,
    UNSET,
    Check,
    QueueState,
)
from kube.reconciler import DONE, After, Outcome
from nodefeature.labels import EMPTY_PLAN_HOLD, TRUE

STEP = After(5.0)
"""Between the steps of a migration, and while Kueue has not yet spoken of the current generation."""

WAIT_OUT = After(60.0)
"""Between looks at a queue whose workloads are waited out."""

READY = "Ready"
MIGRATING = "Migrating"
NO_FLAVORS = "NoFlavors"
AWAITING_QUEUE_STATUS = "AwaitingQueueStatus"
INVALID_MIGRATION_STATE = "InvalidMigrationState"

_SAVED = frozenset({NONE, HOLD, HOLD_AND_DRAIN, UNSET})


@dataclass(frozen=True, slots=True)
class Verdict:
    """The TopologyReady condition we want to see."""

    status: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Want:
    """What the queue should become, from today's flavors and settings."""

    plan: Plan
    refusal: Refusal | None = None
    checks: tuple[Check, ...] = ()
    drain_when_empty: bool = True


@dataclass(frozen=True, slots=True)
class Decision:
    """Changes to a queue: None and empty mean: leave it."""

    plan: Plan | None = None
    policy: str | None = None
    """`unset` takes the field away."""
    checks: tuple[Check, ...] | None = None
    annotations: Mapping[str, str | None] = field(default_factory=dict)
    verdict: Verdict | None = None
    outcome: Outcome = DONE


_READY = Verdict("True", READY, "every flavor names its topology and every node of the pool is counted once")


def decide(state: QueueState, want: Want) -> Decision:
    """Return what to change now."""
    if state.deleting:
        return Decision(policy=HOLD_AND_DRAIN if state.stop_policy != HOLD_AND_DRAIN else None)
    if state.migrating:
        return _settle(state, _migrate(state, want))
    if not want.plan.quotas:
        return _settle(state, _empty(state, want))
    if want.refusal is not None:
        return _settle(state, _refuse(state, want.refusal))
    return _settle(state, _fill(state, want))


def _settle(state: QueueState, decision: Decision) -> Decision:
    """Drop what the queue already has, so that equal is never written again."""
    current = dict(state.annotations)
    policy = decision.policy
    # An absent stop policy is served as None by Kueue's own default.
    same_policy = policy is not None and (NONE if policy == UNSET else policy) == state.stop_policy
    return replace(
        decision,
        plan=None if decision.plan is not None and decision.plan.groups == state.groups else decision.plan,
        policy=None if same_policy else policy,
        checks=None if decision.checks == state.checks else decision.checks,
        annotations={k: v for k, v in decision.annotations.items() if current.get(k) != v},
    )


def _fill(state: QueueState, want: Want) -> Decision:
    """Write the plan in place, or start a migration when it drops a flavor that is in use."""
    dropped = sorted(state.flavors - want.plan.flavors)
    if dropped and not state.observed:
        return Decision(verdict=_awaiting(dropped), outcome=STEP)
    in_use = [flavor for flavor in dropped if state.in_use(flavor)]
    if in_use:
        return _start_migration(state, HOLD_AND_DRAIN, _migrating(in_use))
    return Decision(
        plan=want.plan,
        policy=_policy_after_fill(state),
        checks=want.checks,
        annotations={TAS_QUEUE: TRUE, EMPTY_PLAN_HOLD: None},
        verdict=_READY,
    )


def _policy_after_fill(state: QueueState) -> str | None:
    if state.marked_hold or (state.stop_policy == HOLD_AND_DRAIN and not state.groups):
        return NONE
    return None


def _refuse(state: QueueState, refusal: Refusal) -> Decision:
    """Keep the old plan and say why; without an old plan, hold."""
    decision = Decision(
        verdict=Verdict("False", refusal.reason, refusal.message),
        outcome=After(refusal.recheck_s) if refusal.recheck_s else DONE,
    )
    return _hold_unplanned(state, decision)


def _empty(state: QueueState, want: Want) -> Decision:
    """No flavor is left: drain (or wait), then empty and hold."""
    if not state.groups:
        return _hold_unplanned(state, Decision(verdict=_no_flavors()))
    if want.drain_when_empty:
        return _start_migration(state, HOLD_AND_DRAIN, _migrating(sorted(state.flavors)))
    if state.reserved or not state.observed:
        waiting = "no flavor is left; waiting for its workloads to end before the queue is emptied"
        return Decision(verdict=Verdict("False", NO_FLAVORS, waiting), outcome=WAIT_OUT)
    # Nothing is held, and nothing may be evicted: keep new workloads out while the groups go.
    return _start_migration(state, HOLD, _migrating(sorted(state.flavors)))


def _hold_unplanned(state: QueueState, decision: Decision) -> Decision:
    """Hold a queue that has nothing to admit by; Kueue admits everything to a queue without resource groups."""
    if state.groups or state.stop_policy != NONE:
        return decision
    return replace(decision, policy=HOLD, annotations={EMPTY_PLAN_HOLD: TRUE})


def _start_migration(state: QueueState, policy: str, verdict: Verdict) -> Decision:
    saved = NONE if state.marked_hold else state.policy or UNSET
    annotations = {MIGRATION_PHASE: DRAINING, MIGRATION_STOP_POLICY: saved, EMPTY_PLAN_HOLD: None}
    stronger = state.stop_policy if state.stop_policy == HOLD_AND_DRAIN else policy
    return Decision(policy=stronger, annotations=annotations, verdict=verdict, outcome=STEP)


def _migrate(state: QueueState, want: Want) -> Decision:
    """Take the next step of a migration (spec 04 §8, steps 2-5)."""
    phase, saved = state.annotation(MIGRATION_PHASE), state.annotation(MIGRATION_STOP_POLICY)
    if phase not in (DRAINING, SWITCHED) or saved not in _SAVED:
        message = (
            f"annotations say phase {phase!r} and saved stop policy {saved!r}; set {MIGRATION_PHASE} to "
            f"{DRAINING} or {SWITCHED} and {MIGRATION_STOP_POLICY} to one of {', '.join(sorted(_SAVED))}"
        )
        return Decision(verdict=Verdict("False", INVALID_MIGRATION_STATE, message), outcome=After(RECHECK_S))
    if state.stop_policy == NONE:
        return Decision(policy=HOLD_AND_DRAIN, verdict=_held_by_us(want), outcome=STEP)
    if want.plan.quotas and want.refusal is not None:
        verdict = Verdict("False", want.refusal.reason, want.refusal.message)
        return Decision(verdict=verdict, outcome=After(want.refusal.recheck_s or RECHECK_S))
    if phase == DRAINING:
        return _while_draining(state, want, saved)
    return _while_switched(state, want, saved)


def _while_draining(state: QueueState, want: Want, saved: str) -> Decision:
    dropped = state.flavors - want.plan.flavors
    if not dropped and want.plan.quotas:
        # The flavors are back before anything was switched: nobody needs to leave.
        return _restore(want, saved)
    if not state.stopped or state.reserved:
        if state.reserved and state.stop_policy == HOLD and (want.plan.quotas or want.drain_when_empty):
            return Decision(policy=HOLD_AND_DRAIN, verdict=_migrating(sorted(dropped)), outcome=STEP)
        return Decision(verdict=_migrating(sorted(dropped)), outcome=STEP)
    return _switch(want)


def _while_switched(state: QueueState, want: Want, saved: str) -> Decision:
    settled = state.stopped and not state.reserved
    if want.plan.groups != state.groups:
        return _switch(want) if settled else Decision(verdict=_held_by_us(want), outcome=STEP)
    if not want.plan.quotas:
        return Decision(verdict=_no_flavors())
    return _restore(want, saved) if settled else Decision(verdict=_held_by_us(want), outcome=STEP)


def _switch(want: Want) -> Decision:
    """Write the new groups while nothing runs; the hold ends one step later, when Kueue has seen them."""
    return Decision(
        plan=want.plan,
        checks=want.checks,
        annotations={TAS_QUEUE: TRUE, MIGRATION_PHASE: SWITCHED},
        verdict=_held_by_us(want),
        outcome=STEP if want.plan.quotas else DONE,
    )


def _restore(want: Want, saved: str) -> Decision:
    return Decision(
        plan=want.plan,
        policy=saved,
        checks=want.checks,
        annotations={TAS_QUEUE: TRUE, MIGRATION_PHASE: None, MIGRATION_STOP_POLICY: None, EMPTY_PLAN_HOLD: None},
        verdict=_READY,
    )


def _no_flavors() -> Verdict:
    return Verdict("False", NO_FLAVORS, "no flavor is left in the pool; the queue is held until one comes back")


def _held_by_us(want: Want) -> Verdict:
    if not want.plan.quotas:
        return _no_flavors()
    return Verdict("False", MIGRATING, "the queue changes to a new plan; it is held until Kueue has seen it")


def _migrating(flavors: list[str]) -> Verdict:
    return Verdict("False", MIGRATING, f"draining before {_listed(flavors)} leave the queue")


def _awaiting(flavors: list[str]) -> Verdict:
    message = f"waiting for Kueue's status of the current generation before {_listed(flavors)} leave the queue"
    return Verdict("Unknown", AWAITING_QUEUE_STATUS, message)


def _listed(flavors: list[str]) -> str:
    shown = ", ".join(flavors[:3])
    return f"flavors {shown}" + (f" and {len(flavors) - 3} more" if len(flavors) > 3 else "")
