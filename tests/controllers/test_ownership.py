"""Whose an object is: our label, what only we write, or neither (decision 0201)."""

from __future__ import annotations

from typing import Any

import pytest

from controllers.ownership import is_our_flavor, is_our_queue, we_made_flavor, we_made_queue
from nodefeature.labels import EMPTY_PLAN_HOLD, NOTE_PREFIX
from tests.builders.queues import cluster_queue, cpu_flavor

FOREIGN = {"metadata": {"name": "gpustack-nvidia-a10g-linux-amd64", "labels": {"team": "a"}}}
NULLS: dict[str, Any] = {"metadata": {"labels": None, "annotations": None}}


@pytest.mark.parametrize(
    ("queue", "ours", "made"),
    [
        pytest.param(cluster_queue(), True, True, id="type label"),
        pytest.param({"metadata": {"annotations": {EMPTY_PLAN_HOLD: "true"}}}, False, True, id="label lost by hand"),
        pytest.param(FOREIGN, False, False, id="foreign namesake"),
        pytest.param(NULLS, False, False, id="nulls"),
    ],
)
def test_queues(queue: dict[str, Any], ours: bool, made: bool) -> None:
    assert (is_our_queue(queue), we_made_queue(queue)) == (ours, made)


@pytest.mark.parametrize(
    ("flavor", "ours", "made"),
    [
        pytest.param(cpu_flavor(), True, True, id="type label"),
        pytest.param(
            {"metadata": {"annotations": {NOTE_PREFIX + "product": "x"}}}, False, True, id="label lost by hand"
        ),
        pytest.param(FOREIGN, False, False, id="foreign namesake"),
        pytest.param(NULLS, False, False, id="nulls"),
        pytest.param(None, False, False, id="absent"),
    ],
)
def test_flavors(flavor: dict[str, Any] | None, ours: bool, made: bool) -> None:
    assert (is_our_flavor(flavor), we_made_flavor(flavor)) == (ours, made)
