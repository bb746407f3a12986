"""`make bench-api` in small."""

from __future__ import annotations

from pathlib import Path

import pytest

from hack.bench.api import SMALL, ApiBench, as_table
from hack.controlplane.replicas import Replicas

pytestmark = pytest.mark.timeout(240)


def test_every_row_is_measured(replicas: Replicas, tmp_path: Path) -> None:
    folder = tmp_path / "bench"
    folder.mkdir()
    rows = ApiBench(replicas.control_plane, replicas, SMALL, folder).run()
    shown = as_table(rows)
    assert len(rows) >= 20, shown
    by_case = {row.case: row.ours for row in rows}
    assert by_case["watch: changes missed or out of order"] == 0, shown
    assert by_case["writes failed"] == 0, shown
