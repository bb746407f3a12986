"""Worker labels: spec 01 §5.3."""

from __future__ import annotations

import pytest

from nodefeature.topology import DEFAULT_PROFILE
from nodefeature.worker_labels import worker_labels
from tests.builders.node_labels import card_labels, cpu_labels

G = "general.feature.gpustack.ai/"
MANAGED = "gpustack.ai/managed"
PROFILE = {"topology.gpustack.ai/profile": DEFAULT_PROFILE}
AMD = {G + "amd": "true", G + "amd-25-1": "true", G + "amd-25-1.count": "16"}


@pytest.mark.parametrize(
    ("existing", "manual", "want"),
    [
        (None, False, "true"),
        ("", False, "true"),
        ("false", False, "false"),
        ("true", False, "true"),
        ("maybe", False, "maybe"),
        (None, True, None),
        ("", True, None),
        ("true", True, "true"),
        ("false", True, "false"),
    ],
)
def test_managed(existing: str | None, manual: bool, want: str | None) -> None:
    labels = cpu_labels("AMD", "25", "1") | ({} if existing is None else {MANAGED: existing})
    wanted = worker_labels(labels, {}, cpu_capacity="16", manual=manual).labels
    assert wanted == AMD | PROFILE | ({} if want is None else {MANAGED: want})


def test_no_cpu_information_and_the_two_labels_coincide() -> None:
    assert worker_labels({}, {}, cpu_capacity=16, profile="").labels == {
        MANAGED: "true",
        G + "generic": "true",
        G + "generic.count": "16",
    }


@pytest.mark.parametrize(
    ("capacity", "count"),
    [("16", "16"), (16, "16"), ("15500m", "16"), ("1", "1"), ("1m", "1"), ("0", None), (None, None)],
)
def test_count_is_rounded_up_and_never_zero(capacity: object, count: str | None) -> None:
    wanted = worker_labels({}, {}, cpu_capacity=capacity)
    assert wanted.labels.get(G + "generic.count") == count
    assert wanted.problems == ()


@pytest.mark.parametrize("capacity", ["eight", "-1", "", [], True])
def test_a_capacity_that_is_none_is_named(capacity: object) -> None:
    wanted = worker_labels({}, {}, cpu_capacity=capacity)
    assert G + "generic.count" not in wanted.labels
    assert wanted.problems[0].startswith("status.capacity.cpu: ")


def test_device_labels_add_nothing_and_retired_suffixes_never_return() -> None:
    labels = cpu_labels("AMD", "25", "1") | card_labels("nvidia-t4", "2")
    wanted = worker_labels(labels, {}, cpu_capacity="16").labels
    assert wanted == AMD | PROFILE | {MANAGED: "true"}


@pytest.mark.parametrize(
    ("labels", "mixed", "want"),
    [({}, True, False), ({}, False, True), (card_labels("nvidia-t4", "2"), False, False)],
    ids=["mixed", "not mixed", "not mixed, accelerated"],
)
def test_cpu_only(labels: dict[str, str], mixed: bool, want: bool) -> None:
    wanted = worker_labels(labels, {}, cpu_capacity="16", mixed=mixed).labels
    assert (wanted.get("feature.gpustack.ai/cpu-only") == "true") is want
