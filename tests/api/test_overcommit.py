"""Overcommitted requests: spec 05 §8.2, spec 02 §6.3."""

from __future__ import annotations

import pytest

from api.overcommit import bytes_request, cpu_request
from nodefeature.quantity import parse_quantity


@pytest.mark.parametrize(
    ("limits", "accelerated", "want"),
    [
        ("4 16Gi 32Gi", False, "3200m 2Gi 4Gi"),
        ("16 64Gi 128Gi", True, "1600m 8Gi 16Gi"),
        ("8 32Gi 64Gi", True, "800m 4Gi 8Gi"),
        ("4 8Gi 15Gi", False, "3200m 1Gi 1920Mi"),
        ("4 8Gi 15Gi", True, "400m 1Gi 1920Mi"),
        ("2 4Gi 512Mi", False, "1600m 512Mi 0"),
        ("2 512Mi 10Gi", False, "1600m 0 1280Mi"),
        ("2 16Gi 10Gi", False, "1600m 2Gi 1280Mi"),
        ("100m 1Gi 1Gi", False, "100m 128Mi 128Mi"),
        ("1500m 1536Mi 1Gi", False, "1500m 128Mi 128Mi"),
        ("0 0 0", False, "0 0 0"),
        ("-1 -1Gi 0", False, "-1 0 0"),
    ],
)
def test_requests(limits: str, accelerated: bool, want: str) -> None:
    cpu, ram, storage = map(parse_quantity, limits.split())
    got = cpu_request(cpu, accelerated=accelerated), bytes_request(ram), bytes_request(storage)
    assert " ".join(map(str, got)) == want
