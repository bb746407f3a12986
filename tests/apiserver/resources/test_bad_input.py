"""Bad input for a view and for a mapped kind: always a Status of spec 03 B6, never an error of ours."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from tests.apiserver.resources.cluster import V1, Server, instance, run
from tests.builders.bad_input import ROWS, filled

KEY = {"apiVersion": "worker.gpustack.ai/v1", "kind": "InstanceSSHPublicKey", "spec": {"data": "ssh-ed25519 AAA"}}
KINDS = {
    "instances": instance("it"),
    "instancesshpublickeys": {**KEY, "metadata": {"name": "it"}},
}


@pytest.mark.parametrize("plural", KINDS)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
def test_bad_input_gets_a_status(row: dict[str, Any], plural: str, caplog: pytest.LogCaptureFixture) -> None:
    made = KINDS[plural]
    target, body = filled(row, version=made["apiVersion"], kind=made["kind"])

    async def test(server: Server) -> None:
        collection = f"{V1}/namespaces/team/{plural}"
        await server.ok("POST", collection, made)
        with caplog.at_level(logging.ERROR):
            answer = await server.ask(row["method"], collection + target, body, content_type=row["contentType"])
        assert answer.code in row["codes"], (answer.code, answer.body[:500])
        if answer.code >= 400:
            assert (answer.json["kind"], answer.json["code"]) == ("Status", answer.code)
        assert not caplog.records

    run(test)
