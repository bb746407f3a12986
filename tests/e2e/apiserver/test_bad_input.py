"""Bad input at a replica's own port, for a view and for a mapped kind: always a Status (spec 03 B6)."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from hack.controlplane.pki import Pki
from hack.controlplane.replicas import Replicas
from tests.builders.bad_input import ROWS, filled
from tests.e2e.apiserver.objects import instance

pytestmark = pytest.mark.timeout(240)
KEY = {"kind": "InstanceSSHPublicKey", "metadata": {"name": "it"}, "spec": {"data": "ssh-ed25519 AAA"}}
KINDS = ("instances", "instancesshpublickeys")


@pytest.fixture(scope="module")
def http(pair: Replicas) -> Iterator[httpx.Client]:
    """Return a client of the first replica, with the administrator's certificate."""
    admin = Pki(pair.control_plane.layout.pki).pair("admin")
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.load_cert_chain(admin.certificate, admin.key)
    host, port = pair.address("a")
    with httpx.Client(base_url=f"https://{host}:{port}", verify=context, trust_env=False, timeout=30) as client:
        yield client


@pytest.fixture(params=KINDS)
def collection(request: pytest.FixtureRequest, pair: Replicas, http: httpx.Client, namespace: str) -> str:
    """Return the path of a collection that holds one object, `it`."""
    path = f"/apis/worker.gpustack.ai/v1/namespaces/{namespace}/{request.param}"
    made: dict[str, Any] = (
        instance("it") if request.param == KINDS[0] else {"apiVersion": "worker.gpustack.ai/v1", **KEY}
    )
    answer = http.post(path, json=made)
    assert answer.status_code == 201, answer.text
    return path


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
def test_bad_input_gets_a_status(http: httpx.Client, pair: Replicas, collection: str, row: dict[str, Any]) -> None:
    kind = "Instance" if collection.endswith(KINDS[0]) else "InstanceSSHPublicKey"
    target, body = filled(row, version="worker.gpustack.ai/v1", kind=kind)
    answer = http.request(
        row["method"],
        collection + target,
        content=body or None,
        headers={"content-type": row["contentType"]},
    )
    told = json.loads(answer.content)
    assert answer.status_code in row["codes"], (answer.status_code, told)
    if answer.status_code >= 400:
        assert (told["kind"], told["code"]) == ("Status", answer.status_code)
    assert "Traceback" not in answer.text
    assert pair.is_running("a")
    assert "request failed" not in pair.log()
