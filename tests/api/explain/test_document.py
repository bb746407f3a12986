"""The document and its table."""

from __future__ import annotations

import json
from typing import Any

import pytest

from api.explain.document import COLUMNS, KIND_OF_INSTANCE, document, rows, table
from api.explain.quota_figures import amount
from api.explain.verdicts import explain
from tests.builders.waiting import CREDITS, POOL, evidence, instance, pod, queue, waiting

SHORT = evidence(
    pod=pod({"nvidia.com/gpu": "8"}),
    instance=instance(metadata={"annotations": {"secret": "word"}, "managedFields": [1]}, phase="Pending"),
    rivals=[waiting("older", "2025-12-31T00:00:00Z")],
)


def explained() -> dict[str, Any]:
    about = SHORT.instance or {}
    return document(explain(SHORT), about, kind=KIND_OF_INSTANCE, api_version="worker.gpustack.ai/v1")


def test_a_document_says_who_where_and_why() -> None:
    found = explained()
    assert json.loads(json.dumps(found)) == found
    assert (found["kind"], found["apiVersion"]) == ("InstanceExplanation", "worker.gpustack.ai/v1")
    assert found["metadata"] == {"name": "a", "namespace": "team", "uid": "instance-uid"}
    assert (found["waitingAt"], found["phase"]) == ("Quota", "Pending")
    assert found["summary"].startswith("Waiting at the quota: 8 cards asked, 6 cards free in ClusterQueue")
    assert found["gates"][1] == {
        "name": "Quota",
        "state": "Waiting",
        "reason": f"8 cards asked, 6 cards free in ClusterQueue {POOL}; 1 of 2 waiting Workloads come first",
        "passesWhen": "2 cards more must become free: stop or delete what holds it",
        "numbers": {
            "unit": "credits",
            "asked": 12_800_000,
            "free": 9_600_000,
            "largest": 9_600_000,
            "largestAt": "gpustack-nvidia-h100-linux-amd64-8d",
            "queueAhead": 1,
            "queuePending": 2,
        },
    }


def test_rows_are_texts_of_the_document() -> None:
    found = rows(explained())
    assert [row[0] for row in found] == ["Webhook", "Quota", "CardCheck", "Scheduler", "DevicePlugin"]
    assert found[1][2:6] == ("8 cards", "6 cards", "6 cards at gpustack-nvidia-h100-linux-amd64-8d", "1 of 2")
    assert found[2][2:6] == ("8 cards", "6", "4 at gpu-02", "")
    assert {len(row) for row in found} == {len(COLUMNS)}


def test_a_table_has_the_same_cells() -> None:
    found = table(explained(), version="v1", obj={"kind": "PartialObjectMetadata"})
    assert [column["name"] for column in found["columnDefinitions"]] == [name for name, _ in COLUMNS]
    assert [tuple(row["cells"]) for row in found["rows"]] == rows(explained())
    assert found["rows"][0]["object"] == {"kind": "PartialObjectMetadata"}
    assert "object" not in table(explained(), version="v1", obj=None)["rows"][0]


DOCUMENTS: dict[str, dict[str, Any]] = {
    "empty": {},
    "gates null": {"gates": None},
    "gates of other types": {"gates": [None, 3, {"name": 5, "numbers": []}, {"numbers": {"asked": "x", "unit": 7}}]},
    "numbers of other types": {"gates": [{"numbers": {"queueAhead": "x", "largest": None, "largestAt": 3}}]},
}


@pytest.mark.parametrize("found", DOCUMENTS.values(), ids=DOCUMENTS)
def test_any_document_gives_rows(found: dict[str, Any]) -> None:
    assert all(isinstance(cell, str) for row in rows(found) for cell in row)


AMOUNTS = [
    (CREDITS, 1_600_000_000, "1 card"),
    (CREDITS, 800_000_000, "0.5 cards"),
    (CREDITS, 1_000, "0.01 cards"),
    (CREDITS, 0, "0 cards"),
    (CREDITS, 2_400_000_000, "1.5 cards"),
    ("cpu", 1500, "1.5 cores"),
    ("cpu", 1000, "1 core"),
    ("cpu", 1, "0.01 cores"),
    ("", 5, "nothing"),
]


@pytest.mark.parametrize(("resource", "milli", "text"), AMOUNTS, ids=str)
def test_amounts_read_as_cards_and_cores(resource: str, milli: int, text: str) -> None:
    assert amount(resource, milli) == text


def test_a_queue_of_several_flavors_says_the_best() -> None:
    two = queue(free=6)
    flavors = two["spec"]["resourceGroups"][0]["flavors"]
    flavors.append({"name": "other-4d", "resources": [{"name": CREDITS, "nominalQuota": "6400k"}]})
    answer = explain(evidence(pod=pod({"nvidia.com/gpu": "8"}), cluster_queue=two))
    assert "8 cards asked, 10 cards free in ClusterQueue" in answer.summary
    assert answer.summary.endswith("at most 6 cards in one flavor.")
