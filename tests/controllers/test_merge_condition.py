"""Node condition GPUStackLabelsMerged: design §8.4."""

from __future__ import annotations

from typing import Any

import pytest

from controllers.merge_condition import condition_operations, merge_condition, unmerged_keys, wait_for_merge
from controllers.node_view import LABELS_MERGED
from nodefeature.labels import ACCELERATABLE


def node(*conditions: Any) -> dict[str, Any]:
    return {"status": {"conditions": list(conditions)}}


def test_waits() -> None:
    assert (wait_for_merge(seen_merged=False), wait_for_merge(seen_merged=True)) == (120, 600)


@pytest.mark.parametrize(
    ("labels", "features", "want"),
    [
        ({"a": "1"}, [{"a": "1"}], ()),
        ({}, [{"a": "1"}, {"b": "2"}], ("a", "b")),
        ({"a": "0"}, [{"a": "1"}], ("a",)),
        ({"a": "1"}, [{"a": "1"}, {"a": "2"}], ()),
        ({"a": "1"}, [], ()),
        ({ACCELERATABLE: "false"}, [{ACCELERATABLE: "true"}], ()),
        ({}, [{ACCELERATABLE: "true"}], (ACCELERATABLE,)),
    ],
    ids=[
        "merged",
        "missing",
        "stale",
        "two NodeFeatures disagree",
        "no NodeFeature",
        "our rule saw no card on the bus, the agent found one",
        "cards unmerged",
    ],
)
def test_unmerged_keys(labels: dict[str, str], features: list[dict[str, str]], want: tuple[str, ...]) -> None:
    assert unmerged_keys(labels, features) == want


def test_a_healthy_node_has_no_condition() -> None:
    assert merge_condition(node(), (), now="t") is None


def test_a_report_is_written_once_and_taken_back() -> None:
    report = merge_condition(node(), ("a", "b", "c", "d"), now="t")
    assert report is not None
    assert (report["status"], report["reason"]) == ("False", "LabelsNotMerged")
    assert "a, b, c and 1 more" in report["message"]
    assert merge_condition(node(report), ("a", "b", "c", "d"), now="later") is None
    back = merge_condition(node(report), (), now="later")
    assert back is not None
    assert back["status"] == "True"
    assert merge_condition(node(back), (), now="later still") is None


def test_a_condition_is_put_among_those_of_others() -> None:
    ready, mine = {"type": "Ready", "status": "True"}, {"type": LABELS_MERGED, "status": "False"}
    assert condition_operations(node(), mine)[0]["path"] == "/status/conditions"
    assert condition_operations(node(ready), mine)[0]["path"] == "/status/conditions/-"
    operations = condition_operations(node(ready, mine), mine)
    assert [(o["op"], o["path"]) for o in operations] == [
        ("test", "/status/conditions/1/type"),
        ("replace", "/status/conditions/1"),
    ]
