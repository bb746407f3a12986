"""The queue behind a type and who may hold it (spec 04 §7 tables, §14.5)."""

from __future__ import annotations

from typing import Any

import pytest

from controllers.instance_type_queue import HoldChange, label_changes, new_queue, schedule_labels, sync_inactive
from controllers.instance_type_queue import identity_of as identity
from controllers.queue_state import MIGRATION_PHASE, MIGRATION_STOP_POLICY, read_queue
from nodefeature.labels import EMPTY_PLAN_HOLD
from tests.builders.instance_types import instance_type
from tests.builders.queues import cluster_queue, group, pool_labels

GROUPS = [group("cpu", {"f": 4})]
MARK = {EMPTY_PLAN_HOLD: "true"}


def _saved(policy: str) -> dict[str, str]:
    return {MIGRATION_PHASE: "draining", MIGRATION_STOP_POLICY: policy}


@pytest.mark.parametrize(
    ("queue", "inactive", "want"),
    [
        pytest.param({"policy": "None"}, False, HoldChange(), id="None, false: stable"),
        pytest.param({"policy": None}, False, HoldChange(), id="unset, false: stable"),
        pytest.param({"policy": "None"}, True, HoldChange(policy="Hold"), id="None, true: Hold"),
        pytest.param({"policy": None}, True, HoldChange(policy="Hold"), id="unset, true: Hold"),
        pytest.param({"policy": "Hold"}, True, HoldChange(), id="Hold, true: stable"),
        pytest.param({"policy": "Hold", "groups": GROUPS}, False, HoldChange(policy="None"), id="Hold, false: None"),
        pytest.param(
            {"policy": "Hold"}, False, HoldChange(annotations=MARK), id="Hold without groups, false: marked, kept"
        ),
        pytest.param({"policy": "HoldAndDrain"}, True, HoldChange(), id="HoldAndDrain, true: stable"),
        pytest.param({"policy": "HoldAndDrain"}, False, HoldChange(inactive=True), id="HoldAndDrain, false: inactive"),
        pytest.param({"policy": "Hold", "annotations": MARK}, False, HoldChange(), id="marked, false: not mirrored"),
        pytest.param(
            {"policy": "Hold", "annotations": MARK},
            True,
            HoldChange(annotations={EMPTY_PLAN_HOLD: None}),
            id="marked, true: adopted",
        ),
        pytest.param(
            {"policy": "HoldAndDrain", "annotations": _saved("None")},
            True,
            HoldChange(annotations={MIGRATION_STOP_POLICY: "Hold"}),
            id="migrating, true: Hold is restored later",
        ),
        pytest.param(
            {"policy": "HoldAndDrain", "annotations": _saved("unset")},
            True,
            HoldChange(annotations={MIGRATION_STOP_POLICY: "Hold"}),
            id="migrating, unset saved, true",
        ),
        pytest.param(
            {"policy": "HoldAndDrain", "annotations": _saved("Hold")},
            False,
            HoldChange(annotations={MIGRATION_STOP_POLICY: "None"}),
            id="migrating, Hold saved, false",
        ),
        pytest.param(
            {"policy": "HoldAndDrain", "annotations": _saved("None")}, False, HoldChange(), id="migrating, false"
        ),
        pytest.param(
            {"policy": "HoldAndDrain", "annotations": _saved("HoldAndDrain")}, True, HoldChange(), id="drain saved"
        ),
    ],
)
def test_sync_inactive(queue: dict[str, Any], inactive: bool, want: HoldChange) -> None:
    obj = cluster_queue(**queue)
    change = sync_inactive(read_queue(obj), inactive=inactive)
    assert change == want
    if change.policy:
        obj["spec"]["stopPolicy"] = change.policy
    for key, value in change.annotations.items():
        obj["metadata"]["annotations"] |= {key: value}
    again = sync_inactive(read_queue(obj), inactive=inactive or change.inactive)
    assert not again, "then no further writes"


def test_new_queue_is_isolated_held_and_marked() -> None:
    queue = new_queue(instance_type("q", general="amd-epyc-7r32"), aware=False)
    assert queue["metadata"] == {
        "name": "q",
        "labels": {
            "feature.gpustack.ai/acceleratable": "true",
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
            "acceleratable.feature.gpustack.ai/nvidia-a10g": "true",
            "resource.gpustack.ai/type": "instancetypes",
        },
        "annotations": {EMPTY_PLAN_HOLD: "true"},
    }
    assert queue["spec"] == {
        "namespaceSelector": {},
        "stopPolicy": "Hold",
        "flavorFungibility": {"whenCanBorrow": "TryNextFlavor", "whenCanPreempt": "MayStopSearch"},
        "preemption": {
            "reclaimWithinCohort": "Never",
            "borrowWithinCohort": {"policy": "Never"},
            "withinClusterQueue": "LowerPriority",
        },
    }


def test_aware_queue_carries_the_cpu_key() -> None:
    labels = new_queue(instance_type(general="amd-epyc-7r32"), aware=True)["metadata"]["labels"]
    assert labels["general.feature.gpustack.ai/amd-epyc-7r32"] == "true"
    generic = new_queue(instance_type(general="generic"), aware=True)["metadata"]["labels"]
    assert not [key for key in generic if key.startswith("general.")]


@pytest.mark.parametrize(
    ("labels", "aware", "want"),
    [
        pytest.param(pool_labels("nvidia-a10g"), False, {}, id="settled"),
        pytest.param(
            pool_labels("nvidia-t4"),
            False,
            {
                "acceleratable.feature.gpustack.ai/nvidia-t4": None,
                "acceleratable.feature.gpustack.ai/nvidia-a10g": "true",
            },
            id="accelerator group changed: new key set, old pruned",
        ),
        pytest.param(
            pool_labels("nvidia-a10g") | {"acceleratable.feature.gpustack.ai/nvidia-a10g.count": "4", "team": "a"},
            False,
            {"acceleratable.feature.gpustack.ai/nvidia-a10g.count": None},
            id="siblings are pruned, foreign labels stay",
        ),
        pytest.param(
            pool_labels("nvidia-a10g"), True, {"general.feature.gpustack.ai/amd": "true"}, id="awareness turned on"
        ),
        pytest.param(
            pool_labels("nvidia-a10g", general="amd"),
            False,
            {"general.feature.gpustack.ai/amd": None},
            id="awareness turned off",
        ),
    ],
)
def test_label_changes(labels: dict[str, str], aware: bool, want: dict[str, str | None]) -> None:
    wanted = schedule_labels(identity(instance_type(general="amd")), aware=aware)
    assert label_changes(cluster_queue(labels=labels), wanted) == want


def test_type_label_lost_by_hand_comes_back() -> None:
    queue = cluster_queue()
    queue["metadata"]["labels"].pop("resource.gpustack.ai/type")
    wanted = schedule_labels(identity(instance_type()), aware=False)
    assert label_changes(queue, wanted) == {"resource.gpustack.ai/type": "instancetypes"}
    assert label_changes({"metadata": {"labels": None}}, wanted) == {
        **wanted,
        "resource.gpustack.ai/type": "instancetypes",
    }
