"""Filling, holding, draining and migrating a queue (spec 04 §8, §14.6)."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from controllers.queue_migration import Decision, Want, decide
from controllers.queue_plan import Plan, Refusal
from controllers.queue_state import (
    MIGRATION_PHASE,
    MIGRATION_STOP_POLICY,
    TAS_QUEUE,
    UNSET,
    Check,
    Condition,
    QueueState,
    Usage,
)
from kube.reconciler import DONE, After
from nodefeature.labels import EMPTY_PLAN_HOLD

ONE = Plan("cpu", (("one", 4),))
TWO = Plan("cpu", (("one", 4), ("two", 8)))
OTHER = Plan("cpu", (("other", 4),))
NO_PLAN = Plan()
MARKED = ((EMPTY_PLAN_HOLD, "true"),)
TAS = ((TAS_QUEUE, "true"),)


def queue(plan: Plan = NO_PLAN, **fields: Any) -> QueueState:
    """Return a queue that Kueue has seen, whose flavors are listed and free."""
    listed = Usage(listed=plan.flavors)
    base = QueueState(
        name="q",
        generation=3,
        policy="None",
        groups=plan.groups,
        annotations=TAS if plan.quotas else (),
        reservation=listed,
        usage=listed,
        active=Condition("True", "Ready", "", 3),
    )
    return replace(base, **fields)


def stopped(generation: int = 3) -> Condition:
    return Condition("False", "Stopped", "", generation)


def migrating(plan: Plan, phase: str, saved: str = "None", **fields: Any) -> QueueState:
    annotations = (*(TAS if plan.quotas else ()), (MIGRATION_PHASE, phase), (MIGRATION_STOP_POLICY, saved))
    return queue(plan, **{"policy": "HoldAndDrain", "annotations": annotations, "active": stopped(), **fields})


def after(state: QueueState, decision: Decision) -> QueueState:
    """Return the queue with a decision applied, not yet seen by Kueue."""
    annotations = dict(state.annotations)
    for key, value in decision.annotations.items():
        if value is None:
            annotations.pop(key, None)
        else:
            annotations[key] = value
    changed = decision.plan is not None or decision.policy is not None or decision.checks is not None
    return replace(
        state,
        generation=state.generation + int(changed),
        groups=state.groups if decision.plan is None else decision.plan.groups,
        policy={None: state.policy, UNSET: ""}.get(decision.policy, decision.policy) or "",
        checks=state.checks if decision.checks is None else decision.checks,
        annotations=tuple(annotations.items()),
    )


def observed(state: QueueState, *, held: bool = False) -> QueueState:
    """Return the queue once Kueue has seen it; `held`: its flavors are in use."""
    condition = Condition("True", "Ready", "", state.generation)
    if state.stop_policy != "None":
        condition = stopped(state.generation)
    use = Usage(listed=state.flavors, held=state.flavors if held else frozenset())
    return replace(state, active=condition, reservation=use, usage=use, workloads=held)


def settle(state: QueueState, want: Want) -> QueueState:
    """Let decisions and Kueue take turns until nothing changes."""
    for _ in range(10):
        decision = decide(state, want)
        new = observed(after(state, decision))
        if new == state:
            return state
        state = new
    raise AssertionError("decisions never settle")


def changes(decision: Decision) -> dict[str, Any]:
    """Return what a decision writes to the queue."""
    found: dict[str, Any] = {}
    if decision.plan is not None:
        found["plan"] = decision.plan
    if decision.policy is not None:
        found["policy"] = decision.policy
    if decision.checks is not None:
        found["checks"] = decision.checks
    if decision.annotations:
        found["annotations"] = dict(decision.annotations)
    return found


@pytest.mark.parametrize(
    ("state", "plan", "policy", "groups"),
    [
        pytest.param(queue(policy="HoldAndDrain"), ONE, "None", ONE, id="HoldAndDrain + empty, flavors return"),
        pytest.param(queue(policy="Hold"), ONE, "Hold", ONE, id="Hold + empty, flavors return"),
        pytest.param(queue(ONE, policy="HoldAndDrain"), ONE, "HoldAndDrain", ONE, id="HoldAndDrain with quota stays"),
        pytest.param(queue(ONE, policy="HoldAndDrain"), TWO, "HoldAndDrain", TWO, id="HoldAndDrain with quota grows"),
        pytest.param(queue(ONE, policy="Hold"), TWO, "Hold", TWO, id="admin Hold with quota is never lifted"),
        pytest.param(queue(policy="Hold", annotations=MARKED), ONE, "None", ONE, id="marked Hold + first plan"),
        pytest.param(queue(), ONE, "None", ONE, id="first fill"),
        pytest.param(queue(ONE, policy="Hold", annotations=(*TAS, *MARKED)), ONE, "None", ONE, id="stale marker"),
    ],
)
def test_fill(state: QueueState, plan: Plan, policy: str, groups: Plan) -> None:
    decision = decide(state, Want(plan))
    new = after(state, decision)
    assert (new.stop_policy, new.groups) == (policy, groups.groups)
    assert new.annotation(TAS_QUEUE) == "true"
    assert new.annotation(EMPTY_PLAN_HOLD) == ""
    assert decision.verdict is not None
    assert (decision.verdict.status, decision.verdict.reason) == ("True", "Ready")
    assert decision.outcome == DONE
    assert changes(decide(observed(new), Want(plan))) == {}


def test_first_plan_and_both_checks_come_in_one_write() -> None:
    checks = (Check("gpustack-node-devices"), Check("gpustack-model-deployment-joint"))
    state = queue(policy="Hold", annotations=MARKED)
    assert changes(decide(state, Want(ONE, checks=checks))) == {
        "plan": ONE,
        "policy": "None",
        "checks": checks,
        "annotations": {TAS_QUEUE: "true", EMPTY_PLAN_HOLD: None},
    }


def test_inactive_check_is_taken_away() -> None:
    state = queue(ONE, checks=(Check("gpustack-node-devices"),))
    assert changes(decide(state, Want(ONE))) == {"checks": ()}


@pytest.mark.parametrize(
    ("want", "reason", "outcome"),
    [
        pytest.param(Want(NO_PLAN), "NoFlavors", DONE, id="no flavors"),
        pytest.param(Want(ONE, Refusal("TooManyFlavors", "65")), "TooManyFlavors", DONE, id="flavors rejected"),
        pytest.param(Want(ONE, Refusal("MissingTopology", "x", 30.0)), "MissingTopology", After(30.0), id="requeue"),
    ],
)
def test_queue_without_a_plan_is_held_and_marked(want: Want, reason: str, outcome: object) -> None:
    decision = decide(queue(), want)
    assert changes(decision) == {"policy": "Hold", "annotations": {EMPTY_PLAN_HOLD: "true"}}
    assert decision.verdict is not None
    assert (decision.verdict.reason, decision.outcome) == (reason, outcome)
    assert changes(decide(after(queue(), decision), want)) == {}


@pytest.mark.parametrize("policy", ["Hold", "HoldAndDrain"])
def test_somebody_elses_hold_on_an_empty_queue_is_not_marked(policy: str) -> None:
    assert changes(decide(queue(policy=policy), Want(NO_PLAN))) == {}


def test_refused_plan_leaves_the_old_one() -> None:
    decision = decide(queue(ONE), Want(OTHER, Refusal("NonConservedQuota", "8 vs 4", 30.0)))
    assert changes(decision) == {}
    assert decision.verdict is not None
    assert (decision.verdict.status, decision.verdict.reason) == ("False", "NonConservedQuota")
    assert decision.outcome == After(30.0)


@pytest.mark.parametrize(
    ("policy", "want"),
    [
        pytest.param("None", {"policy": "HoldAndDrain"}, id="deleting, None"),
        pytest.param("HoldAndDrain", {}, id="deleting, HoldAndDrain"),
    ],
)
def test_deleting(policy: str, want: dict[str, str]) -> None:
    decision = decide(queue(ONE, policy=policy, deleting=True), Want(ONE))
    assert (changes(decision), decision.outcome, decision.verdict) == (want, DONE, None)


def test_no_flavors_with_an_admitted_workload_drains() -> None:
    decision = decide(queue(ONE, workloads=True), Want(NO_PLAN))
    assert changes(decision) == {
        "policy": "HoldAndDrain",
        "annotations": {MIGRATION_PHASE: "draining", MIGRATION_STOP_POLICY: "None"},
    }
    assert decision.outcome == After(5.0)


def test_no_flavors_with_drain_off_waits_out() -> None:
    decision = decide(queue(ONE, workloads=True), Want(NO_PLAN, drain_when_empty=False))
    assert (changes(decision), decision.outcome) == ({}, After(60.0))
    quiet = decide(queue(ONE), Want(NO_PLAN, drain_when_empty=False))
    assert changes(quiet)["policy"] == "Hold"


@pytest.mark.parametrize("drain", [True, False])
def test_no_flavors_and_nothing_reserved_empties_and_stays_held(drain: bool) -> None:
    final = settle(queue(ONE), Want(NO_PLAN, drain_when_empty=drain))
    assert final.groups == ()
    assert final.stop_policy == ("HoldAndDrain" if drain else "Hold")
    assert final.annotation(MIGRATION_PHASE) == "switched"


@pytest.mark.parametrize("drain", [True, False])
def test_flavor_back_after_emptying_restores_the_policy(drain: bool) -> None:
    empty = settle(queue(ONE), Want(NO_PLAN, drain_when_empty=drain))
    filled = after(empty, decide(empty, Want(OTHER)))
    assert filled.stop_policy != "None", "held until Kueue has seen the groups"
    final = settle(filled, Want(OTHER))
    assert (final.groups, final.policy, final.migrating) == (OTHER.groups, "None", False)


@pytest.mark.parametrize(
    ("saved", "restored"), [("None", "None"), ("Hold", "Hold"), ("", ""), ("HoldAndDrain", "HoldAndDrain")]
)
def test_plan_replaced_while_in_use_migrates_and_restores(saved: str, restored: str) -> None:
    state = observed(queue(ONE, policy=saved), held=True)
    decision = decide(state, Want(OTHER))
    assert decision.plan is None
    drained = after(state, decision)
    assert (drained.stop_policy, drained.groups) == ("HoldAndDrain", ONE.groups)
    assert drained.annotation(MIGRATION_STOP_POLICY) == (saved or UNSET)
    waiting = observed(drained, held=True)
    assert changes(decide(waiting, Want(OTHER))) == {}
    assert decide(waiting, Want(OTHER)).outcome == After(5.0)
    final = settle(observed(drained), Want(OTHER))
    assert (final.groups, final.policy, final.migrating) == (OTHER.groups, restored, False)


def test_stopped_status_of_an_older_generation_waits() -> None:
    for phase, plan in (("draining", ONE), ("switched", OTHER)):
        state = migrating(plan, phase, active=stopped(2))
        decision = decide(state, Want(OTHER))
        assert (changes(decision), decision.outcome) == ({}, After(5.0))


def test_flavor_returning_during_a_drain_ends_it() -> None:
    state = migrating(ONE, "draining", workloads=True)
    decision = decide(state, Want(TWO))
    new = after(state, decision)
    assert (new.groups, new.policy, new.migrating) == (TWO.groups, "None", False)


@pytest.mark.parametrize("plan", [TWO, Plan("cpu", (("one", 8),)), Plan("cpu", (("one", 2),))])
def test_quota_changes_and_new_flavors_are_in_place(plan: Plan) -> None:
    decision = decide(observed(queue(ONE), held=True), Want(plan))
    assert changes(decision) == {"plan": plan}


@pytest.mark.parametrize(
    ("fields", "migrates"),
    [
        pytest.param({}, False, id="idle"),
        pytest.param({"reservation": Usage(TWO.flavors, frozenset({"two"}))}, True, id="reserved"),
        pytest.param({"usage": Usage(TWO.flavors, frozenset({"two"}))}, True, id="used"),
        pytest.param({"reservation": Usage(ONE.flavors)}, True, id="missing from reservations"),
        pytest.param({"usage": Usage(ONE.flavors)}, True, id="missing from usage"),
    ],
)
def test_dropped_flavor(fields: Mapping[str, Any], migrates: bool) -> None:
    decision = decide(queue(TWO, **fields), Want(ONE))
    assert decision.verdict is not None
    if migrates:
        assert changes(decision)["policy"] == "HoldAndDrain"
        assert decision.verdict.reason == "Migrating"
    else:
        assert changes(decision) == {"plan": ONE}


def test_dropped_flavor_with_a_stale_status_waits_then_leaves_in_place() -> None:
    stale = queue(TWO, active=Condition("True", "Ready", "", 2))
    decision = decide(stale, Want(ONE))
    assert decision.verdict is not None
    assert (decision.verdict.status, decision.verdict.reason) == ("Unknown", "AwaitingQueueStatus")
    assert (changes(decision), decision.outcome) == ({}, After(5.0))
    assert changes(decide(queue(TWO), Want(ONE))) == {"plan": ONE}


@pytest.mark.parametrize(("phase", "saved"), [("elsewhere", "None"), ("draining", ""), ("switched", "Sometimes")])
def test_invalid_migration_state(phase: str, saved: str) -> None:
    decision = decide(migrating(ONE, phase, saved), Want(TWO))
    assert decision.verdict is not None
    assert (decision.verdict.reason, decision.outcome) == ("InvalidMigrationState", After(30.0))
    assert changes(decision) == {}


def test_refusal_during_a_migration_is_looked_at_again() -> None:
    decision = decide(migrating(ONE, "draining"), Want(OTHER, Refusal("TooManyFlavors", "65")))
    assert (changes(decision), decision.outcome) == ({}, After(30.0))


def test_policy_set_to_none_by_hand_during_a_migration_is_set_back() -> None:
    decision = decide(migrating(ONE, "draining", policy="None"), Want(OTHER))
    assert changes(decision) == {"policy": "HoldAndDrain"}


def test_hold_turned_to_drain_when_the_setting_changes() -> None:
    state = migrating(ONE, "draining", policy="Hold", workloads=True)
    assert changes(decide(state, Want(NO_PLAN, drain_when_empty=False))) == {}
    assert changes(decide(state, Want(NO_PLAN))) == {"policy": "HoldAndDrain"}


STATES = [
    queue(plan, policy=policy, annotations=annotations)
    for plan, policy, annotations in itertools.product(
        (NO_PLAN, ONE, TWO), ("", "None", "Hold", "HoldAndDrain"), ((), MARKED, TAS)
    )
] + [
    migrating(plan, phase, saved, policy=policy)
    for plan, phase, saved, policy in itertools.product(
        (NO_PLAN, ONE, OTHER), ("draining", "switched"), ("None", "Hold", "unset"), ("None", "Hold", "HoldAndDrain")
    )
]


@pytest.mark.parametrize("plan", [NO_PLAN, ONE, TWO, OTHER], ids=["none", "one", "two", "other"])
@pytest.mark.parametrize("drain", [True, False], ids=["drain", "wait"])
def test_every_state_settles_and_never_admits_without_a_plan(plan: Plan, drain: bool) -> None:
    want = Want(plan, drain_when_empty=drain)
    for state in STATES:
        final = settle(observed(state), want)
        assert final.groups == plan.groups
        assert plan.quotas or final.stop_policy != "None"
        assert not (plan.quotas and final.migrating)
