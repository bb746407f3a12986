"""What a ClusterQueue says (spec 04 §14.6 hasReserved, §2)."""

from __future__ import annotations

from typing import Any

import pytest

from controllers.queue_state import Group, read_queue, reserved_nano
from nodefeature.labels import EMPTY_PLAN_HOLD
from tests.builders.queues import active, cluster_queue, group, stopped, usage


@pytest.mark.parametrize(
    ("status", "want"),
    [
        pytest.param({}, False, id="empty"),
        pytest.param({"pendingWorkloads": 3}, False, id="pending 3 only"),
        pytest.param({"flavorsReservation": usage("cpu", {"f": "0"})}, False, id="zero totals"),
        pytest.param({"reservingWorkloads": 1}, True, id="reserving 1"),
        pytest.param({"admittedWorkloads": 1}, True, id="admitted 1"),
        pytest.param({"flavorsReservation": usage("cpu", {"f": "2"})}, True, id="reserved total 2"),
        pytest.param(
            {"flavorsReservation": [{"name": "f", "resources": [{"name": "cpu", "total": "0", "borrowed": "1"}]}]},
            True,
            id="borrowed 1",
        ),
    ],
)
def test_reserved(status: dict[str, Any], want: bool) -> None:
    assert read_queue(cluster_queue(status=status)).reserved is want


@pytest.mark.parametrize(
    ("condition", "generation", "observed", "is_stopped"),
    [
        pytest.param(active(), 1, True, False, id="active"),
        pytest.param(stopped(), 1, True, True, id="stopped"),
        pytest.param(stopped(1), 2, False, False, id="stopped status of older generation"),
        pytest.param(active("False", "FlavorNotFound"), 1, True, False, id="inactive for another reason"),
        pytest.param(None, 1, False, False, id="no condition"),
    ],
)
def test_observed_and_stopped(
    condition: dict[str, Any] | None, generation: int, observed: bool, is_stopped: bool
) -> None:
    status = {"conditions": [condition]} if condition else {}
    state = read_queue(cluster_queue(status=status, generation=generation))
    assert (state.observed, state.stopped) == (observed, is_stopped)


@pytest.mark.parametrize("spelling", ["4800000", 4800000, "4800k", "4.8M"])
def test_spellings_of_one_plan_are_one_state(spelling: str | int) -> None:
    spelled = read_queue(cluster_queue(groups=[group("credits.gpustack.ai/nvidia", {"f": spelling})]))
    plain = read_queue(cluster_queue(groups=[group("credits.gpustack.ai/nvidia", {"f": "4800k"})]))
    assert spelled.groups == plain.groups


def test_limits_and_unreadable_quotas_tell_plans_apart() -> None:
    plain = read_queue(cluster_queue(groups=[group("cpu", {"f": "4"})])).groups
    limited = group("cpu", {"f": "4"})
    limited["flavors"][0]["resources"][0]["borrowingLimit"] = "1"
    broken = group("cpu", {"f": "four"})
    assert read_queue(cluster_queue(groups=[limited])).groups != plain
    assert read_queue(cluster_queue(groups=[broken])).groups != plain


def test_null_and_wrong_typed_fields_read_as_empty() -> None:
    queue: dict[str, Any] = {
        "metadata": {"name": "q", "labels": None, "annotations": {EMPTY_PLAN_HOLD: 1}, "generation": "x"},
        "spec": {"resourceGroups": None, "stopPolicy": None, "admissionChecksStrategy": []},
        "status": {"flavorsReservation": None, "conditions": [None, {"type": "Active", "status": None}]},
    }
    state = read_queue(queue)
    assert (state.stop_policy, state.groups, state.reserved, state.annotations) == ("None", (), False, ())
    assert read_queue({}).groups == ()
    nulls = {"spec": {"resourceGroups": [{"coveredResources": None, "flavors": None}]}, "status": None}
    assert read_queue(nulls).groups == (Group((), ()),)


def test_reserved_amount_of_a_resource_is_summed_over_flavors() -> None:
    status = {"flavorsReservation": usage("cpu", {"a": "1500m", "b": "2"})}
    assert reserved_nano(cluster_queue(status=status), "cpu") == 3_500_000_000
