"""Requests made from our own OpenAPI document, through the aggregator: no 5xx, every answer a Status or an object."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hack.controlplane.control_plane import REPOSITORY
from hack.controlplane.pki import Pki
from hack.controlplane.replicas import Replicas
from tests.e2e.apiserver.conformance import row

pytestmark = pytest.mark.timeout(400)
SECONDS = int(os.environ.get("SCHEMATHESIS_SECONDS", "60"))
SUMMARY = REPOSITORY / "build" / "schemathesis.txt"
DOCUMENT = "/apis/worker.gpustack.ai/v1/openapi.json"


@row("schemathesis over our OpenAPI document", "summary in build/schemathesis.txt")
def test_every_answer_is_a_status_or_an_object(
    pair: Replicas, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    document = tmp_path / "openapi.json"
    document.write_text(json.dumps(pair.raw(DOCUMENT)))
    admin = Pki(pair.control_plane.layout.pki).pair("admin")
    command = [
        *(sys.executable, "-m", "schemathesis.cli", "run", str(document), "--url", pair.control_plane.server),
        *("--checks", "not_a_server_error,kubernetes_answer", "--phases", "examples,coverage,fuzzing"),
        *("--max-time", str(SECONDS), "--request-timeout", "30", "--continue-on-failure", "--no-color"),
        *("--tls-verify", str(pair.control_plane.authority), "--suppress-health-check", "all", "--seed", "1"),
        *("--request-cert", str(admin.certificate), "--request-cert-key", str(admin.key), "--warnings", "off"),
    ]
    hooks = "tests.e2e.apiserver.programs.schemathesis_checks"
    environ = {**os.environ, "SCHEMATHESIS_HOOKS": hooks, "PYTHONPATH": _python_path()}
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False, timeout=390)
    SUMMARY.parent.mkdir(exist_ok=True)
    SUMMARY.write_text(done.stdout + done.stderr)
    cases = re.search(r"(\d+) generated", done.stdout)
    record_property("remark", f"{cases[1] if cases else '?'} cases in {SECONDS} s")
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
    assert pair.is_running("a")
    assert pair.is_running("b")
    assert "request failed" not in pair.log()


def _python_path() -> str:
    return os.pathsep.join(filter(None, (str(REPOSITORY), os.environ.get("PYTHONPATH", ""))))
