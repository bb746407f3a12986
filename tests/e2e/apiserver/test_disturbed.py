"""Load while one of two replicas ends every few seconds; the bench runs the same for ten minutes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from hack.bench.api import churn, instance
from hack.bench.api_load import Load
from hack.controlplane.replicas import Replicas
from tests.e2e.apiserver.conformance import row

pytestmark = pytest.mark.timeout(400)
SECONDS = float(os.environ.get("DISTURBED_SECONDS", "45"))
EVERY_S = 12.0


@row("mixed load with one of two replicas ending", "the full length is `make bench-api`'s")
@pytest.mark.parametrize("how", ["SIGTERM", "SIGKILL"])
def test_nothing_is_lost(
    pair: Replicas, namespace: str, tmp_path: Path, how: str, record_property: Callable[[str, object], None]
) -> None:
    template = tmp_path / "instance.json"
    template.write_text(json.dumps(instance("v1")))
    load = Load(pair.control_plane.tools.binary("load"), pair.control_plane.kubeconfig, tmp_path / "load.log")
    group = "/apis/worker.gpustack.ai"
    ways = {version: f"{group}/{version}/namespaces/{namespace}/instances" for version in ("v1alpha1", "v1")}
    result = churn(load, pair, ways, template, seconds=SECONDS, kill=how == "SIGKILL", every_s=EVERY_S, rate=20)
    record_property("remark", ", ".join(f"{name} {count}" for name, count in result.items()))
    said = load.log.read_text()[-4000:]
    assert (result["lost"], result["missed"], result["behind"], result["failed"]) == (0, 0, 0, 0), said
    assert how == "SIGKILL" or result["retried"] == 0, said
